/*
 * A rule's own code in the place of the engine: batches of tuples through functions that dana/jit made.
 *
 * In: tuples one after the other, and where batches and the epoch end. Out: the scratchpad's symbols, bit for bit as the
 * engine's instructions leave them. No cycle is counted here: rounds.c knows how long each section takes.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "numerics.h"

/* The next epoch is run by code or by the engine, which need tuples in different formats */
void
sim_choose_path(struct sim *sim, bool fast)
{
	sim->fast = fast;
	sim->fill = (struct sim_fill){.unit = sim->unit, .group = sim->group, .stride = sim->tuple_stride};
	if (fast)
		sim->fill = (struct sim_fill){
			.unit = sim->lanes,
			.group = INT32_MAX,
			.stride = (ptrdiff_t)sim->tuple_rows * sim->lanes,
		};
}

/* Floats of a symbol's vector that a row holds */
int32_t
sim_compiled_in_row(const struct sim *sim, const struct sim_compiled_symbol *symbol)
{
	return symbol->broadcast ? 1 : sim->lanes;
}

/* Rows of a symbol's vector */
int32_t
sim_compiled_of_vector(const struct sim *sim, const struct sim_compiled_symbol *symbol)
{
	return (symbol->last + sim_compiled_in_row(sim, symbol) - 1) / sim_compiled_in_row(sim, symbol);
}

/* Rows of a symbol */
static int32_t
rows_of(const struct sim *sim, const struct sim_compiled_symbol *symbol)
{
	return symbol->leading * sim_compiled_of_vector(sim, symbol);
}

/* Floats of a symbol's vectors from rows of thread 0 */
static void
take_in(struct sim *sim, const struct sim_compiled_symbol *symbol)
{
	float *to = sim->compiled.state + symbol->first;
	const int32_t lanes = sim_compiled_in_row(sim, symbol);
	int32_t r = 0;

	for (int32_t v = 0; v < symbol->leading; v++, to += symbol->stride)
		for (int32_t e = 0; e < symbol->last; r++)
		{
			const float *row = sim->scratch + (symbol->row + (ptrdiff_t)r) * sim->unit;

			for (int32_t lane = 0; lane < lanes && e < symbol->last; lane++, e++)
				to[e] = dn_flush(row[lane]);
		}
}

/* Lanes of a symbol's row, from where code has it */
void
sim_compiled_give_row(const struct sim *sim, const struct sim_compiled_symbol *symbol, int32_t row, int32_t n, float *to)
{
	const int32_t rows = sim_compiled_of_vector(sim, symbol), lanes = sim_compiled_in_row(sim, symbol), e = row % rows * lanes;
	const float *state = sim->compiled.state + symbol->first + row / rows * symbol->stride;
	const float *from = symbol->first < 0 ? sim->e.loss : state;

	for (int32_t first = 0; first < n; first += lanes)
		for (int32_t lane = 0; lane < lanes; lane++)
			to[first + lane] = e + lane < symbol->last ? from[e + lane] : 0.0f;
}

/* Lanes of rows [row, row + count) of the scratchpad: of symbols that code has newer */
void
sim_compiled_give(const struct sim *sim, int32_t row, int32_t count, int32_t lanes, float *rows)
{
	for (int32_t k = 0; k < sim->compiled.n_symbols && sim->ahead_of_scratch; k++)
	{
		const struct sim_compiled_symbol *symbol = &sim->compiled.symbols[k];
		const int32_t behind = symbol->row + rows_of(sim, symbol), first = symbol->row > row ? symbol->row : row;

		for (int32_t r = first; symbol->out && r < behind && r < row + count; r++)
			sim_compiled_give_row(sim, symbol, r - symbol->row, lanes, rows + (r - row) * (ptrdiff_t)lanes);
	}
}

/* Has the scratchpad be as code left it, for who reads or writes it */
void
sim_compiled_settle(struct sim *sim)
{
	sim_compiled_give(sim, 0, sim->machine.scratch_depth, sim->unit, sim->scratch);
	sim->ahead_of_scratch = false;
}

