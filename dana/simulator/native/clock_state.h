/*
 * States of the clocks, as memo.c numbers them and clock.c takes them up.
 */
#ifndef DANA_SIMULATOR_CLOCK_STATE_H
#define DANA_SIMULATOR_CLOCK_STATE_H

#include "walk.h"

#define STATES		2048
#define SHAPES		64
#define TRANSITIONS 4096
#define NONE		0 /* no state, no shape, a free place */

/* What a page does to the clocks */
struct transition
{
	int32_t from, shape, to;
	uint32_t rounds; /* of an epoch that is one batch: see rounds_key() */
	uint32_t q;		 /* rounds that it added to such a batch */
	int32_t link, end;
	uint32_t waited, busy, merging, beats, batches;
};

struct sim_memo
{
	struct transition transitions[TRANSITIONS];
	int32_t places[2 * STATES]; /* of states, by hash */
	struct sim_shape shapes[SHAPES];
	int32_t n_states, n_transitions, n_shapes, size;
	uint32_t found, missed;
	bool off;		  /* hardly a page is like another one */
	int32_t states[]; /* [STATES][size] */
};

/* The clocks between two pages, one by one, and their phase; the half being filled has been waited for */
#define EACH_CLOCK(EACH, PHASE)                                                                                        \
	for (int32_t k = 0; k < striders; k++)                                                                             \
		EACH(c->released[(c->pages + (uint64_t)k) % (uint64_t)striders]);                                              \
	for (int32_t k = 0; k < stages; k++)                                                                               \
		EACH(c->at[(c->stage + k) % stages]);                                                                          \
	EACH(c->requested);                                                                                                \
	EACH(c->take);                                                                                                     \
	EACH(c->done);                                                                                                     \
	EACH(c->idle);                                                                                                     \
	EACH(c->half_free[c->phase.half ^ 1]);                                                                             \
	PHASE(c->phase.in_round);                                                                                          \
	PHASE(c->phase.room);                                                                                              \
	if (sim->batch != SIM_WHOLE_EPOCH)                                                                                 \
	{                                                                                                                  \
		PHASE(c->phase.in_batch);                                                                                      \
		PHASE(c->phase.q);                                                                                             \
	}

#endif
