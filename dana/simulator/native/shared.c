/*
 * An epoch that repeats the pages of the one before, by several threads.
 *
 * In: pages whose tuples were counted in that epoch, simulators of the same Bundle with copies of the code's memory. Out:
 * the stacks of merges, bit for bit as one thread leaves them. A merge is one tree over the whole epoch, whose shape
 * depends on the number of tuples alone: a piece of 2 to the power of `level` tuples, at a multiple of as many, is a
 * subtree, so any thread can have it, and its root takes its place on the stack when all are there. Tuples before the
 * first piece and behind the last one are the simulator's own, as is the epoch's last tuple.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "numerics.h"

#define PIECES 32 /* of each thread, about: the last ones to end wait for no more than one */
/* Of a piece: its roots are copied and joined once more, and pages are walked twice where pieces meet */
#define LEAST_TUPLES 64
#define LEAST_PAGES 8
#define MAX_THREADS 64
#define MAX_ROOTS (64 << 20) /* bytes */
#define THREAD_STACK (512 << 10)

struct share
{
	const struct sim *sim;
	const uint8_t *pages;
	size_t first_page, behind_page; /* of the epoch */
	int32_t level;
	uint64_t first, behind, next; /* pieces, counted from the epoch's first tuple */
	int64_t size;				  /* of a piece's roots, in floats */
	float *roots;
	bool failed;
};

struct work
{
	struct share *share;
	struct sim *helper;
	pthread_t thread;
};

/* Of an epoch in which cycles are counted, a page is about to come */
void
sim_note_page(struct sim *sim)
{
	struct sim_begun *before = &sim->before;

	if (sim->e.pages == 0)
	{
		before->pages = 0;
		before->whole = true;
	}
	if (before->pages == before->room && before->whole)
	{
		const size_t room = before->room > 0 ? 2 * before->room : 1024;
		uint64_t *tuples = realloc(before->tuples, room * sizeof *tuples);

		before->whole = tuples != NULL;
		before->tuples = tuples != NULL ? tuples : before->tuples;
		before->room = tuples != NULL ? room : before->room;
	}
	before->whole = before->whole && !sim->e.open;
	if (before->whole)
		before->tuples[before->pages++] = sim->e.tuples;
}

/* The tuples of the epoch before a page, or of all of it */
static uint64_t
tuples_before(const struct sim *sim, size_t page)
{
	return page < sim->before.pages ? sim->before.tuples[page] : sim->counters.tuples;
}

/* The page on which a tuple lies, from `low` on */
static size_t
page_of(const struct sim *sim, uint64_t tuple, size_t low, size_t behind)
{
	while (behind - low > 1)
	{
		const size_t middle = low + (behind - low) / 2;

		if (tuples_before(sim, middle) <= tuple)
			low = middle;
		else
			behind = middle;
	}
	return low;
}

/* Runs tuples [from, behind) of the epoch; false: its pages have others than before */
static bool
run_tuples(struct sim *sim, const struct share *share, uint64_t from, uint64_t behind)
{
	const size_t first = page_of(share->sim, from, share->first_page, share->behind_page);
	struct sim_window *window = &sim->e.window;

	*window = (struct sim_window){
		.narrow = true, .skip = from - tuples_before(share->sim, first), .take = behind - from};
	for (size_t page = first; window->take > 0 && page < share->behind_page; page++)
	{
		window->seen = 0;
		sim->e.pages = page; /* which a fault names */
		if (!sim_page(sim, share->pages + (page - share->first_page) * (size_t)sim->machine.page_size) ||
			window->seen != tuples_before(share->sim, page + 1) - tuples_before(share->sim, page))
			return false;
	}
	window->narrow = false;
	return window->take == 0 && !sim->e.open;
}

/* A thread's memory of the code, but for the stacks, as the simulator that shares its epoch has it */
static void
copy_state(struct sim *helper, const struct sim *sim)
{
	const struct sim_compiled *code = &sim->compiled;
	int64_t at = 0;

	for (int32_t k = 0; k < code->n_stacks; k++) /* in the order in which they lie */
	{
		memcpy(helper->compiled.state + at, code->state + at, sizeof(float) * (size_t)(code->merges[k].first - at));
		at = code->merges[k].first + code->merges[k].levels * code->merges[k].size;
	}
	memcpy(helper->compiled.state + at, code->state + at, sizeof(float) * (size_t)(code->floats - at));
}

static bool
run_piece(struct sim *helper, const struct share *share, uint64_t piece)
{
	const struct sim_compiled *code = &helper->compiled;
	float *roots = share->roots + (int64_t)(piece - share->first) * share->size;

	memset(&helper->e, 0, sizeof helper->e);
	sim_compiled_open(helper);
	if (!run_tuples(helper, share, piece << share->level, (piece + 1) << share->level) || !sim_compiled_run(helper, false))
		return false;
	for (int32_t k = 0; k < code->n_stacks; roots += code->merges[k++].size)
		memcpy(roots, code->state + code->merges[k].first + share->level * code->merges[k].size,
			   sizeof(float) * (size_t)code->merges[k].size);
	return true;
}