/* Room for tuples until there are enough to be run at a time, or the batch is whole */
void
sim_compiled_open(struct sim *sim)
{
	const uint32_t batch = sim->compiled.batch;
	struct sim_epoch *e = &sim->e;

	e->slot = sim->batched;
	e->in_slot = e->phase.in_round = e->passed = 0;
	e->phase.room = sim->most;
	if (sim->compiled.rows == NULL && batch != SIM_WHOLE_EPOCH && batch - e->joined < (uint64_t)sim->most)
		e->phase.room = (int32_t)(batch - e->joined);
}

/* An epoch begins: the models are as the scratchpad has them, or as the epoch before left them */
void
sim_compiled_begin(struct sim *sim)
{
	const struct sim_compiled *code = &sim->compiled;

	for (int32_t k = 0; k < code->n_symbols && !sim->ahead_of_scratch; k++)
		if (code->symbols[k].into)
			take_in(sim, &code->symbols[k]);
	code->begin(code->state, NULL, code->slots, 0);
	sim_compiled_open(sim);
}

/* Joins what waits on a stack for `tuples` tuples, from the fewest to the most */
static void
finish(const struct sim_compiled *code, int32_t number, uint64_t tuples)
{
	const struct sim_merge *merge = &code->merges[number];
	int32_t level = __builtin_ctzll(tuples);
	const float *last = code->state + merge->first + level * merge->size;

	for (level++; tuples >> level != 0; level++)
	{
		float *first = code->state + merge->first + level * merge->size;

		if (!(tuples >> level & 1))
			continue;
		sim_join_merge(merge->op, merge->size, first, last, first);
		last = first;
	}
	code->slots[number] = last - code->state - merge->first;
}

/* With the error of rounding (Dekker 1971), as in the language's definition */
static void
add_loss(struct sim_epoch *e, float loss)
{
	const float total = dn_add(e->loss[0], loss);

	e->loss[1] = dn_add(e->loss[1], dn_sub(loss, dn_sub(total, e->loss[0])));
	e->loss[0] = total;
}

/* Merges, and the loss as the last of them */
static inline int32_t
merges_of(const struct sim_compiled *code)
{
	return code->n_merges + (code->loss >= 0);
}

/* A merge's result, from where it lies in a stack, or to the stack's beginning */
static void
copy_merge(struct sim *sim, const struct sim_merge *merge, float *numbers, bool back)
{
	const struct sim_compiled *code = &sim->compiled;
	int64_t *slot = &code->slots[merge - code->merges];

	if (back)
		*slot = 0;
	for (int32_t v = 0; v < merge->leading; v++, numbers += merge->last)
	{
		float *own = code->state + merge->first + *slot + v * merge->stride;

		memcpy(back ? own : numbers, back ? numbers : own, sizeof(float) * (size_t)merge->last);
	}
}

/* What code exchanges with other parts */
struct sim_merges
sim_compiled_merges(const struct sim *sim)
{
	const struct sim_compiled *code = &sim->compiled;

	return (struct sim_merges){.merges = code->merges, .n = merges_of(code), .passes = code->n_passes, .copy = copy_merge};
}

/* What a pass over the batch merged, here and in other parts; false: a fault */
static bool
end_pass(struct sim *sim, int32_t number, bool epoch_last)
{
	const struct sim_compiled *code = &sim->compiled;
	const struct sim_merges merges = sim_compiled_merges(sim);

	for (int32_t k = 0; k < merges.n; k++)
		if (code->merges[k].pass == number)
			finish(code, k, sim->e.joined);
	return sim_join_pass(sim, &merges, number, epoch_last);
}

static bool
end_batch(struct sim *sim, const float *const *tuples, bool epoch_last)
{
	const struct sim_compiled *code = &sim->compiled;

	if (!end_pass(sim, code->n_passes, epoch_last))
		return false;
	if (code->loss >= 0)
		add_loss(&sim->e, code->state[code->merges[code->loss].first + code->slots[code->loss]]);
	(epoch_last ? code->last : code->after)(code->state, tuples, code->slots, 0);
	sim->e.joined = 0;
	return true;
}

static inline int32_t
is_row(float n, int32_t rows)
{
	return (n >= 0.0f) & (n < (float)rows) & (n == (float)(int32_t)n); /* no branches */
}

/* By a tuple, as its column has it: the number of a row */
static inline float
chosen(const struct sim *sim, int32_t k, int32_t t)
{
	const struct sim_compiled_index *index = &sim->compiled.indices[k];

	return sim->places[t * sim->compiled.n_inputs + index->input][index->element];
}

