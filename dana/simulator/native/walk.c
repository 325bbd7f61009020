/*
 * The Strider, all rows of a page at a time.
 *
 * In: pages of a program with one loop over rows, as the compiler writes them. Out: the same columns, rows skipped and
 * times that strider.c gives, or the answer that this page is for strider.c.
 *
 * What the interpreter went through from a loop's head back to it is a *way*; way.c makes steps of it, over all rows.
 * Rows are independent of each other: all ways add the same to the cursor, and read of what is before the row nothing
 * that a way writes. So if each row of a page meets all conditions of some way, the page has exactly those columns.
 * Nothing is handed over before that is known of all rows. Most rows are like the pattern (pattern.c), or holes; the
 * steps of ways are for the others.
 */
#include <stdlib.h>
#include <string.h>

#include "walk.h"

#define REFUSALS  32 /* ways that could not be had, then none is looked for any more */
#define MAX_REST 64

/* Whether ways from this head are still looked for */
bool
sim_walk_wanted(const struct sim *sim, int32_t head)
{
	const struct sim_walk *walk = sim->walk;

	return !sim->plain && (walk->head == head || walk->head < 0) && walk->n_ways < SIM_WAYS && walk->refused < REFUSALS;
}

/* Whether a way's tuples have the columns of the others' */
static bool
has_columns(const struct sim_walk *walk, const struct sim_way *way)
{
	for (int32_t w = 0; w < walk->n_ways && way->tuples > 0; w++)
	{
		const struct sim_way *other = walk->ways[w];
		bool same = other->n_handed == way->n_handed;

		for (int32_t k = 0; k < way->n_handed && same; k++)
			same = other->handed[k].column == way->handed[k].column;
		if (other->tuples > 0)
			return same;
	}
	return true;
}

