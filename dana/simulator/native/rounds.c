/*
 * The sequencer: rounds of an epoch, and which sections each runs (docs/machine.md, section 3).
 *
 * In: rounds as the unpacker hands them over. Out: the engine's state. What they take is clock.c's. Compiled code has no
 * rounds: compiled.c.
 */
#include <string.h>

#include "state.h"

/* Runs a section that the program may not have, and none after a fault or where the epoch only is looked at */
static void
run(struct sim *sim, enum sim_section section, int32_t m, int32_t level)
{
	if (sim->sections[section].cycles != 0 && sim->trains && sim->e.fault == SIM_FAULT_NONE)
		sim_engine_run(sim, section, sim->e.phase.half, m, level);
}

/* The unpacker is at the first tuple of a round */
static void
first_tuple(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;

	e->slot = sim->tuples + (ptrdiff_t)e->phase.half * sim->group * sim->tuple_rows * sim->unit;
	e->in_slot = 0;
}

/* Starts an epoch: runs `init` */
void
sim_epoch_begin(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;

	memset(e, 0, sizeof *e);
	sim_phase_open(sim, &e->phase);
	first_tuple(sim);
	sim_clock_begin(sim);
	if (sim->fast)
		sim_compiled_begin(sim);
	else
	{
		if (sim->trains)
			sim_compiled_settle(sim);
		run(sim, SIM_INIT, 0, 0);
	}
	sim->begun = true;
}

/* Numbers of a merge from thread 0, or to all threads, where a scalar is in every lane */
static void
copy_merge(struct sim *sim, const struct sim_merge *merge, float *numbers, bool back)
{
	const int32_t in_row = merge->broadcast ? 1 : sim->lanes, rows = (merge->last + in_row - 1) / in_row;

	for (int32_t v = 0; v < merge->leading; v++)
		for (int32_t e = 0; e < merge->last; e++, numbers++)
		{
			float *row = sim->scratch + (merge->row + (ptrdiff_t)v * rows + e / in_row) * sim->unit;

			if (!back)
				*numbers = row[e % in_row];
			for (int32_t t = 0; back && t < sim->machine.threads; t++)
				for (int32_t lane = e % in_row; lane < (merge->broadcast ? sim->lanes : e % in_row + 1); lane++)
					row[t * sim->lanes + lane] = *numbers;
		}
}

/* What the engine's program leaves for the host to exchange with other parts */
struct sim_merges
sim_round_merges(const struct sim *sim)
{
	return (struct sim_merges){.merges = sim->merges, .n = sim->n_merges, .copy = copy_merge};
}

/* The pause before section `batch`; false: a fault */
static bool
join_round(struct sim *sim, bool epoch_last)
{
	const struct sim_merges merges = sim_round_merges(sim);

	if (merges.n == 0 || !sim->trains || sim->e.fault != SIM_FAULT_NONE)
		return true;
	return sim_join_pass(sim, &merges, 0, epoch_last);
}

/* Runs the round that the unpacker has filled; false: a fault */
bool
sim_round(struct sim *sim, bool batch_last, bool epoch_last)
{
	struct sim_epoch *e = &sim->e;
	const int32_t m = e->phase.in_round;
	const uint32_t q = e->phase.q;
	const enum sim_section tuple = sim_tuple_section(sim, m);
	int32_t level = 0;

	if (sim->named_columns > 0 && sim->trains)
		sim_records_fetch(sim, e->phase.half, m);
	run(sim, tuple, m, 0);
	if (sim->named_columns > 0 && sim->trains && e->fault == SIM_FAULT_NONE && !sim_records_store(sim, m))
		return sim_engine_fault(sim, SIM_FAULT_STACK, 0); /* of the journal: code is compared another time */
	for (; q >> level & 1; level++)
		run(sim, SIM_MERGE, m, level);
	if (batch_last)
	{
		for (level++; level < 32 && q >> level != 0; level++)
			if (q >> level & 1)
				run(sim, SIM_MERGE, m, level);
		if (tuple == SIM_TUPLE && !join_round(sim, epoch_last))
			return false;
		if (tuple == SIM_TUPLE)
			run(sim, SIM_BATCH, m, 0);
	}
	else if (level < sim->levels)
		run(sim, SIM_PUSH, m, level);
	else if (e->fault == SIM_FAULT_NONE)
		return sim_engine_fault(sim, SIM_FAULT_STACK, 0);
	if (epoch_last)
		run(sim, SIM_EPOCH, 0, 0);
	sim_phase_next(sim, &e->phase, batch_last);
	first_tuple(sim);
	return e->fault == SIM_FAULT_NONE;
}
