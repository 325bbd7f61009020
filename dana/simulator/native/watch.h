/*
 * Watched columns: does a tuple choose a row that an earlier tuple of its round writes (docs/machine.md, section 4)?
 *
 * In: their values, and where tuples and rounds begin. Out: whether the batch ends before the tuple to come. The clock
 * and the unpacker each keep rows of their own, since one may be pages ahead of the other.
 */
#ifndef DANA_SIMULATOR_WATCH_H
#define DANA_SIMULATOR_WATCH_H

#include <string.h>

#include "state.h"
#include "number.h"

/* The row that a watched column's value chooses, by table and number */
static inline uint64_t
sim_watch_row(const struct sim_column *column, float number)
{
	return (uint64_t)column->table << 32 | (dn_bits(number) & INT32_MAX); /* without the sign */
}

/* Where is noted when a row of this hash was last written */
static inline uint32_t
sim_watch_stamp(uint64_t row)
{
	return (((uint32_t)row ^ (uint32_t)(row >> 32) << 24) * 0x9e3779b1u) >> (32 - SIM_STAMP_BITS);
}

/* Whether it is among the rows of tuples that have begun */
static __attribute__((noinline)) bool
sim_watch_among(const struct sim_watch *w, int32_t earlier, uint64_t row)
{
	for (int32_t k = 0; k < earlier; k++)
		if (w->rows[k] == row)
			return true;
	return false;
}

/*
 * Whether an earlier tuple writes a row. Nearly always the last write to a row with
 * that hash shows that none does, or which one may; only if that is another row are all compared.
 */
static inline bool
sim_watch_see(struct sim_watch *w, struct sim_watched *n, int32_t depth, bool writes, uint64_t row, uint32_t stamp)
{
	uint16_t *last = &w->last[stamp];
	const int32_t at = n->earlier + n->own - 1 - (uint16_t)(n->written - *last);
	const bool repeated = at >= 0 && ((at < n->earlier && w->rows[at] == row) || sim_watch_among(w, n->earlier, row));

	if (writes)
	{
		if (n->earlier + n->own == depth)
		{
			/* there is no room for one more: of as many, the first one is forgotten */
			memmove(w->rows, w->rows + 1, sizeof *w->rows * (size_t)(depth - 1));
			*(n->earlier > 0 ? &n->earlier : &n->own) -= 1;
		}
		w->rows[n->earlier + n->own++] = row;
		*last = ++n->written;
	}
	return repeated;
}

/* The same of a column's value */
static inline bool
sim_watch_column(struct sim_watch *w, int32_t depth, const struct sim_column *column, const uint8_t *from)
{
	const uint64_t row = sim_watch_row(column, sim_number(column->type, from));

	return sim_watch_see(w, &w->n, depth, column->writes, row, sim_watch_stamp(row));
}

/* The tuple with the numbers just seen begins; `following`: in a round of its own */
static inline void
sim_watch_begin(struct sim_watch *w, bool following)
{
	struct sim_watched *n = &w->n;

	if (following && n->earlier > 0)
	{
		for (int32_t k = 0; k < n->own; k++) /* a few at most: no call */
			w->rows[k] = w->rows[n->earlier + k];
		n->earlier = 0;
	}
	n->earlier += n->own;
	n->own = 0;
}

#endif
