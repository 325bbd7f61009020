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

#define SPECIAL_BATCH 4096 /* elements that a special function gets at a time */

/* --- an instruction, three ways ---------------------------------------------------------------------------------- */

static void
run_by_row(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level)
{
	for (int32_t o = 0; o < op->i.outer; o++)
		for (int32_t i = 0; i < op->i.inner; i++)
		{
			float *d;
			const float *a, *b;

			sim_row_operands(sim, op, half, m, level, o, i, &d, &a, &b);
			sim_row_apply(sim, op, d, a, b);
		}
}

/*
 * Special functions: collects elements from many rows, evaluates them together and spreads the results. A scalar one is
 * evaluated by each cluster on its own element; where a thread's clusters have the same, as after a reduction, once.
 */
static void
run_by_function(struct sim *sim, const struct sim_op *op, float *d, const float *a, const float *b)
{
	const struct sim_loop *loop = &op->loop;
	const struct sim_kernels *kernels = sim->kernels;
	const bool binary = sim_is(SIM_WITH_B, op->i.op);
	const int32_t unit = sim->unit, lanes = sim->lanes;
	float *x = sim->rows + 4 * unit, *y = x + SPECIAL_BATCH + unit, *z = y + SPECIAL_BATCH + unit;
	const int32_t at_once = SPECIAL_BATCH / unit > 0 ? SPECIAL_BATCH / unit : 1;

	for (int32_t o = 0; o < loop->outer; o++, d += loop->d, a += loop->a, b += loop->b)
		for (int32_t i = 0; i < loop->rows; i += at_once)
		{
			const int32_t some = loop->rows - i < at_once ? loop->rows - i : at_once;
			const float *from_a = a + i * loop->a_row, *from_b = b + i * loop->b_row;
			int32_t width = 1;

			if (op->i.scalar)
				width = kernels->alike(from_a, some, loop->a_row, unit, lanes) &&
								(!binary || kernels->alike(from_b, some, loop->b_row, unit, lanes))
							? lanes
							: SIM_CLUSTER;
			kernels->collect(x, from_a, some, loop->a_row, unit, width);
			if (binary)
				kernels->collect(y, from_b, some, loop->b_row, unit, width);
			kernels->special(op->i.op, (size_t)(some * unit / width), z, x, y);
			if (width > 1)
				kernels->distribute(d + i * loop->d_row, z, some, loop->d_row, unit, width);
			else
				for (int32_t j = 0; j < some; j++)
					memcpy(d + (i + j) * loop->d_row, z + (ptrdiff_t)j * unit, sizeof(float) * (size_t)unit);
		}
}

void
sim_engine_run(struct sim *sim, enum sim_section section, int32_t half, int32_t m, int32_t level)
{
	const struct sim_code *code = &sim->sections[section];
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit;
	const bool whole = m == sim->round_tuples;

	if (sim->overlaps)
	{
		sim_pipeline_run(sim, code, half, m, level);
		return;
	}
	for (int32_t k = 0; k < code->n_ops; k++)
	{
		const struct sim_op *op = &code->ops[k];
		float *d = sim->scratch + op->d + level * op->d_level;
		const float *a = (op->i.a_tuple ? tuples : sim->scratch + level * op->a_level) + op->a;
		const float *b = (op->i.b_tuple ? tuples : sim->scratch) + op->b;

		if (op->manner == SIM_SET_INDEX)
			sim_index_set(sim, op, half, m);
		else if (op->manner == SIM_BY_INDEX)
			sim_index_run(sim, op, half, m, level);
		else if (op->manner == SIM_BY_ROW || (op->i.mask != SIM_MASK_NONE && !(whole && op->in_group)))
			run_by_row(sim, op, half, m, level);
		else if (op->manner == SIM_BY_KERNEL)
			op->kernel(&op->loop, d, a, b);
		else
			run_by_function(sim, op, d, a, b);
	}
}

/* --- making ready ------------------------------------------------------------------------------------------------ */