/* Makes a way of n instructions, from the head back to it, unless there is one */
void
sim_walk_learn(struct sim *sim, int32_t head, const int32_t *path, int32_t n)
{
	struct sim_walk *walk = sim->walk;
	struct sim_way *way;

	if (!sim_walk_wanted(sim, head))
		return;
	for (int32_t k = 0; k < walk->n_ways; k++)
		if (walk->ways[k]->length == n && memcmp(walk->ways[k]->path, path, (size_t)n * sizeof *path) == 0)
			return;
	way = sim_way_build(sim, path, n);
	if (way == NULL || !has_columns(walk, way))
	{
		sim_way_free(way);
		walk->refused++;
		return;
	}
	walk->head = head;
	walk->longest = n > walk->longest ? n : walk->longest;
	walk->ways[walk->n_ways++] = way;
	walk->mixed.n_addresses = 0;
	walk->rest = 0;
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

bool
sim_walk_prepare(struct sim *sim)
{
	struct sim_walk *walk = sim->walk = calloc(1, sizeof *sim->walk);
	const int32_t most = sim->machine.page_size / 4, rows = most + SIM_ROWS;

	if (walk == NULL)
		return false;
	walk->head = -1;
	walk->most = most;
	walk->spacing = most + 10 * SIM_ROWS; /* whole lines of a cache */
	walk->zeros = calloc(7 * (size_t)rows, sizeof *walk->zeros);
	if (walk->zeros == NULL)
		return false;
	walk->ok = walk->zeros + rows;
	walk->tuples = walk->ok + rows;
	walk->others = (int32_t *)walk->tuples + rows;
	walk->places = walk->others + rows;
	walk->same = walk->places + rows;
	walk->which = (uint8_t *)(walk->same + rows);
	for (int32_t k = 0; k < rows; k++)
		walk->same[k] = k;
	return true;
}

void
sim_walk_free(struct sim *sim)
{
	struct sim_walk *walk = sim->walk;

	if (walk == NULL)
		return;
	for (int32_t k = 0; k < walk->n_ways; k++)
		sim_way_free(walk->ways[k]);
	sim_mixed_free(walk);
	free(walk->zeros); /* and what lies behind it */
	free(walk);
	sim->walk = NULL;
}

/* The page's rows, by cursor and limit; 0: too many */
static int32_t
count_rows(const struct sim *sim)
{
	const struct sim_walk *walk = sim->walk;
	const uint32_t cursor = sim->registers[walk->cursor], limit = sim->registers[walk->limit];
	const uint32_t rows = cursor < limit ? (limit - cursor + walk->step - 1) / walk->step : 1;

	return cursor <= INT32_MAX && rows <= (uint32_t)walk->most ? (int32_t)rows : 0;
}

/* Rows of a page by their ways, in runs */
static void
note_runs(const struct sim_walk *walk, struct sim_shape *shape)
{
	shape->runs = 0;
	for (int32_t row = 0; row < shape->rows; row++)
	{
		const int32_t way = walk->which[row] == SIM_ALIKE ? walk->pattern.way : walk->which[row];

		if (shape->runs == 0 || way != shape->ways[shape->runs - 1])
		{
			if (shape->runs++ == SIM_RUNS)
				break;
			shape->ways[shape->runs - 1] = (uint8_t)way;
			shape->counts[shape->runs - 1] = 0;
		}
		shape->counts[shape->runs - 1]++;
	}
}

/* Of a page that was compared with the pattern, which rows are like it, and which are holes */
static void
note_alike(struct sim *sim, const uint8_t *page, int32_t rows)
{
	struct sim_walk *walk = sim->walk;
	const struct sim_pattern *pattern = &walk->pattern;
	const uint8_t *line = page + sim->registers[walk->cursor] + pattern->line;
	int32_t alike = 0, other = 0;

	walk->at = walk->places;
	for (int32_t row = 0; row < rows; row++)
		if (other < walk->n_others && walk->others[other] == row)
			other++;
		else if (sim_pattern_hole(pattern, line + (size_t)row * walk->step))
			walk->which[row] = (uint8_t)pattern->hole;
		else
		{
			walk->which[row] = SIM_ALIKE;
			walk->places[row] = alike++;
		}
}

/* Finds the ways of the rows that are not like the pattern; false: there is one that has none */
static bool
find_ways(struct sim *sim, const uint8_t *page)
{
	struct sim_walk *walk = sim->walk;
	const uint32_t cursor = sim->registers[walk->cursor], step = walk->step;
	const int32_t first = walk->favourite;
	int32_t missing = walk->n_others, most = 0;

	walk->at = walk->places;
	for (int32_t i = 0; i < walk->n_ways && missing > 0; i++)
	{
		const int32_t w = i == 0 ? first : i <= first ? i - 1 : i;
		int32_t left = 0;

		for (int32_t k = 0; k < missing; k++)
			walk->ways[w]->cursors[k] = cursor + (uint32_t)walk->others[k] * step;
		sim_way_run(walk->ways[w], sim->registers, page, (uint32_t)sim->machine.page_size, missing, walk->ok);
		for (int32_t k = 0; k < missing; k++) /* a row has one way at most: branches go one way */
		{
			const int32_t row = walk->others[k];

			walk->others[left] = row;
			left += walk->ok[k] == 0;
			walk->which[row] = (uint8_t)(walk->ok[k] != 0 ? w : walk->which[row]);
			walk->places[row] = walk->ok[k] != 0 ? k : walk->places[row];
		}
		if (missing - left > most)
		{
			most = missing - left;
			walk->favourite = w;
		}
		missing = left;
	}
	return missing == 0;
}

/* Few rows of a page were like the pattern: what most are like may be the next page's; less and less often */
static void
learn(struct sim *sim, const uint8_t *page, int32_t rows)
{
	struct sim_walk *walk = sim->walk;
	int32_t counts[SIM_WAYS] = {0}, most = 0;
	uint8_t *first;

	if ((walk->unlike & (walk->unlike + 1)) == 0)
	{
		for (int32_t row = 0; row < rows; row++)
			counts[walk->which[row]]++;
		for (int32_t w = 1; w < walk->n_ways; w++)
			most = counts[w] * walk->ways[w]->tuples > counts[most] * walk->ways[most]->tuples ? w : most;
		first = memchr(walk->which, most, (size_t)rows);
		if (first != NULL)
			sim_pattern_learn(sim, most, page, walk->places[first - walk->which]);
		walk->mixed.n_addresses = 0;
	}
	walk->unlike++;
}

/* Hands over what rows of a page have; false: a fault */
static bool
hand_over(struct sim *sim, const uint8_t *page, uint64_t skipped, const struct sim_handed *handed, int32_t n_handed,
		  int32_t tuples)
{
	sim->e.skipped += skipped;
	return tuples == 0 || sim_tuples(sim, page, handed, n_handed, 0, tuples);
}

/* A page with rows like the pattern, `alike` of them, and holes; false: a fault */
static bool
run_alike(struct sim *sim, const uint8_t *page, struct sim_shape *shape, int32_t alike)
{
	struct sim_walk *walk = sim->walk;
	const struct sim_way *way = walk->ways[walk->pattern.way];

	if (alike == shape->rows)
	{
		memset(walk->which, SIM_ALIKE, (size_t)alike);
		walk->at = walk->same;
		shape->runs = 1;
		shape->ways[0] = (uint8_t)walk->pattern.way;
		shape->counts[0] = alike;
	}
	else if (sim->counts)
	{
		note_alike(sim, page, shape->rows);
		note_runs(walk, shape);
	}
	sim_clock_page(sim, shape, page);
	return hand_over(sim, page, (uint64_t)(alike * way->skipped), walk->pattern.handed, way->n_handed,
					 way->tuples * alike);
}

/* A page of rows of several ways */
static enum sim_walked
run_ways(struct sim *sim, const uint8_t *page, struct sim_shape *shape, bool some_alike)
{
	struct sim_walk *walk = sim->walk;
	uint64_t skipped = 0;
	int32_t tuples;

	if (some_alike)
		note_alike(sim, page, shape->rows);
	else
	{
		memcpy(walk->others, walk->same, sizeof *walk->others * (size_t)shape->rows);
		walk->n_others = shape->rows;
	}
	if (!find_ways(sim, page))
		return SIM_WALK_NOT;
	if (!some_alike)
		learn(sim, page, shape->rows);
	note_runs(walk, shape);
	if ((tuples = sim_mixed_gather(walk, shape->rows)) < 0)
		return SIM_WALK_NOT;
	for (int32_t row = 0; row < shape->rows; row++)
		skipped += (uint64_t)sim_way_of(walk, walk->which[row])->skipped;
	sim_clock_page(sim, shape, page);
	return hand_over(sim, page, skipped, walk->mixed.handed, walk->mixed.n_handed, tuples) ? SIM_WALKED : SIM_WALK_FAULT;
}

/* Runs the rest of a page from the head of the loop, which its Strider reached after `gap` cycles and `executed`
 * instructions */
enum sim_walked
sim_walk(struct sim *sim, const uint8_t *page, int32_t head, int32_t gap, uint32_t executed)
{
	struct sim_walk *walk = sim->walk;
	const uint64_t bound = (uint64_t)sim->machine.strider_bound * (uint64_t)sim->machine.page_size;
	struct sim_shape shape = {.before = gap};
	enum sim_walked walked = SIM_WALK_NOT;

	if (sim->plain || head != walk->head || sim->e.open || sim->clock.on_page || walk->rest-- > 0)
		return SIM_WALK_NOT;
	walk->rest = 0;
	shape.rows = count_rows(sim);
	shape.after = sim->strider[sim->strider[walk->ways[0]->path[walk->ways[0]->length - 1]].next].cost - 1;
	if (executed + (uint64_t)shape.rows * (uint64_t)walk->longest >= bound)
		return SIM_WALK_NOT;
	if (shape.rows > 0)
	{
		const int32_t alike = sim_pattern_run(sim, page, shape.rows);

		if (alike >= 0 && walk->n_others == 0)
			walked = run_alike(sim, page, &shape, alike) ? SIM_WALKED : SIM_WALK_FAULT;
		else
			walked = run_ways(sim, page, &shape, alike >= 0);
	}
	if (walked == SIM_WALK_NOT)
	{
		walk->poor = walk->poor < MAX_REST ? walk->poor + 1 : MAX_REST;
		walk->rest = walk->poor;
		return SIM_WALK_NOT;
	}
	walk->poor = 0;
	if (walked == SIM_WALK_FAULT)
		return SIM_WALK_FAULT;
	walk->rows += (uint64_t)shape.rows;
	sim_page_end(sim, sim->registers[0] + (walk->cursor == 0 ? (uint32_t)shape.rows * walk->step : 0));
	return SIM_WALKED;
}
