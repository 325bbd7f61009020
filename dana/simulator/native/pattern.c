/*
 * Rows alike: pages with tuples that have the same bits in all places that a way reads. Between them may be holes: rows
 * without a tuple according to their line pointers, such as deleted and filtered rows.
 *
 * In: a way, and a row that met its conditions. Out: the bits of the row's line pointer and of its tuple that the way's
 * values come from, and bounds of where the tuple lies. A row with the same bits within the bounds has the same values,
 * places as far from its tuple's first byte: so it meets the conditions, and where its columns lie is known.
 */
#include <string.h>

#include "walk.h"
#include "step.h"

#define FAR			0x10000 /* no place on a page is as far from another one */
#define MAX_OTHERS 8		/* rows more that are not like the pattern than are: it is not this page's */

typedef uint64_t bytes_of __attribute__((vector_size(16), aligned(1), may_alias));

/* What the rows alike have in common of a value */
struct common
{
	enum
	{
		NOTHING,
		NUMBER, /* its value */
		PLACE	/* how far it is from the tuple's first byte */
	} kind;
	uint32_t n;
};

/* A pattern while a way's steps are gone through */
struct maker
{
	const struct sim_walk *walk;
	const struct sim_way *way;
	struct sim_pattern *pattern;
	const uint8_t *page;
	int64_t page_size;
	int32_t row; /* that met the conditions: its place among those that the way was run on */
	const uint32_t *line, *tuple; /* values: the line pointer, and of it where the tuple lies */
	struct common of[SIM_PATH_LENGTH]; /* values */
};

static struct common *
common_of(struct maker *m, const uint32_t *value)
{
	return &m->of[(value - m->way->values) / m->walk->spacing];
}

/* Of value + offset */
static struct common
sum(struct maker *m, const uint32_t *value, uint32_t offset)
{
	struct common found = {.kind = NUMBER};

	if (value == m->way->cursors)
		return (struct common){.kind = NOTHING};
	if (value != m->walk->zeros)
		found = *common_of(m, value);
	found.n += offset;
	if (found.kind == PLACE && found.n >= FAR)
		found.kind = NOTHING;
	return found;
}

/* The bits of a value that steps look at */
static uint32_t
seen(const struct sim_way *way, const uint32_t *value)
{
	uint32_t mask = 0;

	for (const struct sim_step *s = way->steps; s < way->steps + way->n_steps; s++)
		if (s->kind == BITS && s->a == value && s->x == 0 && s->rx == NO_REGISTER)
			mask |= s->mask << s->shift;
		else if (s->a == value || s->b == value)
			return UINT32_MAX;
	return mask;
}

/* A tuple lies `n` and what is in a register from the page's first byte, at least or at most; false: no room */
static bool
bound(struct sim_pattern *pattern, bool least, uint8_t reg, int64_t n)
{
	int32_t k = 0;

	while (k < pattern->n_bounds && (pattern->bounds[k].least != least || pattern->bounds[k].reg != reg))
		k++;
	if (k == SIM_BOUNDS)
		return false;
	if (k == pattern->n_bounds)
		pattern->bounds[pattern->n_bounds++] = (struct sim_bound){.n = n, .reg = reg, .least = least};
	else if (least == (n > pattern->bounds[k].n))
		pattern->bounds[k].n = n;
	return true;
}

/* A load: of the line pointer, or of the tuple's bytes, which are the same */
static bool
take_load(struct maker *m, const struct sim_step *s)
{
	struct sim_pattern *pattern = m->pattern;
	const struct common at = sum(m, s->a, s->x);
	const uint32_t mask = s->mask & seen(m->way, s->d);

	if (s->d == m->line)
	{
		pattern->line = s->x;
		return s->y == 4;
	}
	if (at.kind != PLACE || at.n + s->y > SIM_COMPARED)
		return false;
	for (uint32_t k = 0; k < s->y; k++)
	{
		pattern->masks[at.n + k] |= (uint8_t)(mask >> 8 * k);
		pattern->bytes[at.n + k] = m->page[m->tuple[m->row] + at.n + k];
	}
	common_of(m, s->d)->kind = NUMBER;
	return bound(pattern, false, NO_REGISTER, m->page_size - s->y - at.n);
}

