/*
 * The unpacker: entries of the Striders' queues become tuples and rounds, and get their times.
 *
 * In: columns and page ends in page order, each with the cycles that its Strider took since its last push. Out: rows of
 * tuple memory, rounds handed over, and all clocks of docs/machine.md section 5 but the engine's. A column is checked
 * before a byte of it is read; sim_iterations() leaves that out, for columns that path.c has checked.
 */
#include <string.h>

#include "core.h"

#define CACHE_LINE 64
#define POINTERS   256 /* bytes of a page that its header and line pointers usually take */

static inline int64_t
later(int64_t x, int64_t y)
{
	return x > y ? x : y;
}

/* Ends the epoch; for returning from functions that say whether it goes on */
bool
sim_fault(struct sim *sim, uint32_t code, uint32_t pointer)
{
	sim->e.fault = code;
	sim->e.fault_page = (uint32_t)sim->e.pages;
	sim->e.fault_pointer = pointer & 0xffff;
	return false;
}

/* --- times ------------------------------------------------------------------------------------------------------- */

/* An entry is pushed `gap` cycles after the Strider's turn began at the earliest; returns its `at` */
static inline int64_t
enter(struct sim_epoch *e, const struct sim_machine *machine, int32_t gap)
{
	int64_t *queued = &e->takes[e->pushes++ & (uint32_t)(machine->queue_depth - 1)];
	int64_t *stage = &e->at[e->stage];
	const int64_t push = later(e->turn + gap, *queued + 1);
	const int64_t take = later(later(push, e->take) + 1, *stage - 1);
	const int64_t at = later(take + machine->unpack_stages + 1, e->done);

	e->stage = e->stage + 1 < machine->unpack_stages ? e->stage + 1 : 0;
	e->turn = push + 1;
	*queued = e->take = take;
	*stage = at;
	return at;
}

/* The first column of a tuple finds the round full; returns when it can be worked on, or -1: fault */
static int64_t
hand_over(struct sim *sim, int64_t at)
{
	struct sim_epoch *e = &sim->e;
	int64_t begun;
	const bool batch_last = sim->batch != SIM_WHOLE_EPOCH && e->in_batch + (uint32_t)e->in_round == sim->batch;

	if (!sim_round(sim, at + sim->machine.unpack_latency, batch_last, false))
		return -1;
	begun = later(at, e->half_free[e->half] + 1);
	e->waited += (uint64_t)(begun - at);
	return begun;
}

/* Tuples are complete: to the place behind them */
static inline void
pass_tuples(struct sim *sim, int32_t tuples)
{
	struct sim_epoch *e = &sim->e;

	e->tuples += (uint64_t)tuples;
	e->in_round += tuples;
	e->room -= tuples;
	e->in_slot += tuples;
	e->slot += tuples * sim->tuple_stride;
	for (; e->in_slot >= sim->group; e->in_slot -= sim->group)
		e->slot += sim->lanes - sim->group * sim->tuple_stride;
}

/* Times and copies one column of a tuple; false: the round before it could not be run */
static inline bool
unpack(struct sim *sim, const struct sim_column *column, const uint8_t *page, uint32_t address, int32_t gap)
{
	struct sim_epoch *e = &sim->e;
	int64_t at = enter(e, &sim->machine, gap);

	if (column->first && e->room == 0)
	{
		at = hand_over(sim, at);
		if (at < 0)
			return false;
	}
	e->done = at + column->beats;
	e->beats += (uint64_t)column->beats;
	sim_copy(sim, column, page, &address, 0, 1);
	if (column->last)
		pass_tuples(sim, 1);
	return true;
}

