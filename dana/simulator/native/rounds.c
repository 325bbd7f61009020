/*
 * The sequencer: rounds of an epoch, which sections each runs, and when (docs/machine.md, sections 3 and 5).
 *
 * In: rounds as the unpacker hands them over. Out: the engine's state and clock, and the halves that it released.
 */
#include <string.h>

#include "core.h"

/* Runs a section that the program may not have, and none after a fault; the engine is at *clock */
static void
run(struct sim *sim, enum sim_section section, int32_t m, int32_t level, int64_t *clock)
{
	const int64_t cycles = sim->sections[section].cycles;

	if (cycles == 0 || sim->e.fault != SIM_FAULT_NONE)
		return;
	sim_engine_run(sim, section, sim->e.half, m, level);
	sim->e.busy += (uint64_t)cycles;
	if (section == SIM_MERGE || section == SIM_PUSH)
		sim->e.merging += (uint64_t)cycles;
	*clock += cycles;
}

/* The unpacker is at the first tuple of a round, in the half that the epoch is at */
static void
first_tuple(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;

	e->slot = sim->tuples + (ptrdiff_t)e->half * sim->group * sim->tuple_rows * sim->unit;
	e->in_slot = e->in_round = 0;
	e->room = sim->round_tuples;
	if (sim->batch != SIM_WHOLE_EPOCH && sim->batch - e->in_batch < (uint32_t)e->room)
		e->room = (int32_t)(sim->batch - e->in_batch);
}

/* Starts an epoch: runs `init` */
void
sim_epoch_begin(struct sim *sim)
{
	struct sim_epoch *e = &sim->e;

	memset(e, 0, sizeof *e);
	e->requested = -1;
	e->last = -1;
	e->idle = 1;
	first_tuple(sim);
	run(sim, SIM_INIT, 0, 0, &e->idle);
	sim->begun = true;
}

/* Runs the round that the unpacker has filled; false: a fault */
bool
sim_round(struct sim *sim, int64_t hand, bool batch_last, bool epoch_last)
{
	struct sim_epoch *e = &sim->e;
	const int32_t m = e->in_round;
	int64_t clock = (hand > e->idle ? hand : e->idle) + sim->machine.round_start;
	int32_t level = 0;

	run(sim, SIM_TUPLE, m, 0, &clock);
	e->half_free[e->half] = clock;
	for (; e->q >> level & 1; level++)
		run(sim, SIM_MERGE, m, level, &clock);
	if (batch_last)
	{
		for (level++; level < 32 && e->q >> level != 0; level++)
			if (e->q >> level & 1)
				run(sim, SIM_MERGE, m, level, &clock);
		run(sim, SIM_BATCH, m, 0, &clock);
		e->q = 0;
		e->in_batch = 0;
	}
	else
	{
		if (e->fault == SIM_FAULT_NONE && level >= sim->levels)
		{
			e->fault = SIM_FAULT_STACK;
			e->fault_page = SIM_UNKNOWN_PAGE;
			return false;
		}
		run(sim, SIM_PUSH, m, level, &clock);
		e->q++;
		e->in_batch += (uint32_t)m;
	}
	if (epoch_last)
		run(sim, SIM_EPOCH, 0, 0, &clock);
	e->idle = clock;
	e->half ^= 1;
	first_tuple(sim);
	return e->fault == SIM_FAULT_NONE;
}
