/*
 * Ways through a Strider's loop, as steps over all rows of a page.
 *
 * In: the instructions that the interpreter went through from a loop's head back to it. Out: steps: values as the
 * instructions compute them, and for each branch the condition that it goes as it was seen to go.
 */
#include <stdlib.h>
#include <string.h>

#include "walk.h"
#include "step.h"

#define VECTOR SIM_ROWS

/* The same operations, more of them at a time */
#if defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BY_PROCESSOR
#endif

/* A value in the middle of a way: value + register + offset; no value: zeros */
struct symbol
{
	const uint32_t *value;
	uint8_t reg;
	uint32_t offset;
};

/* A way while its instructions are translated */
struct maker
{
	const struct sim *sim;
	struct sim_way *way;
	struct symbol r[SIM_REGISTERS];
	bool open; /* a tuple has begun and not ended */
	int32_t gap;
};

/* --- steps ------------------------------------------------------------------------------------------------------- */

/* VECTOR rows of a value; a type of its own makes them vectors on each processor, and it may alias other types */
typedef uint32_t rows_of __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
#define ROWS(p) (*(rows_of *)((p) + k))
#define OF(p)	(*(const rows_of *)((p) + k))
#define VALUE(value)                                                                                                   \
	ROWS(s->d) = (value);                                                                                              \
	break
#define CONDITION(condition)                                                                                           \
	all &= (rows_of)(condition);                                                                                       \
	break

/* The words of a page at a + x, or at its end where that is farther */
static __attribute__((noinline, optimize("no-tree-vectorize"))) void
load(uint32_t *restrict d, const uint32_t *restrict a, uint32_t x, const uint8_t *restrict page, uint32_t last,
	 int32_t rows)
{
	for (int32_t k = 0; k < rows; k++)
	{
		const uint32_t at = a[k] + x;

		memcpy(&d[k], page + (at < last ? at : last), sizeof *d);
	}
}

