/*
 * Pages alike come to the same from the same state of the clocks, and what a page came to is remembered: states relative
 * to the link's clock are numbered, and a page is a transition.
 */
#include <stdlib.h>
#include <string.h>

#include "clock_state.h"

/* --- pages alike ------------------------------------------------------------------------------------------------- */

bool
sim_clock_prepare(struct sim *sim)
{
	const int32_t size = sim->machine.striders + sim->machine.unpack_stages + 9;

	sim->memo = calloc(1, sizeof *sim->memo + sizeof(int32_t) * STATES * (size_t)size);
	if (sim->memo == NULL)
		return false;
	sim->memo->size = size;
	sim->memo->n_states = sim->memo->n_shapes = 1;
	return true;
}

/* Forgets everything; for good where it was of no use */
static void
forget(struct sim_memo *memo)
{
	memo->off = memo->found < memo->missed;
	memo->found = memo->missed = 0;
	memo->n_transitions = 0;
	memo->n_states = memo->n_shapes = 1;
	memset(memo->places, NONE, sizeof memo->places);
	memset(memo->transitions, NONE, sizeof memo->transitions);
}

/* The number of the state that the clocks are in, a new one where none is like it; NONE: no room, or out of range */
static int32_t
state_of(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	struct sim_memo *memo = sim->memo;
	const int32_t striders = sim->machine.striders, stages = sim->machine.unpack_stages;
	int32_t *state = memo->states + (ptrdiff_t)memo->n_states * memo->size, *next = state;
	uint64_t hash = 0;
	bool fits = memo->n_states < STATES;

	if (!fits)
		return NONE;
	memset(state, 0, sizeof *state * (size_t)memo->size);
#define GET(clock)                                                                                                     \
	{                                                                                                                  \
		const int64_t away = (clock) - c->last;                                                                        \
                                                                                                                       \
		fits = fits && away == (int32_t)away;                                                                          \
		*next++ = (int32_t)away;                                                                                       \
	}
#define GET_PHASE(value) *next++ = (int32_t)(value)
	EACH_CLOCK(GET, GET_PHASE)
	if (!fits)
		return NONE;
	for (int32_t k = 0; k < memo->size; k++)
		hash = (hash ^ (uint32_t)state[k]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
	for (uint32_t place = (uint32_t)hash;; place++)
	{
		int32_t *number = &memo->places[place % (2 * STATES)];

		if (*number == NONE)
			return *number = memo->n_states++;
		if (memcmp(memo->states + (ptrdiff_t)*number * memo->size, state, sizeof *state * (size_t)memo->size) == 0)
			return *number;
	}
}

/* The number of a page's shape; NONE: no room */
static int32_t
shape_of(struct sim_memo *memo, const struct sim_shape *shape)
{
	for (int32_t k = 1; k < memo->n_shapes; k++)
		if (memcmp(&memo->shapes[k], shape, sizeof *shape) == 0)
			return k;
	if (memo->n_shapes == SHAPES)
		return NONE;
	memo->shapes[memo->n_shapes] = *shape;
	return memo->n_shapes++;
}

/*
 * What of the number of a batch's rounds matters to a page that ends fewer than 2 to the power of `bits`: merges go by
 * trailing ones, and of the upper bits at most one round sees those.
 */
static uint32_t
rounds_key(const struct sim *sim, const struct sim_shape *shape)
{
	const uint32_t q = sim->clock.phase.q;
	const int32_t bits = 32 - __builtin_clz((uint32_t)(shape->rows / sim->round_tuples + 1));

	if (sim->batch != SIM_WHOLE_EPOCH)
		return 0;
	return (q & ((1u << bits) - 1)) | (uint32_t)__builtin_ctz(~(q >> bits)) << 16;
}

static struct transition *
transition_of(struct sim_memo *memo, int32_t from, int32_t shape, uint32_t rounds)
{
	const uint32_t hash = ((uint32_t)from * 64 + (uint32_t)shape + rounds * 4099) * 2654435761u >> 16;

	for (uint32_t place = hash;; place++)
	{
		struct transition *t = &memo->transitions[place % TRANSITIONS];

		if (t->from == NONE || (t->from == from && t->shape == shape && t->rounds == rounds))
			return t;
	}
}

/* Works a page out and remembers what came of it */
static void
learn(struct sim *sim, const struct sim_shape *shape, const uint8_t *page, int32_t number, uint32_t rounds)
{
	struct sim_clock *c = &sim->clock;
	struct sim_memo *memo = sim->memo;
	const struct sim_clock before = {.state = c->state, .last = c->last, .phase = c->phase, .waited = c->waited,
									 .busy = c->busy, .merging = c->merging, .beats = c->beats, .batches = c->batches};
	int32_t to;
	struct transition *t;

	memo->missed++;
	sim_clock_pass(sim, shape, page);
	to = before.state == NONE ? NONE : state_of(sim);
	if (to == NONE || number == NONE || memo->n_transitions > TRANSITIONS / 2)
	{
		forget(memo);
		return;
	}
	t = transition_of(memo, before.state, number, rounds);
	memo->n_transitions++;
	*t = (struct transition){
		.from = before.state, .shape = number, .to = to, .rounds = rounds, .q = c->phase.q - before.phase.q,
		.link = (int32_t)(c->last - before.last), .end = (int32_t)(c->end_at - c->last),
		.waited = (uint32_t)(c->waited - before.waited), .busy = (uint32_t)(c->busy - before.busy),
		.merging = (uint32_t)(c->merging - before.merging), .beats = (uint32_t)(c->beats - before.beats),
		.batches = (uint32_t)(c->batches - before.batches)};
	c->state = to;
}

/* A page of whole tuples with known iterations, by what a page like it came to where that is known as well */
void
sim_clock_page(struct sim *sim, const struct sim_shape *shape, const uint8_t *page)
{
	struct sim_clock *c = &sim->clock;
	struct sim_memo *memo = sim->memo;
	const uint32_t rounds = rounds_key(sim, shape);
	const struct transition *t;
	int32_t number;

	if (!sim->counts)
		return;
	if (sim->watches || sim->n_orders > 0 || memo->off || shape->runs > SIM_RUNS)
	{
		sim_clock_pass(sim, shape, page);
		return;
	}
	number = shape_of(memo, shape);
	if (c->state == NONE)
		c->state = state_of(sim);
	t = transition_of(memo, c->state, number, rounds);
	if (c->state == NONE || number == NONE || t->from == NONE)
	{
		learn(sim, shape, page, number, rounds);
		return;
	}
	memo->found++;
	c->pages++;
	c->last += t->link;
	c->end_at = c->last + t->end;
	c->waited += t->waited;
	c->busy += t->busy;
	c->merging += t->merging;
	c->beats += t->beats;
	c->batches += t->batches;
	if (sim->batch == SIM_WHOLE_EPOCH)
		c->phase.q += t->q;
	c->state = t->to;
}
