/*
 * The Strider, all rows of a page at a time.
 *
 * In: pages of a program with one loop over rows, as the compiler writes them. Out: the same columns, rows skipped and
 * times that strider.c gives, or the answer that this page is for strider.c.
 *
 * What the interpreter went through from a loop's head back to it is a *way*; way.c makes steps of it, over all rows.
 * Rows are independent of each other: all ways add the same to the cursor, and read of what is before the row nothing
 * that a way writes. So a page whose rows each meet all conditions of some way has exactly those columns. Nothing is
 * handed over before that is known of all of them.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define REFUSALS  32 /* ways that could not be had, then none is looked for any more */
#define MOST_REST 64

/* Whether ways from this head are still looked for */
bool
sim_walk_wanted(const struct sim *sim, int32_t head)
{
	const struct sim_walk *walk = sim->walk;

	return !sim->plain && (walk->head == head || walk->head < 0) && walk->n_ways < SIM_WAYS && walk->refused < REFUSALS;
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
	if (way == NULL)
	{
		walk->refused++;
		return;
	}
	walk->head = head;
	walk->longest = n > walk->longest ? n : walk->longest;
	walk->ways[walk->n_ways++] = way;
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
	walk->zeros = calloc(5 * (size_t)rows, sizeof *walk->zeros);
	if (walk->zeros == NULL)
		return false;
	walk->cursors = walk->zeros + rows;
	walk->ok = walk->cursors + rows;
	walk->tuples = walk->ok + rows;
	walk->which = (uint8_t *)(walk->tuples + rows);
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

/* All rows of a page have one way; so have the next page's, most likely */
static void
note_way(struct sim_walk *walk, int32_t way, int32_t rows, struct sim_shape *shape)
{
	memset(walk->which, way, (size_t)rows);
	walk->favourite = way;
	shape->runs = 1;
	shape->ways[0] = (uint8_t)way;
	shape->counts[0] = rows;
}

/* Rows have several ways, in runs */
static void
note_runs(const struct sim_walk *walk, struct sim_shape *shape)
{
	for (int32_t k = 0; k < shape->rows; k++)
	{
		if (k == 0 || walk->which[k] != walk->which[k - 1])
			shape->runs++;
		if (shape->runs > SIM_RUNS)
			break;
		shape->ways[shape->runs - 1] = walk->which[k];
		shape->counts[shape->runs - 1]++;
	}
}

/* The rows of a page that are alike but for holes, where anybody asks which are */
static void
note_holes(const struct sim *sim, const uint8_t *page, struct sim_shape *shape)
{
	const struct sim_walk *walk = sim->walk;
	const struct sim_pattern *pattern = &walk->pattern;
	const uint8_t *line = page + sim->registers[walk->cursor] + pattern->line;

	if (!sim->counts)
		return;
	for (int32_t k = 0; k < shape->rows; k++)
	{
		uint32_t bits;

		memcpy(&bits, line + (size_t)k * walk->step, sizeof bits);
		walk->which[k] = (uint8_t)(((bits ^ pattern->hole_bits) & pattern->hole_mask) != 0 ? pattern->hole : pattern->way);
	}
	note_runs(walk, shape);
}

/* The one way that all tuples of a page have between holes; -1: there are none, several, or other rows */
static int32_t
one_way(const struct sim_walk *walk, int32_t rows)
{
	int32_t found = -1;

	for (int32_t k = 0; k < rows; k++)
	{
		const struct sim_way *way = walk->ways[walk->which[k]];

		if (way->skipped > 0 || (way->tuples > 0 && found >= 0 && walk->which[k] != found))
			return -1;
		if (way->tuples > 0)
			found = walk->which[k];
	}
	return found;
}

/* A page's tuples were not like the pattern: they may be the next pages'; less and less often */
static void
learn(struct sim *sim, int32_t way, const uint8_t *page, int32_t row)
{
	struct sim_walk *walk = sim->walk;

	if ((walk->unlike & (walk->unlike + 1)) == 0)
		sim_pattern_learn(sim, way, page, row);
	walk->unlike++;
}

/* Finds each row's way, and how many runs of one way there are; false: there is a row that has none */
static bool
find_ways(struct sim *sim, const uint8_t *page, int32_t rows, struct sim_shape *shape)
{
	struct sim_walk *walk = sim->walk;
	const uint32_t cursor = sim->registers[walk->cursor], step = walk->step;
	const int32_t whole = (rows + SIM_ROWS - 1) / SIM_ROWS * SIM_ROWS, first = walk->favourite;
	int32_t missing = rows, only;

	for (int32_t k = 0; k < whole; k++)
		walk->cursors[k] = cursor + (uint32_t)k * step;
	memset(walk->which, SIM_WAYS, (size_t)rows);
	for (int32_t i = 0; i < walk->n_ways && missing > 0; i++)
	{
		const int32_t w = i == 0 ? first : i <= first ? i - 1 : i;
		int32_t took = 0;

		sim_way_run(walk->ways[w], sim->registers, page, (uint32_t)sim->machine.page_size, rows, walk->ok);
		for (int32_t k = 0; k < rows; k++)
			took += walk->ok[k] & 1;
		missing -= took; /* a row has one way at most: branches go one way */
		if (took == rows)
		{
			note_way(walk, w, rows, shape);
			learn(sim, w, page, 0);
			return true;
		}
		for (int32_t k = 0; k < rows && took > 0; k++)
			if (walk->ok[k] != 0)
				walk->which[k] = (uint8_t)w;
	}
	if (missing > 0)
		return false;
	note_runs(walk, shape);
	if ((only = one_way(walk, rows)) >= 0)
		learn(sim, only, page, (int32_t)((uint8_t *)memchr(walk->which, only, (size_t)rows) - walk->which));
	return true;
}

/* Hands over what the rows have; false: a fault */
static bool
hand_over(struct sim *sim, const uint8_t *page, const struct sim_shape *shape)
{
	const struct sim_walk *walk = sim->walk;

	for (int32_t row = 0, alike = shape->runs == 1 ? shape->rows : 1; row < shape->rows; row += alike, alike = 1)
	{
		const struct sim_way *way = walk->ways[walk->which[row]];

		while (row + alike < shape->rows && walk->which[row + alike] == walk->which[row])
			alike++;
		sim->e.skipped += (uint64_t)(alike * way->skipped);
		if (way->tuples > 0 && !sim_tuples(sim, page, way->handed, way->n_handed, row, alike))
			return false;
	}
	return true;
}

/* The same of rows like the pattern, so many but for holes */
static bool
hand_over_alike(struct sim *sim, const uint8_t *page, int32_t rows)
{
	const struct sim_pattern *pattern = &sim->walk->pattern;
	const struct sim_way *way = sim->walk->ways[pattern->way];

	sim->e.skipped += (uint64_t)(rows * way->skipped);
	return way->tuples * rows == 0 || sim_tuples(sim, page, pattern->handed, way->n_handed, 0, rows);
}

/* Runs the rest of a page, whose Strider is at the head of its loop, `gap` cycles and `executed` instructions along */
enum sim_walked
sim_walk(struct sim *sim, const uint8_t *page, int32_t head, int32_t gap, uint32_t executed)
{
	struct sim_walk *walk = sim->walk;
	const uint64_t bound = (uint64_t)sim->machine.strider_bound * (uint64_t)sim->machine.page_size;
	struct sim_shape shape = {.before = gap};
	int32_t alike;

	if (sim->plain || head != walk->head || sim->e.open || sim->clock.on_page || walk->rest-- > 0)
		return SIM_WALK_NOT;
	walk->rest = 0;
	shape.rows = count_rows(sim);
	alike = shape.rows > 0 ? sim_pattern_run(sim, page, shape.rows) : -1;
	if (alike == shape.rows)
		note_way(walk, walk->pattern.way, shape.rows, &shape);
	else if (alike >= 0)
		note_holes(sim, page, &shape);
	else if (shape.rows == 0 || !find_ways(sim, page, shape.rows, &shape))
	{
		walk->poor = walk->poor < MOST_REST ? walk->poor + 1 : MOST_REST;
		walk->rest = walk->poor;
		return SIM_WALK_NOT;
	}
	walk->poor = 0;
	if (executed + (uint64_t)shape.rows * (uint64_t)walk->longest >= bound)
		return SIM_WALK_NOT;
	shape.after = sim->strider[sim->strider[walk->ways[0]->path[walk->ways[0]->length - 1]].next].cost - 1;
	sim_clock_page(sim, &shape, page, alike >= 0);
	if (!(alike >= 0 ? hand_over_alike(sim, page, alike) : hand_over(sim, page, &shape)))
		return SIM_WALK_FAULT;
	walk->rows += (uint64_t)shape.rows;
	sim_page_end(sim, sim->registers[0] + (walk->cursor == 0 ? (uint32_t)shape.rows * walk->step : 0));
	return SIM_WALKED;
}
