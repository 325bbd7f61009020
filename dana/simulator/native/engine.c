/*
 * The execution engine: instructions, row by row of the scratchpad and of tuple memory, and the threads' index files.
 *
 * In: a verified program, the half of tuple memory and the number of tuples of a round. Out: the scratchpad, the
 * outbox, the fault INDEX. Memory is laid out [row][thread][lane], so that a row of all threads is one vector; a unit's
 * number is thread * lanes + lane, and both exchanges flip a bit of it. This is docs/machine.md section 2, but for the
 * times: of a program that reads results before they are visible pipeline.c holds them back.
 */
#include <stdlib.h>
#include <string.h>

#include "narrow.h"
#include "state.h"
#include "numerics.h"

/* --- rows -------------------------------------------------------------------------------------------------------- */

#define IDENTITY(NAME, bits) [SIM_##NAME] = (bits),
/* What leaves the other operand of an operation as it is; +0 where nothing does */
static const uint32_t identities[SIM_ENGINE_CODES] = {SIM_IDENTITIES(IDENTITY)};

/* Units of threads that have their tuple t */
static int32_t
present(const struct sim *sim, int32_t m, int32_t t)
{
	int32_t threads = m > t ? (m - t + sim->group - 1) / sim->group : 0;

	return (threads < sim->machine.threads ? threads : sim->machine.threads) * sim->lanes;
}

/* The entry of the index file that a row uses or sets */
static inline int32_t
entry_of(const struct sim_instruction *in, int32_t o, int32_t i)
{
	return in->each ? o * in->inner + i : o;
}

/* Between a row and those that an entry of the threads' chooses, `chosen` with entries of 0, of some units */
static void
move_chosen(const struct sim *sim, int32_t entry, int32_t units, float *row, float *chosen, bool stores)
{
	for (int32_t u = 0, t = 0; u < units; u += sim->lanes, t++)
	{
		float *own = row + u, *other = chosen + sim->index[t * sim->machine.index_depth + entry] + u;

		memcpy(stores ? other : own, stores ? own : other, sizeof *own * (size_t)sim->lanes);
		if (stores)
			sim_narrow(sim, other, sim->lanes);
	}
}

/* Which words of an operand's row count: those of the first `units`, and in the last inner row those below the tail */
struct mask
{
	int32_t units, flip;
	const uint32_t *keep, *keep_flipped; /* for units with the bit clear, and set: these swap their operands */
};

typedef uint32_t word __attribute__((may_alias));

static const float *
mask_row(float *to, const float *from, int32_t unit, const struct mask *mask, uint32_t identity)
{
	word *restrict words = (word *)to;
	const word *of = (const word *)from;

	for (int32_t u = 0; u < unit; u++)
	{
		const uint32_t own = mask->keep[u], flipped = mask->keep_flipped[u];
		const uint32_t keep = u >= mask->units ? 0 : u & mask->flip ? flipped : own;

		words[u] = (of[u] & keep) | (identity & ~keep);
	}
	return to;
}

/* Replaces operands with masked words by copies */
static void
mask_operands(const struct sim *sim, const struct sim_instruction *in, int32_t m, int32_t o, int32_t i, const float **a,
			  const float **b)
{
	const bool exchange = in->source != SIM_MEMORY, last = i == in->inner - 1, tail_a = last && in->tail_a,
			   tail_b = last && in->tail_b;
	const int32_t first = in->mask == SIM_MASK_PAIR ? 2 * o : o, unit = sim->unit;
	const uint32_t *all = sim->masks + sim->lanes * unit, *below = sim->masks + in->tail * unit;
	struct mask of_a = {.units = in->mask == SIM_MASK_NONE ? unit : present(sim, m, first),
						.flip = exchange ? sim_partner_bit(sim, in) : 0};
	struct mask of_b = of_a;

	if (!exchange)
		of_b.units = in->mask == SIM_MASK_PAIR ? present(sim, m, first + 1) : unit;
	if (of_a.units == unit && of_b.units == unit && !tail_a && !tail_b)
		return;
	of_a.keep = of_b.keep_flipped = tail_a ? below : all;
	of_b.keep = of_a.keep_flipped = tail_b ? below : all;
	if (sim_is(SIM_WITH_B, in->op))
		*b = mask_row(sim->rows + unit, *b, unit, &of_b, identities[in->op]);
	*a = mask_row(sim->rows, *a, unit, &of_a, identities[in->op]);
}

