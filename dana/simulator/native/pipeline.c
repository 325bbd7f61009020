/*
 * Engine programs that read results before they are visible: rows in the order of their cycles, results when they are due.
 *
 * In: a section that verify.c has found to overlap. Out: the scratchpad. No program of the compiler comes here; the
 * machine runs such programs (docs/machine.md, timing of instructions), so the simulator does.
 */
#include <stdlib.h>
#include <string.h>

#include "row.h"

#define UNDER_WAY 512 /* rows whose results are due later, at most: one may issue in each cycle of the longest latency */

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
static void
settle(struct sim *sim, int64_t cycle)
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
		if (first->interval == 0 || ++first->lanes == SIM_CLUSTER)
			first->to = NULL;
	}
}

static void
issue(struct sim *sim, const struct sim_op *op, float *d, const float *a, const float *b, int64_t cycle)
{
	const struct sim_instruction *in = &op->i;
	const bool special = sim_is(SIM_SPECIAL, in->op);
	struct sim_pending *p = sim->pending;

	while (p->to != NULL)
		p++;
	p->to = d;
	p->lanes = 0;
	p->due = cycle + (special ? sim->machine.special_latency[in->op] : sim->machine.result_latency);
	p->interval = special && !in->scalar ? sim->machine.special_interval[in->op] : 0;
	if (in->op != SIM_MOVC)
	{
		memset(p->keep, 0xff, sizeof *p->keep * (size_t)sim->unit);
		sim_row_apply(sim, op, p->value, a, b);
		return;
	}
	memcpy(p->value, a, sizeof *p->value * (size_t)sim->unit);
	for (int32_t u = 0; u < sim->unit; u++)
		p->keep[u] = b[u] != 0.0f;
}

/* Runs a section; all its results are visible at its end */
void
sim_pipeline_run(struct sim *sim, const struct sim_code *code, int32_t half, int32_t m, int32_t level)
{
	int64_t turn = 0;

	for (int32_t k = 0; k < code->n_ops; k++)
	{
		const struct sim_op *op = &code->ops[k];
		const bool special = sim_is(SIM_SPECIAL, op->i.op);
		const int32_t interval =
			!special ? 1 : sim->machine.special_interval[op->i.op] * (op->i.scalar ? 1 : SIM_CLUSTER);

		turn += op->i.wait;
		for (int32_t o = 0; o < op->i.outer; o++)
			for (int32_t i = 0; i < op->i.inner; i++, turn += interval)
			{
				float *d;
				const float *a, *b;

				settle(sim, turn);
				sim_row_operands(sim, op, half, m, level, o, i, &d, &a, &b);
				issue(sim, op, d, a, b, turn);
			}
	}
	settle(sim, INT64_MAX - 1);
}
