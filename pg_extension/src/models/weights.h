/*
 * The weights of a stored model, loaded as a prediction needs them: a prediction chooses a few rows of a model of
 * millions, and a statement with one prediction must not read them all.
 */
#pragma once

#include "utils/array.h"

#include "models/predictor.h"

#define DANA_WEIGHTS_PART (1 << 22) /* maximum number of elements in an array of dana.model and dana.weights */

/* Where weights are stored, and which of them are in memory */
typedef struct dana_weights
{
	const Datum *parts; /* as dana_model_weights() has them */
	int			 n_parts;
	float		*memory; /* of all weights; unset until loaded */
	uint8		*brought; /* a flag for each block */
} dana_weights;

/*
 * Makes an array of the floats that start ARR_OVERHEAD_NONULLS(1) bytes behind an aligned address; they may be written
 * later
 */
extern ArrayType *dana_weights_array(char *place, int64 count);

/* The total length of a model's parts, and some of the weights; an error if there are fewer */
extern int64 dana_weights_count(const Datum *parts, int n_parts);
extern void	 dana_weights_copy(const Datum *parts, int n_parts, int64 first, int64 count, float *to);

/*
 * Allocates a predictor's memory in the current memory context and reads the weights that every prediction needs. Rows
 * that a prediction chooses are read when it needs them. The parts must outlive the predictor; it is an error if they
 * have fewer or more weights than the predictor uses.
 */
extern float *dana_weights_prepare(dana_weights *weights, dana_predictor *predictor, const char *reference,
								   const Datum *parts, int n_parts);