/* A condition: it holds of all rows alike, or where their tuples lie within bounds */
static bool
take_condition(struct maker *m, const struct sim_step *s)
{
	const struct common a = sum(m, s->a, s->x), b = sum(m, s->b, s->y);
	const bool any = s->rx != NO_REGISTER || s->ry != NO_REGISTER, at_least = s->kind == GE;

	if (a.kind == NOTHING || b.kind == NOTHING)
		return false;
	if (a.kind == b.kind)
		return !any;
	if (s->kind == EQ || s->kind == NE || (a.kind == NUMBER ? a.n : b.n) >= FAR)
		return false;
	if (a.kind == PLACE) /* a >= b or a < b */
		return s->rx == NO_REGISTER && (any <= (s->b == m->walk->zeros)) &&
			   bound(m->pattern, at_least, s->ry, (int64_t)b.n - a.n - !at_least);
	return s->ry == NO_REGISTER && (any <= (s->a == m->walk->zeros)) &&
		   bound(m->pattern, !at_least, s->rx, (int64_t)a.n - b.n + !at_least);
}

/* Any step; false: rows alike do not have its value in common, nor how far it is from their tuples */
static bool
take_step(struct maker *m, const struct sim_step *s)
{
	struct sim_pattern *pattern = m->pattern;
	const struct common a = sum(m, s->a, s->x), b = sum(m, s->b, s->y);
	struct common *d;

	if (s->kind >= EQ)
		return take_condition(m, s);
	if (s->rx != NO_REGISTER || s->ry != NO_REGISTER)
		return false;
	if (s->kind == LOAD)
		return take_load(m, s);
	d = common_of(m, s->d);
	*d = (struct common){.kind = NUMBER, .n = s->d[m->row]};
	if (s->a == m->line && s->kind == BITS && s->x == 0)
	{
		if (s->d != m->tuple)
		{
			pattern->line_mask |= s->mask << s->shift;
			return true;
		}
		pattern->shift = s->shift;
		pattern->mask = s->mask;
		*d = (struct common){.kind = PLACE};
		return true;
	}
	if (a.kind == NUMBER && b.kind == NUMBER)
		return true;
	if (s->kind == CLEAN && (~s->mask & ~pattern->mask) == 0) /* tuples are aligned alike */
		pattern->line_mask |= ~s->mask << pattern->shift;
	else if ((s->kind != ADD || a.kind + b.kind != NUMBER + PLACE) && (s->kind != SUB || b.kind != NUMBER))
		return false;
	*d = (struct common){.kind = PLACE, .n = d->n - m->tuple[m->row]};
	return (a.kind == PLACE || b.kind == PLACE) && d->n < FAR;
}

/* Which bytes are compared: up to the last one that is looked at */
static void
choose_bytes(struct sim_pattern *pattern)
{
	int32_t first = 0, last = SIM_COMPARED;

	while (last > 0 && pattern->masks[last - 1] == 0)
		last--;
	while (first < last && pattern->masks[first] == 0)
		first++;
	pattern->pieces = (last - first + SIM_PIECE - 1) / SIM_PIECE;
	pattern->first = last > SIM_PIECE * pattern->pieces ? last - SIM_PIECE * pattern->pieces : 0;
}

/* A way without a tuple and with a single condition, on bits of the line pointer: its rows are holes */
static bool
take_hole(struct sim_pattern *pattern, const struct sim_walk *walk, const struct sim_way *way)
{
	const struct sim_step *line = way->steps, *bits = line + 1, *other = line + 2;

	if (way->n_handed > 0 || way->skipped > 0 || way->n_steps != 3 || line->kind != LOAD || line->a != way->cursors ||
		line->x != pattern->line || line->y != 4 || line->rx != NO_REGISTER || bits->kind != BITS || bits->a != line->d ||
		bits->x != 0 || bits->rx != NO_REGISTER || other->kind != NE || other->a != bits->d || other->b != walk->zeros ||
		other->rx != NO_REGISTER || other->ry != NO_REGISTER)
		return false;
	pattern->hole_mask = bits->mask << bits->shift;
	pattern->hole_bits = (other->y - other->x) << bits->shift;
	return true;
}

