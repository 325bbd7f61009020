/* What dana/training/data/surveyed.py says, in C. Written by python -m dana.generated. */
#ifndef DANA_RUNTIME_SURVEY_H
#define DANA_RUNTIME_SURVEY_H

#include <stdint.h>

/* Of all below, and of the simulator's contract: what was built from another text is not used */
#define DANA_SURVEY_CONTRACT UINT64_C(0x1f5e92665e97ee18)
#define DANA_SURVEY_BLOCK 64
#define DANA_TALLY_SLOTS 8192

/* How often values are there (0: the slot is free), and their sum. So many bits of them are dropped that half of the
 * slots are enough. */
struct dana_tally
{
	uint32_t keys[8192];
	double counts[8192], sums[8192];
	int32_t used, dropped;
};

/* What a survey finds of a tuple's elements, arrays of [rows][lanes]; the caller's memory. One number each: tuples
 * without NaN or infinity, sum of the weights and of those before the block, how many are below 0. between: the part of
 * the squares that lies between blocks of DANA_SURVEY_BLOCK tuples, one after the other. early, earlier: the mean of as
 * many tuples as the largest power of two says, and of half of them. sums, sums_of_squares: of the block that has
 * begun, distances from the mean. before: room for both. classes: sums of the weights by the label's class. seen,
 * together: of each of kinds classes how many tuples have it, and of the squares of that number in each block the sum,
 * each over the block's tuples; in_block: of the block that has begun, whose labels are in labels. first: the first
 * tuple's bits; differ: those in which another one's differ. room: for a block of tuples and one more. summed, by row:
 * whether sums are wanted; else only the bits. tally: of the label, or NULL. rows, lanes: of a tuple. count: of classes
 * to be weighed, kinds: of classes to be counted. weight, label: rows of a tuple that they lie in, or -1. */
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
