/*
 * One row of an instruction, in general: what units have a tuple, the operands after index, masks and exchange, the result.
 *
 * In: a verified instruction, which row of its loops. Out: operands, or the row computed. engine.c has quicker ways for
 * whole instructions; this one knows every case.
 */
#include "row.h"

/* What leaves the other operand of the operation as it is; +0 where nothing does */
uint32_t
sim_identity(int op)
{
#define IDENTITY(NAME, bits) [SIM_##NAME] = (bits),
	static const uint32_t identities[SIM_ENGINE_CODES] = {SIM_IDENTITIES(IDENTITY)};

	return identities[op];
}

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

/* A row with the identity from unit `units` on and where `keep` is zero */
static void
mask_row(float *to, const float *from, int32_t unit, int32_t units, const uint32_t *keep, uint32_t identity)
{
	uint32_t words[2];

	for (int32_t u = 0; u < unit; u++)
	{
		memcpy(words, from + u, 4);
		words[1] = u < units && keep[u] ? words[0] : identity;
		memcpy(to + u, words + 1, 4);
	}
}

/* An exchange: units whose bit is set swap their operands */
static void
swap_rows(const struct sim *sim, const struct sim_op *op, float *kept, float *sent, const float **a, const float **b)
{
	for (int32_t u = 0; u < sim->unit; u++)
	{
		const bool set = u & op->loop.flip;

		kept[u] = set ? (*b)[u] : (*a)[u];
		sent[u] = set ? (*a)[u] : (*b)[u];
	}
	*a = kept;
	*b = sent;
}

/* Each unit's second operand becomes that of its partner; LOW and HIGH then have what they write in both */
static void
receive_row(const struct sim *sim, const struct sim_op *op, float *taken, const float **a, const float **b)
{
	const bool low = op->i.op == SIM_LOW, high = op->i.op == SIM_HIGH;

	for (int32_t u = 0; u < sim->unit; u++)
	{
		const bool set = u & op->loop.flip, own = (low && !set) || (high && set);

		taken[u] = own ? (*a)[u] : (*b)[u ^ op->loop.flip];
	}
	*b = taken;
	if (low || high)
		*a = taken;
}

/*
 * The operands of row (o, i) after masks and exchange, and the place of its result, without its index.
 * sim->rows holds copies: A, B, B on its way in an exchange or the result of special functions, their operands
 */
void
sim_row_operands(const struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level, int32_t o,
			   int32_t i, float **d, const float **a, const float **b)
{
	const struct sim_instruction *in = &op->i;
	const ptrdiff_t unit = sim->unit;
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * unit;
	const uint32_t identity = sim_identity(in->op);
	const bool last = i == in->inner - 1;
	const int32_t first_tuple = in->mask == SIM_MASK_PAIR ? 2 * o : o;
	const uint32_t *everywhere = sim->masks + sim->lanes * unit, *tail = sim->masks + in->tail * unit;
	const int32_t units_a = in->mask == SIM_MASK_NONE ? sim->unit : sim_present(sim, m, first_tuple);
	const bool exchange = in->source != SIM_MEMORY;
	const int32_t all_b = exchange ? units_a : sim->unit;
	const int32_t units_b = in->mask == SIM_MASK_PAIR ? sim_present(sim, m, first_tuple + 1) : all_b;
	float *other = sim->rows + (exchange ? 2 : 1) * unit;

	*d = sim->scratch + op->d + level * op->d_level + (o * (ptrdiff_t)in->dst_outer + i * in->dst_inner) * unit;
	*a = (in->a_tuple ? tuples : sim->scratch + level * op->a_level) + op->a +
		 (o * (ptrdiff_t)in->a_outer + i * in->a_inner) * unit;
	if (sim_is(SIM_WITH_B, in->op))
		*b = (in->b_tuple ? tuples : sim->scratch) + op->b + (o * (ptrdiff_t)in->b_outer + i * in->b_inner) * unit;
	if (exchange)
		swap_rows(sim, op, sim->rows, other, a, b);
	if (in->a_index)
	{
		sim_row_gather(sim, o, sim->rows, *a);
		*a = sim->rows;
	}
	if (units_a < unit || (last && in->tail_a))
	{
		mask_row(sim->rows, *a, sim->unit, units_a, last && in->tail_a ? tail : everywhere, identity);
		*a = sim->rows;
	}
	if (!sim_is(SIM_WITH_B, in->op))
	{
		*b = *a;
		return;
	}
	if (units_b < unit || (last && in->tail_b))
	{
		mask_row(other, *b, sim->unit, units_b, last && in->tail_b ? tail : everywhere, identity);
		*b = other;
	}
	if (exchange)
		receive_row(sim, op, sim->rows + unit, a, b);
}

/* The operation on one row whose operands are ready */
void
sim_row_apply(const struct sim *sim, const struct sim_op *op, float *d, const float *a, const float *b)
{
	const int code = op->i.op;
	const struct sim_loop row = {.n = sim->unit, .outer = 1, .unit = sim->unit};

	if (!sim_is(SIM_SPECIAL, code))
		sim->kernels->both[code](&row, d, a, b);
	else if (!op->i.scalar)
	{
		float *result = sim->rows + 2 * sim->unit;

		sim->kernels->special(code, (size_t)sim->unit, result, a, b);
		memcpy(d, result, sizeof(float) * (size_t)sim->unit);
	}
	else
		for (int32_t u = 0; u < sim->unit; u += SIM_CLUSTER)
		{
			float result;

			sim->kernels->special(code, 1, &result, a + u, b + u);
			for (int32_t k = 0; k < SIM_CLUSTER; k++)
				d[u + k] = result;
		}
}