/* Whether elements of all tuples choose rows that there are: `some` of an input, one behind the other */
static bool
all_rows(const struct sim *sim, int32_t k, int32_t some, int32_t count)
{
	const struct sim_compiled *code = &sim->compiled;
	const struct sim_compiled_index *index = &code->indices[k];
	const float *numbers = sim->numbers + index->input * (sim->most + 1);
	const int32_t rows = index->rows;
	int32_t right = 1;

	if (code->inputs[index->input].floats == 1) /* side by side: by vectors */
		for (int32_t t = 0; t < count; t++)
			right &= is_row(numbers[t], rows);
	else
		for (int32_t t = 0; t < count; t++)
		{
			numbers = sim->places[t * code->n_inputs + index->input] + index->element;
			for (int32_t e = 0; e < some; e++)
				right &= is_row(numbers[e], rows);
		}
	return right;
}

/* Whether the tuples choose rows that there are; else the fault of the first that does not */
static bool
in_range(struct sim *sim)
{
	const struct sim_compiled *code = &sim->compiled;
	const int32_t count = sim->e.phase.in_round;
	bool right = true;

	if (code->wrong >= 0) /* some numbers are not known before: run_rows() */
		return true;
	for (int32_t k = 0, some; k < code->n_indices; k += some)
	{
		const struct sim_compiled_index *of = &code->indices[k];

		for (some = 1; k + some < code->n_indices && of[some].tag == of->tag;)
			some++;
		right &= all_rows(sim, k, some, count);
	}
	for (int32_t t = 0; !right && t < count; t++)
		for (int32_t k = 0; k < code->n_indices; k++)
			if (!is_row(chosen(sim, k, t), code->indices[k].rows))
				return sim_engine_fault(sim, SIM_FAULT_INDEX, (uint32_t)code->indices[k].tag);
	return true;
}

/* Tuples in batches of one; false: a fault */
static bool
run_some(struct sim *sim, sim_compiled_rows *rows, int32_t first, int32_t count)
{
	const struct sim_compiled *code = &sim->compiled;
	int64_t wrong = INT64_MAX;

	if (code->wrong >= 0)
		memcpy(code->state + code->wrong, &wrong, sizeof wrong);
	rows(code->state, sim->places + (ptrdiff_t)first * code->n_inputs, sim->e.loss, count);
	if (code->wrong >= 0)
		memcpy(&wrong, code->state + code->wrong, sizeof wrong);
	return wrong == INT64_MAX || sim_engine_fault(sim, SIM_FAULT_INDEX, (uint32_t)code->indices[wrong % code->n_indices].tag);
}

/* Batches of one tuple; false: a fault */
static bool
run_rows(struct sim *sim, int32_t count, bool epoch_last)
{
	const int32_t passed = sim->e.passed;

	count -= epoch_last;
	if (count > passed && !run_some(sim, sim->compiled.rows, passed, count - passed))
		return false;
	return !epoch_last || run_some(sim, sim->compiled.last_row, count, 1);
}

static void
run_pass(struct sim *sim, sim_compiled_function *block, sim_compiled_function *one, int32_t first, int32_t count)
{
	const struct sim_compiled *code = &sim->compiled;
	const ptrdiff_t stride = code->n_inputs;
	const float *const *tuple = sim->places + first * stride;
	struct sim_epoch *e = &sim->e;

	for (; block != NULL && count >= SIM_BLOCK; count -= SIM_BLOCK, tuple += SIM_BLOCK * stride)
	{
		block(code->state, tuple, code->slots, __builtin_ctzll(~(e->joined / SIM_BLOCK)));
		e->joined += SIM_BLOCK;
	}
	for (; count > 0; count--, tuple += stride)
	{
		one(code->state, tuple, code->slots, __builtin_ctzll(~e->joined));
		e->joined++;
	}
}

/* The batch's first pass over the tuples that have come, up to `count` */
static void
run_first_pass(struct sim *sim, int32_t count)
{
	const struct sim_compiled *code = &sim->compiled;
	struct sim_epoch *e = &sim->e;

	if (e->joined == 0)
		code->before(code->state, sim->places, code->slots, 0);
	run_pass(sim, code->block, code->one, e->passed, count - e->passed);
	e->passed = count;
}

