/*
 * Lays out the rows of a table's pages in a pseudo-random order, on heap pages of their own.
 *
 * In: pages in any number of calls, a seed, memory from the caller. Out: pages with copies of the same tuples, rows in
 * ascending order of row_key(), then the rows that a machine skips. The order depends on the seed and on a row's place
 * among the rows that train, on nothing else: not on pages, dead tuples, or the amount of memory.
 *
 * Rows are dealt into bins by the first bits of their keys, as they come; then each bin is sorted and laid out. So
 * memory is written and read in long runs, and may be that of a file. Bins and pages consist of chunks; a bin's chunks
 * are used again for pages. dana/storage/permuted.py is the only caller.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define PAGES (1u << 19) /* bytes of pages in a chunk, a multiple of each page size */
/* Bytes of a chunk. Bins fill evenly: with a power of two their ends would all fall into one set of the cache */
#define CHUNK (PAGES + 320u)
#define BIN_BITS 6
#define BINS (1u << BIN_BITS)
/* Bytes of a table up to which one bin is enough: it is sorted within the processor's cache */
#define ONE_BIN (8u << 20)
/* Pages of a call to the sink at most, so that the caller notices a cancel soon */
#define BATCH 64u
#define AHEAD 8 /* tuples that are fetched before they are copied */

/* Of PostgreSQL's bufpage.h, itemid.h and htup_details.h, as in dana/storage/layout.py */
#define PD_LOWER 12
#define PAGE_HEADER 24u
#define ITEM_ID 4u
#define LP_NORMAL 1u
#define PAGE_LAYOUT_VERSION 4
#define T_INFOMASK2 18
#define HEAP_HASNULL 1u
#define NATTS_MASK 0x07ffu
#define TUPLE_HEADER 23u

typedef int (*sink_function)(void *context, const uint8_t *pages, size_t n_pages);
/* Gives memory for at least one chunk, zero at its beginning, and its size; 0: there is none */
typedef uint64_t (*memory_function)(uint8_t **memory);

/* What feeding and taking return */
enum outcome
{
	FINISHED,
	AGAIN,
	SINK_FAILED,
	NO_MEMORY = 12 /* ENOMEM; as NO_MEMORY of dana/trainer/machine.py */
};

typedef struct chunk
{
	struct chunk *next;
	uint64_t *end; /* of the tuples in it, once another follows */
} chunk;

typedef struct bin
{
	uint64_t *end; /* of the tuples in the last chunk */
	uint64_t left; /* bytes behind that */
	chunk *first, *last;
	size_t tuples;
} bin;

/* A tuple in a bin: its row's number and its length, then its bytes */
#define LENGTH_BITS 16
#define ALIGNED(bytes) (((uint64_t)(bytes) + 7) & ~(uint64_t)7)

typedef struct placed
{
	uint64_t key;
	const uint64_t *at;
} placed;

