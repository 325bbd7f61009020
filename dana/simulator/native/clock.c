/*
 * The clocks: every time of docs/machine.md section 5, as recurrences over entries, rounds and pages.
 *
 * In: what Striders push, with the cycles since their last push. Out: cycles and what they were spent on. No value is
 * seen here but those of watched columns, and of those that ordered instructions follow: times depend on no other.
 */
#include <stdlib.h>
#include <string.h>

#include "walk.h"
#include "clock_state.h"
#include "watch.h"

static inline int64_t
later(int64_t x, int64_t y)
{
	return x > y ? x : y;
}

#define NEVER		 INT64_MAX
#define MAX_WATCHED 4 /* columns of a tuple that is worked out at once */
#define SEEN		 64 /* tuples with columns that are examined together */

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

/* Returns when the round is handed over, which `hand` says but for its records */
static int64_t
run_round(struct sim *sim, int64_t hand, bool batch_last, bool epoch_last)
{
	const struct sim_machine *machine = &sim->machine;
	struct sim_clock *c = &sim->clock;
	const int32_t m = c->phase.in_round;
	const enum sim_section tuple = sim_tuple_section(sim, m);
	int64_t clock;

	if (sim->named_columns > 0)
		hand = later(hand, c->stored + 1) + machine->record_start + machine->record_latency + m * (int64_t)sim->fetched_rows;
	clock = later(hand, c->idle) + machine->round_start + c->ordered;
	c->busy += (uint64_t)c->ordered;
	c->ordered = 0;
	c->batches += batch_last;
	c->half_free[c->phase.half] = clock += spend(sim, c, tuple, 1);
	c->stored = clock;
	if (sim->stored_rows > 0)
		c->stored += machine->record_store + machine->record_latency + m * (int64_t)sim->stored_rows;
	if (c->phase.q != 0)
		clock += spend(sim, c, SIM_MERGE, batch_last ? __builtin_popcount(c->phase.q) : __builtin_ctz(~c->phase.q));
	if (batch_last && sim->n_merges > 0)
		clock += sim->pause;
	if (!batch_last || tuple == SIM_TUPLE)
		clock += spend(sim, c, batch_last ? SIM_BATCH : SIM_PUSH, 1);
	if (epoch_last)
		clock += spend(sim, c, SIM_EPOCH, 1);
	c->idle = clock;
	sim_phase_next(sim, &c->phase, batch_last);
	return hand;
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

/* The rounds' next half of tuple memory is free */
static inline int64_t
next_half(const struct sim_clock *c)
{
	return c->half_free[c->phase.half ^ 1] + 1;
}

/* A tuple's first column is there; returns when it has a place, if the round is not full, and notes if it goes ahead */
static inline int64_t
begins(const struct sim *sim, struct sim_clock *c, int64_t at)
{
	const int64_t known = c->watched + sim->machine.watch_latency, cut_known = c->cut_known;
	const int64_t early = later(later(at, c->settled), later(c->watched + sim->machine.watch_ahead, next_half(c)));

	c->cut_known = NEVER;
	c->ahead = 0;
	if (c->phase.room > 1 && early < known && early < cut_known)
	{
		c->ahead = known;
		c->moves = cut_known != NEVER;
		return early;
	}
	if (cut_known != NEVER)
		sim_phase_cut(&c->phase);
	return later(later(at, c->settled), known);
}

/* The tuple is over that went ahead: if it begins a round, the one before it is handed over */
static void
settle(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	const int64_t decided = later(c->ahead, c->done);

	c->settled = c->ahead + 1;
	c->ahead = 0;
	if (!c->moves)
		return;
	c->moves = false;
	c->phase.in_round--;
	c->settled = decided + 2;
	c->handed = run_round(sim, decided + 1 + sim->machine.unpack_latency, true, false);
	if (sim->named_columns == 0)
		c->handed = 0;
	c->phase.in_round++;
	c->phase.room--;
}

/* The first column of a round is there, the one before being full; returns when it can be unpacked */
static int64_t
next_round(struct sim *sim, int64_t at)
{
	struct sim_clock *c = &sim->clock;
	const int64_t hand = run_round(sim, at + sim->machine.unpack_latency, sim_phase_last(sim, &c->phase), false);
	int64_t free_at = later(at, c->half_free[c->phase.half] + 1);

	if (sim->named_columns > 0)
		free_at = later(free_at, hand);
	c->waited += (uint64_t)(free_at - at);
	return free_at;
}

/* A tuple's first column is there, behind watched ones; returns when it is unpacked */
static int64_t
place(struct sim *sim, int64_t at)
{
	struct sim_clock *c = &sim->clock;
	const int64_t known = begins(sim, c, at), free_at = later(known, c->handed);

	c->beats += (uint64_t)(known - at);
	c->waited += (uint64_t)(free_at - known);
	sim_watch_begin(&c->watch, c->phase.room == 0 || c->moves);
	return c->phase.room == 0 ? next_round(sim, free_at) : free_at;
}

/* Columns that set entries of ordered instructions, by the program; false: no memory */
bool
sim_orders_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	const struct sim_code *code = &sim->sections[SIM_TUPLE];
	const struct sim_instruction *setter = NULL;

	for (const struct sim_instruction *in = code->first; in < code->first + code->n; in++)
	{
		if (in->op == SIM_SETX)
			setter = in;
		for (int32_t k = 0; in->ordered && k < bundle->n_columns; k++)
		{
			struct sim_column *column = &sim->columns[k];
			struct sim_order *order;

			if (column->table || column->row != setter->a) /* its column: legal.py */
				continue;
			if (column->order == 0)
			{
				if (sim->n_orders == SIM_MAX_ORDERS)
					return false;
				order = &sim->orders[sim->n_orders];
				column->order = ++sim->n_orders;
				order->bound = setter->dst;
				order->last = calloc((size_t)order->bound, sizeof *order->last);
				if (order->last == NULL)
					return false;
			}
			sim->orders[column->order - 1].instructions++;
		}
	}
	return true;
}