/* Runs pieces as long as there are any */
static void *
work(void *argument)
{
	const struct work *one = argument;
	struct share *share = one->share;
	struct sim *helper = one->helper;
	const unsigned mode = dn_enter();
	uint64_t piece;

	helper->trains = true;
	helper->counts = false;
	helper->until = share->pages + (share->behind_page - share->first_page) * (size_t)helper->machine.page_size;
	sim_choose_path(helper, true);
	while ((piece = __atomic_fetch_add(&share->next, 1, __ATOMIC_RELAXED)) < share->behind)
		if (!run_piece(helper, share, piece))
			__atomic_store_n(&share->failed, true, __ATOMIC_RELAXED);
	dn_leave(mode);
	return NULL;
}

/* Runs all pieces, and what is behind them; without memory for other threads by this one alone */
static void
run_pieces(struct sim *sim, struct share *share, uint64_t behind)
{
	struct work works[MAX_THREADS];
	int32_t n = 1;
	pthread_attr_t attributes;
	sigset_t all, mask;

	for (int32_t k = 0; k < sim->n_helpers && k < MAX_THREADS; k++)
		copy_state(sim->helpers[k], sim);
	/* signals are for Python's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, THREAD_STACK);
	for (; n < sim->n_helpers && n < MAX_THREADS; n++)
	{
		works[n] = (struct work){.share = share, .helper = sim->helpers[n]};
		if (pthread_create(&works[n].thread, &attributes, work, &works[n]) != 0)
			break;
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	/* on the stacks this is below what pieces leave there */
	sim->e.joined = share->behind << share->level;
	if (!run_tuples(sim, share, sim->e.joined, behind))
		__atomic_store_n(&share->failed, true, __ATOMIC_RELAXED);
	works[0] = (struct work){.share = share, .helper = sim->helpers[0]};
	work(&works[0]);
	for (int32_t k = 1; k < n; k++)
		pthread_join(works[k].thread, NULL);
}

/* Puts a piece's roots on the stacks, joined with what waits there */
static void
push(const struct sim *sim, const struct share *share, uint64_t piece, float *roots)
{
	const struct sim_compiled *code = &sim->compiled;

	for (int32_t k = 0; k < code->n_stacks; k++)
	{
		const struct sim_merge *merge = &code->merges[k];
		int32_t level = share->level;

		/* what waits is of earlier tuples, hence on the left */
		for (uint64_t waits = piece; waits & 1; waits >>= 1, level++)
			sim_join_merge(merge->op, merge->size, code->state + merge->first + level * merge->size, roots, roots);
		memcpy(code->state + merge->first + level * merge->size, roots, sizeof(float) * (size_t)merge->size);
		roots += merge->size;
	}
}

/* The tuples of a piece, as a power of two, and which pieces there are; false: too few */
static bool
cut(const struct sim *sim, struct share *share, uint64_t from, uint64_t behind)
{
	const uint64_t tuples = behind - from, pages = share->behind_page - share->first_page;
	const uint64_t least = LEAST_TUPLES + tuples * LEAST_PAGES / (pages > 0 ? pages : 1);
	uint64_t most, each = tuples / (uint64_t)(PIECES * sim->n_helpers);

	for (int32_t k = 0; k < sim->compiled.n_stacks; k++)
		share->size += sim->compiled.merges[k].size;
	most = MAX_ROOTS / sizeof(float) / (uint64_t)(share->size > 0 ? share->size : 1);
	each = each > least ? each : least;
	share->level = 63 - __builtin_clzll(each);
	while (tuples >> share->level > most && share->level < 63)
		share->level++;
	share->first = (from + (UINT64_C(1) << share->level) - 1) >> share->level;
	share->behind = (behind - 1) >> share->level; /* code reads the epoch's last tuple at its end */
	share->next = share->first;
	return share->behind >= share->first + 2 && behind - from >= (uint64_t)sim->n_helpers * 2 * each;
}

/* Runs the epoch's next pages by all helpers; false: these are not for them */
bool
sim_share_pages(struct sim *sim, const uint8_t *pages, size_t n_pages)
{
	const size_t first_page = sim->e.pages;
	const uint64_t from = sim->e.tuples, behind = tuples_before(sim, first_page + n_pages);
	struct share share = {.sim = sim, .pages = pages, .first_page = first_page, .behind_page = first_page + n_pages};

	if (!sim->fast || sim->n_helpers < 2 || sim->compiled.floats == 0 || !sim->before.whole || sim->observer.tuples != NULL)
		return false;
	if (share.behind_page > sim->before.pages || sim->e.open || tuples_before(sim, first_page) != from || behind < from ||
		!cut(sim, &share, from, behind))
		return false;
	share.roots = malloc((size_t)(share.behind - share.first) * (size_t)share.size * sizeof *share.roots);
	if (share.roots == NULL)
		return false;
	if (!run_tuples(sim, &share, from, share.first << share.level) ||
		(sim->e.phase.in_round > 0 && !sim_compiled_run(sim, false)))
		share.failed = true;
	if (sim->e.joined == 0) /* else done with the first tuples */
		sim->compiled.before(sim->compiled.state, sim->places, sim->compiled.slots, 0);
	if (!share.failed)
		run_pieces(sim, &share, behind);
	for (uint64_t k = share.first; k < share.behind && !share.failed; k++)
	{
		push(sim, &share, k, share.roots + (int64_t)(k - share.first) * share.size);
		sim->e.tuples += UINT64_C(1) << share.level;
		sim->e.shared += UINT64_C(1) << share.level;
	}
	free(share.roots);
	/* where this failed, the epoch has fewer tuples than the one before, which its end reports */
	sim->e.pages = share.behind_page;
	return true;
}
