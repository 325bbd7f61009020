/*
 * The likelihood of a generalised linear model over the rows of a pass: its gradient, its curvature, and what a summary
 * needs of the labels.
 *
 * Sums are in binary64, in the order of the rows and with one rounding per operation, so that every machine gives the
 * same numbers. A score is weights[0] + sum of weights[k + 1] * (x[k] - centre[k]) * scale[k].
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "likelihood.h"
#include "number.h"

#define EXPORT __attribute__((visibility("default")))

/* Wider vectors where the processor has them; the results are the same */
#if defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BY_PROCESSOR
#endif

/* The hash of likelihood.h that this file was built with */
EXPORT uint64_t
dana_likelihood_contract(void)
{
	return DANA_LIKELIHOOD_CONTRACT;
}

/* Adds curvature * row * row' of the block's rows to the lower triangle; the rows behind the last one are 0 */
BY_PROCESSOR static void
add_curvature(const struct dana_likelihood *state)
{
	const ptrdiff_t size = state->features + 1;

	for (ptrdiff_t t = 0; t < *state->filled; t += 4)
	{
		const double *restrict a = state->block + t * size, *restrict b = a + size, *restrict c = b + size,
							   *restrict d = c + size;
		const double *curvature = state->curvature + t;

		for (ptrdiff_t k = 0; k < size; k++)
		{
			const double u = curvature[0] * a[k], v = curvature[1] * b[k], w = curvature[2] * c[k], x = curvature[3] * d[k];
			double *restrict sums = state->matrix + k * size;

			for (ptrdiff_t j = 0; j <= k; j++)
				sums[j] += (u * a[j] + v * b[j]) + (w * c[j] + x * d[j]);
		}
	}
}

static void
end_block(const struct dana_likelihood *state)
{
	const ptrdiff_t size = state->features + 1;
	const ptrdiff_t rest = DANA_LIKELIHOOD_BLOCK - *state->filled;

	memset(state->block + *state->filled * size, 0, (size_t)(rest * size) * sizeof(double));
	memset(state->curvature + *state->filled, 0, (size_t)rest * sizeof(double));
	add_curvature(state);
	*state->filled = 0;
}

BY_PROCESSOR static double
score_of(const double *restrict weights, const double *restrict row, ptrdiff_t size)
{
	double parts[8] = {0}, score = 0;

	for (ptrdiff_t k = 0; k + 8 <= size; k += 8)
		for (int j = 0; j < 8; j++)
			parts[j] += weights[k + j] * row[k + j];
	for (ptrdiff_t k = size - size % 8; k < size; k++)
		score += weights[k] * row[k];
	return score + (((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7])));
}

/* Of rows along directions: the largest movement, and the weighted sum of squares */
static void
move(const struct dana_likelihood *state, const double *row, double weight)
{
	for (ptrdiff_t k = 0; k < state->directions; k++)
	{
		const double moved = score_of(state->weights + k * (state->features + 1), row, state->features + 1);

		if (fabs(moved) > state->moved[k])
			state->moved[k] = fabs(moved);
		state->squares[k] += weight * moved * moved;
	}
}

/* Whether another class has a score as large as the label's */
static bool
is_misplaced(const struct dana_likelihood *state, const double *row, ptrdiff_t label)
{
	const ptrdiff_t size = state->features + 1;
	double own;

	if (label < 0 || label >= state->directions)
		return true;
	own = score_of(state->weights + label * size, row, size);
	for (ptrdiff_t k = 0; k < state->directions; k++)
		if (k != label && score_of(state->weights + k * size, row, size) >= own)
			return true;
	return false;
}

/*
 * Adds gradient and curvature of a multinomial likelihood for all classes but the first. Their weights are relative to
 * those of the first class. Elements are [class][size].
 */