/* A column that a Strider handed over; false: a fault */
bool
sim_column(struct sim *sim, const uint8_t *page, uint32_t descriptor, uint32_t address, int32_t gap, uint32_t pointer)
{
	const struct sim_column *column = &sim->columns[descriptor];

	if (column->bad)
		return sim_fault(sim, SIM_FAULT_BAD_INSTRUCTION, pointer);
	if ((int64_t)address + column->bytes > sim->machine.page_size)
		return sim_fault(sim, SIM_FAULT_OUT_OF_PAGE, pointer);
	/* what follows nothing is refused by the first condition: paths need not tell what came last */
	if (column->first == sim->e.open || (column->follows && !column->first && descriptor != sim->e.following))
		return sim_fault(sim, SIM_FAULT_TUPLE_PARTS, pointer);
	sim->e.following = descriptor + 1;
	sim->e.open = !column->last;
	return unpack(sim, column, page, address, gap);
}

/* Before everything */
static struct sim_epoch
long_ago(void)
{
	struct sim_epoch e = {.take = INT32_MIN, .done = INT32_MIN};

	for (int32_t k = 0; k < SIM_MAX_QUEUE; k++)
		e.takes[k] = INT32_MIN;
	for (int32_t k = 0; k < SIM_MAX_STAGES; k++)
		e.at[k] = INT32_MIN;
	return e;
}

/*
 * Where nothing delays an iteration, its first column is taken in the cycle after its push, and worked on as soon as it
 * has passed the stages. What was taken earlier has been worked on earlier, too, so that it then delays none of them
 * (by induction over the recurrences of docs/machine.md).
 */
static void
free_times(const struct sim *sim, struct sim_path *path)
{
	struct sim_epoch e = long_ago();
	int64_t next;

	e.turn = -path->handed[0].gap; /* the first push is at 0 */
	for (int32_t k = 0; k < path->n_handed; k++)
	{
		struct sim_handed *handed = &path->handed[k];

		handed->free.at = (int32_t)enter(&e, &sim->machine, handed->gap);
		handed->free.take = (int32_t)e.take;
		handed->push = (int32_t)e.turn - 1;
		e.done = handed->free.at + handed->column->beats;
	}
	path->turn = (int32_t)e.turn + path->tail;
	path->done = (int32_t)e.done;
	next = path->turn + path->handed[0].gap;
	path->steady = e.take < next && e.done <= next + sim->machine.unpack_stages + 2;
}

/* Where every entry waits for the unpacker, iterations are alike once a few have passed */
static void
bound_times(const struct sim *sim, struct sim_path *path)
{
	const struct sim_epoch room = long_ago();
	struct sim_epoch e = room;
	int64_t begun = 0;

	e.done = 0;
	for (int32_t i = 0; i < 2 * SIM_MAX_STAGES; i++)
	{
		begun = e.done;
		for (int32_t k = 0; k < sim->machine.unpack_stages; k++)
			path->bound_at[k] = (int32_t)(e.at[(e.stage + k) % sim->machine.unpack_stages] - begun);
		path->bound_take = (int32_t)(e.take - begun);
		for (int32_t k = 0; k < path->n_handed; k++)
		{
			struct sim_handed *handed = &path->handed[k];

			e.turn = INT32_MIN; /* pushed long ago, and the queue had room */
			memcpy(e.takes, room.takes, sizeof e.takes);
			handed->bound.at = (int32_t)(enter(&e, &sim->machine, 0) - begun);
			handed->bound.take = (int32_t)(e.take - begun);
			e.done = begun + handed->bound.at + handed->column->beats;
		}
	}
	path->beats = (int32_t)(e.done - begun);
}

/* Works out what the times of a path's columns are made of */
void
sim_path_times(const struct sim *sim, struct sim_path *path)
{
	path->turn = path->tail;
	if (path->n_handed == 0)
		return;
	for (int32_t k = 0; k < path->n_handed; k++)
		path->tuples += path->handed[k].column->last;
	path->kept = sim->machine.queue_depth / path->n_handed + 1;
	free_times(sim, path);
	bound_times(sim, path);
}

/*
 * Enters iterations of one tuple each that have passed without a look at each: entry k of one is taken and worked on
 * at `base` plus its times, those of the next `period` later, and so on. The queue and the stages remember the last.
 */