static bool
run_blocks(struct sim *sim, int32_t count, bool epoch_last)
{
	const struct sim_compiled *code = &sim->compiled;
	struct sim_epoch *e = &sim->e;

	run_first_pass(sim, count);
	for (int32_t k = 0; k < code->n_passes; k++) /* the batch is whole: sim_attach() */
	{
		if (!end_pass(sim, k, epoch_last))
			return false;
		code->passes[k].between(code->state, sim->places, code->slots, 0);
		e->joined = 0;
		run_pass(sim, code->passes[k].block, code->passes[k].one, 0, count);
	}
	if (!epoch_last && e->joined != code->batch)
		return true;
	return end_batch(sim, sim->places + (ptrdiff_t)(count - 1) * code->n_inputs, epoch_last);
}

/* Whether the stacks of merges hold `count` tuples of those that have come, and the batch's earlier ones */
static bool
fits(const struct sim *sim, int32_t count)
{
	return sim->e.joined + (uint64_t)(count - sim->e.passed) <= (uint64_t)sim->round_tuples << sim->levels;
}

/* Runs the tuples that have come, before the next one comes or the epoch ends; false: a fault */
bool
sim_compiled_run(struct sim *sim, bool epoch_last)
{
	struct sim_epoch *e = &sim->e;
	const int32_t count = e->phase.in_round;

	if (!in_range(sim))
		return false;
	if (sim->compiled.rows == NULL && !fits(sim, count))
		return sim_engine_fault(sim, SIM_FAULT_STACK, 0);
	if (sim->compiled.rows != NULL)
	{
		if (!run_rows(sim, count, epoch_last))
			return false;
	}
	else if (!run_blocks(sim, count, epoch_last))
		return false;
	sim_compiled_open(sim);
	return true;
}

/* What is known not to end a batch is run, so that it need not be packed; not where a tuple could be a fault */
static void
run_early(struct sim *sim)
{
	const struct sim_compiled *code = &sim->compiled;
	struct sim_epoch *e = &sim->e;
	const int32_t count = e->phase.in_round, blocks = count - (code->block != NULL ? count % SIM_BLOCK : 0);

	if (code->n_indices > 0 || code->n_passes > 0)
		return;
	if (code->rows != NULL && count - 1 > e->passed)
	{
		(void)run_rows(sim, count - 1, false); /* the last of the epoch is last_row's */
		e->passed = count - 1;
	}
	else if (code->rows == NULL && blocks > e->passed && fits(sim, blocks))
		run_first_pass(sim, blocks);
}

/* The pages go: what code has not read of them is packed. The last tuple is read again where a batch ends. */
void
sim_compiled_keep(struct sim *sim, const uint8_t *pages)
{
	const struct sim_compiled *code = &sim->compiled;
	const int32_t whole = sim->e.phase.in_round, tuples = whole + (sim->e.open ? 1 : 0);

	run_early(sim);
	for (int32_t t = sim->e.passed > 0 && sim->e.passed == whole ? whole - 1 : sim->e.passed; t < tuples; t++)
		for (int32_t i = 0; i < code->n_inputs; i++)
		{
			const struct sim_compiled_input *input = &code->inputs[i];
			const float **place = &sim->places[t * code->n_inputs + i];
			const uintptr_t at = (uintptr_t)*place;

			if (at < (uintptr_t)pages || at >= (uintptr_t)sim->until)
				continue;
			sim->e.packed++;
			*place = memcpy(sim->batched + t * sim->fill.stride + input->first, *place,
							(size_t)sim->columns[input->column].bytes);
		}
}

void
sim_compiled_end_losses(struct sim *sim)
{
	sim->e.loss[0] = dn_add(sim->e.loss[0], sim->e.loss[1]);
}

/* The epoch has ended: symbols stay where code has them, and need no memory elsewhere */
void
sim_compiled_end(struct sim *sim)
{
	sim_compiled_end_losses(sim);
	for (int32_t k = 0; k < sim->compiled.n_symbols && !sim->ahead_of_scratch; k++)
	{
		const struct sim_compiled_symbol *symbol = &sim->compiled.symbols[k];

		if (symbol->out)
			sim_clear(sim->scratch + symbol->row * (ptrdiff_t)sim->unit,
					  sizeof(float) * (size_t)rows_of(sim, symbol) * (size_t)sim->unit);
	}
	sim->ahead_of_scratch = true;
}
