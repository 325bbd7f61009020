/*
 * One row of an instruction, in general: what units have a tuple, the operands after index, masks and exchange, the result.
 *
 * In: a verified instruction, which row of its loops. Out: operands, or the row computed. engine.c has quicker ways for
 * whole instructions; this one knows every case.
 */
#include "row.h"

#define IDENTITY(NAME, bits) [SIM_##NAME] = (bits),
/* What leaves the other operand of an operation as it is; +0 where nothing does */
static const uint32_t identities[SIM_ENGINE_CODES] = {SIM_IDENTITIES(IDENTITY)};

/* A row of which each thread's lanes come from where its entry says; `from`: with entries of 0 */
void
sim_row_gather(const struct sim *sim, int32_t o, float *to, const float *from)
{
	for (int32_t t = 0; t < sim->machine.threads; t++)
		sim_copy_lanes(to + t * sim->lanes, from + sim_index_entry(sim, t, o) + t * sim->lanes, sim->lanes);
}

/* Units of threads that have their tuple t */
int32_t
sim_present(const struct sim *sim, int32_t m, int32_t t)
{
	int32_t threads = m > t ? (m - t + sim->group - 1) / sim->group : 0;

	return (threads < sim->machine.threads ? threads : sim->machine.threads) * sim->lanes;
}

/* Which words of an operand's row count: those of the first `units`, and in the last inner row those below the tail */
struct mask
{
	int32_t units, flip;
	const uint32_t *keep, *keep_flipped; /* of units whose bit is clear, and set: these swap their operands */
};

typedef uint32_t word __attribute__((may_alias));

static void
mask_row(word *restrict to, const word *restrict from, int32_t unit, const struct mask *mask, uint32_t identity)
{
	for (int32_t u = 0; u < mask->units; u++)
	{
		const uint32_t keep = u & mask->flip ? mask->keep_flipped[u] : mask->keep[u];

		to[u] = (from[u] & keep) | (identity & ~keep);
	}
	for (int32_t u = mask->units; u < unit; u++)
		to[u] = identity;
}

/*
 * The operands of row (o, i) after index and masks, before an exchange, and the place of its result, without its index.
 * sim->rows holds copies: A, B, the result of special functions or of what is written by index, their operands
 */
void
sim_row_operands(const struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level, int32_t o,
				 int32_t i, float **d, const float **a, const float **b)
{
	const struct sim_instruction *in = &op->i;
	const ptrdiff_t unit = sim->unit;
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * unit;
	const uint32_t identity = identities[in->op];
	const bool exchange = in->source != SIM_MEMORY, tail_a = i == in->inner - 1 && in->tail_a,
			   tail_b = i == in->inner - 1 && in->tail_b;
	const int32_t first_tuple = in->mask == SIM_MASK_PAIR ? 2 * o : o;
	const uint32_t *all = sim->masks + sim->lanes * unit, *below = sim->masks + in->tail * unit;
	struct mask of_a = {.units = sim->unit, .flip = exchange ? op->loop.flip : 0}, of_b;

	if (in->mask != SIM_MASK_NONE)
		of_a.units = sim_present(sim, m, first_tuple);
	of_b = of_a;
	if (!exchange)
		of_b.units = in->mask == SIM_MASK_PAIR ? sim_present(sim, m, first_tuple + 1) : sim->unit;
	of_a.keep = of_b.keep_flipped = tail_a ? below : all;
	of_b.keep = of_a.keep_flipped = tail_b ? below : all;
	*d = sim_result_memory(sim, op) + op->d + level * op->d_level + (o * (ptrdiff_t)in->dst_outer + i * in->dst_inner) * unit;
	*a = (in->a_tuple ? tuples : sim->scratch + level * op->a_level) + op->a +
		 (o * (ptrdiff_t)in->a_outer + i * in->a_inner) * unit;
	if (in->a_index)
	{
		sim_row_gather(sim, o, sim->rows, *a);
		*a = sim->rows;
	}
	*b = *a;
	if (sim_is(SIM_WITH_B, in->op))
	{
		*b = (in->b_tuple ? tuples : sim->scratch) + op->b + (o * (ptrdiff_t)in->b_outer + i * in->b_inner) * unit;
		if (of_b.units < unit || tail_b || (exchange && tail_a))
			mask_row((word *)sim->rows + unit, (const word *)*b, sim->unit, &of_b, identity), *b = sim->rows + unit;
	}
	if (of_a.units < unit || tail_a || (exchange && tail_b))
		mask_row((word *)sim->rows, (const word *)*a, sim->unit, &of_a, identity), *a = sim->rows;
}

/* The operation on one row whose operands are ready */
void
sim_row_apply(const struct sim *sim, const struct sim_op *op, float *d, const float *a, const float *b)
{
	const struct sim_loop row = {.n = sim->unit, .outer = 1, .inner = 1, .flip = op->loop.flip};
	const int32_t width = op->i.scalar ? SIM_CLUSTER : 1, n = sim->unit / width;
	float *x = sim->rows + 3 * sim->unit, *y = x + n, *result = sim->rows + 2 * sim->unit;

	if (op->kernel != NULL)
	{
		op->kernel(&row, d, a, b);
		return;
	}
	for (int32_t k = 0; k < n; k++)
	{
		x[k] = a[k * width];
		y[k] = b[k * width];
	}
	sim->kernels->special(op->i.op, (size_t)n, result, x, y);
	for (int32_t k = 0; k < n; k++, d += width)
		for (int32_t u = 0; u < width; u++)
			d[u] = result[k];
}
