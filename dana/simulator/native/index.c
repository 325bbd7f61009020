/*
 * Rows chosen by data: the threads' index files (docs/machine.md, section 2, "Indices").
 *
 * In: verified instructions that set entries or use them. Out: entries, rows, the fault INDEX. Entries are kept in floats
 * from a row to the one chosen.
 */
#include <string.h>

#include "row.h"
#include "numerics.h"

/* SETX; a number that names no row is a fault at the section's end: of the first tuple, and of it the first */
void
sim_index_set(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m)
{
	const struct sim_instruction *in = &op->i;
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit;
	const float *row = (in->a_tuple ? tuples : sim->scratch) + op->a;

	for (int32_t o = 0; o < in->outer; o++, row += in->a_outer * (ptrdiff_t)sim->unit)
	{
		const int32_t units = in->mask == SIM_MASK_NONE ? sim->unit : sim_present(sim, m, o);

		for (int32_t t = 0; t < sim->machine.threads; t++)
		{
			const float n = t * sim->lanes < units ? dn_flush(row[t * sim->lanes]) : 0.0f;

			const bool is_row = n >= 0.0f && n < (float)in->dst && n == (float)(int32_t)n;
			const int32_t place = t * sim->machine.index_depth + o;

			if (!is_row && (sim->e.fault != SIM_FAULT_INDEX || place < sim->e.wrong))
			{
				(void)sim_engine_fault(sim, SIM_FAULT_INDEX, (uint32_t)in->b);
				sim->e.wrong = place;
			}
			sim->index[place] = is_row ? (int32_t)n * in->dst_outer * (ptrdiff_t)sim->unit : 0;
		}
	}
}

/* A move of whole rows in round o, by the first threads */
static void
move(const struct sim *sim, const struct sim_instruction *in, int32_t o, int32_t threads, float *d, const float *a)
{
	const ptrdiff_t unit = sim->unit;

	for (int32_t t = 0; t < threads; t++)
	{
		const ptrdiff_t x = sim_index_entry(sim, t, o);
		float *to = d + t * sim->lanes + (in->dst_index ? x : 0);
		const float *from = a + t * sim->lanes + (in->a_index ? x : 0);

		for (int32_t i = 0; i < in->inner; i++)
			sim_copy_lanes(to + i * in->dst_inner * unit, from + i * in->a_inner * unit, sim->lanes);
	}
}

static void
row(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level, int32_t o, int32_t i,
	int32_t threads)
{
	float *d, *result = sim->rows + 3 * (ptrdiff_t)sim->unit;
	const float *a, *b;

	sim_row_operands(sim, op, half, m, level, o, i, &d, &a, &b);
	if (!op->i.dst_index)
	{
		sim_row_apply(sim, op, d, a, b);
		return;
	}
	if (op->i.op == SIM_MOVC)
		sim_row_gather(sim, o, result, d);
	sim_row_apply(sim, op, result, a, b);
	for (int32_t t = 0; t < threads; t++)
		sim_copy_lanes(d + sim_index_entry(sim, t, o) + t * sim->lanes, result + t * sim->lanes, sim->lanes);
}

/* An instruction that uses entries */
void
sim_index_run(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level)
{
	const struct sim_instruction *in = &op->i;
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit;
	const float *a = (in->a_tuple ? tuples : sim->scratch + level * op->a_level) + op->a;
	float *d = sim->scratch + op->d + level * op->d_level;

	for (int32_t o = 0; o < in->outer; o++)
	{
		const int32_t threads =
			in->mask == SIM_MASK_NONE ? sim->machine.threads : sim_present(sim, m, o) / sim->lanes;

		/* an absent tuple's row is written where dst has no index */
		if (in->op == SIM_MOV && !in->tail_a && (in->dst_index || threads == sim->machine.threads))
			move(sim, in, o, threads, d + o * (ptrdiff_t)in->dst_outer * sim->unit, a + o * (ptrdiff_t)in->a_outer * sim->unit);
		else
			for (int32_t i = 0; i < in->inner; i++)
				row(sim, op, half, m, level, o, i, threads);
	}
}
