/*
 * Watched columns, what comes with each tuple; watch.c has the rest.
 */
#ifndef DANA_SIMULATOR_WATCH_H
#define DANA_SIMULATOR_WATCH_H

#include "core.h"
#include "number.h"

/* A watched column's value as the number of a row, from its bytes */
static inline uint32_t
sim_watch_number(const struct sim_column *column, const uint8_t *from)
{
	return dn_bits(sim_number(column->type, from)) & INT32_MAX; /* without the sign */
}

/*
 * A watched column's number; whether an earlier tuple writes that row. Nearly always a look at when a row of that hash was
 * last written tells that none does, or which one may; only where that is another row are all compared.
 */
static inline bool
sim_watch_see(struct sim_watch *w, int32_t depth, const struct sim_column *column, uint32_t number)
{
	const uint64_t row = (uint64_t)column->table << 32 | number;
	uint16_t *last = &w->last[((number ^ (uint32_t)column->table << 24) * 0x9e3779b1u) >> (32 - SIM_STAMP_BITS)];
	const int32_t at = w->earlier + w->own - 1 - (uint16_t)(w->written - *last);
	const bool repeated = at >= 0 && (at < w->earlier && w->rows[at] == row ? true : sim_watch_among(w, row));

	if (column->writes)
	{
		if (w->earlier + w->own == depth)
			sim_watch_full(w);
		w->rows[w->earlier + w->own++] = row;
		*last = ++w->written;
	}
	return repeated;
}

/* The tuple begins whose numbers were seen; `following`: in a round of its own */
static inline void
sim_watch_begin(struct sim_watch *w, bool following)
{
	if (following && w->earlier > 0)
	{
		for (int32_t k = 0; k < w->own; k++) /* a few at most: no call */
			w->rows[k] = w->rows[w->earlier + k];
		w->earlier = 0;
	}
	w->earlier += w->own;
	w->own = 0;
}

#endif
