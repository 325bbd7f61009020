/*
 * Several instructions of the `tuple` section as one, where nobody can tell the difference.
 *
 * In: the section's instructions, made ready. Out: a second list, for whole rounds, in which chains of three kinds are
 * one operation each (fused.inc): an operation on rows and the fold of its results; an operation on rows and the tree
 * over tuples of its results; exchanges between lanes one after the other. What a chain hands from one instruction to
 * the next is then never stored, so it must be dead: overwritten before any section reads it, and no symbol's. A
 * chain's later instructions run early, so what lies between must not touch their rows. Rows of a program without
 * symbols may all be looked at: nothing is fused.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define LONGEST 16 /* instructions of a chain */

typedef uint64_t *rows; /* a set of scratchpad rows */

struct fuser
{
	const struct sim *sim;
	struct sim_op *ops; /* of the section */
	int32_t n;
	size_t words;	 /* of a set */
	rows *reads;	 /* of each instruction */
	rows *writes;
	rows outside;	 /* what other sections read, and symbols */
	rows one, two;	 /* for the moment */
	bool *member;	 /* of a chain, but not its first */
};

struct chain
{
	int32_t members[LONGEST];
	int32_t length;
};

/* --- sets of rows ------------------------------------------------------------------------------------------------ */

static void
insert(rows set, int64_t row)
{
	set[row / 64] |= UINT64_C(1) << row % 64;
}

static bool
meet(const struct fuser *f, const uint64_t *a, const uint64_t *b)
{
	for (size_t k = 0; k < f->words; k++)
		if (a[k] & b[k])
			return true;
	return false;
}

static void
join(const struct fuser *f, rows set, const uint64_t *more)
{
	for (size_t k = 0; k < f->words; k++)
		set[k] |= more[k];
}

static void
leave(const struct fuser *f, rows set, const uint64_t *less)
{
	for (size_t k = 0; k < f->words; k++)
		set[k] &= ~less[k];
}

/* A row, or those that an index may make of it */
static void
insert_any(rows set, int64_t row, const struct sim_op *op, bool index)
{
	for (int32_t k = 0; k < (index ? op->care.entries : 1); k++)
		insert(set, row + (int64_t)k * op->care.entry_rows);
}

/* Whether what it writes is lost: all lanes of rows that are known */
static bool
overwrites(const struct sim_op *op)
{
	return op->i.op != SIM_MOVC && !op->i.dst_index;
}

/* The scratchpad rows that an instruction may read and write at a place of the merge stack; NULL: not wanted */
static void
touch(const struct sim_op *op, int64_t shift, rows reads, rows writes)
{
	const struct sim_instruction *in = &op->i;

	for (int64_t o = 0; o < in->outer; o++)
		for (int64_t i = 0; i < in->inner; i++)
		{
			const int64_t d = in->dst + o * in->dst_outer + i * in->dst_inner + in->dst_level * shift;

			if (writes != NULL && in->op != SIM_SETX)
				insert_any(writes, d, op, in->dst_index);
			if (reads == NULL)
				continue;
			if (!in->a_tuple)
				insert_any(reads, in->a + o * in->a_outer + i * in->a_inner + in->a_level * shift, op, in->a_index);
			if (sim_reads_b(in) && !in->b_tuple)
				insert(reads, in->b + o * in->b_outer + i * in->b_inner);
			if (in->op == SIM_MOVC)
				insert_any(reads, d, op, in->dst_index);
		}
}

/* --- may a chain be one operation? ------------------------------------------------------------------------------- */

static bool
in_chain(const struct chain *chain, int32_t k)
{
	for (int32_t m = 0; m < chain->length; m++)
		if (chain->members[m] == k)
			return true;
	return false;
}

/* Whether the chain's newest instruction can run where the first one does */
static bool
can_move(const struct fuser *f, const struct chain *chain)
{
	const int32_t last = chain->members[chain->length - 1];

	for (int32_t k = chain->members[0] + 1; k < last; k++)
		if (!in_chain(chain, k) && (meet(f, f->writes[k], f->reads[last]) || meet(f, f->writes[k], f->writes[last]) ||
									meet(f, f->reads[k], f->writes[last])))
			return false;
	return true;
}

