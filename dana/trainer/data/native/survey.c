/*
 * The survey: statistics of the values of an epoch, in a separate pass or during the first epoch.
 *
 * Columns are read in place. The results are, for each element of a tuple, the mean, the sum of squared distances from
 * it and the number of NaN and infinite values, or only whether it differs between tuples; and the counts of the values
 * of the label. A tuple with a NaN or an infinity is otherwise ignored; a weight counts a tuple that many times. Values
 * are processed in the order of the pages in binary64 with one rounding per operation, so that
 * dana/trainer/data/survey.py computes the same bits with NumPy.
 *
 * Distances are summed by blocks, from the mean before the block. A plain sum of squares would lose its digits if the
 * mean is large, and an exact running mean would serialise the tuples. A block ends where the number of tuples is a
 * multiple of DANA_SURVEY_BLOCK or a power of two.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "number.h"
#include "survey.h"
#include "tally.h"

#define EXPORT __attribute__((visibility("default")))
#define EXPONENT UINT32_C(0x7f800000)
#define CACHE_LINE 64

/* Wider vectors where the processor has them; the results are the same */
#if defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BY_PROCESSOR
#endif

/* Doubles in a register of AVX2; GCC would split wider vectors through memory */
#define VECTOR 4
typedef double doubles __attribute__((vector_size(VECTOR * sizeof(double))));
/* Vectors with sums that stay in registers */
#define SIDE 3
#define WORDS 8
/* Vectors of a tuple that are compared before the next tuple's */
#define MANY 4
typedef uint32_t words __attribute__((vector_size(WORDS * sizeof(uint32_t))));

/* A column of a block's tuples */
struct taken
{
	ptrdiff_t element; /* of a tuple: the first one */
	int32_t count;
	const uint8_t *at[DANA_SURVEY_BLOCK]; /* each tuple's, binary32 */
};

/* The hash of survey.h that this file was built with */
EXPORT uint64_t
dana_survey_contract(void)
{
	return DANA_SURVEY_CONTRACT;
}

/* Elements of a tuple */
static inline size_t
elements_of(const struct dana_survey *survey)
{
	return (size_t)survey->rows * (size_t)survey->lanes;
}

static inline float
number(const uint8_t *at)
{
	float value;

	memcpy(&value, at, sizeof value);
	return dn_flush(value);
}

static inline bool
is_finite(const float *tuple, size_t elements)
{
	bool finite = true;

	for (size_t k = 0; k < elements; k++)
		finite &= (dn_bits(tuple[k]) & EXPONENT) != EXPONENT;
	return finite;
}

/* Adds what is at `count` places to the block's sums of the elements from `element` on, of some vectors side by side: each
 * addition waits for the one of the tuple before. `weight`: NULL for 1. To `squares`: what is finite in binary64 where the
 * numbers are in binary32; nothing makes a NaN or an infinity finite again, nor a sum of squares less. */
static inline __attribute__((always_inline)) void
add_vectors(const struct dana_survey *survey, ptrdiff_t element, const uint8_t *const *at, ptrdiff_t offset, int32_t count,
			int32_t vectors, const doubles *weight, doubles *squares)
{
	doubles centre[SIDE], sum[SIDE], square[SIDE];

#pragma GCC unroll 4 /* one by one, they are registers */
	for (int32_t v = 0; v < vectors; v++)
	{
		memcpy(&centre[v], survey->mean + element + v * VECTOR, sizeof centre[v]);
		memcpy(&sum[v], survey->sums + element + v * VECTOR, sizeof sum[v]);
		memcpy(&square[v], survey->sums_of_squares + element + v * VECTOR, sizeof square[v]);
	}
	for (int32_t t = 0; t < count; t++)
#pragma GCC unroll 4
		for (int32_t v = 0; v < vectors; v++)
		{
			float value[VECTOR];
			doubles away, weighed;

			memcpy(&value, at[t] + (offset + v * VECTOR) * (ptrdiff_t)sizeof(float), sizeof value);
			away = (doubles){value[0], value[1], value[2], value[3]} - centre[v]; /* GCC 12: one instruction */
			weighed = weight == NULL ? away : *weight * away;
			sum[v] += weighed;
			square[v] += weighed * away;
		}
#pragma GCC unroll 4
	for (int32_t v = 0; v < vectors; v++)
	{
		memcpy(survey->sums + element + v * VECTOR, &sum[v], sizeof sum[v]);
		memcpy(survey->sums_of_squares + element + v * VECTOR, &square[v], sizeof square[v]);
		*squares += square[v];
	}
}