/*
 * The operands of row (o, i) after index and masks, before an exchange, and the place of its result, without its index.
 * sim->rows holds copies: A, B, the result of what is written by index, two operands
 */
static void
operands(const struct sim *sim, const struct sim_instruction *in, int32_t half, int32_t m, int32_t level, int32_t o,
		 int32_t i, float **d, const float **a, const float **b)
{
	const ptrdiff_t unit = sim->unit, shift = level * (ptrdiff_t)sim->level_stride;
	float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * unit;
	float *from = (in->a_tuple ? tuples : sim->scratch + in->a_level * shift * unit) +
				  (in->a + o * (ptrdiff_t)in->a_outer + i * in->a_inner) * unit;

	*d = (in->op == SIM_PUT ? sim->outbox : sim->scratch) +
		 (in->dst + o * (ptrdiff_t)in->dst_outer + i * in->dst_inner + in->dst_level * shift) * unit;
	if (in->a_index)
		move_chosen(sim, entry_of(in, o, i), sim->unit, sim->rows, from, false);
	*a = *b = in->a_index ? sim->rows : from;
	if (sim_is(SIM_WITH_B, in->op))
		*b = (in->b_tuple ? tuples : sim->scratch) + (in->b + o * (ptrdiff_t)in->b_outer + i * in->b_inner) * unit;
	if (in->mask != SIM_MASK_NONE || in->tail_a || in->tail_b)
		mask_operands(sim, in, m, o, i, a, b);
}

/* Whether two places are the same, or as far apart as n floats are long */
static bool
apart(const float *x, const float *y, ptrdiff_t n)
{
	return x == y || x + n <= y || y + n <= x;
}

/*
 * Rows that are computed at a time from the first of round o on: all that are left or those of the round, if nothing is
 * said of single ones, they lie one behind the other, and none is read that one before it has written.
 */
static int32_t
several(const struct sim *sim, const struct sim_instruction *in, int32_t o, const float *d, const float *a,
		const float *b)
{
	const bool alike = in->source == SIM_MEMORY && in->mask == SIM_MASK_NONE && !in->scalar && !in->tail_a &&
		!in->tail_b && !in->a_index;
	const bool with_b = sim_is(SIM_WITH_B, in->op);
	const bool round = in->inner == 1 || (in->dst_inner && in->a_inner && (in->b_inner || !with_b));
	const bool all = o == 0 && in->dst_outer == in->inner && in->a_outer == in->inner &&
		(in->b_outer == in->inner || !with_b);
	const int32_t rows = all ? in->inner * in->outer : in->inner;
	const ptrdiff_t n = rows * (ptrdiff_t)sim->unit;

	return alike && round && apart(d, a, n) && (!with_b || apart(d, b, n)) ? rows : 1;
}

/* One row with a result that goes where its entries say, of threads that have their tuple */
static void
apply_chosen(const struct sim *sim, const struct sim_instruction *in, int32_t m, int32_t o, int32_t i, float *d,
			 const float *a, const float *b)
{
	const int32_t entry = entry_of(in, o, i);
	const int32_t units = in->mask == SIM_MASK_NONE ? sim->unit : present(sim, m, o);
	float *result = sim->rows + 2 * sim->unit;

	if (in->op == SIM_MOVC)
		move_chosen(sim, entry, sim->unit, result, d, false);
	sim_row_apply(sim, in, 1, result, a, b);
	move_chosen(sim, entry, units, result, d, true);
}

/* --- instructions ------------------------------------------------------------------------------------------------ */

/* SETX; a number that names no row is a fault at the section's end: of the first tuple, and of it the first. Entries are
 * kept in floats from a row to the one chosen. */
