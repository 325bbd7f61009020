/*
 * What every way to run an instruction shares: kinds of operations, entries of the index files, one row in general.
 */
#ifndef DANA_SIMULATOR_ROW_H
#define DANA_SIMULATOR_ROW_H

#include <string.h>

#include "core.h"

/* What a thread's index file says for the tuples of round o: floats from a row to the one chosen */
static inline ptrdiff_t
sim_index_entry(const struct sim *sim, int32_t t, int32_t o)
{
	return sim->index[t * sim->machine.index_depth + o];
}

static inline void
sim_copy_lanes(float *to, const float *from, int32_t lanes)
{
	for (int32_t k = 0; k < lanes; k += SIM_CLUSTER)
		memcpy(to + k, from + k, sizeof(float) * SIM_CLUSTER);
}

/* Where an instruction writes */
static inline float *
sim_result_memory(const struct sim *sim, const struct sim_op *op)
{
	return op->i.op == SIM_PUT ? sim->outbox : sim->scratch;
}

int32_t sim_present(const struct sim *sim, int32_t m, int32_t t);
void sim_row_gather(const struct sim *sim, int32_t o, float *to, const float *from);
void sim_row_operands(const struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level, int32_t o,
					  int32_t i, float **d, const float **a, const float **b);
void sim_row_apply(const struct sim *sim, const struct sim_op *op, float *d, const float *a, const float *b);

#endif
