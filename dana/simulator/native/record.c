/*
 * From recorded Strider instructions to steps over vectors.
 *
 * Values are kept as base + offset, so that adding constants and copying costs no step. A branch becomes a condition, with
 * the outcome that was recorded.
 */
#include "path.h"

const uint32_t sim_zeros[SIM_LANES];

/* The largest value that a base can have */
static uint32_t
largest(const struct sim_builder *b, const uint32_t *base)
{
	if (base == NULL || base == sim_zeros)
		return 0;
	return is_value(b->path, base) ? b->largest[(base - b->path->memory) / SIM_LANES] : UINT32_MAX;
}

static uint32_t
saturated(uint64_t value)
{
	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static uint32_t
largest_of(const struct sim_builder *b, const struct sim_step *step)
{
	const uint64_t sum = (uint64_t)largest(b, step->a) + step->x;

	switch (step->kind)
	{
		case SIM_STEP_BITS:
			return sum <= UINT32_MAX && sum >> step->shift < step->y ? (uint32_t)(sum >> step->shift) : step->y;
		case SIM_STEP_ADD:
			return saturated(sum + largest(b, step->b));
		case SIM_STEP_SUB:
			return UINT32_MAX;
		case SIM_STEP_MUL:
			return 0xffffu * 0xffffu;
		case SIM_STEP_POP:
			return 32;
		default:
			return step->y;
	}
}

/* Adds a step that has a value; the value of an equal one where there is one */
static struct sim_symbol
value(struct sim_builder *b, enum sim_step_kind kind, uint8_t shift, struct sim_symbol x, struct sim_symbol y)
{
	struct sim_step step = {
		.kind = (uint8_t)kind, .shift = shift, .a = base_of(x), .b = base_of(y), .x = x.offset, .y = y.offset};

	for (int32_t k = 0; k < b->path->n_steps; k++)
	{
		const struct sim_step *s = &b->path->steps[k];

		if (s->kind == step.kind && s->shift == shift && s->a == step.a && s->b == step.b && s->x == step.x &&
			s->y == step.y)
			return (struct sim_symbol){.base = s->d};
	}
	step.d = b->path->memory + (size_t)b->n_values * SIM_LANES;
	b->largest[b->n_values++] = largest_of(b, &step);
	b->path->steps[b->path->n_steps++] = step;
	return (struct sim_symbol){.base = step.d};
}

/* Two conditions on the same values of which one says more; both as x - y of `step`, as large as can be to be strict */
static bool
comparable(const struct sim_builder *b, const struct sim_step *p)
{
	return (uint64_t)largest(b, p->a) + p->x <= UINT32_MAX && (uint64_t)largest(b, p->b) + p->y <= UINT32_MAX;
}

/* Adds a condition; a weaker one on the same values goes */
static void
condition(struct sim_builder *b, enum sim_step_kind kind, struct sim_symbol x, struct sim_symbol y)
{
	const struct sim_step step = {
		.kind = (uint8_t)kind, .a = base_of(x), .b = base_of(y), .x = x.offset, .y = y.offset};
	const int64_t margin = (int64_t)step.y - step.x;

	for (int32_t k = 0; k < b->path->n_steps; k++)
	{
		struct sim_step *s = &b->path->steps[k];
		const int64_t other = (int64_t)s->y - s->x;

		if (s->kind != kind || s->a != step.a || s->b != step.b)
			continue;
		if (s->x == step.x && s->y == step.y)
			return;
		if (kind == SIM_STEP_EQ || kind == SIM_STEP_NE || !comparable(b, s) || !comparable(b, &step))
			continue;
		/* a >= b + margin: the larger margin says more; a < b + margin, a <= margin: the smaller */
		if (kind == SIM_STEP_GE ? margin > other : margin < other)
		{
			s->x = step.x;
			s->y = step.y;
		}
		return;
	}
	b->path->steps[b->path->n_steps++] = step;
}

/* A value that is known from now on: what is made of it is, too */
static void
pin(struct sim_builder *b, const uint32_t *base, uint32_t known)
{
	for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
		if (b->r[reg].base == base)
			b->r[reg] = constant(b->r[reg].offset + known);
}

/* What a branch's outcome says; false where it is known never to come */
static bool
guard(struct sim_builder *b, enum sim_step_kind kind, struct sim_symbol x, struct sim_symbol y)
{
	if (x.base == y.base && (x.base == NULL || kind == SIM_STEP_EQ || kind == SIM_STEP_NE))
		switch (kind)
		{
			case SIM_STEP_EQ:
				return x.offset == y.offset;
			case SIM_STEP_NE:
				return x.offset != y.offset;
			case SIM_STEP_LT:
				return x.offset < y.offset;
			default:
				return x.offset >= y.offset;
		}
	if (kind == SIM_STEP_EQ && x.base == NULL)
		return guard(b, kind, y, x);
	condition(b, kind, x, y);
	/* only values of this iteration: the head's registers must stay what they are, plus a constant */
	if (kind == SIM_STEP_EQ && y.base == NULL && is_value(b->path, x.base))
		pin(b, x.base, y.offset - x.offset);
	return true;
}

static struct sim_symbol
add(struct sim_builder *b, struct sim_symbol x, struct sim_symbol y)
{
	struct sim_symbol sum;

	if (y.base == NULL || x.base == NULL)
		return (struct sim_symbol){.base = x.base != NULL ? x.base : y.base, .offset = x.offset + y.offset};
	sum = value(b, SIM_STEP_ADD, 0, (struct sim_symbol){.base = x.base}, (struct sim_symbol){.base = y.base});
	sum.offset = x.offset + y.offset;
	return sum;
}

static struct sim_symbol
subtract(struct sim_builder *b, struct sim_symbol x, struct sim_symbol y)
{
	struct sim_symbol difference;

	if (y.base == NULL)
		return (struct sim_symbol){.base = x.base, .offset = x.offset - y.offset};
	if (x.base == y.base)
		return constant(x.offset - y.offset);
	difference = value(b, SIM_STEP_SUB, 0, (struct sim_symbol){.base = x.base}, (struct sim_symbol){.base = y.base});
	difference.offset = x.offset - y.offset;
	return difference;
}

/* The value of `kind` of x with y's offset as its argument */
static struct sim_symbol
unary(struct sim_builder *b, enum sim_step_kind kind, uint8_t shift, struct sim_symbol x, uint32_t argument)
{
	return value(b, kind, shift, x, constant(argument));
}

/* writeB: its column must lie within the page */
static bool
hand(struct sim_builder *b, const struct sim_strider_op *in, struct sim_symbol address, int32_t gap)
{
	const struct sim_column *column = &b->sim->columns[in->value];
	struct sim_handed *handed = &b->path->handed[b->path->n_handed++];

	if (column->bad || column->bytes > b->sim->machine.page_size || column->first == b->open || column->follows)
		return false;
	b->open = !column->last;
	condition(b, SIM_STEP_INSIDE, address, constant((uint32_t)(b->sim->machine.page_size - column->bytes)));
	*handed = (struct sim_handed){.column = column, .address = {base_of(address), address.offset}, .gap = gap};
	return true;
}

/* The recorded outcome of a branch at instruction `in`, which `following` came after */
static bool
branch(struct sim_builder *b, const struct sim_strider_op *in, int32_t following)
{
	const bool taken = in->target == following && in->next != following;
	enum sim_step_kind kind;

	if (in->target == in->next)
		return true;
	if (in->op == SIM_BLT)
		kind = taken ? SIM_STEP_LT : SIM_STEP_GE;
	else
		kind = (in->op == SIM_BEQ) == taken ? SIM_STEP_EQ : SIM_STEP_NE;
	return guard(b, kind, b->r[in->a], b->r[in->b]);
}

/* A bexit that stayed in the loop, or left it */
static bool
bexit(struct sim_builder *b, const struct sim_strider_op *in, bool left)
{
	static const enum sim_step_kind kinds[][2] = {
		[SIM_COND_EQ] = {SIM_STEP_NE, SIM_STEP_EQ},
		[SIM_COND_NE] = {SIM_STEP_EQ, SIM_STEP_NE},
		[SIM_COND_LT] = {SIM_STEP_GE, SIM_STEP_LT},
		[SIM_COND_GE] = {SIM_STEP_LT, SIM_STEP_GE},
	};

	return guard(b, kinds[in->a][left], b->r[in->b], b->r[in->c]);
}

bool
sim_translate(struct sim_builder *b, const struct sim_strider_op *in, int32_t following, int32_t *gap)
{
	struct sim_symbol *r = b->r;

	*gap += in->cost;
	switch (in->op)
	{
		case SIM_READB:
			r[in->c] = unary(b, SIM_STEP_READ, 0, r[in->a], in->mask);
			return true;
		case SIM_EXTRB:
		case SIM_EXTRBI:
			if (r[in->a].base == NULL)
				r[in->a] = constant(r[in->a].offset >> in->b & in->mask);
			else
				r[in->a] = unary(b, SIM_STEP_BITS, in->b, r[in->a], in->mask);
			return true;
		case SIM_WRITEB:
			if (!hand(b, in, r[in->a], *gap - 1))
				return false;
			*gap = 0;
			return true;
		case SIM_CLN:
			r[in->c] = (struct sim_symbol){.base = r[in->a].base, .offset = r[in->a].offset + in->mask};
			if (r[in->c].base == NULL)
				r[in->c].offset &= ~in->mask;
			else
				r[in->c] = unary(b, SIM_STEP_CLEAN, 0, r[in->c], ~in->mask);
			return true;
		case SIM_INS:
			r[in->a] = constant(in->value);
			return true;
		case SIM_AD:
			r[in->c] = add(b, r[in->a], r[in->b]);
			return true;
		case SIM_SUBTRACT:
			r[in->c] = subtract(b, r[in->a], r[in->b]);
			return true;
		case SIM_MULTIPLY:
			if (r[in->a].base == NULL && r[in->b].base == NULL)
				r[in->c] = constant((r[in->a].offset & 0xffff) * (r[in->b].offset & 0xffff));
			else
				r[in->c] = value(b, SIM_STEP_MUL, 0, r[in->a], r[in->b]);
			return true;
		case SIM_BEQ:
		case SIM_BNE:
		case SIM_BLT:
			return branch(b, in, following);
		case SIM_JMP:
			return true;
		case SIM_BEXIT:
			return bexit(b, in, true);
		case SIM_CTL:
			if (in->a == SIM_CTL_SKIP)
				b->path->skipped++;
			else if (in->a == SIM_CTL_POP)
				r[in->c] = r[in->b].base == NULL ? constant((uint32_t)__builtin_popcount(r[in->b].offset))
												 : unary(b, SIM_STEP_POP, 0, r[in->b], 0);
			else
				return false;
			return true;
		default: /* bentr: another loop */
			return false;
	}
}