/* Chooses how an instruction runs; its addresses are known to be good */
static void
choose(const struct sim *sim, struct sim_op *op)
{
	const struct sim_kernels *kernels = sim->kernels;
	const struct sim_instruction *in = &op->i;
	const bool unary = !sim_is(SIM_WITH_B, in->op), exchange = in->source != SIM_MEMORY;
	const bool tail = in->tail_a || (in->tail_b && !unary);
	int32_t inner = in->inner, outer = in->outer;
	int32_t d_inner = in->dst_inner, a_inner = in->a_inner, b_inner = unary ? a_inner : in->b_inner;
	int32_t d_outer = in->dst_outer, a_outer = in->a_outer, b_outer = unary ? a_outer : in->b_outer;

	op->in_group = (in->mask == SIM_MASK_PAIR ? 2 * in->outer : in->outer) <= sim->group;
	op->loop.unit = sim->unit;
	op->loop.identity = sim_identity(in->op);
	op->loop.keep_a = sim->masks + (in->tail_a ? in->tail : sim->lanes) * sim->unit;
	op->loop.keep_b = sim->masks + (in->tail_b ? in->tail : sim->lanes) * sim->unit;
	op->loop.flip = in->source == SIM_LANE_XOR ? 1 << in->distance : sim->lanes << in->distance;
	op->manner = SIM_BY_ROW;
	if (in->op == SIM_SETX)
		op->manner = SIM_SET_INDEX;
	else if (sim_indexed(in))
		op->manner = SIM_BY_INDEX;
	else if (op->care.in_order || (tail && (sim_is(SIM_SPECIAL, in->op) || (exchange && inner > 1))))
		;
	else if (sim_is(SIM_SPECIAL, in->op))
	{
		op->manner = SIM_BY_FUNCTION;
		if (inner == 1)
		{
			inner = outer;
			d_inner = d_outer, a_inner = a_outer, b_inner = b_outer;
			outer = 1;
		}
	}
	else
	{
		if (!tail && inner == 1 && d_outer == 1 && a_outer <= 1 && b_outer <= 1 && (!exchange || (a_outer && b_outer)))
		{
			/* the outer loop is the vector */
			inner = outer;
			d_inner = d_outer, a_inner = a_outer, b_inner = b_outer;
			outer = 1;
		}
		else if (!tail && d_inner && d_outer == inner && a_outer == a_inner * inner && b_outer == b_inner * inner)
		{
			/* one loop follows the other: one vector */
			inner *= outer;
			outer = 1;
		}
		if (inner == 1)
			d_inner = a_inner = b_inner = 1;
		if (exchange && (!d_inner || !a_inner || !b_inner || in->tail_a != in->tail_b))
			op->kernel = NULL;
		else if (exchange)
			op->kernel = (tail ? kernels->cross_tail : kernels->cross)[in->op];
		else if (d_inner && tail)
			op->kernel = a_inner && b_inner ? kernels->tail[in->op] : NULL;
		else if (d_inner && a_inner && b_inner)
			op->kernel = kernels->both[in->op];
		else if (d_inner && b_inner)
			op->kernel = kernels->row_a[in->op];
		else if (d_inner && a_inner)
			op->kernel = kernels->row_b[in->op];
		else if (d_inner && unary)
			op->kernel = kernels->row_a[in->op];
		if (op->kernel != NULL)
			op->manner = SIM_BY_KERNEL;
	}
	op->loop.n = inner * sim->unit;
	op->loop.rows = inner;
	op->loop.outer = outer;
	op->loop.d_row = (ptrdiff_t)d_inner * sim->unit;
	op->loop.a_row = (ptrdiff_t)a_inner * sim->unit;
	op->loop.b_row = (ptrdiff_t)b_inner * sim->unit;
	op->loop.d = (ptrdiff_t)d_outer * sim->unit;
	op->loop.a = (ptrdiff_t)a_outer * sim->unit;
	op->loop.b = (ptrdiff_t)b_outer * sim->unit;
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
	sim->rows = malloc(sizeof(float) * ((size_t)unit * 7 + 3 * SPECIAL_BATCH));
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
