/*
 * What a C programmer would write in the place of a shipped rule: passes over heap pages in place, batches of 64 rows.
 *
 * In: pages of rows without NULL, whose features lie one after the other; a model, which a pass goes on from. Out: the
 * model. benchmarks/peers/compiled.py compiles it for the processor at hand, with -O3 and -ffast-math, and calls it.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define RANK 10 /* of a factorisation: benchmarks/peers/own.py */
#define ABREAST 4 /* rows that a loop takes at a time, so that it loads a weight or a sum once for them */

typedef struct
{
	const uint8_t *pages;
	uint64_t	   n_pages, page_size;
	uint64_t	   x, y; /* bytes from a row's first value to its features and to its label; y is 0 where it has none */
	uint64_t	   n;	 /* features */
	const float	  *mean, *inverse; /* of each feature: x becomes (x - mean) * inverse */
} table;

typedef struct
{
	const table	  *of;
	uint64_t	   page, item;
} walk;

/* The next row's first value, or NULL after the last row */
static const uint8_t *
next_row(walk *at)
{
	for (; at->page < at->of->n_pages; at->page++, at->item = 0)
	{
		const uint8_t *page = at->of->pages + at->page * at->of->page_size;
		uint16_t	   lower;

		memcpy(&lower, page + 12, sizeof lower);
		while (24 + 4 * at->item < lower)
		{
			uint32_t pointer;

			memcpy(&pointer, page + 24 + 4 * at->item++, sizeof pointer);
			if ((pointer >> 15 & 3) == 1)
			{
				const uint8_t *tuple = page + (pointer & 0x7fff);

				/* rows lie from a page's end to its beginning, which no processor foresees: fetch the next page's */
				for (uint32_t k = 0; k < pointer >> 17; k += 64)
					__builtin_prefetch(tuple + at->of->page_size + k);
				return tuple + tuple[22];
			}
		}
	}
	return NULL;
}

/* Up to 64 rows, standardised, and their labels; the rows after the last are 0 up to a multiple of ABREAST */
static int
next_batch(walk *at, float *restrict rows, float *restrict labels)
{
	const table	  *t = at->of;
	uint64_t	   n = t->n;
	const uint8_t *row;
	int			   count = 0;

	while (count < BATCH && (row = next_row(at)) != NULL)
	{
		const float *x = (const float *)(row + t->x);
		float		*to = rows + count * n;

		for (uint64_t k = 0; k < n; k++)
			to[k] = (x[k] - t->mean[k]) * t->inverse[k];
		labels[count++] = t->y ? *(const float *)(row + t->y) : 0;
	}
	for (int r = count; r % ABREAST; r++)
		memset(rows + r * n, 0, n * sizeof *rows);
	return count;
}

/* out = rows x weights' + bias, of shape (rows, m) */
static void
forward(const float *restrict rows, int count, uint64_t n, const float *restrict w, const float *restrict b, int m,
		float *restrict out)
{
	for (int r = 0; r < count; r += ABREAST)
		for (int c = 0; c < m; c++)
		{
			const float *x = rows + r * n, *wc = w + c * n;
			float		 z0 = b[c], z1 = b[c], z2 = b[c], z3 = b[c];

			for (uint64_t k = 0; k < n; k++)
			{
				z0 += wc[k] * x[k];
				z1 += wc[k] * x[n + k];
				z2 += wc[k] * x[2 * n + k];
				z3 += wc[k] * x[3 * n + k];
			}
			out[r * m + c] = z0;
			out[(r + 1) * m + c] = z1;
			out[(r + 2) * m + c] = z2;
			out[(r + 3) * m + c] = z3;
		}
}

/* Gradients of weights and bias: errors' x rows, and errors added up; errors after the last row are 0 */
static void
backward(const float *restrict rows, int count, uint64_t n, float *restrict errors, int m, float *restrict gw,
		 float *restrict gb)
{
	for (int r = count; r % ABREAST; r++)
		memset(errors + r * m, 0, m * sizeof *errors);
	memset(gw, 0, m * n * sizeof *gw);
	memset(gb, 0, m * sizeof *gb);
	for (int r = 0; r < count; r += ABREAST)
		for (int c = 0; c < m; c++)
		{
			const float *x = rows + r * n;
			const float	 e0 = errors[r * m + c], e1 = errors[(r + 1) * m + c];
			const float	 e2 = errors[(r + 2) * m + c], e3 = errors[(r + 3) * m + c];
			float		*g = gw + c * n;

			for (uint64_t k = 0; k < n; k++)
				g[k] += e0 * x[k] + e1 * x[n + k] + e2 * x[2 * n + k] + e3 * x[3 * n + k];
			gb[c] += e0 + e1 + e2 + e3;
		}
}