typedef struct permutation
{
	uint64_t seed; /* mixed */
	uint32_t page_size;
	uint32_t needed;		 /* attributes that a tuple must have, or its row is skipped */
	uint32_t tuples_of_row;
	uint8_t used[256];		 /* a bitmap like a tuple's: attributes in which a NULL skips the row */
	memory_function more;
	uint8_t *memory;		 /* not yet handed out */
	uint64_t left;			 /* bytes of it */
	chunk *idle;
	bin bins[BINS + 1];		 /* the last: rows that are skipped */
	uint32_t count;			 /* of bins in use, 1 or BINS */
	uint64_t dealt;			 /* bytes of tuples that train */
	uint64_t tuples;		 /* that train, so far */
	bool damaged;			 /* a page or tuple contradicts itself */
	uint32_t laid_out;		 /* bins */
	placed *order, *sorted;	 /* a bin's tuples */
	uint32_t *starts;
	size_t room;			 /* of these arrays, in tuples */
	uint8_t **pages;		 /* chunks of pages */
	uint64_t chunks, chunk_room;
	uint64_t complete;		 /* pages */
	uint8_t *page;			 /* that is being filled, or NULL */
	uint32_t lower, upper;
	uint64_t fed;			 /* pages, in this pass */
	int status;				 /* of the sink */
} permutation;

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), which maps no two numbers to one */
static inline uint64_t
mix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Rows are in ascending order of these keys; no two rows have the same */
static inline uint64_t
row_key(const permutation *self, uint64_t row)
{
	return mix(self->seed + (row + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static void *
take_chunk(permutation *self)
{
	uint8_t *found = (uint8_t *)self->idle;

	if (found != NULL)
	{
		self->idle = self->idle->next;
		return found;
	}
	if (self->left < CHUNK)
		self->left = self->more(&self->memory);
	if (self->left < CHUNK)
		return NULL;
	found = self->memory;
	self->memory += CHUNK;
	self->left -= CHUNK;
	return found;
}

static void
give_back(permutation *self, chunk *one)
{
	one->next = self->idle;
	self->idle = one;
}

/* Puts a tuple behind the others of a bin; false: there is no memory */
static bool
put(permutation *self, bin *to, uint64_t row, const uint8_t *tuple, uint32_t length)
{
	const uint64_t need = sizeof(uint64_t) + ALIGNED(length);

	if (to->left < need)
	{
		chunk *fresh = take_chunk(self);

		if (fresh == NULL)
			return false;
		fresh->next = NULL;
		if (to->last == NULL)
			to->first = fresh;
		else
		{
			to->last->next = fresh;
			to->last->end = to->end;
		}
		to->last = fresh;
		to->end = (uint64_t *)(fresh + 1);
		to->left = CHUNK - sizeof *fresh;
	}
	*to->end = row << LENGTH_BITS | length;
	memcpy(to->end + 1, tuple, ALIGNED(length)); /* tuples begin at multiples of 8, so this ends on the page */
	to->end += need / sizeof *to->end;
	to->left -= need;
	to->tuples++;
	return true;
}

static inline bin *
bin_of(permutation *self, uint64_t row)
{
	return &self->bins[self->count == 1 ? 0 : row_key(self, row) >> (64 - BIN_BITS)];
}

static inline uint32_t
length_of(const uint64_t *tuple)
{
	return *tuple & ((1u << LENGTH_BITS) - 1);
}

/* The tuple of a bin that follows one, in the order in which they came */
static inline const uint64_t *
next_tuple(const uint64_t *tuple)
{
	return tuple + 1 + ALIGNED(length_of(tuple)) / sizeof *tuple;
}

/* Deals the only bin's tuples into all bins */
static bool
deal_anew(permutation *self)
{
	chunk *from = self->bins[0].first;

	self->bins[0].last->end = self->bins[0].end;
	self->bins[0] = (bin){0};
	self->count = BINS;
	while (from != NULL)
	{
		chunk *next = from->next;

		for (const uint64_t *at = (uint64_t *)(from + 1); at < from->end; at = next_tuple(at))
			if (!put(self, bin_of(self, *at >> LENGTH_BITS), *at >> LENGTH_BITS, (const uint8_t *)(at + 1), length_of(at)))
				return false;
		give_back(self, from);
		from = next;
	}
	return true;
}

/* Whether a tuple has a value in each attribute in use: the rule of dana/storage/reader.py */
static inline bool
is_complete(const permutation *self, const uint8_t *tuple, uint32_t length)
{
	uint16_t masks[2];

	memcpy(masks, tuple + T_INFOMASK2, sizeof masks);
	if ((masks[0] & NATTS_MASK) < self->needed)
		return false;
	if (masks[1] & HEAP_HASNULL)
		for (uint32_t k = 0; 8 * k < self->needed; k++)
			if (TUPLE_HEADER + k >= length || (tuple[TUPLE_HEADER + k] & self->used[k]) != self->used[k])
				return false;
	return true;
}

static bool
take_page(permutation *self, const uint8_t *page)
{
	uint16_t bounds[3]; /* pd_lower, pd_upper, pd_special */

	memcpy(bounds, page + PD_LOWER, sizeof bounds);
	if (bounds[0] <= PAGE_HEADER)
		return true; /* new or empty */
	if (bounds[0] > bounds[1] || bounds[1] > bounds[2] || bounds[2] > self->page_size)
	{
		self->damaged = true;
		return true;
	}
	for (uint32_t at = PAGE_HEADER; at + ITEM_ID <= bounds[0]; at += ITEM_ID)
	{
		uint32_t word, offset, length;
		bool trains;

		memcpy(&word, page + at, sizeof word);
		if ((word >> 15 & 3) != LP_NORMAL)
			continue;
		offset = word & 0x7fff;
		length = word >> 17;
		if (offset % 8 != 0 || offset < bounds[1] || offset + length > bounds[2] || length <= TUPLE_HEADER)
		{
			self->damaged = true;
			return true;
		}
		trains = is_complete(self, page + offset, length);
		if (!put(self, trains ? bin_of(self, self->tuples / self->tuples_of_row) : &self->bins[BINS],
				 trains ? self->tuples / self->tuples_of_row : 0, page + offset, length))
			return false;
		self->tuples += trains;
		self->dealt += trains ? length : 0;
	}
	return self->count > 1 || self->dealt <= ONE_BIN || deal_anew(self);
}

/* A sink that takes the next pages of the table. After damage it takes no more, as the machine would not */
EXPORT int
dana_permutation_take(permutation *self, const uint8_t *pages, size_t count)
{
	for (size_t k = 0; k < count && !self->damaged; k++)
		if (!take_page(self, pages + k * self->page_size))
			return NO_MEMORY;
	return 0;
}

static void
end_page(permutation *self)
{
	const uint16_t header[] = {(uint16_t)self->lower, (uint16_t)self->upper, (uint16_t)self->page_size,
							   (uint16_t)(self->page_size | PAGE_LAYOUT_VERSION)};

	memset(self->page, 0, PAGE_HEADER);
	memcpy(self->page + PD_LOWER, header, sizeof header);
	self->complete++;
	self->page = NULL;
}

static bool
begin_page(permutation *self)
{
	const uint64_t of_chunk = PAGES / self->page_size;

	if (self->complete == self->chunks * of_chunk)
	{
		if (self->chunks == self->chunk_room)
		{
			uint64_t room = self->chunk_room == 0 ? 64 : 2 * self->chunk_room;
			uint8_t **grown = realloc(self->pages, room * sizeof *grown);

			if (grown == NULL)
				return false;
			self->pages = grown;
			self->chunk_room = room;
		}
		if ((self->pages[self->chunks] = take_chunk(self)) == NULL)
			return false;
		self->chunks++;
	}
	self->page = self->pages[self->chunks - 1] + self->complete % of_chunk * self->page_size;
	self->lower = PAGE_HEADER;
	self->upper = self->page_size;
	return true;
}

/* Adds a tuple to the pages, as PageAddItemExtended() does (bufpage.c) */
static bool
lay_out_tuple(permutation *self, const uint64_t *at)
{
	const uint32_t length = length_of(at);
	uint32_t word;

	if (self->page != NULL && self->upper - self->lower < ALIGNED(length) + ITEM_ID)
		end_page(self);
	if (self->page == NULL && !begin_page(self))
		return false;
	self->upper -= (uint32_t)ALIGNED(length);
	memcpy(self->page + self->upper, at + 1, ALIGNED(length));
	word = self->upper | LP_NORMAL << 15 | length << 17;
	memcpy(self->page + self->lower, &word, sizeof word);
	self->lower += ITEM_ID;
	return true;
}

static bool
make_room(permutation *self, size_t tuples)
{
	if (tuples <= self->room)
		return true;
	free(self->order);
	free(self->sorted);
	free(self->starts);
	self->room = tuples + tuples / 8; /* bins are of nearly one size */
	self->order = malloc(self->room * sizeof *self->order);
	self->sorted = malloc(self->room * sizeof *self->sorted);
	self->starts = malloc((2 * self->room + 2) * sizeof *self->starts);
	if (self->order != NULL && self->sorted != NULL && self->starts != NULL && self->room <= UINT32_MAX)
		return true;
	self->room = 0;
	return false;
}

/*
 * Sorts a bin's tuples by their keys. The keys are evenly distributed: as many buckets as tuples, found by the next bits,
 * leave few to compare. Parts of a row have one key and keep their order.
 */
static void
sort_bin(permutation *self, size_t count)
{
	const int skipped = self->count == 1 ? 0 : BIN_BITS;
	int bits = 0;
	size_t buckets;

	while (((size_t)1 << bits) < count)
		bits++;
	bits += bits == 0;
	buckets = (size_t)1 << bits;
#define BUCKET(k) ((k) << skipped >> (64 - bits))
	memset(self->starts, 0, (buckets + 1) * sizeof *self->starts);
	for (size_t i = 0; i < count; i++)
		self->starts[BUCKET(self->order[i].key) + 1]++;
	for (size_t i = 0; i < buckets; i++)
		self->starts[i + 1] += self->starts[i];
	for (size_t i = 0; i < count; i++)
		self->sorted[self->starts[BUCKET(self->order[i].key)]++] = self->order[i];
#undef BUCKET
	for (size_t i = 1; i < count; i++)
	{
		const placed one = self->sorted[i];
		size_t k = i;

		for (; k > 0 && self->sorted[k - 1].key > one.key; k--)
			self->sorted[k] = self->sorted[k - 1];
		self->sorted[k] = one;
	}
}

/* Lays out a bin: in the order of keys, or the rows that are skipped as they came */
static bool
lay_out_bin(permutation *self, bin *from, bool sorts)
{
	size_t count = 0;

	if (from->tuples == 0)
		return true;
	if (!make_room(self, from->tuples))
		return false;
	from->last->end = from->end;
	for (const chunk *in = from->first; in != NULL; in = in->next)
		for (const uint64_t *at = (uint64_t *)(in + 1); at < in->end; at = next_tuple(at))
			self->order[count++] = (placed){.key = row_key(self, *at >> LENGTH_BITS), .at = at};
	if (sorts)
		sort_bin(self, count);
	for (size_t i = 0; i < count; i++)
	{
		if (i + AHEAD < count)
			for (int line = 0; line < 4; line++)
				__builtin_prefetch((const char *)(sorts ? self->sorted : self->order)[i + AHEAD].at + 64 * line);
		if (!lay_out_tuple(self, (sorts ? self->sorted : self->order)[i].at))
			return false;
	}
	for (chunk *one = from->first, *next; one != NULL; one = next)
	{
		next = one->next;
		give_back(self, one);
	}
	*from = (bin){0};
	return true;
}

/* Lays out the next bin, or ends the last page */
static bool
lay_out_more(permutation *self)
{
	const uint32_t k = self->laid_out++;

	if (k < self->count)
		return lay_out_bin(self, &self->bins[k], true);
	if (!lay_out_bin(self, &self->bins[BINS], false))
		return false;
	if (self->page != NULL)
		end_page(self);
	return true;
}

/*
 * Feeds the next pages to a sink. In the first pass each bin is laid out when its turn comes, so that the sink finds it in
 * the processor's cache. Call it again while it returns AGAIN; `fed` 0 begins a pass.
 */
EXPORT enum outcome
dana_permutation_feed(permutation *self, sink_function sink, void *context)
{
	const uint64_t of_chunk = PAGES / self->page_size;

	while (self->fed == self->complete)
	{
		if (self->laid_out > self->count)
			return FINISHED;
		if (!lay_out_more(self))
			return NO_MEMORY;
	}
	for (uint64_t batch = 0, n; batch < BATCH && self->fed < self->complete; batch += n)
	{
		n = of_chunk - self->fed % of_chunk;
		if (n > self->complete - self->fed)
			n = self->complete - self->fed;
		self->status = sink(context, self->pages[self->fed / of_chunk] + self->fed % of_chunk * self->page_size, n);
		if (self->status != 0)
			return SINK_FAILED;
		self->fed += n;
	}
	return AGAIN;
}

EXPORT void
dana_permutation_rewind(permutation *self)
{
	self->fed = 0;
}

EXPORT uint64_t
dana_permutation_fed(const permutation *self)
{
	return self->fed;
}

EXPORT int
dana_permutation_status(const permutation *self)
{
	return self->status;
}

EXPORT bool
dana_permutation_damaged(const permutation *self)
{
	return self->damaged;
}

/* An empty one; `used` are the numbers of the attributes in use, ascending from 0. NULL: there is no memory */
EXPORT permutation *
dana_permutation_new(uint32_t page_size, uint64_t seed, const uint16_t *used, uint32_t count, uint32_t tuples_of_row,
					 memory_function more)
{
	permutation *self = calloc(1, sizeof *self);

	if (self == NULL)
		return NULL;
	self->page_size = page_size;
	self->seed = mix(seed);
	self->tuples_of_row = tuples_of_row;
	self->more = more;
	self->count = 1;
	for (uint32_t i = 0; i < count; i++)
	{
		self->used[used[i] / 8] |= (uint8_t)(1u << used[i] % 8);
		self->needed = used[i] + 1u > self->needed ? used[i] + 1u : self->needed;
	}
	return self;
}

EXPORT void
dana_permutation_free(permutation *self)
{
	free(self->order);
	free(self->sorted);
	free(self->starts);
	free(self->pages);
	free(self);
}
