/* Declarations of dana/trainer/data/likelihood.py. Written by python -m dana.generated. */
#ifndef DANA_TRAINING_LIKELIHOOD_H
#define DANA_TRAINING_LIKELIHOOD_H

#include <stdint.h>

/* Hash of this text and of the contract of the simulator; a library with another value is rejected */
#define DANA_LIKELIHOOD_CONTRACT UINT64_C(0x2eb5efb72eae52c9)
#define DANA_LIKELIHOOD_BLOCK 64
#define DANA_NORMAL 0
#define DANA_BINOMIAL 1
#define DANA_POISSON 2
#define DANA_CLASSES 3
#define DANA_MOVES 4
#define DANA_SAMPLE 5
#define DANA_MULTINOMIAL 6
#define DANA_BOUNDS 7
#define DANA_ROWS 0
#define DANA_WEIGHT 1
#define DANA_LABELS 2
#define DANA_SQUARES 3
#define DANA_LOSS 4
#define DANA_MISPLACED 5
#define DANA_LOGARITHMS 6
#define DANA_GAMMAS 7

/* The state of a pass; size is features + 1, for the intercept. matrix: [size][size], lower triangle of the curvature;
 * of a sample [directions][size], its rows; of bounds [directions][2][size]. gradient: [size]. Of classes, size in both
 * is that times directions - 1. curvature: [DANA_LIKELIHOOD_BLOCK], or [directions]. weights: [directions][size].
 * moved: largest magnitude of an element, [size], or of a direction's score, [directions]. squares: [directions].
 * block: [DANA_LIKELIHOOD_BLOCK][size]. room: a tuple of `elements` numbers. places: [features], elements of a tuple;
 * consecutive: each is the next of the one before. weight, label: elements, or -1. */
struct dana_likelihood
{
	double *matrix, *gradient, *moved, *squares, *sums, *block, *curvature;
	const double *weights, *centre, *scale;
	const int64_t *places;
	float *room;
	int64_t *filled;
	double middle;
	int64_t features, directions, elements, lanes, weight, label, family, seed, consecutive;
};

#endif