/* Scores become errors: shares less what was wanted */
static void
shares(float *restrict scores, int m, float label)
{
	float most = scores[0], total = 0;

	for (int c = 1; c < m; c++)
		most = fmaxf(most, scores[c]);
	for (int c = 0; c < m; c++)
		total += scores[c] = expf(scores[c] - most);
	for (int c = 0; c < m; c++)
		scores[c] /= total;
	scores[(int)label] -= 1;
}

/* Nesterov's steps along a gradient that a batch added up */
static void
step(float *restrict model, float *restrict velocity, const float *restrict gradient, uint64_t size)
{
	for (uint64_t k = 0; k < size; k++)
	{
		float by = 0.01f / BATCH * gradient[k];

		velocity[k] = 0.9f * velocity[k] + by;
		model[k] -= by + 0.9f * velocity[k];
	}
}

enum kind
{
	SQUARED,
	LOGISTIC,
	HINGE
};

static float
slope(enum kind kind, float z, float y)
{
	float sign = 2 * y - 1;

	if (kind == SQUARED)
		return z - y;
	if (kind == LOGISTIC)
		return 1 / (1 + expf(-z)) - y;
	return -sign * fmaxf(1 - sign * z, 0);
}

/* A linear model; model and velocity: weights, then the bias. A row is standardised while its score is added up. */
void
linear_pass(const table *t, int kind, float *restrict model, float *restrict velocity)
{
	uint64_t	   n = t->n;
	const float	  *mean = t->mean, *inverse = t->inverse;
	float *restrict values = malloc(n * sizeof *values);
	float *restrict gradient = calloc(n + 1, sizeof *gradient);
	walk		   at = {t, 0, 0};
	const uint8_t *row;
	int			   count = 0;

	while ((row = next_row(&at)) != NULL)
	{
		const float *x = (const float *)(row + t->x);
		float		 z = model[n], e;

		for (uint64_t k = 0; k < n; k++)
		{
			float value = (x[k] - mean[k]) * inverse[k];

			values[k] = value;
			z += model[k] * value;
		}
		e = slope(kind, z, *(const float *)(row + t->y));
		for (uint64_t k = 0; k < n; k++)
			gradient[k] += e * values[k];
		gradient[n] += e;
		if (++count == BATCH)
		{
			step(model, velocity, gradient, n + 1);
			memset(gradient, 0, (n + 1) * sizeof *gradient);
			count = 0;
		}
	}
	if (count)
		step(model, velocity, gradient, n + 1);
	free(values);
	free(gradient);
}

/* A layer of m classes; model and velocity: weights of shape (m, n), then biases */
void
softmax_pass(const table *t, int m, float *restrict model, float *restrict velocity)
{
	uint64_t n = t->n, size = m * (n + 1);
	float	*rows = malloc(BATCH * n * sizeof *rows), *gradient = malloc(size * sizeof *gradient);
	float	*z = malloc(BATCH * m * sizeof *z), labels[BATCH];
	walk	 at = {t, 0, 0};
	int		 count;

	while ((count = next_batch(&at, rows, labels)) > 0)
	{
		forward(rows, count, n, model, model + m * n, m, z);
		for (int r = 0; r < count; r++)
			shares(z + r * m, m, labels[r]);
		backward(rows, count, n, z, m, gradient, gradient + m * n);
		step(model, velocity, gradient, size);
	}
	free(rows);
	free(gradient);
	free(z);
}

