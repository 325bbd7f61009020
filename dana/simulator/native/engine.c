/*
 * The execution engine: instructions over rows of the scratchpad and of tuple memory.
 *
 * In: a verified program, the half of tuple memory and the number of tuples of a round. Out: the scratchpad. Memory is
 * laid out [row][thread][lane], so that a row of all threads, and the rows of an inner loop, are one vector; a unit's
 * number is thread * lanes + lane, and both exchanges flip a bit of it. This is docs/machine.md section 2, but for the
 * times: a program that reads results before they are visible runs in pipeline.c.
 */
#include <stdlib.h>
#include <string.h>

#include "row.h"

/* Rows of each inner loop by the kernel, `quick` of them, and the others one by one */
static void
run_rows(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level, int32_t quick)
{
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit;
	float *d = sim_result_memory(sim, op) + op->d + level * op->d_level;
	const float *a = (op->i.a_tuple ? tuples : sim->scratch + level * op->a_level) + op->a;
	const float *b = (op->i.b_tuple ? tuples : sim->scratch) + op->b;

	if (quick == op->i.inner)
	{
		op->kernel(&op->loop, d, a, b);
		return;
	}
	for (int32_t o = 0; o < op->i.outer; o++)
	{
		if (quick > 0)
			op->kernel(&op->loop, d + o * op->loop.d, a + o * op->loop.a, b + o * op->loop.b);
		for (int32_t i = quick; i < op->i.inner; i++)
		{
			float *to;
			const float *x, *y;

			sim_row_operands(sim, op, half, m, level, o, i, &to, &x, &y);
			sim_row_apply(sim, op, to, x, y);
		}
	}
}

void
sim_engine_run(struct sim *sim, enum sim_section section, int32_t half, int32_t m, int32_t level)
{
	const struct sim_code *code = &sim->sections[section];
	const bool whole = m == sim->round_tuples;

	if (sim->overlaps)
	{
		sim_pipeline_run(sim, code, half, m, level);
		return;
	}
	for (int32_t k = 0; k < code->n_ops; k++)
	{
		const struct sim_op *op = &code->ops[k];
		const int32_t quick = op->i.mask == SIM_MASK_NONE || (whole && op->in_group) ? op->quick : 0;

		if (op->manner == SIM_SET_INDEX)
			sim_index_set(sim, op, half, m);
		else if (op->manner == SIM_BY_INDEX)
			sim_index_run(sim, op, half, m, level);
		else
			run_rows(sim, op, half, m, level, quick);
	}
}

/* --- making ready ------------------------------------------------------------------------------------------------ */

/* Chooses how an instruction runs; its addresses are known to be good */
static void
choose(const struct sim *sim, struct sim_op *op)
{
	const struct sim_instruction *in = &op->i;
	const bool unary = !sim_is(SIM_WITH_B, in->op), exchange = in->source != SIM_MEMORY;
	const ptrdiff_t unit = sim->unit;
	struct sim_loop *loop = &op->loop;

	op->in_group = (in->mask == SIM_MASK_PAIR ? 2 * in->outer : in->outer) <= sim->group;
	op->manner = in->op == SIM_SETX ? SIM_SET_INDEX : sim_indexed(in) ? SIM_BY_INDEX : SIM_BY_ROW;
	if (in->op < SIM_LANE_CODES)
		op->kernel = (exchange ? sim->kernels->cross : sim->kernels->rows)[in->op == SIM_PUT ? SIM_MOV : in->op];
	if (op->kernel != NULL)
		op->quick = in->inner - (in->tail_a || (in->tail_b && !unary));
	*loop = (struct sim_loop){.n = sim->unit, .outer = op->quick == in->inner ? in->outer : 1, .inner = op->quick,
							  .d = in->dst_outer * unit, .a = in->a_outer * unit, .b = in->b_outer * unit,
							  .d_row = in->dst_inner * unit, .a_row = in->a_inner * unit, .b_row = in->b_inner * unit};
	loop->flip = in->source == SIM_LANE_XOR ? 1 << in->distance : sim->lanes << in->distance;
	if (unary)
		loop->b = loop->a, loop->b_row = loop->a_row;
	if (op->care.in_order)
		return;
	if (op->quick == in->inner && in->inner == 1)
	{
		loop->inner = loop->outer;
		loop->outer = 1;
		loop->d_row = loop->d, loop->a_row = loop->a, loop->b_row = loop->b;
	}
	if (loop->inner > 0 && loop->d_row == unit && loop->a_row == unit && loop->b_row == unit)
	{
		loop->n *= loop->inner; /* one vector */
		loop->inner = 1;
	}
}

/* Takes the sections over from the Bundle and makes them ready; sim_verify_engine has passed */
bool
sim_engine_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	const int32_t unit = sim->unit;
	struct sim_op *op;
	size_t n = 0;

	for (int s = 0; s < SIM_SECTIONS; s++)
		n += (size_t)sim->sections[s].n_ops;
	sim->ops = calloc(n + 1, sizeof *sim->ops);
	sim->masks = malloc(sizeof(uint32_t) * (size_t)(sim->lanes + 1) * (size_t)unit);
	sim->rows = malloc(sizeof(float) * (size_t)unit * 6);
	sim->index = calloc((size_t)sim->machine.threads * (size_t)sim->machine.index_depth + 1, sizeof *sim->index);
	if (sim->index == NULL || sim->ops == NULL || sim->masks == NULL || sim->rows == NULL)
		return false;
	for (int32_t t = 0; t <= sim->lanes; t++)
		for (int32_t u = 0; u < unit; u++)
			sim->masks[t * unit + u] = u % sim->lanes < t ? UINT32_MAX : 0;
	op = sim->ops;
	for (int s = 0; s < SIM_SECTIONS; s++)
	{
		sim->sections[s].ops = op;
		for (int32_t k = 0; k < sim->sections[s].n_ops; k++, op++)
		{
			op->i = bundle->program[bundle->sections[s] + k];
			op->d = (int64_t)op->i.dst * unit;
			op->a = (int64_t)op->i.a * unit;
			op->b = sim_is(SIM_WITH_B, op->i.op) ? (int64_t)op->i.b * unit : op->a;
			op->d_level = op->i.dst_level ? (int64_t)bundle->level_stride * unit : 0;
			op->a_level = op->i.a_level ? (int64_t)bundle->level_stride * unit : 0;
			op->care = sim->care[bundle->sections[s] + k];
			choose(sim, op);
		}
	}
	return true;
}
