/*
 * Rows of the scratchpad that hold numbers of bfloat16: the last ones of a machine with `wide_depth`.
 */
#pragma once

#include "numerics.h"

#include "state.h"

/* Drops what n words have no room for where they lie in rows of bfloat16. A NaN stays one: what is read of it is canonical. */
static inline void
sim_narrow(const struct sim *sim, float *words, ptrdiff_t n)
{
	const uintptr_t narrow = (uintptr_t)(sim->scratch + (ptrdiff_t)sim->machine.wide_depth * sim->unit);
	const uintptr_t end = (uintptr_t)(sim->scratch + (ptrdiff_t)sim->machine.scratch_depth * sim->unit);
	float *first = (uintptr_t)words < narrow ? (float *)narrow : words;

	/* the outbox lies elsewhere */
	if (sim->machine.wide_depth == 0 || (uintptr_t)(words + n) <= narrow || (uintptr_t)words >= end)
		return;
	for (; first < words + n; first++)
		if (*first == *first)
			*first = dn_float(dn_bits(*first) & 0xFFFF0000);
}
