/*
 * Watched columns: does a tuple choose a row that an earlier tuple of its round writes (docs/machine.md, section 4)?
 *
 * In: their values, and where tuples and rounds begin. Out: whether the batch ends before the tuple to come. The clock
 * and the unpacker each keep rows of their own, since one may be pages ahead of the other.
 */
#include <string.h>

#include "core.h"

/* Whether it is among the rows of tuples that have begun */
bool
sim_watch_among(const struct sim_watch *w, int32_t earlier, uint64_t row)
{
	for (int32_t k = 0; k < earlier; k++)
		if (w->rows[k] == row)
			return true;
	return false;
}

/* There is no room for one more row: of as many, the first one is forgotten */
void
sim_watch_full(struct sim_watch *w, int32_t rows)
{
	memmove(w->rows, w->rows + 1, sizeof *w->rows * (size_t)(rows - 1));
}
