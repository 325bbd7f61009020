/*
 * Is a Bundle one that the machine runs? And where must its engine program be run with care?
 *
 * In: a Bundle that keeps the rules of hwgen/spec/legal.py. Out: the first problem found, or the sections' lengths and,
 * for each engine instruction, whether its rows depend on one another; for the whole program, whether results are read
 * before they are visible. After this no address of the engine leaves its memory.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define WINDOW 1024 /* cycles that a result can be under way, at most */

/* --- engine: fields and addresses -------------------------------------------------------------------------------- */

static bool
complain(struct sim_problem *problem, enum sim_problem_kind kind, int32_t position, int64_t found, int64_t limit)
{
	problem->kind = kind;
	problem->position = position;
	problem->found = found;
	problem->limit = limit;
	return false;
}

/* Whether an address has an entry of the index file added */
bool
sim_indexed(const struct sim_instruction *in)
{
	return in->a_index || in->dst_index;
}

/* Levels of the merge stack that a section runs at */
int32_t
sim_levels(const struct sim_bundle *bundle, int section)
{
	return (section == SIM_MERGE || section == SIM_PUSH) && bundle->levels > 0 ? bundle->levels : 1;
}

static bool
addresses(const struct sim *sim, const struct sim_bundle *bundle, const struct sim_instruction *in, int section,
		  int32_t position, struct sim_problem *problem)
{
	const int64_t o = in->outer - 1, i = in->inner - 1;
	const int64_t level = (int64_t)(sim_levels(bundle, section) - 1) * bundle->level_stride;
	const int64_t tuples = (int64_t)bundle->group * bundle->tuple_rows, scratch = sim->machine.scratch_depth;
	const struct sim_care *care = &sim->care[position];
	const int64_t reach = (care->entries - 1) * (int64_t)care->entry_rows;
	const int64_t d = in->dst + o * in->dst_outer + i * in->dst_inner + in->dst_level * level + in->dst_index * reach;
	const int64_t a = in->a + o * in->a_outer + i * in->a_inner + in->a_level * level + in->a_index * reach;
	const int64_t b = in->b + o * in->b_outer + i * in->b_inner;

	if (in->op != SIM_SETX && d >= (in->op == SIM_PUT ? tuples : scratch))
		return complain(problem, SIM_DST_OUTSIDE, position, d, in->op == SIM_PUT ? tuples : scratch);
	if (a >= (in->a_tuple ? tuples : scratch))
		return complain(problem, SIM_A_OUTSIDE, position, a, in->a_tuple ? tuples : scratch);
	if (sim_is(SIM_WITH_B, in->op) && b >= (in->b_tuple ? tuples : scratch))
		return complain(problem, SIM_B_OUTSIDE, position, b, in->b_tuple ? tuples : scratch);
	return true;
}

/* --- engine: times ----------------------------------------------------------------------------------------------- */

/* What was written to a scratchpad row last */
struct written
{
	int64_t visible;  /* cycle from which rows that issue see it */
	int32_t position; /* instruction; -1: none in this section */
};

struct timing
{
	bool indexes;			/* there is a SETX in some section */
	int32_t early;			/* the first instruction that reads a row before it is visible; -1: none */
	struct written *rows;
	int64_t writes[WINDOW]; /* cycle of the last write that fell into each place */
	int64_t visible;		/* cycle from which everything written is seen */
};

/* A row in instruction `position` reads a row of the scratchpad in a cycle */
static void
read_row(struct sim *sim, struct timing *t, int32_t position, int64_t row, int64_t cycle)
{
	const struct written *w = &t->rows[row];

	if (w->position < 0)
		return;
	if (w->visible > cycle)
	{
		sim->overlaps = true;
		if (t->early < 0)
			t->early = position;
	}
	else if (w->position == position)
		sim->care[position].in_order = true;
}

/* A row becomes visible */
static void
written_row(struct sim *sim, struct timing *t, int32_t position, int64_t row, int64_t visible)
{
	struct written *w = &t->rows[row];

	if (w->position >= 0 && w->visible >= visible)
	{
		sim->overlaps = true; /* the later of the two would be overwritten */
		if (t->early < 0)
			t->early = position;
	}
	w->visible = visible;
	w->position = position;
}

static bool
write_row(struct sim *sim, struct timing *t, const struct sim_instruction *in, int32_t position, int64_t row,
		  int64_t cycle, struct sim_problem *problem)
{
	const struct sim_care *care = &sim->care[position];
	const bool special = sim_is(SIM_SPECIAL, in->op);
	const int32_t latency = special ? sim->machine.special_latency[in->op] : sim->machine.result_latency;
	const int32_t interval = special ? sim->machine.special_interval[in->op] : 0;
	const int32_t writes = special && !in->scalar ? SIM_CLUSTER : 1;
	const int64_t visible = cycle + latency + (writes - 1) * (int64_t)interval;

	for (int32_t k = 0; k < writes; k++)
	{
		const int64_t at = cycle + latency - 1 + k * (int64_t)interval;

		if (t->writes[at % WINDOW] == at)
			return complain(problem, SIM_WRITES_COLLIDE, position, at, 0);
		t->writes[at % WINDOW] = at;
	}
	for (int32_t k = 0; in->op != SIM_SETX && in->op != SIM_PUT && k < (in->dst_index ? care->entries : 1); k++)
		written_row(sim, t, position, row + k * (int64_t)care->entry_rows, visible);
	if (visible > t->visible)
		t->visible = visible;
	return true;
}