/* Makes the pattern that of a row, from the values that the steps of its way computed; some ways have none */
void
sim_pattern_learn(struct sim *sim, int32_t number, const uint8_t *page, int32_t row)
{
	struct sim_walk *walk = sim->walk;
	const struct sim_way *way = walk->ways[number];
	struct sim_pattern *pattern = &walk->pattern;
	struct maker m = {.walk = walk, .way = way, .pattern = pattern, .page = page,
					  .page_size = sim->machine.page_size, .row = row};
	bool fits;

	memset(pattern, 0, sizeof *pattern);
	for (const struct sim_step *s = way->steps; s < way->steps + way->n_steps; s++)
		if (s->kind == LOAD && s->a == way->cursors)
			m.line = s->d;
		else if (s->kind == LOAD && m.tuple == NULL && s->a != walk->zeros)
			m.tuple = s->a;
	fits = m.line != NULL && m.tuple != NULL;
	for (int32_t k = 0; k < way->n_steps && fits; k++)
		fits = take_step(&m, &way->steps[k]);
	for (int32_t k = 0; k < way->n_handed && fits; k++)
	{
		const struct common at = sum(&m, way->handed[k].address, way->handed[k].offset);

		pattern->handed[k] = way->handed[k];
		pattern->handed[k].address = walk->tuples;
		pattern->handed[k].offset = at.n;
		fits = at.kind == PLACE;
	}
	choose_bytes(pattern);
	fits = fits && bound(pattern, false, NO_REGISTER, m.page_size - pattern->first - SIM_PIECE * pattern->pieces);
	pattern->bits = m.line == NULL ? 0 : m.line[row];
	pattern->way = number;
	for (int32_t k = 0; k < walk->n_ways && pattern->hole_mask == 0; k++)
		if (take_hole(pattern, walk, walk->ways[k]))
			pattern->hole = k;
	pattern->known = fits;
}

/* Has bytes come near that are read later, into the second-level cache: there may be no such page */
static inline void
ask(const uint8_t *at, uint32_t bytes)
{
	for (uint32_t k = 0; k < bytes; k += CACHE_LINE)
		__builtin_prefetch(at + k, 0, 2);
}

/* Whether a row's line pointer says that it is a hole */
bool
sim_pattern_hole(const struct sim_pattern *pattern, const uint8_t *line)
{
	uint32_t bits;

	memcpy(&bits, line, sizeof bits);
	return ((bits ^ pattern->hole_bits) & pattern->hole_mask) != 0;
}

/* What pages are compared by */
struct bounds
{
	uint32_t least, span; /* of where tuples lie */
	ptrdiff_t ahead;	  /* of what is asked for, so many bytes of each tuple */
	uint32_t asked;
};

/*
 * Where the tuples lie, if all rows have the pattern's bits; `pieces` is a constant, so that they stay in registers. A loop
 * of its own: compare() takes a tenth of an epoch of 54 columns more.
 */
static inline __attribute__((always_inline)) bool
all_alike(const struct sim_walk *walk, const uint8_t *page, const uint8_t *line, int32_t rows, struct bounds bounds,
		  int32_t pieces)
{
	const struct sim_pattern *pattern = &walk->pattern;
	const uint32_t wanted = pattern->bits, line_mask = pattern->line_mask, shift = pattern->shift, mask = pattern->mask;
	const uint32_t step = walk->step, least = bounds.least, span = bounds.span, asked = bounds.asked;
	const ptrdiff_t ahead = bounds.ahead;
	const bytes_of *bytes = (const bytes_of *)(pattern->bytes + pattern->first);
	const bytes_of *masks = (const bytes_of *)(pattern->masks + pattern->first);
	uint32_t *tuples = walk->tuples;
	bytes_of differ = {0};

	page += pattern->first;
	for (int32_t k = 0; k < rows; k++, line += step)
	{
		uint32_t bits, tuple;

		memcpy(&bits, line, sizeof bits);
		tuple = bits >> shift & mask;
		if (((bits ^ wanted) & line_mask) != 0 || tuple - least > span)
			return false;
		tuples[k] = tuple;
		ask(page + tuple + ahead, asked);
		for (int32_t piece = 0; piece < pieces; piece++)
			differ |= (((const bytes_of *)(page + tuple))[piece] ^ bytes[piece]) & masks[piece];
	}
	return (differ[0] | differ[1]) == 0;
}