static inline void
pass_iterations(struct sim *sim, const struct sim_path *path, size_t times, int64_t base, int64_t period, int32_t count)
{
	struct sim_epoch *e = &sim->e;
	const uint32_t mask = (uint32_t)(sim->machine.queue_depth - 1);
	const int32_t columns = path->n_handed, stages = sim->machine.unpack_stages;
	const int32_t kept = path->kept < count ? path->kept : count;
	int32_t n = count * columns < stages ? count * columns : stages, k = columns, stage = e->stage + n;

#define TIMES(k) ((const struct sim_times *)((const char *)&path->handed[k] + times))
	e->pushes += (uint32_t)((count - kept) * columns);
	base += (count - kept) * period;
	for (int32_t i = 0; i < kept; i++, base += period)
		for (int32_t c = 0; c < columns; c++)
			e->takes[e->pushes++ & mask] = base + TIMES(c)->take;
	base -= period;
	e->take = base + TIMES(columns - 1)->take;
	if (stage >= stages)
		stage -= stages;
	e->stage = stage;
	for (; n > 0; n--)
	{
		k--;
		stage = stage > 0 ? stage - 1 : stages - 1;
		e->at[stage] = base + TIMES(k)->at;
		if (k == 0)
		{
			k = columns;
			base -= period;
		}
	}
#undef TIMES
}

/* Times iterations that nothing delays, all at once; returns how many of the `count` these are */
static int32_t
pass_free(struct sim *sim, const struct sim_path *path, int32_t count)
{
	struct sim_epoch *e = &sim->e;
	const int64_t period = path->turn + path->handed[0].gap;
	int64_t push = e->turn + path->handed[0].gap;

	if (e->take >= push || e->done > push + sim->machine.unpack_stages + 2)
		return 0;
	if (!path->steady)
		count = 1;
	pass_iterations(sim, path, offsetof(struct sim_handed, free), push, period, count);
	push += (count - 1) * period;
	e->done = push + path->done;
	e->turn = push + path->turn;
	return count;
}

/* Times iterations whose columns lie ready in the queue, all at once; returns how many of the `count` these are */
static int32_t
pass_bound(struct sim *sim, const struct sim_path *path, int32_t count)
{
	struct sim_epoch *e = &sim->e;
	const int32_t columns = path->n_handed, stages = sim->machine.unpack_stages;
	const int64_t push = e->turn + path->handed[0].gap;
	const int64_t slower = path->turn + path->handed[0].gap - path->beats; /* the Strider, in each iteration */
	const int32_t room = (sim->machine.queue_depth - (int32_t)e->pushes) / columns;
	int64_t early = INT64_MAX;

	if (room < 1 || e->take - e->done != path->bound_take)
		return 0;
	for (int32_t k = 0, stage = e->stage; k < stages; k++, stage = stage + 1 < stages ? stage + 1 : 0)
		if (e->at[stage] - e->done != path->bound_at[k])
			return 0;
	for (int32_t k = 0; k < columns; k++)
	{
		const struct sim_handed *handed = &path->handed[k];
		const int64_t spare = e->done + handed->bound.take - (push + handed->push + 1);

		early = spare < early ? spare : early;
	}
	if (early < 0)
		return 0;
	if (count > room)
		count = room;
	if (slower > 0 && early / slower + 1 < count)
		count = (int32_t)(early / slower) + 1;
	pass_iterations(sim, path, offsetof(struct sim_handed, bound), e->done, path->beats, count);
	e->done += (int64_t)count * path->beats;
	e->turn = push + path->turn + (int64_t)(count - 1) * (path->turn + path->handed[0].gap);
	return count;
}

/* Times the columns of an iteration from the k-th on, one by one */
static void
time_columns(struct sim *sim, const struct sim_path *path, int32_t k)
{
	struct sim_epoch *e = &sim->e;

	for (; k < path->n_handed; k++)
		e->done = enter(e, &sim->machine, path->handed[k].gap) + path->handed[k].column->beats;
	e->turn += path->tail;
}

