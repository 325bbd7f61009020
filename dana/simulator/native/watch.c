/*
 * Watched columns: does a tuple choose a row that an earlier tuple of its round writes (docs/machine.md, section 4)?
 *
 * In: their values, and where tuples and rounds begin. Out: whether the batch ends before the tuple to come. The clock
 * and the unpacker each keep rows of their own, since one may be pages ahead of the other.
 */
#include <string.h>

#include "core.h"
#include "numerics.h"

/* A watched column's value; whether an earlier tuple writes that row */
bool
sim_watch_see(struct sim_watch *w, int32_t depth, const struct sim_column *column, float value)
{
	const uint64_t row = (uint64_t)column->table << 32 | (dn_bits(value) & INT32_MAX);
	uint64_t repeated = 0;

	for (int32_t k = 0; k < w->earlier; k++)
		repeated |= w->rows[k] == row; /* no branches: as vectors */
	if (column->writes)
	{
		if (w->earlier + w->own == depth) /* the oldest goes */
		{
			memmove(w->rows, w->rows + 1, sizeof *w->rows * (size_t)(depth - 1));
			*(w->earlier > 0 ? &w->earlier : &w->own) -= 1;
		}
		w->rows[w->earlier + w->own++] = row;
	}
	return repeated != 0;
}

/* The tuple begins whose numbers were seen; `following`: in a round of its own */
void
sim_watch_begin(struct sim_watch *w, bool following)
{
	if (following)
	{
		memmove(w->rows, w->rows + w->earlier, sizeof *w->rows * (size_t)w->own);
		w->earlier = 0;
	}
	w->earlier += w->own;
	w->own = 0;
}