/* Runs a way's steps on rows, VECTOR at a time; ok: all ones where a row meets all conditions, anything behind the last */
BY_PROCESSOR void
sim_way_run(const struct sim_way *way, const uint32_t *registers, const uint8_t *page, uint32_t page_size,
			int32_t rows, uint32_t *ok)
{
	const rows_of zero = {0};

	for (int32_t k = 0; k < rows; k += VECTOR)
	{
		rows_of all = ~zero; /* in a register: from step to step through memory takes longer than a step */

		for (const struct sim_step *s = way->steps, *end = s + way->n_steps; s < end; s++)
		{
			const uint32_t x = s->x + registers[s->rx], y = s->y + registers[s->ry];

			switch ((enum kind)s->kind)
			{
				case LOAD:
				{
					const rows_of at = OF(s->a) + x, beyond = (rows_of)(at > page_size - 4) & (at - (page_size - 4));

					load(s->d + k, s->a + k, x, page, page_size - 4, rows - k < VECTOR ? rows - k : VECTOR);
					ROWS(s->d) = OF(s->d) >> (8 * beyond & 31) & s->mask;
					all &= (rows_of)(at <= page_size - s->y);
					break;
				}
				case BITS:
					VALUE((OF(s->a) + x) >> s->shift & s->mask);
				case ADD:
					VALUE(OF(s->a) + OF(s->b) + (x + y));
				case SUB:
					VALUE(OF(s->a) - OF(s->b) + (x - y));
				case MUL:
					VALUE(((OF(s->a) + x) & 0xffff) * ((OF(s->b) + y) & 0xffff));
				case CLEAN:
					VALUE((OF(s->a) + x) & s->mask);
				case POP:
				{
					rows_of v = OF(s->a) + x;

					v = v - (v >> 1 & 0x55555555);
					v = (v & 0x33333333) + (v >> 2 & 0x33333333);
					VALUE(((v + (v >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24);
				}
				case EQ:
					CONDITION(OF(s->a) + x == OF(s->b) + y);
				case NE:
					CONDITION(OF(s->a) + x != OF(s->b) + y);
				case LT:
					CONDITION(OF(s->a) + x < OF(s->b) + y);
				case GE:
					CONDITION(OF(s->a) + x >= OF(s->b) + y);
			}
		}
		ROWS(ok) = all;
	}
}

/* --- ways -------------------------------------------------------------------------------------------------------- */

static struct symbol
constant(const struct maker *m, uint32_t value)
{
	return (struct symbol){.value = m->sim->walk->zeros, .reg = NO_REGISTER, .offset = value};
}

static bool
is_constant(const struct maker *m, struct symbol s)
{
	return s.value == m->sim->walk->zeros && s.reg == NO_REGISTER;
}

static bool
same(struct symbol x, struct symbol y)
{
	return x.value == y.value && x.reg == y.reg && x.offset == y.offset;
}

/* The bit of a temporary in masks */
static uint32_t
bit(int32_t reg)
{
	return reg < SIM_TEMPORARIES ? UINT32_C(1) << reg : 0;
}

/* Adds a step, if there is none like it; its value */
static struct symbol
add_step(struct maker *m, enum kind kind, uint8_t shift, uint32_t mask, struct symbol x, struct symbol y)
{
	struct sim_way *way = m->way;
	struct sim_step step = {.kind = (uint8_t)kind, .shift = shift, .mask = mask, .a = x.value, .b = y.value,
							.rx = x.reg, .ry = y.reg, .x = x.offset, .y = y.offset};

	way->reads |= (x.reg != NO_REGISTER ? bit(x.reg) : 0) | (y.reg != NO_REGISTER ? bit(y.reg) : 0);
	for (int32_t k = 0; k < way->n_steps; k++)
	{
		const struct sim_step *s = &way->steps[k];

		if (s->kind == step.kind && s->shift == shift && s->mask == mask && s->a == step.a && s->b == step.b &&
			s->rx == step.rx && s->ry == step.ry && s->x == step.x && s->y == step.y)
			return (struct symbol){.value = s->d, .reg = NO_REGISTER};
	}
	if (kind < EQ)
		step.d = way->values + (size_t)way->n_values++ * (size_t)m->sim->walk->spacing;
	way->steps[way->n_steps++] = step;
	return (struct symbol){.value = step.d, .reg = NO_REGISTER};
}

/* A branch went so; a value that is known from now on is a constant */
static void
guard(struct maker *m, enum kind kind, struct symbol x, struct symbol y)
{
	if (is_constant(m, x) && is_constant(m, y))
		return;
	(void)add_step(m, kind, 0, 0, x, y);
	if (kind != EQ || x.reg != NO_REGISTER || !is_constant(m, y) || x.value == m->way->cursors)
		return;
	for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
		if (m->r[reg].value == x.value)
		{
			m->r[reg].value = m->sim->walk->zeros;
			m->r[reg].offset += y.offset - x.offset;
		}
}

static struct symbol
add(struct maker *m, struct symbol x, struct symbol y)
{
	if (is_constant(m, x))
		return (struct symbol){.value = y.value, .reg = y.reg, .offset = x.offset + y.offset};
	if (is_constant(m, y))
		return (struct symbol){.value = x.value, .reg = x.reg, .offset = x.offset + y.offset};
	return add_step(m, ADD, 0, 0, x, y);
}

static struct symbol
subtract(struct maker *m, struct symbol x, struct symbol y)
{
	if (is_constant(m, y))
		return (struct symbol){.value = x.value, .reg = x.reg, .offset = x.offset - y.offset};
	return add_step(m, SUB, 0, 0, x, y);
}

/* writeB: its column must lie within the page; only whole tuples are handed over */
static bool
hand(struct maker *m, const struct sim_strider_instruction *in, struct symbol address)
{
	const struct sim_column *column = &m->sim->columns[in->value];

	if (column->bad || column->bytes > m->sim->machine.page_size || (column->first || column->table) == m->open || column->follows ||
		address.reg != NO_REGISTER || (column->table && m->way->tuples > 0))
		return false;
	m->open = !column->last && !column->table;
	m->way->tuples += column->last;
	m->way->handed[m->way->n_handed++] = (struct sim_handed){
		.column = column, .address = address.value, .offset = address.offset, .gap = m->gap - 1};
	m->gap = 0;
	guard(m, GE, constant(m, (uint32_t)(m->sim->machine.page_size - column->bytes)), address);
	return true;
}

/* Translates an instruction, which `following` came after; false: such a way cannot be had */
static bool
translate(struct maker *m, const struct sim_strider_instruction *in, int32_t following)
{
	struct symbol *r = m->r, x = r[in->a], y = r[in->b];
	const struct symbol none = constant(m, 0);
	const bool taken = in->target == following && in->next != following;

	m->gap += in->cost;
	switch (in->op)
	{
		case SIM_READB:
			y = constant(m, (uint32_t)in->b);
			r[in->c] = add_step(m, LOAD, 0, in->mask, x, y);
			return true;
		case SIM_EXTRB:
		case SIM_EXTRBI:
			r[in->a] = is_constant(m, x) ? constant(m, x.offset >> in->b & in->mask)
										 : add_step(m, BITS, (uint8_t)in->b, in->mask, x, none);
			return true;
		case SIM_WRITEB:
			return hand(m, in, x);
		case SIM_CLN:
			x.offset += in->mask;
			r[in->c] = is_constant(m, x) ? constant(m, x.offset & ~in->mask)
										 : add_step(m, CLEAN, 0, ~in->mask, x, none);
			return true;
		case SIM_INS:
			r[in->a] = constant(m, in->value);
			return true;
		case SIM_AD:
			r[in->c] = add(m, x, y);
			return true;
		case SIM_SUBTRACT:
			r[in->c] = subtract(m, x, y);
			return true;
		case SIM_MULTIPLY:
			r[in->c] = is_constant(m, x) && is_constant(m, y)
						   ? constant(m, (x.offset & 0xffff) * (y.offset & 0xffff))
						   : add_step(m, MUL, 0, 0, x, y);
			return true;
		case SIM_BEQ:
		case SIM_BNE:
			if (in->target != in->next)
				guard(m, (in->op == SIM_BEQ) == taken ? EQ : NE, is_constant(m, x) ? y : x, is_constant(m, x) ? x : y);
			return true;
		case SIM_BLT:
			if (in->target != in->next)
				guard(m, taken ? LT : GE, x, y);
			return true;
		case SIM_JMP:
			return true;
		case SIM_CTL:
			if (in->a == SIM_CTL_SKIP)
				m->way->skipped++;
			else if (in->a == SIM_CTL_POP)
				r[in->c] = is_constant(m, y) ? constant(m, (uint32_t)__builtin_popcount(y.offset))
											 : add_step(m, POP, 0, 0, y, none);
			else
				return false;
			return true;
		default: /* another loop */
			return false;
	}
}

void
sim_way_free(struct sim_way *way)
{
	if (way == NULL)
		return;
	free(way->steps);
	free(way->handed);
	free(way->path);
	free(way->values);
	free(way);
}

static struct sim_way *
new_way(const struct sim_walk *walk, const int32_t *path, int32_t n)
{
	struct sim_way *way = calloc(1, sizeof *way);

	if (way == NULL)
		return NULL;
	way->steps = calloc(2 * (size_t)n, sizeof *way->steps);
	way->handed = calloc((size_t)n, sizeof *way->handed);
	way->path = malloc((size_t)n * sizeof *way->path);
	way->values = aligned_alloc(64, ((size_t)n + 1) * (size_t)walk->spacing * sizeof *way->values);
	if (way->steps == NULL || way->handed == NULL || way->path == NULL || way->values == NULL)
	{
		sim_way_free(way);
		return NULL;
	}
	way->cursors = way->values + (ptrdiff_t)n * walk->spacing;
	memcpy(way->path, path, (size_t)n * sizeof *way->path);
	way->length = n;
	return way;
}

/* Puts each load right behind the step that its address comes from, if any: what it wrote a word at a time has reached
 * the cache when a vector of it is read. Every step has memory of its own, and conditions have no order. */
static void
hoist_loads(struct sim_way *way)
{
	for (int32_t n = 0; n < way->n_steps; n++)
	{
		const struct sim_step step = way->steps[n];
		int32_t to = n;

		for (; step.kind == LOAD && to > 0 && way->steps[to - 1].d != step.a && way->steps[to - 1].kind != LOAD; to--)
			way->steps[to] = way->steps[to - 1];
		way->steps[to] = step;
	}
}

/* A way from the loop's head back to it; NULL: it cannot be had */
struct sim_way *
sim_way_build(struct sim *sim, const int32_t *path, int32_t n)
{
	struct sim_walk *walk = sim->walk;
	const struct sim_strider_instruction *last = &sim->strider[path[n - 1]], *end = &sim->strider[last->next];
	struct maker m = {.sim = sim, .way = new_way(walk, path, n)};
	const int32_t cursor = last->b, limit = last->c;
	bool fits = last->op == SIM_BEXIT && last->a == SIM_COND_GE && cursor < SIM_TEMPORARIES && end->op == SIM_CTL &&
				end->a == SIM_CTL_END;

	if (m.way == NULL)
		return NULL;
	for (int32_t reg = 0; reg < SIM_REGISTERS; reg++)
		m.r[reg] = reg < SIM_TEMPORARIES ? (struct symbol){.value = walk->zeros, .reg = (uint8_t)reg}
										 : constant(&m, sim->registers[reg]);
	m.r[cursor] = (struct symbol){.value = m.way->cursors, .reg = NO_REGISTER};
	for (int32_t k = 0; fits && k < n - 1; k++)
		fits = translate(&m, &sim->strider[path[k]], path[k + 1]);
	fits = fits && !m.open && m.way->tuples <= 1 && (m.way->n_handed == 0 || m.way->tuples == 1);
	if (fits)
	{
		struct sim_way *way = m.way;
		const struct symbol next = m.r[cursor];

		way->tail = m.gap + last->cost;
		for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
			if (reg != cursor && !same(m.r[reg], (struct symbol){.value = walk->zeros, .reg = (uint8_t)reg}))
				way->writes |= bit(reg);
		way->reads |= bit(0) | bit(limit); /* %t0 is reported */
		way->reads &= ~bit(cursor);
		fits = next.value == way->cursors && next.reg == NO_REGISTER && next.offset > 0 && next.offset <= 0xffff;
		fits = fits && (walk->n_ways == 0 || (next.offset == walk->step && cursor == walk->cursor && limit == walk->limit));
		for (int32_t k = -1; fits && k < walk->n_ways; k++)
		{
			const struct sim_way *other = k < 0 ? way : walk->ways[k];

			fits = (way->reads & other->writes) == 0 && (way->writes & other->reads) == 0;
		}
		walk->step = fits ? next.offset : walk->step;
		walk->cursor = fits ? cursor : walk->cursor;
		walk->limit = fits ? limit : walk->limit;
	}
	if (fits)
		hoist_loads(m.way);
	else
	{
		sim_way_free(m.way);
		return NULL;
	}
	return m.way;
}