BY_PROCESSOR static void
add_classes(const struct dana_likelihood *state, const double *restrict row, double weight, ptrdiff_t label)
{
	const ptrdiff_t size = state->features + 1, classes = state->directions, whole = (classes - 1) * size;
	double *restrict p = state->curvature;
	double most = -INFINITY, sum = 0, own;

	if (label < 0 || label >= classes)
		return;
	for (ptrdiff_t k = 0; k < classes; k++)
	{
		p[k] = score_of(state->weights + k * size, row, size);
		most = fmax(most, p[k]);
	}
	own = p[label] - most;
	for (ptrdiff_t k = 0; k < classes; k++)
		sum += p[k] = exp(p[k] - most);
	state->sums[DANA_LOSS] += weight * (log(sum) - own);
	for (ptrdiff_t k = 0; k < classes; k++)
		p[k] /= sum;
	for (ptrdiff_t k = 1; k < classes; k++)
	{
		double *restrict gradient = state->gradient + (k - 1) * size;

		for (ptrdiff_t i = 0; i < size; i++)
		{
			const double element = weight * p[k] * row[i];
			double *restrict sums = state->matrix + ((k - 1) * size + i) * whole;

			gradient[i] += weight * (p[k] - (k == label)) * row[i];
			for (ptrdiff_t l = 1; l <= k; l++, sums += size)
			{
				const double factor = element * ((l == k) - p[l]);

				for (ptrdiff_t j = 0; j < size; j++)
					sums[j] += factor * row[j];
			}
		}
	}
}

/* Of each column, the largest value and minus the smallest one, of rows with each label: [directions][2][size] */
BY_PROCESSOR static void
bound(const struct dana_likelihood *state, const double *restrict row, double label)
{
	const ptrdiff_t size = state->features + 1;
	const ptrdiff_t place = (ptrdiff_t)ceil(fmax(0, fmin(label, (double)(state->directions - 1))));
	double *restrict largest = state->matrix + 2 * place * size, *restrict smallest = largest + size;

	for (ptrdiff_t k = 0; k < size; k++)
	{
		largest[k] = row[k] > largest[k] ? row[k] : largest[k];
		smallest[k] = -row[k] > smallest[k] ? -row[k] : smallest[k];
	}
}