/* Plays a section's reads and writes at one level of the merge stack */
static bool
play(struct sim *sim, const struct sim_bundle *bundle, int s, int32_t level, struct timing *t,
	 struct sim_problem *problem)
{
	const struct sim_code *code = &sim->sections[s];
	const int64_t shift = (int64_t)level * bundle->level_stride;
	int64_t turn = 0;

	for (int32_t r = 0; r < sim->machine.scratch_depth; r++)
		t->rows[r].position = -1;
	for (int32_t k = 0; k < WINDOW; k++)
		t->writes[k] = -1;
	t->visible = 0;
	t->early = -1;
	for (int32_t position = bundle->sections[s]; position < bundle->sections[s] + code->n_ops; position++)
	{
		const struct sim_instruction *in = &bundle->program[position];
		const int32_t interval =
			!sim_is(SIM_SPECIAL, in->op) ? 1 : sim->machine.special_interval[in->op] * (in->scalar ? 1 : SIM_CLUSTER);
		const int64_t cycles = in->wait + (int64_t)in->inner * in->outer * interval;
		int64_t cycle = turn + in->wait;

		if (cycles < sim->machine.min_instruction)
			return complain(problem, SIM_TOO_SHORT, position, cycles, sim->machine.min_instruction);
		for (int32_t o = 0; o < in->outer; o++)
			for (int32_t i = 0; i < in->inner; i++, cycle += interval)
			{
				const struct sim_care *care = &sim->care[position];

				for (int32_t k = 0; !in->a_tuple && k < (in->a_index ? care->entries : 1); k++)
					read_row(sim, t, position, in->a + o * in->a_outer + i * in->a_inner + in->a_level * shift + k * (int64_t)care->entry_rows, cycle);
				if (sim_is(SIM_WITH_B, in->op) && !in->b_tuple)
					read_row(sim, t, position, in->b + o * in->b_outer + i * in->b_inner, cycle);
				if (!write_row(sim, t, in, position, in->dst + o * in->dst_outer + i * in->dst_inner + in->dst_level * shift,
							   cycle, problem))
					return false;
			}
		turn += cycles;
	}
	if (t->early >= 0 && t->indexes)
		return complain(problem, SIM_INDEX_OVERLAPS, t->early, 0, 0);
	turn += code->end_wait + 1;
	if (t->visible > turn)
		return complain(problem, SIM_RESULTS_OUTSTAND, bundle->sections[s] + code->n_ops, t->visible - turn, 0);
	sim->sections[s].cycles = sim->machine.section_start + turn;
	return true;
}

/* Sections, their lengths, and which of their instructions need care; sim_engine_prepare() needs what it finds */
bool
sim_verify(struct sim *sim, const struct sim_bundle *bundle, struct sim_problem *problem)
{
	struct timing t = {.indexes = false};
	bool fits = true;

	sim->overlaps = false;
	sim->care = calloc((size_t)bundle->n_program + 1, sizeof *sim->care);
	if (sim->care == NULL)
		return complain(problem, SIM_NO_MEMORY, 0, 0, 0);
	for (int s = 0; s < SIM_SECTIONS; s++)
	{
		const int32_t start = bundle->sections[s];
		const struct sim_instruction *setter = NULL;
		int32_t end = start;

		problem->section = s;
		sim->sections[s].n_ops = 0;
		sim->sections[s].cycles = 0;
		if (start < 0)
			continue;
		while (bundle->program[end].op != SIM_END)
		{
			const struct sim_instruction *in = &bundle->program[end];

			if (in->op == SIM_SETX)
			{
				setter = in;
				t.indexes = true;
			}
			sim->care[end].entries = sim_indexed(in) && setter->dst_outer > 0 ? setter->dst : 1;
			sim->care[end].entry_rows = sim_indexed(in) ? setter->dst_outer : 0;
			if (!addresses(sim, bundle, in, s, end, problem))
				return false;
			end++;
		}
		sim->sections[s].n_ops = end - start;
		sim->sections[s].end_wait = bundle->program[end].wait;
	}
	t.rows = malloc(sizeof *t.rows * (size_t)sim->machine.scratch_depth);
	if (t.rows == NULL)
		fits = complain(problem, SIM_NO_MEMORY, 0, 0, 0);
	for (int s = 0; fits && s < SIM_SECTIONS; s++)
	{
		problem->section = s;
		for (int32_t level = 0; fits && bundle->sections[s] >= 0 && level < sim_levels(bundle, s); level++)
			fits = play(sim, bundle, s, level, &t, problem);
	}
	free(t.rows);
	return fits;
}
