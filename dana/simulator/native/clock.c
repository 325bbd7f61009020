/*
 * The clocks: every time of docs/machine.md section 5, as recurrences over entries, rounds and pages.
 *
 * In: what Striders push, with the cycles since their last push. Out: cycles and what they were spent on. No value is
 * seen here but those of watched columns: times depend on no other. Without them pages alike come to the same from the
 * same state, and what a page came to is remembered: states relative to the link's clock are numbered, and a page is a
 * transition.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "watch.h"

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

static inline int64_t
later(int64_t x, int64_t y)
{
	return x > y ? x : y;
}

/* --- rounds and batches ------------------------------------------------------------------------------------------ */

/* The unpacker is before the first tuple of a round */
void
sim_phase_open(const struct sim *sim, struct sim_phase *phase)
{
	phase->in_round = 0;
	phase->cut = false;
	phase->room = sim->round_tuples;
	if (sim->batch != SIM_WHOLE_EPOCH && sim->batch - phase->in_batch < (uint32_t)phase->room)
		phase->room = (int32_t)(sim->batch - phase->in_batch);
}

/* The next tuple chooses a row that one of the round writes */
void
sim_phase_cut(struct sim_phase *phase)
{
	if (phase->in_round == 0 || phase->room == 0)
		return;
	phase->room = 0;
	phase->cut = true;
}

/* Whether a round that is full is its batch's last */
bool
sim_phase_last(const struct sim *sim, const struct sim_phase *phase)
{
	return phase->cut || (sim->batch != SIM_WHOLE_EPOCH && phase->in_batch + (uint32_t)phase->in_round == sim->batch);
}

/* The round is over */
void
sim_phase_next(const struct sim *sim, struct sim_phase *phase, bool batch_last)
{
	phase->q = batch_last ? 0 : phase->q + 1;
	phase->in_batch = batch_last ? 0 : phase->in_batch + (uint32_t)phase->in_round;
	phase->half ^= 1;
	sim_phase_open(sim, phase);
}

/* Cycles of a section */
static int64_t
spend(const struct sim *sim, struct sim_clock *c, enum sim_section section, int32_t times)
{
	const int64_t cycles = times * sim->sections[section].cycles;

	c->busy += (uint64_t)cycles;
	if (section == SIM_MERGE || section == SIM_PUSH)
		c->merging += (uint64_t)cycles;
	return cycles;
}

static void
run_round(struct sim *sim, int64_t hand, bool batch_last, bool epoch_last)
{
	struct sim_clock *c = &sim->clock;
	int64_t clock = later(hand, c->idle) + sim->machine.round_start;

	c->batches += batch_last;
	c->half_free[c->phase.half] = clock += spend(sim, c, sim_tuple_section(sim, c->phase.in_round), 1);
	if (c->phase.q != 0)
		clock += spend(sim, c, SIM_MERGE, batch_last ? __builtin_popcount(c->phase.q) : __builtin_ctz(~c->phase.q));
	clock += spend(sim, c, batch_last ? SIM_BATCH : SIM_PUSH, 1);
	if (epoch_last)
		clock += spend(sim, c, SIM_EPOCH, 1);
	c->idle = clock;
	sim_phase_next(sim, &c->phase, batch_last);
}

/* --- entries ----------------------------------------------------------------------------------------------------- */

/* An entry is pushed `gap` cycles after the Strider's turn began at the earliest; returns its `at` */
static inline int64_t
enter(struct sim_clock *c, const struct sim_machine *machine, int32_t gap)
{
	int64_t *queued = &c->takes[c->pushes++ & (uint32_t)(machine->queue_depth - 1)];
	int64_t *stage = &c->at[c->stage];
	const int64_t push = later(c->turn + gap, *queued + 1);
	const int64_t take = later(later(push, c->take) + 1, *stage - 1);
	const int64_t at = later(take + machine->unpack_stages + 1, c->done);

	c->stage = c->stage + 1 < machine->unpack_stages ? c->stage + 1 : 0;
	c->turn = push + 1;
	*queued = c->take = take;
	*stage = at;
	return at;
}

/* The first column of a round is there, the one before being full; returns when it can be unpacked */
static int64_t
next_round(struct sim *sim, int64_t at)
{
	struct sim_clock *c = &sim->clock;
	int64_t free_at;

	run_round(sim, at + sim->machine.unpack_latency, sim_phase_last(sim, &c->phase), false);
	free_at = later(at, c->half_free[c->phase.half] + 1);
	c->waited += (uint64_t)(free_at - at);
	return free_at;
}

