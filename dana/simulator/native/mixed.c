/*
 * Rows of several ways: where the columns of a page's tuples lie, one tuple behind the other.
 *
 * In: ways and the pattern, the way of each row, and its place among the rows with addresses found together. Out: one
 * list of columns for all tuples. Columns that are as far from one another in every way share an address.
 */
#include <stdlib.h>
#include <string.h>

#include "walk.h"

const struct sim_way *
sim_way_of(const struct sim_walk *walk, int32_t which)
{
	return walk->ways[which == SIM_ALIKE ? walk->pattern.way : which];
}

const struct sim_handed *
sim_handed_of(const struct sim_walk *walk, int32_t which)
{
	return which == SIM_ALIKE ? walk->pattern.handed : walk->ways[which]->handed;
}

/* Whether there may be rows of this number, and they are tuples */
static bool
is_tuple(const struct sim_walk *walk, int32_t which)
{
	return (which == SIM_ALIKE ? walk->pattern.known : which < walk->n_ways) && sim_way_of(walk, which)->tuples > 0;
}

/* Whether two columns are as far from one another in every way */
static bool
together(const struct sim_walk *walk, int32_t j, int32_t k)
{
	const struct sim_handed *first = walk->mixed.handed;

	for (int32_t w = 0; w <= SIM_ALIKE; w++)
		if (is_tuple(walk, w))
		{
			const struct sim_handed *handed = sim_handed_of(walk, w);

			if (handed[j].address != handed[k].address ||
				handed[k].offset - handed[j].offset != first[k].offset - first[j].offset)
				return false;
		}
	return true;
}

void
sim_mixed_free(struct sim_walk *walk)
{
	free(walk->mixed.origins);
	free(walk->mixed.addresses);
	free(walk->mixed.handed);
	memset(&walk->mixed, 0, sizeof walk->mixed);
}

/* Finds which columns share an address, and where it comes from; false: no memory */
static bool
prepare(struct sim_walk *walk, const struct sim_way *way)
{
	struct sim_mixed *mixed = &walk->mixed;
	const int32_t n = way->n_handed;
	int32_t of[SIM_PATH_LENGTH], first[SIM_PATH_LENGTH], found = 0;

	sim_mixed_free(walk);
	mixed->handed = malloc((size_t)n * sizeof *mixed->handed);
	if (mixed->handed == NULL)
		return false;
	memcpy(mixed->handed, way->handed, (size_t)n * sizeof *mixed->handed);
	mixed->n_handed = n;
	for (int32_t k = 0; k < n; k++)
	{
		of[k] = 0;
		while (of[k] < found && !together(walk, first[of[k]], k))
			of[k]++;
		if (of[k] == found)
			first[found++] = k;
	}
	mixed->addresses = malloc((size_t)found * (size_t)walk->spacing * sizeof *mixed->addresses);
	mixed->origins = calloc((size_t)(SIM_ALIKE + 1) * (size_t)found, sizeof *mixed->origins);
	if (mixed->addresses == NULL || mixed->origins == NULL)
		return false;
	for (int32_t k = 0; k < n; k++)
		mixed->handed[k].address = mixed->addresses + (ptrdiff_t)of[k] * walk->spacing;
	for (int32_t w = 0; w <= SIM_ALIKE; w++)
		for (int32_t k = 0; k < found && is_tuple(walk, w); k++)
		{
			const struct sim_handed *handed = &sim_handed_of(walk, w)[first[k]];

			mixed->origins[w * found + k] = (struct sim_origin){
				.address = handed->address, .plus = handed->offset - mixed->handed[first[k]].offset};
		}
	mixed->n_addresses = found;
	return true;
}

/* Puts the addresses of a page's tuples one behind the other; how many there are, -1: no memory */
int32_t
sim_mixed_gather(struct sim_walk *walk, int32_t rows)
{
	const struct sim_mixed *mixed = &walk->mixed;
	bool tuple[SIM_ALIKE + 1];
	int32_t n = 0;

	for (int32_t w = 0; w <= SIM_ALIKE; w++)
	{
		tuple[w] = is_tuple(walk, w);
		if (tuple[w] && mixed->n_addresses == 0 && !prepare(walk, sim_way_of(walk, w)))
			return -1;
	}
	for (int32_t row = 0; row < rows; row++)
	{
		const struct sim_origin *origin = mixed->origins + (ptrdiff_t)walk->which[row] * mixed->n_addresses;

		if (!tuple[walk->which[row]])
			continue;
		for (int32_t k = 0; k < mixed->n_addresses; k++)
			mixed->addresses[(ptrdiff_t)k * walk->spacing + n] = origin[k].address[walk->at[row]] + origin[k].plus;
		n++;
	}
	return n;
}
