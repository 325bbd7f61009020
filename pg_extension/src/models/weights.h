/*
 * The weights of a stored model, brought into memory as a prediction needs them: of a model of millions of rows one
 * prediction chooses a few, and a statement that asks for one must not read all.
 */
#pragma once

#include "utils/array.h"

#include "models/predictor.h"

/* Where weights are stored, and what of them is in memory */
typedef struct dana_weights
{
	const Datum *parts; /* as dana_model_weights() has them */
	int			 n_parts;
	float		*memory; /* of all of them; what was not brought is not set */
	uint8		*brought; /* a flag for each block */
} dana_weights;

/* Makes an array of the floats that lie, or will, ARR_OVERHEAD_NONULLS(1) bytes behind a place, which is aligned */
extern ArrayType *dana_weights_array(char *place, int64 count);

/* How many numbers the parts of a model have, and some of them; an error where there are fewer */
extern int64 dana_weights_count(const Datum *parts, int n_parts);
extern void	 dana_weights_copy(const Datum *parts, int n_parts, int64 first, int64 count, float *to);

/*
 * Allocates a predictor's memory in the current memory context and reads the weights that every prediction needs. Rows
 * that a prediction chooses are read when it asks for them. The parts must outlive the predictor; it is an error if they
 * do not have as many numbers as the predictor uses.
 */
extern float *dana_weights_prepare(dana_weights *weights, dana_predictor *predictor, const char *reference,
								   const Datum *parts, int n_parts);
