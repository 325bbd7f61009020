/*
 * Is a Bundle one that the machine runs? And where must its engine program be run with care?
 *
 * In: a Bundle that keeps the rules of hwgen/spec/legal.py. Out: the first problem found, or the sections' lengths, and
 * whether results are read before they are visible. After this no address of the engine leaves its memory.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"

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

/* Cycles from one row of an instruction to the next */
int32_t
sim_interval(const struct sim *sim, const struct sim_instruction *in)
{
	return sim_is(SIM_SPECIAL, in->op) ? sim->machine.special_interval[in->op] * (in->scalar ? 1 : SIM_CLUSTER) : 1;
}

/* Cycles from a row's issue until its result, that of a cluster's first lane, can be read */
int32_t
sim_latency(const struct sim *sim, const struct sim_instruction *in)
{
	return sim_is(SIM_SPECIAL, in->op) ? sim->machine.special_latency[in->op] : sim->machine.result_latency;
}

/* Levels of the merge stack that a section runs at */
static int32_t
levels(const struct sim_bundle *bundle, int section)
{
	return (section == SIM_MERGE || section == SIM_PUSH) && bundle->levels > 0 ? bundle->levels : 1;
}

/* Rows that an instruction's entry of the index file, if it uses one, adds to an address: k * rows, k < entries */
struct reach
{
	int32_t entries, rows;
};

static struct reach
reach_of(const struct sim_instruction *in, const struct sim_instruction *setter)
{
	if (!in->a_index && !in->dst_index)
		return (struct reach){.entries = 1};
	return (struct reach){.entries = setter->dst_outer > 0 ? setter->dst : 1, .rows = setter->dst_outer};
}