/* Iterations that each hand over one tuple: as many as the round takes at a time; false: a fault */
static bool
run_tuples(struct sim *sim, const uint8_t *page, const struct sim_path *path, int lane, int count)
{
	struct sim_epoch *e = &sim->e;

	e->beats += (uint64_t)count * (uint64_t)path->beats;
	while (count > 0)
	{
		int32_t some, timed = 0;

		if (e->room == 0)
		{
			const int64_t at = hand_over(sim, enter(e, &sim->machine, path->handed[0].gap));

			if (at < 0)
				return false;
			e->done = at + path->handed[0].column->beats;
			time_columns(sim, path, 1);
			timed = 1;
		}
		some = count < e->room ? count : e->room;
		while (timed < some)
		{
			int32_t passed = pass_free(sim, path, some - timed);

			if (passed == 0)
				passed = pass_bound(sim, path, some - timed);
			if (passed == 0)
			{
				time_columns(sim, path, 0);
				passed = 1;
			}
			timed += passed;
		}
		for (int32_t k = 0; k < path->n_handed; k++)
			sim_copy(sim, path->handed[k].column, page, path->handed[k].address.base + lane, path->handed[k].address.offset, some);
		pass_tuples(sim, some);
		lane += some;
		count -= some;
	}
	return true;
}

/* Iterations of a loop by one path, lanes from `lane` on: whole tuples, within the page; false: a fault */
bool
sim_iterations(struct sim *sim, const uint8_t *page, const struct sim_path *path, int lane, int count)
{
	if (path->tuples == 1)
		return run_tuples(sim, page, path, lane, count);
	for (; count > 0; lane++, count--)
	{
		for (int32_t k = 0; k < path->n_handed; k++)
		{
			const struct sim_handed *handed = &path->handed[k];

			if (!unpack(sim, handed->column, page, handed->address.base[lane] + handed->address.offset, handed->gap))
				return false;
		}
		sim->e.turn += path->tail;
	}
	return true;
}

/* --- pages and epochs -------------------------------------------------------------------------------------------- */

/* The next page arrives, and its Strider begins */
void
sim_page_begin(struct sim *sim, const uint8_t *page)
{
	struct sim_epoch *e = &sim->e;
	const uint64_t striders = (uint64_t)sim->machine.striders;
	const int64_t free = e->pages < striders ? 0 : e->released[e->pages % striders];

	e->requested = later(e->requested + 1, free + 1);
	e->last = later(e->requested + sim->machine.link_latency, e->last + 1) + sim->machine.page_beats - 1;
	e->turn = e->last + sim->machine.strider_start;
	e->pushes = 0;
	for (int32_t k = 0; k < sim->machine.queue_depth; k++)
		e->takes[k] = 0;
	for (ptrdiff_t line = 0; line < POINTERS; line += CACHE_LINE)
		__builtin_prefetch(page + sim->ahead + line);
}

/* The Strider came to its `ctl end`; a tuple may go on, on the next page */
void
sim_page_end(struct sim *sim, int32_t gap, uint32_t pointer)
{
	struct sim_epoch *e = &sim->e;

	e->end_pointer = pointer;
	e->end_at = enter(e, &sim->machine, gap);
	e->done = e->end_at + 1;
	e->released[e->pages % (uint64_t)sim->machine.striders] = e->end_at + sim->machine.page_release;
	e->pages++;
}

/* Ends the epoch: hands the last round over; returns the epoch's cycles, 0 after a fault */
uint64_t
sim_epoch_end(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;
	const int64_t hand = e->end_at + sim->machine.unpack_latency;

	if (e->open)
	{
		e->pages--; /* the fault is the last page's */
		(void)sim_fault(sim, SIM_FAULT_TUPLE_PARTS, e->end_pointer);
		return 0;
	}
	if (e->in_round > 0)
		(void)sim_round(sim, hand, true, true);
	else if (e->pages > 0)
		e->idle = later(e->idle, hand);
	return (uint64_t)e->idle;
}
