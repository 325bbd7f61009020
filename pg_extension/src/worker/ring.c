/*
 * Producer of the page ring (wire.h). Knows nothing of tables: a caller reserves a slot, fills it, commits it.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/dana.h"
#include "worker/channel.h"
#include "worker/ring.h"

static dana_ring *ring = NULL;
static size_t	  ring_length;

/* Our private view of the indices */
static struct
{
	uint64 head;	  /* pages written */
	uint64 published; /* of these, visible to the consumer */
	uint64 tail;	  /* as last seen */
	uint64 every;	  /* number of pages that are published at once */
	uint32 slots;	  /* of this stream */
	uint32 page_size; /* of this stream */
} producer;

/* Pages are published in groups: a fence and a check of the consumer's flag cost as much as a third of a page */
#define PUBLISH_EVERY 8

/* Makes a ring of `pages` slots; returns its descriptor, which the caller closes once it has been sent */
int
dana_ring_create(int pages)
{
	int	  memfd = memfd_create("dana-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *mapping = MAP_FAILED;

	ring_length = DANA_RING_HEADER + (size_t)pages * BLCKSZ;
	/* sealed, so that neither side can turn the other's reads into SIGBUS */
	if (memfd >= 0 && ftruncate(memfd, ring_length) == 0 &&
		fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		mapping = mmap(NULL, ring_length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memfd, 0);
	if (mapping == MAP_FAILED)
	{
		int saved = errno;

		if (memfd >= 0)
			close(memfd);
		errno = saved;
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("could not make a ring of %d pages for the dana worker: %m", pages),
						errhint("Lower dana.ring_pages.")));
	}
	ring = mapping;
	ring->magic = DANA_RING_MAGIC;
	ring->page_size = BLCKSZ;
	ring->slots = pages;
	return memfd;
}

void
dana_ring_destroy(void)
{
	if (ring != NULL)
		munmap(ring, ring_length);
	ring = NULL;
}

bool
dana_ring_beats(void)
{
	static uint64 seen;
	const uint64  beats = ring == NULL ? seen : __atomic_load_n(&ring->beats, __ATOMIC_RELAXED);
	const bool	  runs = beats != seen;

	seen = beats;
	return runs;
}

/* The worker emptied the ring before it asked for the stream, and laid it out for the same page size */
void
dana_ring_begin(uint32 page_size)
{
	memset(&producer, 0, sizeof producer);
	producer.page_size = page_size;
	producer.slots = (ring_length - DANA_RING_HEADER) / page_size;
	producer.every = Min(PUBLISH_EVERY, Max(producer.slots / 4, 1));
}

/* Makes the written pages visible; wakes the consumer if it sleeps and there is enough for it to do */
static void
ring_publish(bool last)
{
#ifdef __SSE2__
	_mm_sfence(); /* streaming stores are not ordered by the store that follows */
#endif
	__atomic_store_n(&ring->head, producer.head, __ATOMIC_SEQ_CST);
	producer.published = producer.head;
	if (last)
		__atomic_store_n(&ring->end, producer.head, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->consumer_sleeps, __ATOMIC_SEQ_CST))
	{
		producer.tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
		if ((last || producer.head - producer.tail >= DANA_RING_WAKE(producer.slots)) &&
			__atomic_exchange_n(&ring->consumer_sleeps, 0, __ATOMIC_SEQ_CST))
			dana_send_bell();
	}
}

static bool
ring_has_space(void)
{
	producer.tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
	return producer.head - producer.tail < producer.slots;
}

static uint64
monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void
ring_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Waits for a free slot: spins for a while, then sleeps. An error of the worker arrives here. */
static void
ring_await_space(void)
{
	uint64 deadline = monotonic_ns() + DANA_RING_SPIN_NS;

	do
	{
		for (int i = 0; i < 32; i++)
		{
			if (ring_has_space())
				return;
			ring_relax();
		}
	} while (monotonic_ns() < deadline);

	for (;;)
	{
		dana_reply reply;

		__atomic_store_n(&ring->producer_sleeps, 1, __ATOMIC_SEQ_CST);
		if (ring_has_space())
		{
			__atomic_store_n(&ring->producer_sleeps, 0, __ATOMIC_SEQ_CST);
			return;
		}
		if (dana_receive_one(&reply, DANA_WAIT_RING))
			dana_unexpected(&reply);
	}
}

/* A free slot, to be filled and then committed. Called without pins or locks on buffers. */
uint8 *
dana_ring_reserve(void)
{
	if (producer.head - producer.tail >= producer.slots && !ring_has_space())
	{
		ring_publish(false);
		ring_await_space();
	}
	return (uint8 *)ring + DANA_RING_HEADER + producer.head % producer.slots * producer.page_size;
}

/*
 * Copies a page into a slot, past the caches if the processor can. The consumer has just read the slot's old page, so
 * its cache holds these lines: an ordinary store would first fetch each of them from there. Between cores without a
 * common cache that makes a stream 5 to 15 times slower; between cores with one, this costs a third more.
 *
 * `later` is the page that most likely comes next, prefetched meanwhile: processors do not prefetch past a page's end,
 * and pages may be in any order. A wrong guess does no harm.
 */
void
dana_ring_fill(uint8 *slot, const void *page, const void *later)
{
#ifdef __SSE2__
	const __m128i *from = page;
	__m128i		  *to = (__m128i *)slot;

	for (uint32 i = 0; i < producer.page_size / sizeof(__m128i); i += 4)
	{
		__m128i a = _mm_loadu_si128(from + i);
		__m128i b = _mm_loadu_si128(from + i + 1);
		__m128i c = _mm_loadu_si128(from + i + 2);
		__m128i d = _mm_loadu_si128(from + i + 3);

		__builtin_prefetch((const __m128i *)later + i, 0, 2);
		_mm_stream_si128(to + i, a);
		_mm_stream_si128(to + i + 1, b);
		_mm_stream_si128(to + i + 2, c);
		_mm_stream_si128(to + i + 3, d);
	}
#else
	memcpy(slot, page, producer.page_size);
#endif
}

void
dana_ring_commit(void)
{
	producer.head++;
	if (producer.head - producer.published >= producer.every)
		ring_publish(false);
}

void
dana_ring_finish(void)
{
	ring_publish(true);
}
