/*
 * Rows as synthetic pages of real and real[] columns, for values that a Strider cannot read from the table's pages.
 */
#pragma once

#include "source/source.h"

typedef struct dana_frames dana_frames;

/* Frames for the rows of a source's plan. Adding one, as dana_rows_each() does, may wait for space in the ring. */
extern dana_frames *dana_frames_begin(const dana_source *source);
extern bool			dana_frames_add(TupleTableSlot *row, void *frames);
extern void			dana_frames_finish(dana_frames *frames, bool report);
