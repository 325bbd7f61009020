/*
 * Engine programs that read results before they are visible: results are written when they are due.
 *
 * In: rows of a program that verify.c has found to overlap. Out: the scratchpad. No program of the compiler comes here;
 * the machine runs such programs (docs/machine.md, timing of instructions), so the simulator does.
 */
#include <stdlib.h>

#include "narrow.h"
#include "state.h"

#define UNDER_WAY 512 /* maximum number of pending results: a row may issue in each cycle of the longest latency */

/* A row's result */
struct sim_pending
{
	int64_t due;	  /* cycle from which it is visible */
	int32_t interval; /* lane k of each cluster later by k of these */
	int32_t lanes;	  /* of each cluster, that are visible already */
	float *to;		  /* NULL: free */
	float *value;	  /* [unit] */
	uint32_t *keep;	  /* [unit]: which of them are written */
};

bool
sim_pipeline_prepare(struct sim *sim)
{
	const size_t unit = (size_t)sim->unit;
	float *values;
	uint32_t *keeps;

	if (!sim->overlaps)
		return true;
	sim->pending = calloc(UNDER_WAY, sizeof *sim->pending + unit * (sizeof *values + sizeof *keeps));
	if (sim->pending == NULL)
		return false;
	values = (float *)(sim->pending + UNDER_WAY);
	keeps = (uint32_t *)(values + UNDER_WAY * unit);
	for (size_t k = 0; k < UNDER_WAY; k++)
	{
		sim->pending[k].value = values + k * unit;
		sim->pending[k].keep = keeps + k * unit;
	}
	return true;
}

/* Writes what is visible in a cycle, the earlier first */
void
sim_pipeline_settle(struct sim *sim, int64_t cycle)
{
	for (;;)
	{
		struct sim_pending *first = NULL;
		int64_t due = cycle + 1;

		for (struct sim_pending *p = sim->pending; p < sim->pending + UNDER_WAY; p++)
			if (p->to != NULL && p->due + p->lanes * (int64_t)p->interval < due)
			{
				first = p;
				due = p->due + p->lanes * (int64_t)p->interval;
			}
		if (first == NULL)
			return;
		for (int32_t u = 0; u < sim->unit; u++)
			if (first->keep[u] && (first->interval == 0 || u % SIM_CLUSTER == first->lanes))
				first->to[u] = first->value[u];
		sim_narrow(sim, first->to, sim->unit);
		if (first->interval == 0 || ++first->lanes == SIM_CLUSTER)
			first->to = NULL;
	}
}

/* A row with ready operands issues; its result comes later */
void
sim_pipeline_issue(struct sim *sim, const struct sim_instruction *in, float *d, const float *a, const float *b,
				   int64_t cycle)
{
	struct sim_pending *p = sim->pending;

	while (p->to != NULL)
		p++;
	p->to = d;
	p->lanes = 0;
	p->due = cycle + sim_latency(sim, in);
	p->interval = sim_is(SIM_SPECIAL, in->op) && !in->scalar ? sim->machine.special_interval[in->op] : 0;
	for (int32_t u = 0; u < sim->unit; u++)
		p->keep[u] = in->op != SIM_MOVC || b[u] != 0.0f;
	sim_row_apply(sim, in, 1, p->value, a, b);
}
