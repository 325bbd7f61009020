/*
 * Consumer of the page ring: feeds pages to a sink, a C function, without a Python call per page.
 *
 * In: the mapped ring, the socket to the backend, a sink `int (*)(void *context, const uint8_t *pages, size_t n)`.
 * Out: how many pages were fed, and why feeding stopped. dana/worker/ring.py maps the ring, having checked its seals,
 * size and header. Nothing here interprets a page, nor trusts an index that the producer wrote.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "wire.h"

#define EXPORT __attribute__((visibility("default")))

typedef int (*sink_function)(void *context, const uint8_t *pages, size_t n_pages);

/* Why feeding stopped; class Outcome of ring.py */
enum dana_outcome
{
	FINISHED,
	SINK_FAILED,
	HUNG_UP,	/* the backend closed the connection: cancelled, or gone */
	CALL_AGAIN, /* nothing is wrong: run signal handlers, and go on */
	UNEXPECTED, /* something else than a bell arrived while pages were due */
	MISBEHAVED	/* indices that no producer writes */
};

/* Pages per call of the sink, at most: what the processor's cache holds, and few enough to notice a cancel soon */
#define BATCH 64
/* Nanoseconds that a call of the sink with kept pages takes, about: of many pages, threads can share them; and after
 * which Python is let handle signals */
#define REPLAY_NS 10000000
#define MAX_AT_ONCE (1 << 20)

/* A consumer and how far it is; class _Consumer of ring.py */
typedef struct dana_consumer
{
	dana_ring *ring;
	uint8_t *cache;		/* where pages are kept for later epochs, or NULL */
	uint64_t cache_pages; /* that it has room for */
	uint64_t fed;		/* pages fed so far; 0 begins a stream */
	uint32_t slots;		/* checked copies: the mapping can change under us */
	uint32_t page_size;
	int32_t socket;
	int32_t status; /* of the sink */
	uint32_t at_once; /* kept pages per call of the sink, 0 before the first */
	int32_t uncounted; /* the number of pages is unknown: if they exceed the cache, none is kept */
	uint64_t digest;   /* of the pages of a stream */
	int32_t digests;   /* whether it is wanted */
} dana_consumer;

static uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Whether a page, or the end of the stream, is there */
static inline bool
something_to_do(const dana_ring *ring, uint64_t tail)
{
	return __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) != tail || __atomic_load_n(&ring->end, __ATOMIC_ACQUIRE) == tail;
}

/* Reads one bell; anything else on the socket is left there */
static enum dana_outcome
take_bell(int socket)
{
	uint8_t header[DANA_FRAME_HEADER];
	ssize_t n = recv(socket, header, sizeof header, MSG_PEEK | MSG_DONTWAIT);

	if (n == 0)
		return HUNG_UP;
	if (n < 0)
	{
		if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
			return FINISHED;
		return HUNG_UP;
	}
	if (n < (ssize_t)sizeof header)
		return FINISHED; /* the rest follows */
	if (header[4] != DANA_MSG_BELL)
		return UNEXPECTED;
	(void)!recv(socket, header, sizeof header, MSG_DONTWAIT);
	return FINISHED;
}

/*
 * Waits for something_to_do(): spins for a while, then blocks on the socket. Returns CALL_AGAIN after blocking, so that
 * the caller can run signal handlers.
 */
static enum dana_outcome
await(dana_consumer *self, uint64_t tail)
{
	dana_ring *ring = self->ring;
	uint64_t deadline = now_ns() + DANA_RING_SPIN_NS;
	struct pollfd waiting = {.fd = self->socket, .events = POLLIN};
	enum dana_outcome bell;

	do
	{
		for (int i = 0; i < 32; i++)
		{
			if (something_to_do(ring, tail))
				return FINISHED;
			relax();
		}
	} while (now_ns() < deadline);

	__atomic_store_n(&ring->consumer_sleeps, 1, __ATOMIC_SEQ_CST);
	if (something_to_do(ring, tail))
	{
		__atomic_store_n(&ring->consumer_sleeps, 0, __ATOMIC_SEQ_CST);
		return FINISHED;
	}
	if (poll(&waiting, 1, -1) < 0 && errno != EINTR)
		return HUNG_UP;
	bell = take_bell(self->socket);
	return bell == FINISHED ? CALL_AGAIN : bell;
}