/* Adds a column to the block's sums; false: one of it is NaN or infinite */
BY_PROCESSOR static bool
add(const struct dana_survey *survey, const struct taken *column, int32_t count, double weight)
{
	const int32_t n = column->count;
	const doubles whole = {weight, weight, weight, weight};
	doubles rest = whole, squares = {0};
	bool finite;
	int32_t k = 0;

	for (; weight == 1 && k + SIDE * VECTOR <= n; k += SIDE * VECTOR)
		add_vectors(survey, column->element + k, column->at, k, count, SIDE, NULL, &squares);
	for (; k + VECTOR <= n; k += VECTOR)
		add_vectors(survey, column->element + k, column->at, k, count, 1, &whole, &squares);
	if (n > VECTOR && n % VECTOR > 0)
	{ /* once more the last ones, those that are in the sums with weight 0, which changes no finite sum */
		for (int32_t v = 0; v < VECTOR - n % VECTOR; v++)
			rest[v] = 0;
		add_vectors(survey, column->element + n - VECTOR, column->at, n - VECTOR, count, 1, &rest, &squares);
		k = n;
	}
	for (int32_t v = 1; v < VECTOR; v++)
		squares[0] += squares[v];
	finite = squares[0] < INFINITY;
	for (; k < n; k++)
	{
		const double centre = survey->mean[column->element + k];
		double sum = survey->sums[column->element + k], square = survey->sums_of_squares[column->element + k];

		for (int32_t t = 0; t < count; t++)
		{
			const double away = (double)number(column->at[t] + k * (ptrdiff_t)sizeof(float)) - centre;
			const double weighed = weight * away;

			sum += weighed;
			square += weighed * away;
		}
		survey->sums[column->element + k] = sum;
		survey->sums_of_squares[column->element + k] = square;
		finite &= square < INFINITY;
	}
	return finite;
}

/* Records which elements of some vectors side by side differ from the first tuple; to `wrong`: which are NaN or infinite */
static inline __attribute__((always_inline)) void
compare_vectors(const uint32_t *first, uint32_t *differ, const uint8_t *const *at, ptrdiff_t offset, int32_t count,
				int32_t vectors, words *wrong)
{
	words same[MANY], differs[MANY];

#pragma GCC unroll 4 /* one by one, they are registers */
	for (int32_t v = 0; v < vectors; v++)
	{
		memcpy(&same[v], first + offset + v * WORDS, sizeof same[v]);
		memcpy(&differs[v], differ + offset + v * WORDS, sizeof differs[v]);
	}
	for (int32_t t = 0; t < count; t++)
#pragma GCC unroll 4
		for (int32_t v = 0; v < vectors; v++)
		{
			words word;

			memcpy(&word, at[t] + (offset + v * WORDS) * (ptrdiff_t)sizeof(uint32_t), sizeof word);
			differs[v] |= word ^ same[v];
			*wrong |= (words)((word & EXPONENT) == EXPONENT);
		}
#pragma GCC unroll 4
	for (int32_t v = 0; v < vectors; v++)
		memcpy(differ + offset + v * WORDS, &differs[v], sizeof differs[v]);
}

/* Where the vectors behind those at k begin: earlier where there are too few left, as to look twice changes nothing */
static inline int32_t
behind(int32_t k, int32_t n, int32_t size)
{
	return k + size <= n - size || k + size == n ? k + size : n - size;
}

/* Records which elements of a column differ from the first tuple; false: one is NaN or infinite */
BY_PROCESSOR static bool
compare(const struct dana_survey *survey, const struct taken *column, int32_t count)
{
	const uint32_t *first = survey->first + column->element;
	uint32_t *differ = survey->differ + column->element;
	const int32_t n = column->count;
	words wrong = {0};
	uint32_t bad = 0;
	int32_t k = 0;

	for (; k < n && n >= MANY * WORDS; k = behind(k, n, MANY * WORDS))
		compare_vectors(first, differ, column->at, k, count, MANY, &wrong);
	for (; k < n && n >= WORDS; k = behind(k, n, WORDS))
		compare_vectors(first, differ, column->at, k, count, 1, &wrong);
	for (; k < n; k++)
		for (int32_t t = 0; t < count; t++)
		{
			uint32_t word;

			memcpy(&word, column->at[t] + k * (ptrdiff_t)sizeof word, sizeof word);
			differ[k] |= word ^ first[k];
			bad |= (word & EXPONENT) == EXPONENT;
		}
	for (int32_t w = 0; w < WORDS; w++)
		bad |= wrong[w];
	return bad == 0;
}

/* Ends a block: moves the means, and the squares' sums to distances from them. Of those, what a block's mean is away from
 * that of all before it is between the blocks; the first DANA_SURVEY_BLOCK tuples are one. The last block counts as if it
 * were full, of tuples that are as all others: a tuple by itself is together with none. */
