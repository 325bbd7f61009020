/*
 * The weights of a stored model, brought into memory as a prediction needs them: of a model of millions of rows one
 * prediction chooses a few, and a statement that asks for one must not read all.
 */
#pragma once

#include "predictor.h"

/* Where weights are stored, and what of them is in memory */
typedef struct dana_weights
{
	struct varlena *stored; /* a pointer into a TOAST table */
	float		   *memory; /* of all of them; what was not brought is not set */
	uint8		   *brought; /* a flag for each block */
} dana_weights;

/*
 * Makes memory for a predictor in the current memory context and puts there what it needs besides rows that it
 * chooses, which dana_weights_bring() brings. Raises an error unless `array`, of a row of dana.model, has as many
 * numbers as the predictor wants.
 */
extern float *dana_weights_prepare(dana_weights *weights, dana_predictor *predictor, const char *reference, Datum array);