/* Whether nobody reads what the chain would not store any more: all that it writes but what its last one does */
static bool
is_dead(const struct fuser *f, const struct chain *chain)
{
	const int32_t first = chain->members[0], last = chain->members[chain->length - 1];
	rows gone = f->one;

	memset(gone, 0, f->words * sizeof *gone);
	for (int32_t m = 0; m < chain->length; m++)
		join(f, gone, f->writes[chain->members[m]]);
	leave(f, gone, f->writes[last]);
	if (meet(f, gone, f->reads[first]) || meet(f, gone, f->outside))
		return false;
	/* to the section's end, and from its beginning, once around */
	for (int32_t step = 1; step < f->n; step++)
	{
		const int32_t k = (first + step) % f->n;

		if (in_chain(chain, k))
			continue;
		if (meet(f, gone, f->reads[k]))
			return false;
		if (overwrites(&f->ops[k]))
			leave(f, gone, f->writes[k]);
	}
	return true;
}

/* The first instruction behind the chain that touches what its newest one wrote; -1: none */
static int32_t
next_user(const struct fuser *f, const struct chain *chain)
{
	const int32_t last = chain->members[chain->length - 1];

	for (int32_t k = last + 1; k < f->n; k++)
		if (meet(f, f->reads[k], f->writes[last]) || meet(f, f->writes[k], f->writes[last]))
			return k;
	return -1;
}

/* Takes instruction k into the chain if it can run early */
static bool
extend(const struct fuser *f, struct chain *chain, int32_t k)
{
	if (chain->length == LONGEST || f->member[k])
		return false;
	chain->members[chain->length++] = k;
	if (can_move(f, chain))
		return true;
	chain->length--;
	return false;
}

/* Whether a whole round runs it without a tuple mask, row after row */
static bool
is_plain(const struct sim_op *op)
{
	return !op->care.in_order && op->i.op != SIM_SETX && !sim_indexed(&op->i) &&
		   (op->i.mask == SIM_MASK_NONE || op->in_group) && op->i.op < SIM_SIGMOID;
}

static bool
starts_rows(const struct sim_op *op)
{
	const struct sim_instruction *in = &op->i;

	return is_plain(op) && in->source == SIM_MEMORY && !in->tail_a && !in->tail_b &&
		   (in->dst_inner || in->inner == 1) &&
		   (in->op == SIM_MUL || in->op == SIM_ADD || in->op == SIM_SUB);
}

/* The step of the outer loop, which counts for nothing where there is no loop */
static bool
steps(const struct sim_instruction *in, int32_t field, int32_t expected)
{
	return in->outer == 1 || field == expected;
}

static bool
is_reduction(const struct sim_op *op, const struct sim_instruction *like)
{
	const struct sim_instruction *in = &op->i;

	return is_plain(op) && in->source == SIM_MEMORY && !in->tail_a && !in->a_tuple && !in->b_tuple &&
		   (in->op == SIM_ADD || in->op == SIM_MAX || in->op == SIM_MIN) && (like == NULL || like->op == in->op) &&
		   (in->inner == 1 || (in->dst_inner && in->a_inner && in->b_inner));
}

/* Plain exchanges of single rows between lanes, with one mask for both operands */
static bool
is_flip(const struct sim_op *op)
{
	const struct sim_instruction *in = &op->i;

	return is_plain(op) && in->source == SIM_LANE_XOR && !sim_crossed(in) && in->tail_a == in->tail_b &&
		   in->inner == 1;
}

/* --- the three kinds --------------------------------------------------------------------------------------------- */

/* Starts the operation that stands for a chain: the operands of its first instruction, the place of its last one */
static struct sim_fusion *
begin(const struct fuser *f, const struct chain *chain, struct sim_op *op)
{
	const struct sim_op *first = &f->ops[chain->members[0]], *last = &f->ops[chain->members[chain->length - 1]];
	const struct sim_instruction *in = &first->i;
	const ptrdiff_t unit = f->sim->unit;

	*op = *first;
	op->manner = SIM_BY_FUSION;
	op->i.mask = SIM_MASK_NONE;
	op->d = last->d;
	op->fusion = (struct sim_fusion){
		.unit = f->sim->unit,
		.lanes = f->sim->lanes,
		.outer = last->i.outer,
		.rows = in->inner,
		.masked_row = -1,
		.a_row = in->a_inner * unit,
		.b_row = in->b_inner * unit,
		.d_row = unit,
		.a_outer = in->a_outer * unit,
		.b_outer = in->b_outer * unit,
		.d_outer = last->i.dst_outer * unit,
		.identity = last->loop.identity,
	};
	return &op->fusion;
}