static bool
addresses(const struct sim *sim, const struct sim_bundle *bundle, const struct sim_instruction *in, struct reach reach,
		  int section, int32_t position, struct sim_problem *problem)
{
	const int64_t o = in->outer - 1, i = in->inner - 1, x = (reach.entries - 1) * (int64_t)reach.rows;
	const int64_t level = (int64_t)(levels(bundle, section) - 1) * bundle->level_stride;
	const int64_t tuples = (int64_t)bundle->group * bundle->tuple_rows, scratch = sim->machine.scratch_depth;
	const int64_t d = in->dst + o * in->dst_outer + i * in->dst_inner + in->dst_level * level + in->dst_index * x;
	const int64_t a = in->a + o * in->a_outer + i * in->a_inner + in->a_level * level + in->a_index * x;
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

struct timing
{
	bool indexes;			/* there is a SETX in some section */
	int32_t early;			/* the first instruction that reads a row before it is visible; -1: none */
	int64_t *rows;			/* by row of the scratchpad: cycle from which what the section wrote last is seen */
	int64_t writes[WINDOW]; /* cycle of the last write that fell into each place */
	int64_t visible;		/* cycle from which everything written is seen */
};

/* In a cycle a row is read, or another result for it comes out: the last one should be visible by then */
static void
expect(struct sim *sim, struct timing *t, int32_t position, int64_t row, int64_t cycle)
{
	if (t->rows[row] <= cycle)
		return;
	sim->overlaps = true;
	if (t->early < 0)
		t->early = position;
}

static bool
write_row(struct sim *sim, struct timing *t, const struct sim_instruction *in, struct reach reach, int32_t position,
		  int64_t row, int64_t cycle, struct sim_problem *problem)
{
	const bool special = sim_is(SIM_SPECIAL, in->op);
	const int32_t interval = special ? sim->machine.special_interval[in->op] : 0;
	const int32_t writes = special && !in->scalar ? SIM_CLUSTER : 1;
	const int64_t first = cycle + sim_latency(sim, in), visible = first + (writes - 1) * (int64_t)interval;

	for (int32_t k = 0; k < writes; k++)
	{
		const int64_t at = first - 1 + k * (int64_t)interval;

		if (t->writes[at % WINDOW] == at)
			return complain(problem, SIM_WRITES_COLLIDE, position, at, 0);
		t->writes[at % WINDOW] = at;
	}
	for (int32_t k = 0; in->op != SIM_SETX && in->op != SIM_PUT && k < (in->dst_index ? reach.entries : 1); k++)
	{
		const int64_t to = row + k * (int64_t)reach.rows;

		expect(sim, t, position, to, visible - 1); /* the later of two would be overwritten */
		t->rows[to] = visible;
	}
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
	const struct sim_instruction *setter = NULL;
	const int64_t shift = (int64_t)level * bundle->level_stride;
	int64_t turn = 0;

	memset(t->rows, 0, sizeof *t->rows * (size_t)sim->machine.scratch_depth);
	for (int32_t k = 0; k < WINDOW; k++)
		t->writes[k] = -1;
	t->visible = 0;
	t->early = -1;
	for (int32_t position = bundle->sections[s]; position < bundle->sections[s] + code->n; position++)
	{
		const struct sim_instruction *in = &bundle->program[position];
		const struct reach reach = reach_of(in, setter);
		const int32_t interval = sim_interval(sim, in);
		const int64_t cycles = in->wait + (int64_t)in->inner * in->outer * interval;
		int64_t cycle = turn + in->wait;

		if (cycles < sim->machine.min_instruction)
			return complain(problem, SIM_TOO_SHORT, position, cycles, sim->machine.min_instruction);
		/* what waits must not meet a result that comes later than that of its first row */
		if (in->ordered && t->visible >= cycle + sim_latency(sim, in))
			return complain(problem, SIM_WRITES_COLLIDE, position, t->visible - 1, 0);
		for (int32_t o = 0; o < in->outer; o++)
			for (int32_t i = 0; i < in->inner; i++, cycle += interval)
			{
				const int64_t a = in->a + o * in->a_outer + i * in->a_inner + in->a_level * shift;
				const int64_t d = in->dst + o * in->dst_outer + i * in->dst_inner + in->dst_level * shift;

				/* a row of an ordered instruction waits for those before it */
				for (int32_t k = 0; !in->a_tuple && !(in->ordered && o + i > 0) && k < (in->a_index ? reach.entries : 1); k++)
					expect(sim, t, position, a + k * (int64_t)reach.rows, cycle);
				if (sim_is(SIM_WITH_B, in->op) && !in->b_tuple)
					expect(sim, t, position, in->b + o * in->b_outer + i * in->b_inner, cycle);
				if (!write_row(sim, t, in, reach, position, d, cycle, problem))
					return false;
			}
		setter = in->op == SIM_SETX ? in : setter;
		turn += cycles;
	}
	if (t->early >= 0 && t->indexes)
		return complain(problem, SIM_INDEX_OVERLAPS, t->early, 0, 0);
	turn += code->end_wait + 1;
	if (t->visible > turn)
		return complain(problem, SIM_RESULTS_OUTSTAND, bundle->sections[s] + code->n, t->visible - turn, 0);
	sim->sections[s].cycles = sim->machine.section_start + turn;
	return true;
}

/* Sections and their lengths; sim_engine_prepare() needs what it finds */
bool
sim_verify(struct sim *sim, const struct sim_bundle *bundle, struct sim_problem *problem)
{
	struct timing t = {.indexes = false};
	bool fits = true;

	sim->overlaps = false;
	for (int s = 0; s < SIM_SECTIONS; s++)
	{
		const int32_t start = bundle->sections[s];
		const struct sim_instruction *setter = NULL;
		int32_t end = start;

		problem->section = s;
		sim->sections[s] = (struct sim_code){.n = 0};
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
			if (!addresses(sim, bundle, in, reach_of(in, setter), s, end, problem))
				return false;
			end++;
		}
		sim->sections[s].n = end - start;
		sim->sections[s].end_wait = bundle->program[end].wait;
	}
	t.rows = malloc(sizeof *t.rows * (size_t)sim->machine.scratch_depth);
	if (t.rows == NULL)
		fits = complain(problem, SIM_NO_MEMORY, 0, 0, 0);
	for (int s = 0; fits && s < SIM_SECTIONS; s++)
	{
		problem->section = s;
		for (int32_t level = 0; fits && bundle->sections[s] >= 0 && level < levels(bundle, s); level++)
			fits = play(sim, bundle, s, level, &t, problem);
	}
	free(t.rows);
	return fits;
}
