/*
 * Watched columns: does a tuple choose a row that an earlier tuple of its round writes (docs/machine.md, section 4)?
 *
 * In: their values, and where tuples and rounds begin. Out: whether the batch ends before the tuple to come. The clock
 * and the unpacker each keep rows of their own, since one may be pages ahead of the other.
 */
#include <string.h>

#include "core.h"

/* Forgets the first `count` rows */
static void
drop(struct sim_watch *w, int32_t count)
{
	memmove(w->rows, w->rows + count, sizeof *w->rows * (size_t)(w->earlier + w->own - count));
}

/* Whether it is among the rows of tuples that have begun */
bool
sim_watch_among(const struct sim_watch *w, uint64_t row)
{
	for (int32_t k = 0; k < w->earlier; k++)
		if (w->rows[k] == row)
			return true;
	return false;
}

/* There is no room for one more row */
void
sim_watch_full(struct sim_watch *w)
{
	drop(w, 1);
	*(w->earlier > 0 ? &w->earlier : &w->own) -= 1;
}

/* The tuple begins whose numbers were seen; `following`: in a round of its own */
void
sim_watch_begin(struct sim_watch *w, bool following)
{
	if (following && w->earlier > 0)
	{
		drop(w, w->earlier);
		w->earlier = 0;
	}
	w->earlier += w->own;
	w->own = 0;
}
