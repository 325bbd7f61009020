/*
 * A batch over parts of the rows, each in a machine of its own: what parts merged goes to all of them, and each joins
 * what all have by the language's tree.
 *
 * In: a part's merges, from where engine or code left them. Out: those of the whole batch, in their place. What carries
 * them is the caller's (struct sim_join). A part without tuples for a batch exchanges messages too, but does not get the batch's model.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "numerics.h"

static inline int64_t
size_of(const struct sim_merge *merge)
{
	return (int64_t)merge->leading * merge->last;
}

/* Results of a merge over tuples one after the other, to where one of them may lie */
void
sim_join_merge(int32_t op, int64_t size, const float *first, const float *second, float *to)
{
	for (int64_t k = 0; k < size; k++)
		switch (op)
		{
#define JOIN(OP, name) \
			case SIM_##OP: \
				to[k] = dn_##name(first[k], second[k]); \
				break;
			SIM_REDUCTIONS(JOIN)
#undef JOIN
		}
}

/* Joins the merges of two neighbouring ranges of parts; one without tuples has nothing to join */
static void
join_two(const struct sim_merges *of, int32_t pass, float *to, const float *from, int64_t floats)
{
	int64_t at = 1;

	if (((int32_t)from[0] & SIM_PART_HAS_TUPLES) == 0)
		return;
	if (((int32_t)to[0] & SIM_PART_HAS_TUPLES) == 0)
	{
		memcpy(to, from, sizeof(float) * (size_t)floats);
		return;
	}
	for (int32_t k = 0; k < of->n; k++)
		if (of->merges[k].pass == pass)
		{
			sim_join_merge(of->merges[k].op, size_of(&of->merges[k]), to + at, from + at, to + at);
			at += size_of(&of->merges[k]);
		}
}

/* Has the machine's merges of a pass lie as parts exchange them, or back */
static void
copy(struct sim *sim, const struct sim_merges *of, int32_t pass, float *numbers, bool back)
{
	for (int32_t k = 0; k < of->n; k++)
		if (of->merges[k].pass == pass)
		{
			of->copy(sim, &of->merges[k], numbers, back);
			numbers += size_of(&of->merges[k]);
		}
}

/* *over: no part has a batch behind this one; false: a fault */
static bool
join(struct sim *sim, const struct sim_merges *of, int32_t pass, int32_t flags, bool *over)
{
	const int32_t parts = sim->join.parts;
	int64_t floats = 1;
	float *own, *all;

	for (int32_t k = 0; k < of->n; k++)
		if (of->merges[k].pass == pass)
			floats += size_of(&of->merges[k]);
	if (sim->parts_size < (parts + 1) * floats)
	{
		free(sim->parts);
		sim->parts_size = (parts + 1) * floats;
		sim->parts = calloc((size_t)sim->parts_size, sizeof *sim->parts);
	}
	if (sim->parts == NULL)
		return sim_engine_fault(sim, SIM_FAULT_STACK, 0);
	own = sim->parts;
	all = own + floats;
	memset(own, 0, sizeof(float) * (size_t)floats);
	own[0] = (float)flags;
	if (flags & SIM_PART_HAS_TUPLES)
		copy(sim, of, pass, own + 1, false);
	if (sim->join.exchange(sim->join.context, own, all, floats) != 0)
		return sim_engine_fault(sim, SIM_FAULT_STACK, 0); /* the caller knows why */
	*over = true;
	for (int32_t p = 0; p < parts; p++)
		*over = *over && ((int32_t)all[p * floats] & SIM_PART_IS_LAST) != 0;
	if ((flags & SIM_PART_HAS_TUPLES) == 0)
		return true;
	for (int32_t width = 1; width < parts; width *= 2)
		for (int32_t p = 0; p + width < parts; p += 2 * width)
			join_two(of, pass, all + p * floats, all + (p + width) * floats, floats);
	copy(sim, of, pass, all + 1, true);
	return true;
}

/* Joins what a pass over a batch merged with the merges of other parts, if there are some; false: a fault */
bool
sim_join_pass(struct sim *sim, const struct sim_merges *of, int32_t pass, bool epoch_last)
{
	bool over;

	if (sim->join.exchange == NULL)
		return true;
	if (!join(sim, of, pass, SIM_PART_HAS_TUPLES | (epoch_last ? SIM_PART_IS_LAST : 0), &over))
		return false;
	sim->e.joins_on = epoch_last && !over && pass == of->passes;
	return true;
}

/* The batches of the epoch for which only other parts have tuples, until there is none; false: a fault */
bool
sim_join_others(struct sim *sim, const struct sim_merges *of)
{
	bool over;

	do
		for (int32_t pass = 0; pass <= of->passes; pass++)
			if (!join(sim, of, pass, SIM_PART_IS_LAST, &over))
				return false;
	while (!over);
	return true;
}
