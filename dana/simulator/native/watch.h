/*
 * Watched columns, what comes with each tuple; watch.c has the rest.
 */
#ifndef DANA_SIMULATOR_WATCH_H
#define DANA_SIMULATOR_WATCH_H

#include "core.h"
#include "number.h"

/*
 * A watched column's value; whether an earlier tuple writes that row. Nearly always a look at what was last written
 * under the row's hash tells that none does; only where that is recent enough are rows compared.
 */
static inline bool
sim_watch_see(struct sim_watch *w, int32_t depth, const struct sim_column *column, const uint8_t *from)
{
	const uint32_t number = dn_bits(sim_number(column->type, from)) & INT32_MAX; /* without the sign */
	const uint64_t row = (uint64_t)column->table << 32 | number;
	uint16_t *last = &w->last[((number ^ (uint32_t)column->table << 24) * 0x9e3779b1u) >> (32 - SIM_STAMP_BITS)];
	const bool repeated = (uint16_t)(w->written - *last) < w->earlier + w->own && sim_watch_among(w, row);

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
