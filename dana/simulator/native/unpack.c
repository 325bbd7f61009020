/*
 * The unpacker: columns become tuples, and tuples rounds, batches and an epoch.
 *
 * In: columns and page ends in page order. Out: rows of tuple memory, rounds handed over. A column is checked before a
 * byte of it is read; sim_tuples() leaves that out, for columns that walk.c has checked. Times are clock.c's.
 */
#include "state.h"
#include "watch.h"

/* Tuples are complete: to the place behind them */
static inline void
pass_tuples(struct sim *sim, int32_t tuples)
{
	struct sim_epoch *e = &sim->e;

	e->tuples += (uint64_t)tuples;
	e->phase.in_round += tuples;
	e->phase.room -= tuples;
	e->in_slot += tuples;
	e->slot += tuples * sim->fill.stride;
	for (; e->in_slot >= sim->fill.group; e->in_slot -= sim->fill.group)
		e->slot += sim->lanes - sim->fill.group * sim->fill.stride;
}

/* What has come is run, before the next tuple comes or the epoch ends; false: a fault */
static bool
hand_over(struct sim *sim, bool epoch_last)
{
	if (sim->fast)
		return sim_compiled_run(sim, epoch_last);
	return sim_round(sim, epoch_last || sim_phase_last(sim, &sim->e.phase), epoch_last);
}

/* A watched column's value; false: a fault. Code looks at numbers itself. */
static inline bool
watch(struct sim *sim, const struct sim_column *column, const uint8_t *from)
{
	if (sim->fast)
		return true;
	if (sim_watch_column(&sim->e.watch, sim->machine.watch_depth, column, from))
		sim_phase_cut(&sim->e.phase);
	return sim->named_columns == 0 || !sim->trains || sim_record_named(sim, column, from);
}

/* The first of its columns comes: the tuple has a place in the round; false: a fault */
static inline bool
begin(struct sim *sim)
{
	if (sim->watches)
		sim_watch_begin(&sim->e.watch, sim->e.phase.room == 0);
	if (sim->e.phase.room <= 0 && !hand_over(sim, false))
		return false;
	if (sim->named_columns > 0 && !sim->fast)
		sim_records_begin(sim);
	return true;
}

/* Whether a column is of a tuple that is not taken */
static inline bool
passed_over(struct sim_window *window, const struct sim_column *column)
{
	const uint64_t tuples = column->last != 0;

	window->seen += tuples;
	if (window->skip > 0)
		window->skip -= tuples;
	else if (window->take > 0)
	{
		window->take -= tuples;
		return false;
	}
	return true;
}

/* Of tuples that a page has, those that are taken */
static inline void
narrow(struct sim_window *window, int32_t *row, int32_t *count)
{
	const int32_t skip = (uint64_t)*count < window->skip ? *count : (int32_t)window->skip;

	window->seen += (uint64_t)*count;
	*row += skip;
	*count -= skip;
	window->skip -= (uint64_t)skip;
	*count = (uint64_t)*count < window->take ? *count : (int32_t)window->take;
	window->take -= (uint64_t)*count;
}

/* A column that a Strider handed over, `gap` cycles after the one before; false: a fault */
bool
sim_column(struct sim *sim, const uint8_t *page, uint32_t descriptor, uint32_t address, int32_t gap, uint32_t pointer)
{
	const struct sim_column *column = &sim->columns[descriptor];

	if (column->bad)
		return sim_fault(sim, SIM_FAULT_BAD_INSTRUCTION, pointer);
	if ((int64_t)address + column->bytes > sim->machine.page_size)
		return sim_fault(sim, SIM_FAULT_OUT_OF_PAGE, pointer);
	/* the first condition rejects a column without a predecessor, so walks need not record the last column */
	if ((column->first || column->table) == sim->e.open || (column->follows && !column->first && descriptor != sim->e.following))
		return sim_fault(sim, SIM_FAULT_TUPLE_PARTS, pointer);
	sim->e.following = descriptor + 1;
	sim_clock_column(sim, column, page + address, gap);
	/* an observer sees the rest of a tuple that names no record: a NaN has another message than a wrong number */
	if (column->table)
		return (sim->e.fault == 0 && watch(sim, column, page + address)) || sim->observer.column != NULL;
	sim->e.open = !column->last;
	if (sim->e.window.narrow && passed_over(&sim->e.window, column))
		return true;
	if (column->first && sim->e.fault == 0 && !begin(sim))
		return false;
	if (sim->observer.column != NULL)
		sim->observer.column(sim->observer.context, column, page + address);
	if (sim->e.fault != 0)
		return !column->last;
	if (sim->trains)
		sim_copy(sim, column, page, &address, 0, 1);
	if (column->last)
		pass_tuples(sim, 1);
	return true;
}

/* Rows of a walk that are tuples and alike, as many as the round takes at a time; false: a fault */
bool
sim_tuples(struct sim *sim, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed, int32_t row,
		   int32_t count)
{
	const struct sim_handed *watched = handed;

	for (; n_handed > 0 && handed->column->table; handed++)
		n_handed--;
	if (sim->observer.tuples != NULL)
		sim->observer.tuples(sim->observer.context, page, handed, n_handed, row, count);
	if (sim->e.window.narrow)
		narrow(&sim->e.window, &row, &count);
	while (count > 0)
	{
		int32_t some;

		for (const struct sim_handed *one = watched; one < handed; one++)
			if (!watch(sim, one->column, page + (uint32_t)(one->address[row] + one->offset)))
				return false;
		if (!begin(sim))
			return false;
		some = count < sim->e.phase.room ? count : sim->e.phase.room;
		if (watched < handed && !sim->fast)
			some = 1; /* the next one may choose a row again */
		for (int32_t k = 0; k < n_handed && sim->trains; k++)
			sim_copy(sim, handed[k].column, page, handed[k].address + row, handed[k].offset, some);
		pass_tuples(sim, some);
		row += some;
		count -= some;
	}
	return true;
}

/* The Strider came to its `ctl end`; a tuple may go on, on the next page */
void
sim_page_end(struct sim *sim, uint32_t pointer)
{
	sim->e.end_pointer = pointer;
	sim->e.pages++;
}

/* Ends the epoch: hands the last round over; returns the epoch's cycles, 0 after a fault */
uint64_t
sim_epoch_end(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;

	if (e->open)
	{
		e->pages--; /* the fault is the last page's */
		(void)sim_fault(sim, SIM_FAULT_TUPLE_PARTS, e->end_pointer);
		return 0;
	}
	if (e->phase.in_round > 0)
		(void)hand_over(sim, true);
	else
		e->joins_on = sim->trains && sim->join.exchange != NULL;
	if (e->joins_on && e->fault == SIM_FAULT_NONE)
	{
		const struct sim_merges merges = sim->fast ? sim_compiled_merges(sim) : sim_round_merges(sim);

		(void)sim_join_others(sim, &merges);
	}
	return sim_clock_end(sim);
}
