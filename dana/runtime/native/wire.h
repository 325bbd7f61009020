/*
 * Contract between a PostgreSQL backend and its worker: message codes and the layout of the page ring.
 *
 * Read by the extension (pg_extension/src) and by the worker's ring consumer (ring.c); dana/runtime/protocol.py says
 * the same in Python and a test compares the two. Both ends run on one machine under one account, so integers are in
 * the machine's own byte order. Both ends are of one release: they compare when they meet.
 */
#ifndef DANA_WIRE_H
#define DANA_WIRE_H

#include <stdint.h>

/*
 * A message on the socket:
 *
 *   +----------------+------+-------------------------------+
 *   | length: uint32 | type | payload: `length` bytes       |
 *   +----------------+------+-------------------------------+
 *
 * The payload is JSON in UTF-8, except for DANA_MSG_RESULT (a uint32 with the JSON's length, the JSON, raw bytes) and
 * DANA_MSG_BELL (empty).
 */
#define DANA_FRAME_HEADER 5
#define DANA_MAX_REQUEST  (64u * 1024 * 1024)	/* what a worker accepts */
#define DANA_MAX_REPLY	  (1000u * 1024 * 1024) /* what a backend accepts: below MaxAllocSize */

enum dana_message
{
	/* backend to worker */
	DANA_MSG_HELLO = 'H', /* release, block_size, server_version, pid, encoding; carries the ring's memfd */
	DANA_MSG_CHECK = 'C', /* rule source to be checked */
	DANA_MSG_CATEGORIES = 'K', /* what TRAIN has: of which columns is the largest number to be known? */
	DANA_MSG_TRAIN = 'T', /* a training: rule source, relation, arguments */
	DANA_MSG_EXPLAIN = 'P', /* a training that is not to be: its fields in `training`, device, search, rows, last */
	/* worker to backend */
	DANA_MSG_WELCOME = 'h', /* answer to HELLO: release, pid */
	DANA_MSG_CHECKED = 'c', /* answer to CHECK */
	DANA_MSG_COUNTED = 'k', /* answer to CATEGORIES: their names */
	DANA_MSG_EXPLAINED = 'p', /* answer to EXPLAIN: numbers, and lines for people */
	DANA_MSG_DESIGN = 'd',	/* the rule compiled; stream the first epoch's pages, or frames. Once more: begin anew */
	DANA_MSG_HELD_OUT = 'o', /* before DESIGN: stream the rows that are left out for a test, as frames */
	DANA_MSG_AGAIN = 'a',	/* stream the pages once more, under the same snapshot */
	DANA_MSG_EPOCH = 'e',	/* an epoch ended */
	DANA_MSG_NOTICE = 'n',	/* something that the user should see */
	DANA_MSG_RESULT = 'r',	/* the trained model */
	DANA_MSG_ERROR = 'x',	/* the request failed; ends it */
	DANA_MSG_BYE = 'z',	   /* the session idled and ends; whatever comes now is not read */
	/* both ways */
	DANA_MSG_BELL = 'b' /* look at the ring */
};

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
} dana_ring;

/* A side wakes a sleeper only when it has this many pages (or free slots) for it: a wake-up costs more than a page. */
#define DANA_RING_WAKE(slots) ((slots) / 4)

/* How long a side looks at the ring before it sleeps. */
#define DANA_RING_SPIN_NS 50000

#endif /* DANA_WIRE_H */