static void
set_index(struct sim *sim, const struct sim_instruction *in, int32_t half, int32_t m)
{
	const float *tuples = sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit;
	const float *row = (in->a_tuple ? tuples : sim->scratch) + in->a * (ptrdiff_t)sim->unit;

	for (int32_t r = 0; r < in->outer * in->inner; r++)
	{
		const int32_t o = r / in->inner, i = r % in->inner;
		const int32_t units = in->mask == SIM_MASK_NONE ? sim->unit : present(sim, m, o);
		const float *number = row + (o * (ptrdiff_t)in->a_outer + i * in->a_inner) * sim->unit;

		for (int32_t t = 0; t < sim->machine.threads; t++)
		{
			const float n = t * sim->lanes < units ? dn_flush(number[t * sim->lanes]) : 0.0f;
			const bool is_row = n >= 0.0f && n < (float)in->dst && n == (float)(int32_t)n;
			const int32_t place = t * sim->machine.index_depth + o;

			if (!is_row && (sim->e.fault != SIM_FAULT_INDEX || place < sim->e.wrong))
			{
				(void)sim_engine_fault(sim, SIM_FAULT_INDEX, (uint32_t)in->b);
				sim->e.wrong = place;
			}
			sim->index[t * sim->machine.index_depth + (in->each ? r : o)] = is_row ? (int32_t)n * in->dst_outer * (ptrdiff_t)sim->unit : 0;
		}
	}
}

void
sim_engine_run(struct sim *sim, enum sim_section section, int32_t half, int32_t m, int32_t level)
{
	const struct sim_code *code = &sim->sections[section];
	int64_t cycle = 0;

	for (const struct sim_instruction *in = code->first; in < code->first + code->n; in++)
	{
		const int32_t interval = sim_interval(sim, in);

		cycle += in->wait;
		if (in->op == SIM_SETX)
		{
			set_index(sim, in, half, m);
			continue; /* of a program with one no result is held back */
		}
		for (int32_t r = 0, rows = 1; r < in->outer * in->inner; r += rows, cycle += interval)
		{
			const int32_t o = r / in->inner, i = r % in->inner;
			float *d;
			const float *a, *b;

			if (sim->overlaps)
				sim_pipeline_settle(sim, cycle);
			operands(sim, in, half, m, level, o, i, &d, &a, &b);
			if (sim->overlaps)
				sim_pipeline_issue(sim, in, d, a, b, cycle);
			else if (in->dst_index)
				apply_chosen(sim, in, m, o, i, d, a, b);
			else
			{
				rows = i == 0 ? several(sim, in, o, d, a, b) : 1;
				sim_row_apply(sim, in, rows, d, a, b);
				sim_narrow(sim, d, rows * (ptrdiff_t)sim->unit);
			}
		}
	}
	if (sim->overlaps)
		sim_pipeline_settle(sim, INT64_MAX - 1); /* all results are visible at the section's end */
}

/* Takes the program over from the Bundle; sim_verify() has passed */
bool
sim_engine_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	const size_t unit = (size_t)sim->unit;

	sim->level_stride = bundle->level_stride;
	sim->program = calloc((size_t)bundle->n_program + 1, sizeof *sim->program);
	sim->masks = malloc(sizeof *sim->masks * (size_t)(sim->lanes + 1) * unit);
	sim->rows = malloc(sizeof *sim->rows * unit * 5);
	sim->index = calloc((size_t)sim->machine.threads * (size_t)sim->machine.index_depth + 1, sizeof *sim->index);
	if (sim->index == NULL || sim->program == NULL || sim->masks == NULL || sim->rows == NULL)
		return false;
	memcpy(sim->program, bundle->program, sizeof *sim->program * (size_t)bundle->n_program);
	for (int s = 0; s < SIM_SECTIONS; s++)
		sim->sections[s].first = sim->program + (bundle->sections[s] < 0 ? 0 : bundle->sections[s]);
	for (int32_t t = 0; t <= sim->lanes; t++)
		for (int32_t u = 0; u < sim->unit; u++)
			sim->masks[t * sim->unit + u] = u % sim->lanes < t ? UINT32_MAX : 0;
	return true;
}
