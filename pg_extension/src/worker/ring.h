/*
 * The producer's side of the ring of pages.
 */
#pragma once

#include "wire.h"

extern int	dana_ring_create(int pages);
extern void dana_ring_destroy(void);

/* Whether the worker's process has run since the last call: it counts beats about twice a second */
extern bool dana_ring_beats(void);

/* A stream of pages of one size: begin when the worker asks for it; reserve, fill, commit each; finish at the end */
extern void	  dana_ring_begin(uint32 page_size);
extern uint8 *dana_ring_reserve(void);
extern void	  dana_ring_fill(uint8 *slot, const void *page, const void *later);
extern void	  dana_ring_commit(void);
extern void	  dana_ring_finish(void);
