/*
 * The survey: a pass over an epoch's pages that looks at the values and trains nothing.
 *
 * In: rounds as the unpacker fills them. Out: of each element of a tuple mean, sum of squared distances from it, and how
 * many are NaN or infinite; how often values of the label are there. A tuple with such an element counts for nothing
 * else, one with a weight as often as that says. The order is that of the pages and the arithmetic binary64, one
 * rounding an operation, so that dana/runtime/survey.py can say the same in NumPy, bit for bit.
 *
 * Tuples come in blocks, of which distances are summed from the mean as it was before the block: no sum of squares, of
 * which large means leave nothing, and no mean that each tuple has to wait for. A block ends where SIM_SURVEY_BLOCK
 * divides the number of tuples, or where that is a power of two.
 */
#include <math.h>
#include <string.h>

#include "core.h"

#define EXPONENT UINT32_C(0x7f800000)

/* The same operations, more of them at a time */
#if defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BY_PROCESSOR
#endif

/* As many as a register of AVX2 has; wider ones are taken apart through memory */
#define VECTOR 4
typedef float floats __attribute__((vector_size(VECTOR * sizeof(float))));
typedef double doubles __attribute__((vector_size(VECTOR * sizeof(double))));

static inline bool
is_finite(const float *slot, int32_t rows, int32_t lanes, ptrdiff_t unit)
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

/* Adds tuples, each with the weight, to the block's sums */
BY_PROCESSOR static void
add(const struct sim *sim, const float *const *tuples, int32_t count, double weight)
{
	const double *mean = sim->survey->mean;
	double *sums = sim->survey->sums, *squares = sim->survey->sums_of_squares;

	for (int32_t r = 0; r < sim->tuple_rows; r++)
		for (int32_t l = 0; l < sim->lanes; l += VECTOR, mean += VECTOR, sums += VECTOR, squares += VECTOR)
		{
			const ptrdiff_t element = (ptrdiff_t)r * sim->unit + l;
			doubles centre, sum, square;

			memcpy(&centre, mean, sizeof centre);
			memcpy(&sum, sums, sizeof sum);
			memcpy(&square, squares, sizeof square);
			for (int32_t t = 0; t < count; t++)
			{
				floats value;
				doubles away, weighed;

				memcpy(&value, tuples[t] + element, sizeof value);
				away = __builtin_convertvector(value, doubles) - centre;
				weighed = weight * away;
				sum += weighed;
				square += weighed * away;
			}
			memcpy(sums, &sum, sizeof sum);
			memcpy(squares, &square, sizeof square);
		}
}

/* Ends a block: moves the mean, and the squares' sum to distances from it */
static void
end_block(const struct sim_survey *survey, size_t elements)
{
	const double total = *survey->weights;

	for (size_t k = 0; k < elements; k++)
	{
		const double sum = survey->sums[k];

		survey->mean[k] += sum / total;
		survey->squares[k] += fmax(survey->sums_of_squares[k] - sum * sum / total, 0);
		survey->sums[k] = survey->sums_of_squares[k] = 0;
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

/* Elements of a tuple */
static inline size_t
elements_of(const struct sim *sim)
{
	return (size_t)sim->tuple_rows * (size_t)sim->lanes;
}

/* Tuples until the block ends */
static inline int32_t
left_of_block(uint64_t tuples)
{
	if (tuples == 0)
		return 1;
	if (tuples >= SIM_SURVEY_BLOCK)
		return SIM_SURVEY_BLOCK - (int32_t)(tuples % SIM_SURVEY_BLOCK);
	return (int32_t)((UINT64_C(2) << (63 - __builtin_clzll(tuples))) - tuples);
}

/* Tuples have been added; keeps the means of now where their number is a power of two */
static void
count_tuples(const struct sim *sim, int32_t count)
{
	const struct sim_survey *survey = sim->survey;
	const uint64_t tuples = (uint64_t)(*survey->tuples += count);
	const size_t size = elements_of(sim) * sizeof(double);

	if ((tuples & (tuples - 1)) != 0 && tuples % SIM_SURVEY_BLOCK != 0)
		return;
	end_block(survey, elements_of(sim));
	if ((tuples & (tuples - 1)) != 0)
		return;
	memcpy(survey->earlier, survey->early, size);
	memcpy(survey->early, survey->mean, size);
}

/* The survey ends, most likely within a block */
void
sim_survey_end(struct sim *sim)
{
	if (*sim->survey->tuples > 0)
		end_block(sim->survey, elements_of(sim));
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

/* Adds tuples of weight 1 as if all their elements were finite; false: they are not, and nothing was added */
static bool
add_finite(const struct sim *sim, const float *const *tuples, int32_t count)
{
	const struct sim_survey *survey = sim->survey;
	const size_t elements = elements_of(sim), size = elements * sizeof(double);
	bool finite = true;

	memcpy(survey->before, survey->sums, size);
	memcpy(survey->before + elements, survey->sums_of_squares, size);
	add(sim, tuples, count, 1);
	/* squares of binary32 are finite in binary64, and nothing makes a NaN or an infinity finite again */
	for (size_t k = 0; k < elements; k++)
		finite &= survey->sums_of_squares[k] < INFINITY;
	if (finite)
		return true;
	memcpy(survey->sums, survey->before, size);
	memcpy(survey->sums_of_squares, survey->before + elements, size);
	return false;
}

/* Looks at tuples of one block */
static void
look_at(const struct sim *sim, const float *const *tuples, int32_t count)
{
	const struct sim_survey *survey = sim->survey;
	const bool together = survey->weight < 0 && add_finite(sim, tuples, count);

	for (int32_t t = 0; t < count; t++)
	{
		double weight;

		if (!together && !is_finite(tuples[t], sim->tuple_rows, sim->lanes, sim->unit))
		{
			count_bad(sim, tuples[t]);
			continue;
		}
		weight = weigh(sim, tuples[t]);
		if (!(weight > 0))
			continue;
		*survey->weights += weight;
		if (!together)
		{
			add(sim, &tuples[t], 1, weight);
			count_tuples(sim, 1);
		}
		if (survey->tally != NULL)
			tally_value(survey->tally, tuples[t][(ptrdiff_t)survey->label * sim->unit]);
	}
	if (together)
		count_tuples(sim, count);
}

/* Looks at the tuples of the round that the unpacker has filled */
void
sim_survey_round(struct sim *sim)
{
	const struct sim_epoch *e = &sim->e;
	const float *slot = sim->tuples + (ptrdiff_t)e->phase.half * sim->group * sim->tuple_rows * sim->unit;
	const float *tuples[SIM_SURVEY_BLOCK];

	for (int32_t m = 0, count; m < e->phase.in_round; m += count)
	{
		const int32_t left = left_of_block((uint64_t)*sim->survey->tuples);

		for (count = 0; count < left && m + count < e->phase.in_round; count++)
			tuples[count] = slot + (m + count) / sim->group * sim->lanes + (m + count) % sim->group * sim->tuple_stride;
		look_at(sim, tuples, count);
	}
}