static void
end_block(const struct dana_survey *survey)
{
	const double total = *survey->weights, before = *survey->weights_before;
	const bool later = *survey->tuples > DANA_SURVEY_BLOCK && total > before;
	const uint64_t rest = (uint64_t)*survey->tuples % DANA_SURVEY_BLOCK;
	const double full = rest > 0 ? DANA_SURVEY_BLOCK / (double)rest : 1;
	const double apart = later ? before / (total * (total - before) * full) : 0;

	for (ptrdiff_t row = 0; row < survey->rows; row++)
		for (ptrdiff_t k = row * survey->lanes; survey->summed[row] && k < (row + 1) * survey->lanes; k++)
		{
			const double sum = survey->sums[k], square = survey->sums_of_squares[k] - sum * sum / total;

			survey->mean[k] += sum / total;
			survey->squares[k] += square > 0 ? square : 0;
			survey->between[k] += sum * sum * apart;
			survey->sums[k] = survey->sums_of_squares[k] = 0;
		}
	*survey->weights_before = total;
}

/* A weight and a label; tuples of weight 0 are ignored */
static void
weigh(const struct dana_survey *survey, double weight, float label)
{
	if (weight < 0)
		++*survey->negative;
	else if (label >= 0 && label < (double)survey->count)
		survey->classes[(int64_t)label] += weight;
}

/* Tuples until the block ends */
static inline int32_t
left_of_block(uint64_t tuples)
{
	if (tuples == 0)
		return 1;
	if (tuples >= DANA_SURVEY_BLOCK)
		return DANA_SURVEY_BLOCK - (int32_t)(tuples % DANA_SURVEY_BLOCK);
	return (int32_t)((UINT64_C(2) << (63 - __builtin_clzll(tuples))) - tuples);
}

/* Tuples have been added; keeps the means of now where their number is a power of two */
static void
count_tuples(const struct dana_survey *survey, int32_t count)
{
	const uint64_t tuples = (uint64_t)(*survey->tuples += count);
	const size_t size = elements_of(survey) * sizeof(double);

	if (tuples % DANA_SURVEY_BLOCK == 0)
		tally_block(survey, survey->kinds > 0 ? DANA_SURVEY_BLOCK : 0);
	else if ((tuples & (tuples - 1)) != 0)
		return;
	end_block(survey);
	if ((tuples & (tuples - 1)) != 0)
		return;
	memcpy(survey->earlier, survey->early, size);
	memcpy(survey->early, survey->mean, size);
}

/* The survey ends, most likely within a block */
EXPORT void
dana_survey_end(void *context)
{
	const struct dana_survey *survey = context;

	if (*survey->tuples > 0)
		end_block(survey);
	if (survey->kinds > 0)
		tally_block(survey, (int32_t)((uint64_t)*survey->tuples % DANA_SURVEY_BLOCK));
}

/* A single tuple, assembled from its columns */
static void
look_at_tuple(const struct dana_survey *survey, const float *tuple)
{
	const size_t elements = elements_of(survey);
	const float label = survey->label < 0 ? -1.0f : tuple[survey->label * survey->lanes];
	const double weight = survey->weight < 0 ? 1.0 : tuple[survey->weight * survey->lanes];
	const struct taken all = {.count = (int32_t)elements, .at = {(const uint8_t *)tuple}};

	if (!is_finite(tuple, elements))
	{
		for (size_t k = 0; k < elements; k++)
			survey->bad[k] += (dn_bits(tuple[k]) & EXPONENT) == EXPONENT;
		return;
	}
	weigh(survey, weight, label);
	if (!(weight > 0))
		return;
	if (*survey->tuples == 0)
		memcpy(survey->first, tuple, elements * sizeof *tuple);
	*survey->weights += weight;
	(void)add(survey, &all, 1, weight);
	(void)compare(survey, &all, 1);
	survey->labels[(uint64_t)*survey->tuples % DANA_SURVEY_BLOCK] = label;
	count_tuples(survey, 1);
	if (survey->tally != NULL)
		tally_value(survey->tally, label, weight);
}

/* A column of a tuple, as binary32 where the elements of the tuple lie */
static void
put(const struct dana_survey *survey, const struct sim_column *column, const uint8_t *from, float *tuple)
{
	const int32_t size = column->bytes / column->count;

	tuple += (ptrdiff_t)column->row * survey->lanes + column->lane;
	for (int32_t k = 0; k < column->count; k++)
		tuple[k] = sim_number(column->type, from + k * size);
}

BY_PROCESSOR static void
point(const uint8_t **at, const uint8_t *page, const uint32_t *address, uint32_t offset, int32_t count)
{
	for (int32_t t = 0; t < count; t++)
		at[t] = page + (uint32_t)(address[t] + offset);
}

