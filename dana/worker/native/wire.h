/*
 * Contract between a PostgreSQL backend and its worker: message codes and the layout of the page ring. Read by the
 * extension (pg_extension/src) and by the worker's ring consumer (ring.c).
 */
#ifndef DANA_WIRE_H
#define DANA_WIRE_H

#include <stdint.h>

#include "messages.h"

/*
 * The ring: a memfd of DANA_RING_HEADER bytes followed by `slots` pages of `page_size` bytes. It has one producer (the
 * backend) and one consumer (the worker). Indices count pages since the stream began and never wrap; page i is in slot
 * i % slots. Each field that a side writes often has a cache line of its own. A stream of frames may have larger pages:
 * then the same memory holds fewer slots of that size.
 *
 * A stream: the consumer empties the ring and then sends DANA_MSG_DESIGN or DANA_MSG_AGAIN; the producer writes pages
 * from index 0 and, after the last, sets `end`. Outside a stream neither side touches the ring.
 *
 * Sleeping: a side that finds nothing to do sets its `*_sleeps` flag, looks again, and only then blocks on the socket.
 * The other side, after moving its index, clears the flag and sends DANA_MSG_BELL.
 */
#define DANA_RING_MAGIC	  UINT64_C(0x31474e4952414e44) /* "DNARING1" */
#define DANA_RING_HEADER  4096
#define DANA_RING_ENDLESS UINT64_MAX
#define DANA_CACHE_LINE	  64

typedef struct dana_ring
{
	uint64_t magic;
	uint32_t page_size;
	uint32_t slots;

	_Alignas(DANA_CACHE_LINE) uint64_t head; /* pages published by the producer */
	uint64_t end;							 /* head at which the stream ends, or DANA_RING_ENDLESS */
	_Alignas(DANA_CACHE_LINE) uint64_t tail; /* pages that the consumer has finished with */
	_Alignas(DANA_CACHE_LINE) uint32_t producer_sleeps;
	_Alignas(DANA_CACHE_LINE) uint32_t consumer_sleeps;
	_Alignas(DANA_CACHE_LINE) uint64_t beats; /* counted now and then while the consumer's process runs */
} dana_ring;

/* A side wakes a sleeper only when it has this many pages (or free slots) for it: a wake-up costs more than a page. */
#define DANA_RING_WAKE(slots) ((slots) / 4)

/* How long a side looks at the ring before it sleeps. */
#define DANA_RING_SPIN_NS 50000

#endif /* DANA_WIRE_H */
