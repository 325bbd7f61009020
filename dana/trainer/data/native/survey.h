/* Declarations of dana/trainer/data/surveyed.py. Written by python -m dana.generated. */
#ifndef DANA_TRAINING_SURVEY_H
#define DANA_TRAINING_SURVEY_H

#include <stdint.h>

/* Hash of this text and of the contract of the simulator; a library with another value is rejected */
#define DANA_SURVEY_CONTRACT UINT64_C(0xb2c0c3611d493441)
#define DANA_SURVEY_BLOCK 64
#define DANA_TALLY_SLOTS 8192

/* A hash table of values: their weights (0: the slot is free) and sums. Low bits of the values are dropped as needed to
 * use at most half of the slots. */
struct dana_tally
{
	uint32_t keys[8192];
	double counts[8192], sums[8192];
	int32_t used, dropped;
};

/* The state of a survey; arrays are [rows][lanes] in memory of the caller. tuples: number of finite tuples. weights,
 * weights_before: sum of the weights, and without the current block; negative: number of negative weights. mean,
 * squares: weighted mean and sum of squared distances; between: the part of squares between consecutive blocks of
 * DANA_SURVEY_BLOCK tuples. bad: number of NaN and infinite values. early, earlier: mean of the first tuples, as many
 * as the largest power of two, and of half as many. sums, sums_of_squares: distances from the mean in the current
 * block; before: a copy of both. classes: sum of the weights by class. seen, together, [kinds]: tuples of each class,
 * and sum over blocks of the squared number divided by the size of the block; in_block: tuples of each class in the
 * current block, with their labels in labels. first: bits of the first tuple; differ: bits that differ in another
 * tuple. room: a block of tuples and one more. summed, [rows]: whether sums are computed. tally: values of the label,
 * or NULL. count: number of classes to weigh. weight, label: their rows in a tuple, or -1. */
struct dana_survey
{
	double *tuples, *mean, *squares, *between, *bad, *early, *earlier, *sums, *sums_of_squares, *before,
		*weights, *weights_before, *negative, *classes, *seen, *together, *in_block;
	uint32_t *first, *differ;
	float *room, *labels;
	const uint8_t *summed;
	struct dana_tally *tally;
	int64_t rows, lanes, count, kinds, weight, label;
};

#endif