/* Keeps a uniform sample of the rows so far (Vitter 1985, algorithm R), by numbers that the row's place decides */
static void
sample(const struct dana_likelihood *state, const double *row)
{
	const ptrdiff_t size = state->features + 1;
	const uint64_t before = (uint64_t)state->sums[DANA_ROWS], rows = (uint64_t)state->directions;
	uint64_t place = before;

	for (ptrdiff_t k = 0; k < size; k++)
		if (!isfinite(row[k]))
			return;
	state->sums[DANA_ROWS] += 1;
	if (before >= rows)
	{
		/* splitmix64 */
		place = (uint64_t)state->seed + (before + 1) * UINT64_C(0x9E3779B97F4A7C15);
		place = (place ^ place >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
		place = (place ^ place >> 27) * UINT64_C(0x94D049BB133111EB);
		place = (place ^ place >> 31) % (before + 1);
	}
	if (place < rows)
		memcpy(state->matrix + place * size, row, size * sizeof *row);
}

/* The columns of a tuple in the basis, after a 1 for the intercept */
BY_PROCESSOR static void
read_row(const struct dana_likelihood *state, const float *restrict tuple, double *restrict row)
{
	const int64_t *places = state->places;
	const double *restrict centre = state->centre, *restrict scale = state->scale;

	row[0] = 1;
	if (state->consecutive)
	{
		const float *restrict first = tuple + places[0];

		for (ptrdiff_t k = 0; k < state->features; k++)
			row[k + 1] = ((double)first[k] - centre[k]) * scale[k];
		return;
	}
	for (ptrdiff_t k = 0; k < state->features; k++)
		row[k + 1] = ((double)tuple[places[k]] - centre[k]) * scale[k];
}

/* Adds to the gradient, and keeps the largest magnitudes */
BY_PROCESSOR static void
add_gradient(const struct dana_likelihood *state, const double *restrict row, double error)
{
	double *restrict gradient = state->gradient, *restrict moved = state->moved;

	for (ptrdiff_t k = 0; k < state->features + 1; k++)
	{
		const double magnitude = fabs(row[k]);

		gradient[k] += error * row[k];
		moved[k] = magnitude > moved[k] ? magnitude : moved[k];
	}
}

static void
add_row(const struct dana_likelihood *state, const float *tuple)
{
	const ptrdiff_t size = state->features + 1;
	const double weight = state->weight < 0 ? 1.0 : (double)tuple[state->weight];
	const double y = state->label < 0 ? 0.0 : (double)tuple[state->label];
	double *row = state->block + *state->filled * size;
	double score, error, curvature, loss;

	if (!(weight > 0))
		return;
	read_row(state, tuple, row);
	if (state->family == DANA_MOVES)
	{
		move(state, row, weight);
		return;
	}
	if (state->family == DANA_SAMPLE)
	{
		sample(state, row);
		return;
	}
	if (state->family == DANA_BOUNDS)
	{
		bound(state, row, y);
		return;
	}
	state->sums[DANA_ROWS] += 1;
	state->sums[DANA_WEIGHT] += weight;
	if (state->family == DANA_CLASSES || state->family == DANA_MULTINOMIAL)
	{
		state->sums[DANA_MISPLACED] += is_misplaced(state, row, (ptrdiff_t)y);
		if (state->family == DANA_MULTINOMIAL)
			add_classes(state, row, weight, (ptrdiff_t)y);
		return;
	}
	score = score_of(state->weights, row, size);
	if (state->family == DANA_BINOMIAL)
	{
		const double small = exp(-fabs(score)), p = score < 0 ? small / (1 + small) : 1 / (1 + small);

		error = score < 0 ? p - y : y > 0.5 ? -small / (1 + small) : p;
		curvature = small / ((1 + small) * (1 + small));
		loss = log1p(small) + (score > 0 ? score : 0) - y * score;
		state->sums[DANA_MISPLACED] += (y > 0.5 ? score : -score) <= 0;
	}
	else if (state->family == DANA_POISSON)
	{
		curvature = exp(score);
		error = curvature - y;
		loss = curvature - y * score + lgamma(y + 1);
		state->sums[DANA_LOGARITHMS] += y > 0 ? weight * y * log(y) : 0;
		state->sums[DANA_GAMMAS] += weight * lgamma(y + 1);
	}
	else
	{
		error = score - y;
		curvature = 1;
		loss = error * error;
	}
	state->sums[DANA_LOSS] += weight * loss;
	state->sums[DANA_LABELS] += weight * (y - state->middle);
	state->sums[DANA_SQUARES] += weight * (y - state->middle) * (y - state->middle);
	add_gradient(state, row, weight * error);
	state->curvature[(*state->filled)++] = weight * curvature;
	if (*state->filled == DANA_LIKELIHOOD_BLOCK)
		end_block(state);
}

/* Rows as arrays of all elements of a tuple */
EXPORT void
dana_likelihood_rows(void *context, const float *tuples, int64_t count)
{
	const struct dana_likelihood *state = context;

	for (int64_t t = 0; t < count; t++)
		add_row(state, tuples + t * state->elements);
}

EXPORT void
dana_likelihood_end(void *context)
{
	const struct dana_likelihood *state = context;

	if (*state->filled > 0)
		end_block(state);
}

static void
put(const struct dana_likelihood *state, const struct sim_column *column, const uint8_t *from)
{
	/* most columns are a single number, and a division costs as much as the rest */
	const int32_t size = column->count == 1 ? column->bytes : column->bytes / column->count;
	float *tuple = state->room + (ptrdiff_t)column->row * state->lanes + column->lane;

	for (int32_t k = 0; k < column->count; k++)
		tuple[k] = sim_number(column->type, from + k * size);
}

/* Rows of a walk that are tuples and alike */
EXPORT void
dana_likelihood_tuples(void *context, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed, int32_t row,
					   int32_t count)
{
	const struct dana_likelihood *state = context;

	for (int32_t t = row; t < row + count; t++)
	{
		for (int32_t k = 0; k < n_handed; k++)
			put(state, handed[k].column, page + (uint32_t)(handed[k].address[t] + handed[k].offset));
		add_row(state, state->room);
	}
}

/* A column by itself; the tuple may end on another page */
EXPORT void
dana_likelihood_column(void *context, const struct sim_column *column, const uint8_t *from)
{
	const struct dana_likelihood *state = context;

	put(state, column, from);
	if (column->last)
		add_row(state, state->room);
}
