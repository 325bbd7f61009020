/*
 * The survey: a pass over an epoch's pages that looks at the values and trains nothing.
 *
 * In: rounds as the unpacker fills them. Out: of each element of a tuple mean, sum of squared distances from it, and how
 * many are NaN or infinite; how often values of the label are there. A tuple with such an element counts for nothing
 * else, one with a weight as often as that says. The order is that of the pages and the arithmetic binary64, one
 * rounding an operation, so that dana/runtime/survey.py can say the same in NumPy, bit for bit.
 */
#include <string.h>

#include "core.h"

#define EXPONENT UINT32_C(0x7f800000)

/* The same operations, more of them at a time */
#if defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BY_PROCESSOR
#endif

static inline bool
finite(const float *slot, int32_t rows, int32_t lanes, ptrdiff_t unit)
{
	uint32_t bad = 0, word;

	for (int32_t r = 0; r < rows; r++)
		for (int32_t l = 0; l < lanes; l++)
		{
			memcpy(&word, slot + r * unit + l, sizeof word);
			bad |= (word & EXPONENT) == EXPONENT ? 1 : 0;
		}
	return bad == 0;
}

/* Counts the elements that are none */
static void
count_bad(const struct sim *sim, const float *slot)
{
	double *bad = sim->survey->bad;
	uint32_t word;

	for (int32_t r = 0; r < sim->tuple_rows; r++)
		for (int32_t l = 0; l < sim->lanes; l++)
		{
			memcpy(&word, slot + (ptrdiff_t)r * sim->unit + l, sizeof word);
			*bad++ += (word & EXPONENT) == EXPONENT;
		}
}

/* Welford's recurrence (1962): no sum of squares, of which large means leave nothing */
static inline void
add(const struct sim *sim, const float *slot, double weight)
{
	double *mean = sim->survey->mean, *squares = sim->survey->squares;
	const double share = weight / (*sim->survey->weights += weight);

	for (int32_t r = 0; r < sim->tuple_rows; r++, mean += sim->lanes, squares += sim->lanes)
		for (int32_t l = 0; l < sim->lanes; l++)
		{
			const double value = slot[(ptrdiff_t)r * sim->unit + l], away = value - mean[l];

			mean[l] += away * share;
			squares[l] += weight * (away * (value - mean[l]));
		}
}

/* The tuple's weight; tuples of weight 0 might as well not be there */
static double
weigh(const struct sim *sim, const float *slot)
{
	const struct sim_survey *survey = sim->survey;
	const double weight = survey->weight < 0 ? 1 : slot[(ptrdiff_t)survey->weight * sim->unit];
	const double label = survey->label < 0 ? -1 : slot[(ptrdiff_t)survey->label * sim->unit];

	if (weight < 0)
		++*survey->negative;
	else if (label >= 0 && label < (double)survey->count)
		survey->classes[(int64_t)label] += weight;
	return weight;
}

/* Keeps the means of now where the number of tuples is a power of two */
static void
look_back(const struct sim *sim)
{
	const struct sim_survey *survey = sim->survey;
	const uint64_t tuples = (uint64_t)*survey->tuples;
	const size_t size = (size_t)sim->tuple_rows * (size_t)sim->lanes * sizeof(double);

	if ((tuples & (tuples - 1)) != 0)
		return;
	memcpy(survey->earlier, survey->early, size);
	memcpy(survey->early, survey->mean, size);
}

static void
tally_add(struct sim_tally *tally, uint32_t word, double count, double sum)
{
	const uint32_t key = word >> tally->dropped << tally->dropped;
	uint32_t slot = (key * UINT32_C(2654435761)) >> 19;

	while (tally->counts[slot] != 0 && tally->keys[slot] != key)
		slot = (slot + 1) % SIM_TALLY_SLOTS;
	tally->used += tally->counts[slot] == 0;
	tally->keys[slot] = key;
	tally->counts[slot] += count;
	tally->sums[slot] += sum;
}

/* Counts a value; where there are too many, those that differ in one bit more are one */
static void
tally_value(struct sim_tally *tally, float value)
{
	uint32_t word;

	memcpy(&word, &value, sizeof word);
	tally_add(tally, word, 1, value);
	while (tally->used > SIM_TALLY_SLOTS / 2)
	{
		const struct sim_tally before = *tally;

		memset(tally, 0, sizeof *tally);
		tally->dropped = before.dropped + 1;
		for (int i = 0; i < SIM_TALLY_SLOTS; i++)
			if (before.counts[i] != 0)
				tally_add(tally, before.keys[i], before.counts[i], before.sums[i]);
	}
}

/* Looks at the tuples of the round that the unpacker has filled */
BY_PROCESSOR void
sim_survey_round(struct sim *sim)
{
	const struct sim_epoch *e = &sim->e;
	const float *slot = sim->tuples + (ptrdiff_t)e->phase.half * sim->group * sim->tuple_rows * sim->unit;

	for (int32_t m = 0; m < e->phase.in_round; m++)
	{
		const float *tuple = slot + m / sim->group * sim->lanes + m % sim->group * sim->tuple_stride;

		if (finite(tuple, sim->tuple_rows, sim->lanes, sim->unit))
		{
			const double weight = weigh(sim, tuple);

			if (!(weight > 0))
				continue;
			++*sim->survey->tuples;
			add(sim, tuple, weight);
			look_back(sim);
			if (sim->survey->tally != NULL)
				tally_value(sim->survey->tally, tuple[(ptrdiff_t)sim->survey->label * sim->unit]);
		}
		else
			count_bad(sim, tuple);
	}
}