/* What the numbers of a tuple cost the ordered instructions that use them */
static void
order(struct sim *sim, const struct sim_column *column, const uint8_t *from)
{
	const int32_t window = sim->machine.order_window, bytes = column->bytes / column->count;
	struct sim_order *order = &sim->orders[column->order - 1];
	int64_t repeated = 0;

	if (sim->clock.phase.in_round == 0) /* a SETX begins */
		order->position += window + 1;
	for (int32_t k = 0, some; k < column->count; k += some)
	{
		const uint32_t at = (uint32_t)(k * bytes);
		float numbers[SEEN];

		some = column->count - k < SEEN ? column->count - k : SEEN;
		sim->kernels->convert(column->type, some, numbers, 0, from, &at, 0, 1);
		for (int32_t e = 0; e < some; e++, order->position++)
		{
			const float n = numbers[e]; /* a fault where it is no row */
			int64_t *last = &order->last[n > 0.0f && n < (float)order->bound ? (int32_t)n : 0];

			repeated += order->position - *last <= window;
			*last = order->position;
		}
	}
	sim->clock.ordered += repeated * order->instructions * window;
}

static inline void
column(struct sim *sim, const struct sim_column *column, const uint8_t *from, int32_t gap)
{
	struct sim_clock *c = &sim->clock;
	int64_t at = enter(c, &sim->machine, gap);

	if (column->table)
	{
		if (sim_watch_column(&c->watch, sim->machine.watch_depth, column, from) && c->cut_known == NEVER)
			c->cut_known = at + sim->machine.watch_latency;
		c->watched = at;
	}
	if (column->first && sim->watches)
		at = place(sim, at);
	else if (column->first && c->phase.room == 0)
		at = next_round(sim, at);
	if (column->order > 0 && sim->trains) /* else an estimate, of rows that are all alike */
		order(sim, column, from);
	c->done = at + column->beats;
	c->beats += (uint64_t)column->beats;
	c->phase.in_round += column->last;
	c->phase.room -= column->last;
	if (column->last && c->ahead != 0)
		settle(sim);
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

/* The next page arrives, and its Strider begins */
static void
arrive(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	int64_t *released = &c->released[c->pages % (uint64_t)sim->machine.striders];

	sim_clock_restore(sim);
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
	if (!sim->counts)
		return;
	if (!sim->clock.on_page)
		arrive(sim);
	column(sim, of, from, gap);
}

void
sim_clock_page_end(struct sim *sim, int32_t gap)
{
	struct sim_clock *c = &sim->clock;
	int64_t at;

	if (!sim->counts)
		return;
	if (!c->on_page)
		arrive(sim);
	at = enter(c, &sim->machine, gap);
	c->end_at = later(at, later(c->settled, c->handed));
	c->beats += (uint64_t)(c->end_at - at);
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
tuple_times(const struct sim_way *way, const struct sim_handed *handed)
{
	struct tuple_times t = {.entries = way->n_handed, .pushes = way->tail};

	for (int32_t k = 0; k < way->n_handed; k++)
	{
		t.pushes += handed[k].gap + 1;
		*(handed[k].column->table ? &t.before : &t.beats) += handed[k].column->beats;
		t.watched += handed[k].column->table != 0;
	}
	return t;
}

/* What a watched column chooses, of some tuples */
struct chosen
{
	bool writes;
	uint16_t stamps[SEEN];
	uint64_t rows[SEEN];
};

static void
choose(const struct sim *sim, struct chosen *chosen, const struct sim_handed *handed, const uint8_t *page, int32_t row,
	   int32_t rows)
{
	const struct sim_column *column = handed->column;
	float numbers[SEEN];

	chosen->writes = column->writes;
	sim->kernels->convert(column->type, 1, numbers, 1, page, handed->address + row, handed->offset, rows);
	for (int32_t t = 0; t < rows; t++)
	{
		chosen->rows[t] = sim_watch_row(column, numbers[t]);
		chosen->stamps[t] = (uint16_t)sim_watch_stamp(chosen->rows[t]);
	}
}

/* A tuple after its last watched column, if sums are not sufficient; returns when it is done */
static __attribute__((noinline)) int64_t
place_tuple(struct sim *sim, int64_t at, int64_t beats, int64_t cut_known)
{
	struct sim_clock *c = &sim->clock;

	c->watched = at - 1;
	c->cut_known = cut_known;
	c->done = place(sim, at) + beats;
	c->phase.in_round++;
	c->phase.room--;
	if (c->ahead != 0)
		settle(sim);
	return c->done;
}

/*
 * Tuples with all entries ready, some at most, and no further than their entries are; returns how many. Only
 * where a round is over are the clocks more than sums.
 */
static int32_t
ready_tuples(struct sim *sim, const struct tuple_times *t, const struct sim_handed *handed, const uint8_t *page,
			 int32_t row, int32_t rows)
{
	struct sim_clock *c = &sim->clock;
	struct chosen chosen[MAX_WATCHED];
	const int32_t depth = sim->machine.watch_depth, watched = t->watched;
	const int64_t pushes = t->pushes, before = t->before, beats = t->beats;
	const int64_t latency = sim->machine.watch_latency, ahead = sim->machine.watch_ahead;
	struct sim_watched seen = c->watch.n; /* in registers */
	int64_t turn = c->turn, done = c->done, settled = c->settled, half = next_half(c);
	int32_t n = 0, room = c->phase.room;

	rows = rows < SEEN ? rows : SEEN;
	for (int32_t k = 0; k < watched; k++)
		choose(sim, &chosen[k], &handed[k], page, row, rows);
	for (; n < rows && turn + 2 * pushes + 2 <= done; n++)
	{
		const int64_t first = done + before, known = first - 1 + latency;
		const int64_t early = later(later(settled, half), first - 1 + ahead);
		const int64_t at = early < known ? early : later(settled, known);
		int64_t cut_known = NEVER;

		for (int32_t k = 0; k < watched; k++)
			if (sim_watch_see(&c->watch, &seen, depth, chosen[k].writes, chosen[k].rows[n], chosen[k].stamps[n]) &&
				cut_known == NEVER)
				cut_known = done + k + latency;
		turn += pushes;
		if (cut_known != NEVER || room <= 1 || at < c->handed)
		{
			c->watch.n = seen;
			c->settled = settled;
			c->phase.in_round += c->phase.room - room;
			c->phase.room = room;
			c->beats += (uint64_t)(before + beats);
			done = place_tuple(sim, first, beats, cut_known);
			seen = c->watch.n;
			settled = c->settled;
			half = next_half(c);
			room = c->phase.room;
			continue;
		}
		if (early < known)
			settled = known + 1;
		c->beats += (uint64_t)(at + beats - done);
		done = at + beats;
		room--;
		seen.earlier += seen.own;
		seen.own = 0;
	}
	c->phase.in_round += c->phase.room - room;
	c->phase.room = room;
	c->watch.n = seen;
	c->settled = settled;
	c->turn = turn;
	c->done = done;
	return n;
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
pass_rows(struct sim *sim, const struct sim_way *way, const struct sim_handed *handed, const uint8_t *page,
		  int32_t row, int32_t end, int32_t rows_of_page)
{
	struct sim_clock *c = &sim->clock;
	const struct tuple_times times = tuple_times(way, handed);
	const bool whole = times.watched > 0 && times.watched <= MAX_WATCHED && handed[times.entries - 1].column->last &&
		times.entries > sim->machine.unpack_stages &&
		rows_of_page * times.entries < sim->machine.queue_depth; /* never full */

	while (row < end)
	{
		const int64_t oldest = c->at[c->stage];

		if (whole && c->take + 2 <= oldest && c->turn + times.pushes + 2 <= oldest)
			while (row < end - 1)
			{
				const int32_t some = ready_tuples(sim, &times, handed, page, row, end - 1 - row);

				row += some;
				if (some == 0)
					break;
			}
		row_of_page(sim, way, handed, page, row++);
	}
}

/* A page of whole tuples with known iterations */
void
sim_clock_pass(struct sim *sim, const struct sim_shape *shape, const uint8_t *page)
{
	const struct sim_walk *walk = sim->walk;

	arrive(sim);
	sim->clock.turn += shape->before;
	for (int32_t row = 0, alike; row < shape->rows; row += alike)
	{
		const int32_t which = walk->which[row], at = walk->at[row]; /* those behind it lie behind each other */
		const struct sim_way *way = sim_way_of(walk, which);
		const struct sim_handed *handed = sim_handed_of(walk, which);

		for (alike = 1; row + alike < shape->rows && walk->which[row + alike] == which;)
			alike++;
		pass_rows(sim, way, handed, page, at, at + alike, shape->rows);
	}
	sim_clock_page_end(sim, shape->after);
}

/* --- epochs ------------------------------------------------------------------------------------------------------ */

void
sim_clock_begin(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;

	memset(c, 0, sizeof *c);
	c->state = 0; /* none that memo.c numbered */
	c->requested = c->last = -1;
	c->watched = -sim->machine.watch_latency;
	c->cut_known = NEVER;
	c->idle = 1 + spend(sim, c, SIM_INIT, 1);
	sim_phase_open(sim, &c->phase);
}

/* After the last page; returns the epoch's cycles, where they are worked out */
uint64_t
sim_clock_end(struct sim *sim)
{
	struct sim_clock *c = &sim->clock;
	const int64_t hand = c->end_at + sim->machine.unpack_latency;

	if (!sim->counts)
		return 0;
	sim_clock_restore(sim);
	if (c->phase.in_round > 0)
	{
		(void)run_round(sim, hand, true, true);
		if (sim->named_columns > 0)
			c->idle = later(c->idle, c->stored + 1);
	}
	else if (c->pages > 0)
		c->idle = later(c->idle, hand);
	return (uint64_t)c->idle;
}

/* Makes the clocks those of the state that they are known to be in */
void
sim_clock_restore(struct sim *sim)
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
#undef PUT
#undef PUT_PHASE
	c->state = NONE;
}