static inline void
column(struct sim *sim, const struct sim_column *column, const uint8_t *from, int32_t gap)
{
	struct sim_clock *c = &sim->clock;
	int64_t at = enter(c, &sim->machine, gap);

	if (column->table)
	{
		if (sim_watch_see(&c->watch, sim->machine.watch_depth, column, from))
			sim_phase_cut(&c->phase);
		c->watched = at;
	}
	if (column->first && sim->watches)
	{
		const int64_t known = later(at, c->watched + sim->machine.watch_latency);

		c->beats += (uint64_t)(known - at);
		at = known;
		sim_watch_begin(&c->watch, c->phase.room == 0);
	}
	if (column->first && c->phase.room == 0)
		at = next_round(sim, at);
	c->done = at + column->beats;
	c->beats += (uint64_t)column->beats;
	c->phase.in_round += column->last;
	c->phase.room -= column->last;
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

static void restore(struct sim *sim);

/* The next page arrives, and its Strider begins */
static void
arrive(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	int64_t *released = &c->released[c->pages % (uint64_t)sim->machine.striders];

	restore(sim);
	c->requested = later(c->requested, *released) + 1;
	c->last = later(c->requested + sim->machine.link_latency, c->last + 1) + sim->machine.page_cycles - 1;
	c->turn = c->last + sim->machine.strider_start;
	c->pushes = 0;
	for (int32_t k = 0; k < sim->machine.queue_depth; k++)
		c->takes[k] = 0;
	c->on_page = true;
}

void
sim_clock_column(struct sim *sim, const struct sim_column *of, const uint8_t *from, int32_t gap)
{
	if (!sim->trains)
		return;
	if (!sim->clock.on_page)
		arrive(sim);
	column(sim, of, from, gap);
}

void
sim_clock_page_end(struct sim *sim, int32_t gap)
{
	struct sim_clock *c = &sim->clock;

	if (!sim->trains)
		return;
	if (!c->on_page)
		arrive(sim);
	c->end_at = enter(c, &sim->machine, gap);
	c->done = c->end_at + 1;
	c->released[c->pages++ % (uint64_t)sim->machine.striders] = c->end_at + sim->machine.page_release;
	c->on_page = false;
}

/* A tuple of watched columns first: its entries, cycles of its Strider, its first column's and others' beats */
struct tuple_times
{
	int32_t entries, watched, pushes, before, beats;
};

static struct tuple_times
tuple_times(const struct sim *sim, const struct sim_way *way, const struct sim_handed *handed)
{
	struct tuple_times t = {.entries = way->n_handed, .pushes = way->tail};

	for (int32_t k = 0; k < way->n_handed; k++)
	{
		t.pushes += handed[k].gap + 1;
		*(handed[k].column->table ? &t.before : &t.beats) += handed[k].column->beats;
		t.watched += handed[k].column->table != 0;
	}
	if (t.watched > 0 && sim->machine.watch_latency > handed[t.watched - 1].column->beats)
		t.before += sim->machine.watch_latency - handed[t.watched - 1].column->beats;
	return t;
}

/* A tuple all of whose entries are ready */
static inline void
ready_tuple(struct sim *sim, const struct tuple_times *t, const struct sim_handed *handed, const uint8_t *page,
			int32_t row)
{
	struct sim_clock *c = &sim->clock;
	int64_t at = c->done + t->before;

	for (int32_t k = 0; k < t->watched; k++)
		if (sim_watch_see(&c->watch, sim->machine.watch_depth, handed[k].column,
						  page + (uint32_t)(handed[k].address[row] + handed[k].offset)))
			sim_phase_cut(&c->phase);
	sim_watch_begin(&c->watch, c->phase.room == 0);
	if (c->phase.room == 0)
		at = next_round(sim, at);
	c->turn += t->pushes;
	c->done = at + t->beats;
	c->beats += (uint64_t)(t->before + t->beats);
	c->phase.in_round++;
	c->phase.room--;
}

/* Its columns, entry by entry */
static inline void
row_of_page(struct sim *sim, const struct sim_way *way, const struct sim_handed *handed, const uint8_t *page,
			int32_t row)
{
	for (int32_t k = 0; k < way->n_handed; k++)
		column(sim, handed[k].column, page + (uint32_t)(handed[k].address[row] + handed[k].offset), handed[k].gap);
	sim->clock.turn += way->tail;
}

/*
 * Tuples of watched columns, all of one way. An entry is ready if push_k + 2 <= at_{k - UNPACK_STAGES}; where all
 * are for a while, take_k is the latter less 1, and at_k = done_{k-1}. So a tuple is worked out at once if its
 * entries are ready and so are the next one's, which begins no earlier than it is itself done, and looks back no
 * further than to its beginning. That leaves `take` and the stages behind, too early, which the entries of one tuple
 * that is ready make up for.
 */
static void
pass_watched(struct sim *sim, const struct sim_way *way, const struct sim_handed *handed, const uint8_t *page,
			 int32_t rows)
{
	struct sim_clock *c = &sim->clock;
	const struct tuple_times times = tuple_times(sim, way, handed);
	const bool whole = times.watched > 0 && handed[times.entries - 1].column->last &&
		times.entries > sim->machine.unpack_stages && rows * times.entries < sim->machine.queue_depth; /* never full */
	bool ready = false;

	for (int32_t row = 0; row < rows; row++)
	{
		const int64_t oldest = c->at[c->stage];

		ready = ready || (c->take + 2 <= oldest && c->turn + times.pushes + 2 <= oldest);
		if (whole && ready && row < rows - 1 && c->turn + 2 * times.pushes + 2 <= c->done)
			ready_tuple(sim, &times, handed, page, row);
		else
		{
			row_of_page(sim, way, handed, page, row);
			ready = false;
		}
	}
}

/* A page of whole tuples whose iterations are known */
static void
pass_page(struct sim *sim, const struct sim_shape *shape, const uint8_t *page, bool by_pattern)
{
	const struct sim_walk *walk = sim->walk;
	const struct sim_way *way = walk->ways[shape->ways[0]];

	arrive(sim);
	sim->clock.turn += shape->before;
	if (sim->watches && shape->runs == 1)
		pass_watched(sim, way, by_pattern ? walk->pattern->handed : way->handed, page, shape->rows);
	else
		for (int32_t row = 0; row < shape->rows; row++)
		{
			way = walk->ways[walk->which[row]];
			row_of_page(sim, way, by_pattern ? walk->pattern->handed : way->handed, page, row);
		}
	sim_clock_page_end(sim, shape->after);
}

/* --- epochs ------------------------------------------------------------------------------------------------------ */

void
sim_clock_begin(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;

	memset(c, 0, sizeof *c);
	c->state = NONE;
	c->requested = c->last = -1;
	c->watched = -sim->machine.watch_latency;
	c->idle = 1 + spend(sim, c, SIM_INIT, 1);
	sim_phase_open(sim, &c->phase);
}

/* After the last page; returns the epoch's cycles */
uint64_t
sim_clock_end(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	const int64_t hand = c->end_at + sim->machine.unpack_latency;

	restore(sim);
	if (c->phase.in_round > 0)
		run_round(sim, hand, true, true);
	else if (c->pages > 0)
		c->idle = later(c->idle, hand);
	return (uint64_t)c->idle;
}

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

/* Makes the clocks those of the state that they are known to be in */
static void
restore(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	const int32_t striders = sim->machine.striders, stages = sim->machine.unpack_stages;
	const int32_t *state;

	if (c->state == NONE)
		return;
	state = sim->memo->states + (ptrdiff_t)c->state * sim->memo->size;
#define PUT(clock)		 (clock) = c->last + *state++
#define PUT_PHASE(value) (value) = (__typeof__(value))*state++
	EACH_CLOCK(PUT, PUT_PHASE)
	c->state = NONE;
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
learn(struct sim *sim, const struct sim_shape *shape, const uint8_t *page, bool by_pattern, int32_t number, uint32_t rounds)
{
	struct sim_clock *c = &sim->clock;
	struct sim_memo *memo = sim->memo;
	const struct sim_clock before = {.state = c->state, .last = c->last, .phase = c->phase, .waited = c->waited,
									 .busy = c->busy, .merging = c->merging, .beats = c->beats, .batches = c->batches};
	int32_t to;
	struct transition *t;

	memo->missed++;
	pass_page(sim, shape, page, by_pattern);
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

/* A page of whole tuples whose iterations are known, by what a page like it came to where that is known as well */
void
sim_clock_page(struct sim *sim, const struct sim_shape *shape, const uint8_t *page, bool by_pattern)
{
	struct sim_clock *c = &sim->clock;
	struct sim_memo *memo = sim->memo;
	const uint32_t rounds = rounds_key(sim, shape);
	const struct transition *t;
	int32_t number;

	if (!sim->trains)
		return;
	if (sim->watches || memo->off || shape->runs > SIM_RUNS)
	{
		pass_page(sim, shape, page, by_pattern);
		return;
	}
	number = shape_of(memo, shape);
	if (c->state == NONE)
		c->state = state_of(sim);
	t = transition_of(memo, c->state, number, rounds);
	if (c->state == NONE || number == NONE || t->from == NONE)
	{
		learn(sim, shape, page, by_pattern, number, rounds);
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