/* An operation on rows, and the fold that leaves one of them */
static bool
fold(const struct fuser *f, int32_t first, struct chain *chain, struct sim_op *op)
{
	const struct sim_instruction *in = &f->ops[first].i;
	const struct sim_instruction *reduction = NULL;
	struct sim_fusion *fusion;
	int32_t n = in->inner, half, masked = -1, tail = 0;

	*chain = (struct chain){.members = {first}, .length = 1};
	if (!starts_rows(&f->ops[first]) || n < 2 || n > SIM_FOLD_ROWS || (in->outer > 1 && in->dst_outer < n))
		return false;
	while (n > 1)
	{
		const int32_t k = next_user(f, chain);
		const struct sim_instruction *next;

		for (half = 1; 2 * half < n; half *= 2)
			;
		if (k < 0 || !is_reduction(&f->ops[k], reduction) || !extend(f, chain, k))
			return false;
		next = &f->ops[k].i;
		if (next->dst != in->dst || next->a != in->dst || next->b != in->dst + half || next->inner != n - half ||
			next->outer != in->outer || !steps(next, next->dst_outer, in->dst_outer) ||
			!steps(next, next->a_outer, in->dst_outer) || !steps(next, next->b_outer, in->dst_outer) ||
			(next->tail_b && n < in->inner))
			return false;
		if (next->tail_b)
		{
			masked = n - 1;
			tail = next->tail;
		}
		reduction = next;
		n = half;
	}
	if (f->sim->kernels->fold[in->op][reduction->op] == NULL || !is_dead(f, chain))
		return false;
	fusion = begin(f, chain, op);
	op->fused = f->sim->kernels->fold[in->op][reduction->op];
	for (half = 1; 2 * half < in->inner; half *= 2)
		;
	fusion->half = half;
	fusion->masked_row = masked;
	fusion->keep = f->sim->masks + tail * f->sim->unit;
	return true;
}

/* An operation on rows of tuples, and levels of the tree over neighbours */
static bool
tree(const struct fuser *f, int32_t first, struct chain *chain, struct sim_op *op)
{
	const struct sim_instruction *in = &f->ops[first].i, *last = in;
	const struct sim_instruction *reduction = NULL;

	*chain = (struct chain){.members = {first}, .length = 1};
	if (!starts_rows(&f->ops[first]) || in->outer > SIM_TREE_TUPLES || in->outer < 2)
		return false;
	while (last->outer > 1 && last->outer % 2 == 0)
	{
		const int32_t k = next_user(f, chain);
		const struct sim_instruction *next;

		if (k < 0 || !is_reduction(&f->ops[k], reduction))
			break;
		next = &f->ops[k].i;
		if (next->tail_b || next->inner != in->inner || next->outer != last->outer / 2 || next->a != last->dst ||
			next->b != last->dst + last->dst_outer || !steps(next, next->a_outer, 2 * last->dst_outer) ||
			!steps(next, next->b_outer, 2 * last->dst_outer) || !extend(f, chain, k))
			break;
		reduction = last = next;
	}
	if (reduction == NULL || f->sim->kernels->tree[in->op][reduction->op] == NULL || !is_dead(f, chain))
		return false;
	begin(f, chain, op)->levels = chain->length - 1;
	op->fused = f->sim->kernels->tree[in->op][reduction->op];
	return true;
}