/* A column of `count` tuples from the page's row on, where it lies if it is binary32 and nothing flushes it by hand */
static void
take(const struct dana_survey *survey, const uint8_t *page, const struct sim_handed *handed, int32_t row, int32_t count,
	 struct taken *taken)
{
	const struct sim_column *column = handed->column;
	const ptrdiff_t elements = (ptrdiff_t)elements_of(survey);

	taken->element = (ptrdiff_t)column->row * survey->lanes + column->lane;
	taken->count = column->count;
	point(taken->at, page, handed->address + row, handed->offset, count);
#ifndef DN_PORTABLE
	if (column->type == SIM_FLOAT4)
	{
		/* sums and comparisons go through the tuples several times, for a part of the elements each: all lines at once */
		for (int32_t t = 0; t < count; t++)
			for (int32_t k = 0; k < column->bytes; k += CACHE_LINE)
				__builtin_prefetch(taken->at[t] + k);
		return;
	}
#endif
	for (int32_t t = 0; t < count; t++)
	{
		put(survey, column, taken->at[t], survey->room + t * elements);
		taken->at[t] = (const uint8_t *)(survey->room + t * elements + taken->element);
	}
}

/* What is known of a column, as it was before the block's tuples, or once more what it was */
static void
keep(const struct dana_survey *survey, const struct taken *column, bool back)
{
	double *before = survey->before + 2 * column->element;
	void *const places[] = {survey->sums + column->element, survey->sums_of_squares + column->element};
	const size_t size = (size_t)column->count * sizeof *before;

	for (int k = 0; k < 2; k++)
		memcpy(back ? places[k] : before + k * column->count, back ? before + k * column->count : places[k], size);
}

static void
keep_bits(const struct dana_survey *survey, const struct taken *column, bool back)
{
	void *before = survey->before + 2 * column->element, *differ = survey->differ + column->element;

	memcpy(back ? differ : before, back ? before : differ, (size_t)column->count * sizeof *survey->differ);
}

/* Takes tuples of a block as if all their elements were finite and of weight 1; false: they are not, nothing was added */
static bool
take_finite(const struct dana_survey *survey, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed,
			int32_t row, int32_t count, float *labels)
{
	struct taken column;
	bool finite = true;
	int32_t k;

	for (k = 0; k < n_handed && finite; k++)
	{
		take(survey, page, &handed[k], row, count, &column);
		if (handed[k].column->row == survey->label)
			for (int32_t t = 0; t < count; t++)
				labels[t] = number(column.at[t]);
		if (survey->summed[handed[k].column->row])
		{
			keep(survey, &column, false);
			finite = add(survey, &column, count, 1);
		}
		else
		{
			keep_bits(survey, &column, false);
			finite = compare(survey, &column, count);
		}
	}
	while (!finite && k-- > 0)
	{
		take(survey, page, &handed[k], row, 0, &column);
		(survey->summed[handed[k].column->row] ? keep : keep_bits)(survey, &column, true);
	}
	return finite;
}

/* Rows of a walk that are tuples and alike, before anything else is made of them */
EXPORT void
dana_survey_tuples(void *context, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed, int32_t row,
				   int32_t count)
{
	const struct dana_survey *survey = context;
	float labels[DANA_SURVEY_BLOCK];

	for (int32_t some; count > 0; row += some, count -= some)
	{
		some = left_of_block((uint64_t)*survey->tuples);
		some = some < count ? some : count;
		if (survey->weight >= 0 || *survey->tuples == 0 ||
			!take_finite(survey, page, handed, n_handed, row, some, labels))
		{
			for (int32_t t = row; t < row + some; t++)
			{
				for (int32_t k = 0; k < n_handed; k++)
					put(survey, handed[k].column, page + (uint32_t)(handed[k].address[t] + handed[k].offset), survey->room);
				look_at_tuple(survey, survey->room);
			}
			continue;
		}
		*survey->weights += some;
		for (int32_t t = 0; t < some && survey->count > 0; t++)
			weigh(survey, 1, labels[t]);
		if (survey->kinds > 0)
			memcpy(survey->labels + (uint64_t)*survey->tuples % DANA_SURVEY_BLOCK, labels, (size_t)some * sizeof *labels);
		count_tuples(survey, some);
		if (survey->tally != NULL)
			tally_values(survey->tally, labels, some);
	}
}

/* A column by itself; the tuple is looked at when it is whole, which it may be on another page */
EXPORT void
dana_survey_column(void *context, const struct sim_column *column, const uint8_t *from)
{
	const struct dana_survey *survey = context;
	float *tuple = survey->room + DANA_SURVEY_BLOCK * elements_of(survey);

	put(survey, column, from, tuple);
	if (column->last)
		look_at_tuple(survey, tuple);
}