/* A hidden layer of h rectified units, m classes, Adam's steps; model: W (h, n), b, V (m, h), c */
void
network_pass(const table *t, int h, int m, float *restrict model, float *restrict mean, float *restrict square)
{
	uint64_t n = t->n, size = h * (n + 1) + m * (h + 1);
	float	*w = model, *b = w + h * n, *v = b + h, *c = v + m * h;
	float	*rows = malloc(BATCH * n * sizeof *rows), *gradient = malloc(size * sizeof *gradient);
	float	*hidden = malloc(BATCH * h * sizeof *hidden), *back = malloc(BATCH * h * sizeof *back);
	float	*z = malloc(BATCH * m * sizeof *z), labels[BATCH];
	walk	 at = {t, 0, 0};
	int		 count;

	while ((count = next_batch(&at, rows, labels)) > 0)
	{
		forward(rows, count, n, w, b, h, hidden);
		for (int k = 0; k < (count + ABREAST - 1) / ABREAST * ABREAST * h; k++)
			hidden[k] = fmaxf(hidden[k], 0);
		forward(hidden, count, h, v, c, m, z);
		for (int r = 0; r < count; r++)
			shares(z + r * m, m, labels[r]);
		backward(hidden, count, h, z, m, gradient + h * (n + 1), gradient + h * (n + 1) + m * h);
		for (int r = 0; r < count; r++)
			for (int k = 0; k < h; k++)
			{
				float e = 0;

				for (int j = 0; j < m; j++)
					e += z[r * m + j] * v[j * h + k];
				back[r * h + k] = hidden[r * h + k] > 0 ? e : 0;
			}
		backward(rows, count, n, back, h, gradient, gradient + h * n);
		for (uint64_t k = 0; k < size; k++)
		{
			float g = gradient[k] / BATCH;

			mean[k] = 0.9f * mean[k] + 0.1f * g;
			square[k] = 0.999f * square[k] + 0.001f * g * g;
			model[k] -= 0.001f * mean[k] / (sqrtf(square[k]) + 1e-8f);
		}
	}
	free(rows);
	free(gradient);
	free(hidden);
	free(back);
	free(z);
}

/* K-means by mini-batches: each row to its nearest centre, centres of shape (k, n) */
void
means_pass(const table *t, int k, float *restrict centres)
{
	uint64_t n = t->n;
	float	*rows = malloc(BATCH * n * sizeof *rows), *sums = malloc(k * n * sizeof *sums);
	float	*counts = malloc(k * sizeof *counts), labels[BATCH];
	walk	 at = {t, 0, 0};
	int		 count;

	for (int c = 0; c < k; c++)
		counts[c] = 1;
	while ((count = next_batch(&at, rows, labels)) > 0)
	{
		memset(sums, 0, k * n * sizeof *sums);
		for (int r = 0; r < count; r++)
		{
			const float *x = rows + r * n;
			float		 least = 3e38f; /* no infinity: -ffast-math knows none */
			int			 nearest = 0;

			for (int c = 0; c < k; c++)
			{
				const float *centre = centres + c * n;
				float		 distance = 0;

				for (uint64_t j = 0; j < n; j++)
					distance += (x[j] - centre[j]) * (x[j] - centre[j]);
				if (distance < least)
				{
					least = distance;
					nearest = c;
				}
			}
			counts[nearest]++;
			for (uint64_t j = 0; j < n; j++)
				sums[nearest * n + j] += x[j] - centres[nearest * n + j];
		}
		for (int c = 0; c < k; c++)
			for (uint64_t j = 0; j < n; j++)
				centres[c * n + j] += sums[c * n + j] / counts[c];
	}
	free(rows);
	free(sums);
	free(counts);
}

/* Matrix factorisation, a rating at a time: rows i, j, rating; u and v of shape (…, RANK), their biases; ratings' mean, 1 / deviation */
void
factors_pass(const table *t, float *restrict u, float *restrict v, float *restrict u_bias, float *restrict v_bias,
			 float mean, float scale)
{
	walk		   at = {t, 0, 0};
	const uint8_t *row;

	while ((row = next_row(&at)) != NULL)
	{
		const float *x = (const float *)(row + t->x);
		uint64_t	 i = (uint64_t)x[0], j = (uint64_t)x[1];
		float		*a = u + i * RANK, *b = v + j * RANK;
		float		 error = u_bias[i] + v_bias[j] - (*(const float *)(row + t->y) - mean) * scale;

		for (int k = 0; k < RANK; k++)
			error += a[k] * b[k];
		for (int k = 0; k < RANK; k++)
		{
			float ak = a[k], bk = b[k];

			a[k] = ak - 0.02f * (error * bk + 0.05f * ak);
			b[k] = bk - 0.02f * (error * ak + 0.05f * bk);
		}
		u_bias[i] -= 0.02f * (error + 0.05f * u_bias[i]);
		v_bias[j] -= 0.02f * (error + 0.05f * v_bias[j]);
	}
}
