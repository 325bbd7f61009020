/*
 * Watched columns: does a tuple choose a row that an earlier tuple of its round writes (docs/machine.md, section 4)?
 *
 * In: their values, and where tuples and rounds begin. Out: whether the batch ends before the tuple to come. The clock
 * and the unpacker each keep rows of their own, since one may be pages ahead of the other.
 */
#include <string.h>

#include "core.h"
#include "numerics.h"

/* Table and number, without the sign */
static inline uint64_t
row_of(const struct sim_column *column, float value)
{
	return (uint64_t)column->table << 32 | (dn_bits(value) & INT32_MAX);
}

/* Of rows most are told apart by half as many bits, twice as many at a time */
static inline uint32_t
mark_of(uint64_t row)
{
	return (uint32_t)row ^ (uint32_t)(row >> 32) * 0x9e3779b1u;
}

/* Whether it is among the rows of tuples that have begun */
static bool
among(const struct sim_watch *w, uint64_t row)
{
	const uint32_t mark = mark_of(row);
	uint32_t alike = 0;

	for (int32_t k = 0; k < w->earlier; k++)
		alike |= w->marks[k] == mark; /* no branches: as vectors */
	for (int32_t k = 0; alike != 0 && k < w->earlier; k++)
		if (w->rows[k] == row)
			return true;
	return false;
}

/* Forgets the first `count` rows */
static void
drop(struct sim_watch *w, int32_t count)
{
	const size_t left = (size_t)(w->earlier + w->own - count);

	memmove(w->rows, w->rows + count, sizeof *w->rows * left);
	memmove(w->marks, w->marks + count, sizeof *w->marks * left);
}

/* A watched column's value; whether an earlier tuple writes that row */
bool
sim_watch_see(struct sim_watch *w, int32_t depth, const struct sim_column *column, float value)
{
	const uint64_t row = row_of(column, value);
	const bool repeated = among(w, row);

	if (column->writes)
	{
		if (w->earlier + w->own == depth)
		{
			drop(w, 1);
			*(w->earlier > 0 ? &w->earlier : &w->own) -= 1;
		}
		w->rows[w->earlier + w->own] = row;
		w->marks[w->earlier + w->own++] = mark_of(row);
	}
	return repeated;
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
