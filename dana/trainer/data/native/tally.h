/*
 * Counts of the values of the label, and of its classes by block. Included only by survey.c.
 */
#ifndef DANA_TRAINING_TALLY_H
#define DANA_TRAINING_TALLY_H

#include <string.h>

#include "number.h"
#include "survey.h"

static void
tally_add(struct dana_tally *tally, uint32_t word, double count, double sum)
{
	const uint32_t key = word >> tally->dropped << tally->dropped;
	uint32_t slot = (key * UINT32_C(2654435761)) >> 19;

	while (tally->counts[slot] != 0 && tally->keys[slot] != key)
		slot = (slot + 1) % DANA_TALLY_SLOTS;
	tally->used += tally->counts[slot] == 0;
	tally->keys[slot] = key;
	tally->counts[slot] += count;
	tally->sums[slot] += sum;
}

/* Counts a value, as often as its weight; if there are too many, another low bit is dropped from all of them */
static void
tally_value(struct dana_tally *tally, float value, double count)
{
	tally_add(tally, dn_bits(value + 0.0f), count, (double)value * count); /* both zeros are one value */
	while (tally->used > DANA_TALLY_SLOTS / 2)
	{
		const struct dana_tally before = *tally;

		memset(tally, 0, sizeof *tally);
		tally->dropped = before.dropped + 1;
		for (int i = 0; i < DANA_TALLY_SLOTS; i++)
			if (before.counts[i] != 0)
				tally_add(tally, before.keys[i], before.counts[i], before.sums[i]);
	}
}

static int32_t
how_many(const float *values, int32_t count, float wanted)
{
	int32_t n = 0;

	for (int32_t k = 0; k < count; k++)
		n += values[k] == wanted;
	return n;
}

/* Counts values: of two classes, all of each at a time */
static void
tally_values(struct dana_tally *tally, const float *values, int32_t count)
{
	const int32_t same = how_many(values, count, values[0]);
	int32_t other = 0, others = 0;

	while (same < count && values[other] == values[0])
		other++;
	if (other > 0)
		others = how_many(values, count, values[other]);
	if (same + others == count)
	{
		tally_value(tally, values[0], same);
		if (others > 0)
			tally_value(tally, values[other], others);
		return;
	}
	for (int32_t k = 0; k < count; k++)
		tally_value(tally, values[k], 1);
}

/* A block of labels ends: to a class's count, and to the sum of its squared counts, over the tuples of a full one */
static void
tally_block(const struct dana_survey *survey, int32_t count)
{
	const float *labels = survey->labels;

	for (int32_t t = 0; t < count; t++)
		if (labels[t] >= 0 && labels[t] < (double)survey->kinds)
			survey->in_block[(int64_t)labels[t]]++;
	for (int32_t t = 0; t < count; t++)
		if (labels[t] >= 0 && labels[t] < (double)survey->kinds)
		{
			survey->seen[(int64_t)labels[t]]++;
			survey->together[(int64_t)labels[t]] += survey->in_block[(int64_t)labels[t]] / DANA_SURVEY_BLOCK;
		}
	for (int32_t t = 0; t < count; t++)
		if (labels[t] >= 0 && labels[t] < (double)survey->kinds)
			survey->in_block[(int64_t)labels[t]] = 0;
}

#endif