/*
 * Where the tuples lie that have the pattern's bits, and how many they are. Of other rows those that are no holes are
 * listed; -1: there are too many of them.
 */
static int32_t
compare(struct sim_walk *walk, const uint8_t *page, const uint8_t *line, int32_t rows, struct bounds bounds)
{
	const struct sim_pattern *pattern = &walk->pattern;
	const uint32_t size = bounds.span / (uint32_t)rows; /* of a tuple, if all are there */
	const bytes_of *bytes = (const bytes_of *)(pattern->bytes + pattern->first);
	const bytes_of *masks = (const bytes_of *)(pattern->masks + pattern->first);
	uint32_t at = bounds.least + bounds.span;
	int32_t n = 0, others = 0;

	page += pattern->first;
	for (int32_t k = 0; k < rows; k++, line += walk->step)
	{
		uint32_t bits, tuple;

		memcpy(&bits, line, sizeof bits);
		tuple = bits >> pattern->shift & pattern->mask;
		if (((bits ^ pattern->bits) & pattern->line_mask) == 0 && tuple - bounds.least <= bounds.span)
		{
			bytes_of differ = {0};

			ask(page + tuple + bounds.ahead, bounds.asked);
			for (int32_t piece = 0; piece < pattern->pieces; piece++)
				differ |= (((const bytes_of *)(page + tuple))[piece] ^ bytes[piece]) & masks[piece];
			at = tuple;
			if ((differ[0] | differ[1]) == 0)
			{
				walk->tuples[n++] = tuple;
				continue;
			}
		}
		else
			at -= size; /* about where its tuple is, or was */
		ask(page + at + bounds.ahead, size); /* prefetch: a later page may have a tuple there */
		if (sim_pattern_hole(pattern, line))
			continue;
		walk->others[others++] = k;
		if (others > MAX_OTHERS + n)
			return -1;
	}
	walk->n_others = others;
	return n;
}

/*
 * Where the tuples of a page lie that are like the pattern; how many they are, -1: too few. The other rows, if they are
 * no holes, are listed.
 */
int32_t
sim_pattern_run(struct sim *sim, const uint8_t *page, int32_t rows)
{
	struct sim_walk *walk = sim->walk;
	const struct sim_pattern *pattern = &walk->pattern;
	const uint64_t line = (uint64_t)sim->registers[walk->cursor] + pattern->line;
	const int32_t page_size = sim->machine.page_size;
	/* code asks for the tuples of a page that comes later as it reads these. Merges ask again: then the line of a header is
	 * left. Without them some of what is asked for once is dropped. */
	const bool code_asks = sim->fast && sim->compiled.ahead > 0, code_asks_twice = code_asks && sim->compiled.n_merges > 0;
	const ptrdiff_t ahead = code_asks ? sim->compiled.ahead : 2 * page_size;
	int64_t least = 0, most = page_size;
	struct bounds bounds = {.ahead = ahead, .asked = (uint32_t)(code_asks_twice ? 1 : page_size / rows)};

	if (!pattern->known || line + (uint64_t)(rows - 1) * walk->step + 4 > (uint64_t)page_size)
		return -1;
	for (int32_t k = 0; k < pattern->n_bounds; k++)
	{
		const struct sim_bound *one = &pattern->bounds[k];
		const int64_t n = sim->registers[one->reg] + one->n;

		if (sim->registers[one->reg] >= FAR)
			return -1;
		if (one->least)
			least = n > least ? n : least;
		else
			most = n < most ? n : most;
	}
	if (least > most)
		return -1;
	bounds.least = (uint32_t)least;
	bounds.span = (uint32_t)(most - least);
	ask(page + ahead, (uint32_t)line + (uint32_t)rows * walk->step);
#define ALL_ALIKE(pieces) all_alike(walk, page, page + line, rows, bounds, pieces)
	if (pattern->pieces == 1 ? ALL_ALIKE(1) : pattern->pieces == 2 ? ALL_ALIKE(2) : ALL_ALIKE(pattern->pieces))
	{
		walk->n_others = 0;
		return rows;
	}
	return compare(walk, page, page + line, rows, bounds);
}