/* Gives slots back; wakes the producer when it sleeps and there is enough for it to do */
static enum dana_outcome
give_back(dana_consumer *self, uint64_t tail, uint64_t head)
{
	static const uint8_t bell[DANA_FRAME_HEADER] = {0, 0, 0, 0, DANA_MSG_BELL};
	dana_ring *ring = self->ring;

	__atomic_store_n(&ring->tail, tail, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->producer_sleeps, __ATOMIC_SEQ_CST) &&
		self->slots - (head - tail) >= DANA_RING_WAKE(self->slots) &&
		__atomic_exchange_n(&ring->producer_sleeps, 0, __ATOMIC_SEQ_CST))
	{
		/* a full socket buffer holds bells enough */
		if (send(self->socket, bell, sizeof bell, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
			return HUNG_UP;
	}
	return FINISHED;
}

/*
 * Keeps pages for later epochs, past the caches where the processor can: what is written there is not read before the
 * next epoch, and an ordinary store would have it fetched first. The pages themselves are in the cache then, for the
 * sink.
 */
static void
keep(uint8_t *to, const uint8_t *pages, size_t size)
{
#ifdef __SSE2__
	for (size_t at = 0; at < size; at += 4 * sizeof(__m128i))
		for (size_t k = 0; k < 4; k++)
			_mm_stream_si128((__m128i *)(to + at) + k, _mm_loadu_si128((const __m128i *)(pages + at) + k));
	_mm_sfence();
#else
	memcpy(to, pages, size);
#endif
}

/* Adds pages to a digest. Each step is reversible, so that pages that differ in one word never have the same; the shift
 * brings high bits down, which a product leaves where they are. */
static uint64_t
digest(uint64_t of, const uint8_t *pages, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(uint64_t))
	{
		uint64_t word;

		memcpy(&word, pages + at, sizeof word);
		of = (of ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		of ^= of >> 32;
	}
	return of;
}

/* Empties the ring, before the message that asks for a stream: until then the producer does not touch it */
EXPORT void
dana_ring_reset(dana_ring *ring)
{
	ring->head = ring->tail = 0;
	ring->end = DANA_RING_ENDLESS;
	ring->producer_sleeps = ring->consumer_sleeps = 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Shows the producer that this process runs. A stopped process keeps its socket open, so it would seem to be at work */
EXPORT void
dana_ring_beat(dana_ring *ring)
{
	__atomic_fetch_add(&ring->beats, 1, __ATOMIC_RELAXED);
}

/* Feeds a stream of pages to the sink; keeps them where there is a cache */
EXPORT enum dana_outcome
dana_ring_stream(dana_consumer *self, sink_function sink, void *context)
{
	dana_ring *ring = self->ring;
	const uint32_t batch = DANA_RING_WAKE(self->slots) < BATCH ? DANA_RING_WAKE(self->slots) : BATCH;
	uint64_t head = self->fed;

	for (;;)
	{
		const uint64_t tail = self->fed;
		const uint8_t *pages;
		uint64_t n;
		enum dana_outcome outcome;

		if (head == tail)
		{
			head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
			if (head == tail)
			{
				if (__atomic_load_n(&ring->end, __ATOMIC_ACQUIRE) == tail)
					return FINISHED;
				outcome = await(self, tail);
				if (outcome != FINISHED)
					return outcome;
				continue;
			}
			if (head - tail > self->slots)
				return MISBEHAVED;
		}
		n = head - tail;
		if (n > batch)
			n = batch;
		if (n > self->slots - tail % self->slots)
			n = self->slots - tail % self->slots;
		pages = (const uint8_t *)ring + DANA_RING_HEADER + (tail % self->slots) * self->page_size;
		if (self->cache != NULL && tail + n > self->cache_pages)
		{
			if (!self->uncounted)
				return MISBEHAVED;
			self->cache = NULL;
			return CALL_AGAIN; /* the owner of the memory frees it */
		}
		if (self->cache != NULL)
			keep(self->cache + tail * self->page_size, pages, n * self->page_size);
		if (self->digests)
			self->digest = digest(self->digest, pages, n * self->page_size);
		self->status = sink(context, pages, n);
		if (self->status != 0)
			return SINK_FAILED;
		self->fed = tail + n;
		outcome = give_back(self, self->fed, head);
		if (outcome != FINISHED)
			return outcome;
	}
}

/* A sink that ignores its pages, for the rest of a stream that is no longer needed */
EXPORT int
dana_ring_discard(void *context, const uint8_t *pages, size_t n_pages)
{
	(void)context;
	(void)pages;
	(void)n_pages;
	return 0;
}

/* Feeds the next batches of the first `pages` kept pages; FINISHED after the last */
EXPORT enum dana_outcome
dana_ring_replay(dana_consumer *self, sink_function sink, void *context, uint64_t pages)
{
	struct pollfd peer = {.fd = self->socket, .events = POLLRDHUP};
	const uint64_t began = now_ns();
	uint64_t before = began, now = began;

	if (self->at_once == 0)
		self->at_once = BATCH;
	for (; now - began < REPLAY_NS; before = now)
	{
		uint64_t n = pages - self->fed < self->at_once ? pages - self->fed : self->at_once;

		if (n == 0)
			return FINISHED;
		if (poll(&peer, 1, 0) > 0)
			return HUNG_UP;
		self->status = sink(context, self->cache + self->fed * self->page_size, n);
		if (self->status != 0)
			return SINK_FAILED;
		self->fed += n;
		now = now_ns();
		if (now - before > 2 * REPLAY_NS && self->at_once > BATCH)
			self->at_once /= 2;
		else if (n == self->at_once && now - before < REPLAY_NS / 2 && self->at_once < MAX_AT_ONCE)
			self->at_once *= 2;
	}
	return CALL_AGAIN;
}