/* Exchanges between lanes of single rows, over a distance, half of it, and so on */
static bool
flips(const struct fuser *f, int32_t first, struct chain *chain, struct sim_op *op)
{
	const struct sim_op *start = &f->ops[first];
	const struct sim_instruction *in = &start->i, *last = in;
	struct sim_fusion *fusion;

	*chain = (struct chain){.members = {first}, .length = 1};
	if (!is_flip(start) || f->sim->kernels->flips[in->op] == NULL)
		return false;
	while (last->distance > 0)
	{
		const int32_t k = next_user(f, chain);
		const struct sim_instruction *next = k < 0 ? NULL : &f->ops[k].i;

		if (next == NULL || !is_flip(&f->ops[k]) || next->tail_a || next->op != in->op ||
			next->distance + 1 != last->distance || next->outer != in->outer || next->a_tuple ||
			next->a != last->dst || !steps(next, next->a_outer, last->dst_outer) || !extend(f, chain, k))
			break;
		last = next;
	}
	if (chain->length < 2 || !is_dead(f, chain))
		return false;
	fusion = begin(f, chain, op);
	op->fused = f->sim->kernels->flips[in->op];
	fusion->masked_row = in->tail_a ? 0 : -1;
	fusion->keep = start->loop.keep_a;
	fusion->flip_from = 1 << in->distance;
	fusion->flip_to = 1 << last->distance;
	return true;
}

/* --- the section ------------------------------------------------------------------------------------------------- */

/*
 * Makes the second list. What was found of a chain is said of the instructions as they were, fused or not: a row that a
 * chain no longer stores has no reader until an instruction, of a chain or not, writes it in the program as it was.
 */
static void
fuse(struct fuser *f, struct sim_op *list, int32_t *n)
{
	for (int32_t k = 0; k < f->n; k++)
	{
		struct chain chain;
		struct sim_op *op = &list[*n];

		if (f->member[k])
			continue;
		++*n;
		if (fold(f, k, &chain, op) || tree(f, k, &chain, op) || flips(f, k, &chain, op))
			for (int32_t m = 1; m < chain.length; m++)
				f->member[chain.members[m]] = true;
		else
			*op = f->ops[k];
	}
}

/* What sections besides `tuple` read and have not written themselves, and symbols */
static void
find_outside(const struct fuser *f, const struct sim_bundle *bundle)
{
	const struct sim *sim = f->sim;

	for (int s = 0; s < SIM_SECTIONS; s++)
		for (int64_t level = 0; s != SIM_TUPLE && level < sim_levels(bundle, s); level++)
		{
			rows written = f->one, reads = f->two;

			memset(written, 0, f->words * sizeof *written);
			for (int32_t k = 0; k < sim->sections[s].n_ops; k++)
			{
				const struct sim_op *op = &sim->sections[s].ops[k];

				memset(reads, 0, f->words * sizeof *reads);
				touch(op, level * bundle->level_stride, reads, NULL);
				leave(f, reads, written);
				join(f, f->outside, reads);
				if (overwrites(op))
					touch(op, level * bundle->level_stride, NULL, written);
			}
		}
	for (int32_t k = 0; k < bundle->n_symbols; k++)
		for (int32_t row = 0; row < bundle->symbols[k].rows; row++)
			insert(f->outside, bundle->symbols[k].row + row);
}

/* Fills the `tuple` section's second list; false: no memory */
bool
sim_fuse(struct sim *sim, const struct sim_bundle *bundle)
{
	struct sim_code *code = &sim->sections[SIM_TUPLE];
	const size_t n = (size_t)code->n_ops, words = (size_t)sim->machine.scratch_depth / 64 + 1;
	struct fuser f = {.sim = sim, .ops = code->ops, .n = code->n_ops, .words = words};
	uint64_t *sets;
	bool done = true;

	if (sim->overlaps || bundle->n_symbols == 0)
		return true;
	sets = calloc((2 * n + 3) * words, sizeof *sets);
	f.reads = calloc(2 * n + 1, sizeof *f.reads);
	f.member = calloc(n + 1, sizeof *f.member);
	code->fused = calloc(n + 1, sizeof *code->fused);
	if (sets != NULL && f.reads != NULL && f.member != NULL && code->fused != NULL)
	{
		f.writes = f.reads + n;
		f.outside = sets;
		f.one = sets + words;
		f.two = sets + 2 * words;
		for (size_t k = 0; k < n; k++)
		{
			f.reads[k] = sets + (2 * k + 3) * words;
			f.writes[k] = sets + (2 * k + 4) * words;
			touch(&code->ops[k], 0, f.reads[k], f.writes[k]);
		}
		find_outside(&f, bundle);
		fuse(&f, code->fused, &code->n_fused);
	}
	else
		done = false;
	free(sets);
	free(f.reads);
	free(f.member);
	return done;
}
