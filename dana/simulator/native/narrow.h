/*
 * Rows of the scratchpad that hold numbers of bfloat16: the last ones of a machine with `wide_depth`.
 */
#pragma once

#include "numerics.h"

#include "state.h"

/*
 * Drops the lower halves of those of n words that lie in rows of bfloat16. A NaN stays as it is, since it is canonical
 * when it is read.
 */
static inline void
sim_narrow(const struct sim *sim, float *words, ptrdiff_t n)
{
	uintptr_t narrow, end;
	float *first;

	if (sim->machine.wide_depth == 0)
		return;
	narrow = (uintptr_t)(sim->scratch + (ptrdiff_t)sim->machine.wide_depth * sim->unit);
	end = (uintptr_t)(sim->scratch + (ptrdiff_t)sim->machine.scratch_depth * sim->unit);
	/* the outbox lies elsewhere */
	if ((uintptr_t)(words + n) <= narrow || (uintptr_t)words >= end)
		return;
	first = (uintptr_t)words < narrow ? (float *)narrow : words;
	for (; first < words + n; first++)
		if (*first == *first)
			*first = dn_float(dn_bits(*first) & 0xFFFF0000);
}
