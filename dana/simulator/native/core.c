/*
 * The library's functions, called through ctypes without the GIL (dana/simulator/native.py declares them).
 *
 * A simulator is used by one thread at a time. Every function that computes sets the processor's flushing of subnormals
 * and restores what it was.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "numerics.h"
#include "walk.h"

/* Results of sim_consume() other than 0 */
#define STOPPED	 1 /* a fault, which sim_end() reports */
#define UNLOADED 2
#define SPOILT	 3

/* Result of sim_end() other than true and, if nothing is loaded, false */
#define OTHER_PAGES 2

#define MAX_PROVED 16 /* pages on which code is compared with the engine */

#define BATCHED (6 << 10) /* bytes of the tuples that code gets at a time, if that is at least SIM_BLOCK of them */

/* Of contract.h, from which this is built */
SIM_EXPORT uint64_t
sim_contract(void)
{
	return SIM_CONTRACT;
}

/* Frees what was loaded; left is the machine as sim_new() made it */
static void
unload(struct sim *sim)
{
	sim_walk_free(sim);
	free(sim->memo);
	sim_records_free(sim);
	free(sim->index);
	for (int32_t k = 0; k < sim->n_orders; k++)
		free(sim->orders[k].last);
	free(sim->program);
	free(sim->masks);
	free(sim->rows);
	free(sim->pending);
	free(sim->scratch);
	free(sim->tuples);
	free(sim->batched);
	free(sim->places);
	free(sim->unproved);
	free(sim->parts);
	free(sim->strider);
	free(sim->columns);
	free(sim->before.tuples);
	*sim = (struct sim){.machine = sim->machine, .kernels = sim->kernels, .trains = true, .counts = true,
						.lanes = sim->lanes, .unit = sim->unit, .plain = sim->plain};
}

/* A simulator of a machine; `kernels`: see sim_choose_kernels(); `plain`: each Strider instruction is interpreted by itself,
 * for tests; NULL: no memory, or no such kernels */
SIM_EXPORT struct sim *
sim_new(const struct sim_machine *machine, const char *kernels, int32_t plain)
{
	const struct sim_kernels *chosen = sim_choose_kernels(kernels);
	struct sim *sim = chosen != NULL ? calloc(1, sizeof *sim) : NULL;

	if (sim == NULL)
		return NULL;
	sim->machine = *machine;
	sim->kernels = chosen;
	sim->plain = plain;
	sim->lanes = machine->clusters * SIM_CLUSTER;
	sim->unit = machine->threads * sim->lanes;
	unload(sim);
	return sim;
}

SIM_EXPORT void
sim_free(struct sim *sim)
{
	if (sim == NULL)
		return;
	unload(sim);
	free(sim);
}

/* Rows of zeros, on a cache line */
static float *
memory(size_t rows, size_t unit)
{
	const size_t size = (rows * unit * sizeof(float) + 63) / 64 * 64 + 64;
	float *zeroed = aligned_alloc(64, size);

	if (zeroed != NULL)
		sim_clear(zeroed, size);
	return zeroed;
}

/* Writes a row of the scratchpad, the same words for every thread */
static void
place_row(struct sim *sim, int64_t row, const uint32_t *words)
{
	const uint32_t held = sim->machine.wide_depth > 0 && row >= sim->machine.wide_depth ? 0xFFFF0000 : UINT32_MAX;
	float *to = sim->scratch + row * sim->unit;

	for (int32_t t = 0; t < sim->machine.threads; t++, to += sim->lanes)
		for (int32_t k = 0; k < sim->lanes; k++)
			to[k] = dn_float(words[k] & held);
}

/* The image to every thread's scratchpad, but for zeros */
static void
place_image(struct sim *sim, const struct sim_bundle *bundle)
{
	const uint32_t *from = bundle->image;

	for (int32_t row = 0; row < bundle->image_rows; row++, from += sim->lanes)
	{
		uint32_t any = 0;

		for (int32_t lane = 0; lane < sim->lanes; lane++)
			any |= from[lane];
		if (any != 0)
			place_row(sim, row, from);
	}
}

/* Loads a Bundle; nothing is loaded where *problem says why not. held: zeros for each of bundle->held, the caller's */
SIM_EXPORT void
sim_load(struct sim *sim, const struct sim_bundle *bundle, float *const *held, struct sim_problem *problem)
{
	memset(problem, 0, sizeof *problem);
	unload(sim);
	sim->group = bundle->group;
	sim->tuple_rows = bundle->tuple_rows;
	sim->round_tuples = sim->machine.threads * bundle->group;
	sim->tuple_stride = (ptrdiff_t)bundle->tuple_rows * sim->unit;
	sim->levels = bundle->levels;
	sim->batch = bundle->batch;
	sim->merges = bundle->merges;
	sim->n_merges = bundle->n_merges;
	if (!sim_verify(sim, bundle, problem))
	{
		unload(sim);
		return;
	}
	sim->scratch = memory((size_t)sim->machine.scratch_depth, (size_t)sim->unit);
	sim->tuples = memory(2 * (size_t)bundle->group * (size_t)bundle->tuple_rows, (size_t)sim->unit);
	if (sim->scratch == NULL || sim->tuples == NULL || !sim_engine_prepare(sim, bundle) || !sim_pipeline_prepare(sim) ||
		!sim_records_prepare(sim, bundle, held) || !sim_columns_prepare(sim, bundle) || !sim_strider_prepare(sim, bundle) ||
		!sim_orders_prepare(sim, bundle) || !sim_walk_prepare(sim) || !sim_clock_prepare(sim))
	{
		problem->kind = SIM_NO_MEMORY;
		unload(sim);
		return;
	}
	place_image(sim, bundle);
	sim_choose_path(sim, false);
	sim->loaded = true;
}

/* Has code run epochs in the place of the loaded program's engine; false: no memory, or nothing is loaded */
SIM_EXPORT int32_t
sim_attach(struct sim *sim, const struct sim_compiled *compiled)
{
	const int32_t row = sim->tuple_rows * sim->lanes;
	int32_t size = compiled->n_inputs; /* of a tuple, in floats */

	if (!sim->loaded)
		return false;
	sim_compiled_settle(sim);
	for (int32_t i = 0; i < compiled->n_inputs; i++)
		if (compiled->inputs[i].floats != 1)
			size = row;
	sim->most = BATCHED / (int32_t)sizeof(float) / (size > 0 ? size : 1) / SIM_BLOCK * SIM_BLOCK;
	if (sim->most < SIM_BLOCK)
		sim->most = SIM_BLOCK;
	if (compiled->n_passes > 0 && sim->most < sim->round_tuples) /* a batch, which is one round, has to be whole */
		sim->most = sim->round_tuples;
	free(sim->batched);
	free(sim->places);
	free(sim->unproved);
	/* code reads the numbers of a whole block of tuples, and more than there are */
	sim->batched = memory((size_t)sim->most + 1 + SIM_BLOCK, (size_t)(row + compiled->n_inputs));
	sim->places = calloc(((size_t)sim->most + 1) * (size_t)compiled->n_inputs + 1, sizeof *sim->places);
	sim->unproved = memory((size_t)sim->machine.scratch_depth, (size_t)sim->unit);
	if (sim->batched == NULL || sim->places == NULL || sim->unproved == NULL)
		return false;
	sim->numbers = sim->batched + (ptrdiff_t)(sim->most + 1) * row;
	sim->compiled = *compiled;
	for (int32_t k = 0; k < sim->machine.descriptor_depth; k++)
		sim->columns[k].input = -1;
	for (int32_t i = 0; i < compiled->n_inputs; i++)
	{
		const struct sim_compiled_input *input = &compiled->inputs[i];

		if (input->column >= 0)
			sim->columns[input->column].input = i;
		for (int32_t t = 0; t <= sim->most; t++)
			sim->places[t * compiled->n_inputs + i] = input->floats == 1
														  ? sim->numbers + i * (sim->most + 1) + t
														  : sim->batched + (ptrdiff_t)t * row + input->first;
	}
	for (int32_t k = 0; k < compiled->n_tables; k++)
		memcpy(compiled->state + compiled->tables[k].first, &sim->held[compiled->tables[k].held].first, sizeof(float *));
	sim->differs = false;
	return true;
}

/* Joins batches with those of other parts, until another Bundle is loaded */
SIM_EXPORT void
sim_join(struct sim *sim, const struct sim_join *join)
{
	sim->join = *join;
}

/* Sets the cycles of each pause behind the merges of a batch, for machines that pause; called before the first epoch */
SIM_EXPORT void
sim_pause(struct sim *sim, int64_t cycles)
{
	sim->pause = cycles;
}

/* Whether code was found to compute something else than the engine; it is used no more then */
SIM_EXPORT int32_t
sim_differs(const struct sim *sim)
{
	return sim->differs;
}

/* Whether code was found to compute what the engine does, and runs in its place */
SIM_EXPORT int32_t
sim_proved(const struct sim *sim)
{
	return sim->compiled.state != NULL && sim->unproved == NULL;
}

/* Has epochs that repeat pages run by n simulators of the same Bundle, attached to copies of the code, on as many threads;
 * fewer than two: by this one alone. They are the caller's, and so is the list. */
SIM_EXPORT void
sim_share(struct sim *sim, struct sim *const *helpers, int32_t n)
{
	sim->helpers = helpers;
	sim->n_helpers = n;
}

/* Tuples of this epoch that other simulators ran; for tests */
SIM_EXPORT uint64_t
sim_shared_tuples(const struct sim *sim)
{
	return sim->e.shared;
}

/* Address of the operations over arrays, for the code */
SIM_EXPORT void *
sim_special_address(void)
{
	return (void *)sim_choose_kernels(NULL)->apply;
}

/* Whether the processor flushes subnormals while an epoch runs; else code has to */
SIM_EXPORT int32_t
sim_flushes(void)
{
#ifdef DN_PORTABLE
	return 0;
#else
	return 1;
#endif
}

/* Rows of pages that were walked since the Bundle was loaded; for tests */
SIM_EXPORT uint64_t
sim_walked_rows(const struct sim *sim)
{
	return sim->walk != NULL ? sim->walk->rows : 0;
}

/* Columns of tuples that were packed in this epoch because their page went before code read them; for tests */
SIM_EXPORT uint64_t
sim_packed_columns(const struct sim *sim)
{
	return sim->e.packed;
}

/* Whether there are rows [row, row + count) of the scratchpad */
static bool
are_rows(const struct sim *sim, int64_t row, int64_t count)
{
	return sim->loaded && row >= 0 && count >= 0 && row + count <= sim->machine.scratch_depth;
}

/* Rows <- words [count][lanes], of table 0 in every thread's scratchpad; false: there are no such rows */
SIM_EXPORT int32_t
sim_write_rows(struct sim *sim, int32_t table, int64_t row, int64_t count, uint32_t *words)
{
	if (table != 0)
		return sim_records_rows(sim, table, row, count, words, true);
	if (!are_rows(sim, row, count))
		return false;
	sim_compiled_settle(sim);
	for (; count > 0; count--, row++, words += sim->lanes)
		place_row(sim, row, words);
	return true;
}

/* Words [count][lanes] <- rows of thread 0's scratchpad, or of a table, NaNs canonical */
SIM_EXPORT int32_t
sim_read_rows(struct sim *sim, int32_t table, int64_t row, int64_t count, uint32_t *words)
{
	if (table != 0 ? !sim_records_rows(sim, table, row, count, words, false) : !are_rows(sim, row, count))
		return false;
	for (int64_t k = 0; table == 0 && k < count; k++)
		memcpy(words + k * sim->lanes, sim->scratch + (row + k) * sim->unit, sizeof(float) * (size_t)sim->lanes);
	if (table == 0)
		sim_compiled_give(sim, (int32_t)row, (int32_t)count, sim->lanes, (float *)words);
	for (int64_t k = 0; k < count * sim->lanes; k++)
		words[k] = (words[k] & INT32_MAX) > DN_EXPONENT ? DN_QUIET_NAN : words[k];
	return true;
}

/* Where a symbol of a table lies, or one that code has newer than the scratchpad; last 0: there is none */
static struct sim_compiled_symbol
symbol_at(const struct sim *sim, int32_t table, int64_t row, float **values)
{
	const struct sim_compiled *code = &sim->compiled;

	for (int32_t k = 0; k < sim->n_held; k++)
	{
		const struct sim_held *is = &sim->held[k].is;

		*values = sim->held[k].first;
		if (is->table == table && is->row == row)
			return (struct sim_compiled_symbol){.leading = is->vectors * sim->tables[table].records, .last = is->last,
												.stride = is->stride};
	}
	for (int32_t k = 0; k < code->n_symbols && sim->ahead_of_scratch && table == 0; k++)
	{
		const struct sim_compiled_symbol *symbol = &code->symbols[k];

		*values = code->state + symbol->first;
		if (symbol->row == row && symbol->out && symbol->first >= 0)
			return *symbol;
	}
	return (struct sim_compiled_symbol){.last = 0};
}

/*
 * Copies floats of the symbol at `row` from vector `first` on, from or to the memory of code; false: code has no floats
 * of this symbol that are newer than the scratchpad, or not so many.
 */
SIM_EXPORT int32_t
sim_values(struct sim *sim, int32_t table, int64_t row, int64_t first, int64_t count, float *values, int32_t write)
{
	float *own;
	const struct sim_compiled_symbol symbol = symbol_at(sim, table, row, &own);

	if (symbol.last == 0 || first < 0 || count < 0 || first + count / symbol.last > symbol.leading)
		return false;
	own += first * symbol.stride;
	for (int64_t v = 0; v < count / symbol.last; v++, own += symbol.stride)
		for (int32_t e = 0; e < symbol.last; e++, values++)
			if (write)
				own[e] = dn_flush(*values);
			else
				*values = dn_canonical(own[e]);
	return true;
}

/* Forgets an epoch that was not ended; the next page is the first of a new one, which trains, is observed, or
 * both; counting cycles is optional */
SIM_EXPORT void
sim_begin(struct sim *sim, const struct sim_observer *observer, int32_t trains, int32_t counts)
{
	sim->counted = sim->counted && !sim->begun;
	sim->begun = sim->again = false;
	memset(&sim->observer, 0, sizeof sim->observer);
	if (observer != NULL)
		sim->observer = *observer;
	sim->trains = trains;
	sim->counts = counts;
	sim_choose_path(sim, sim->trains && sim->compiled.state != NULL);
}

/* Takes the epoch's next pages: the sink of a page ring. 0, or why it takes no more. */
SIM_EXPORT int
sim_consume(void *context, const uint8_t *pages, size_t n_pages)
{
	struct sim *sim = context;
	const size_t page_size = (size_t)sim->machine.page_size;
	unsigned mode;

	if (!sim->loaded)
		return UNLOADED;
	sim->until = pages + n_pages * page_size;
	mode = dn_enter();
	if (sim->fast && sim->unproved != NULL && !sim->begun)
	{
		for (size_t k = 0; k < n_pages && sim->unproved != NULL && sim->compiled.state != NULL; k += MAX_PROVED)
			sim_compiled_prove(sim, pages + k * page_size, n_pages - k < MAX_PROVED ? n_pages - k : MAX_PROVED);
		if (sim->unproved != NULL && sim->join.exchange == NULL)
			sim_choose_path(sim, false); /* no row to compare code on, or a fault: the next epoch is asked again */
	}
	if (sim->spoilt)
	{
		dn_leave(mode);
		return SPOILT;
	}
	if (!sim->begun)
		sim_epoch_begin(sim);
	if (!sim->again || sim->counts || !sim_share_pages(sim, pages, n_pages))
		for (size_t k = 0; k < n_pages && sim->e.fault == SIM_FAULT_NONE; k++)
		{
			if (sim->counts)
				sim_note_page(sim);
			(void)sim_page(sim, pages + k * page_size);
		}
	if (sim->fast)
		sim_compiled_keep(sim, pages);
	dn_leave(mode);
	return sim->e.fault == SIM_FAULT_NONE ? 0 : STOPPED;
}

/* The same for an epoch that repeats the pages of the previous one, so its cycles are known */
SIM_EXPORT int
sim_consume_again(void *context, const uint8_t *pages, size_t n_pages)
{
	struct sim *sim = context;

	if (!sim->begun)
	{
		sim->again = sim->trains && sim->counted;
		sim->counts = sim->counts && !sim->again;
	}
	return sim_consume(context, pages, n_pages);
}

/* Ends the epoch after its last page; false: nothing is loaded; OTHER_PAGES: the pages were not those promised */
SIM_EXPORT int32_t
sim_end(struct sim *sim, struct sim_counters *counters)
{
	const struct sim_clock *c = &sim->clock;
	bool alike = true;
	unsigned mode;

	memset(counters, 0, sizeof *counters);
	if (!sim->loaded)
		return false;
	mode = dn_enter();
	if (!sim->begun)
		sim_epoch_begin(sim);
	if (sim->e.fault == SIM_FAULT_NONE)
		counters->cycles = sim_epoch_end(sim);
	if (sim->fast && sim->e.fault == SIM_FAULT_NONE)
		sim_compiled_end(sim);
	dn_leave(mode);
	counters->tuples = sim->e.tuples;
	counters->skipped = sim->e.skipped;
	if (sim->observer.end != NULL)
		sim->observer.end(sim->observer.context);
	if (sim->counts)
	{
		counters->engine_busy = c->busy;
		counters->merging = c->merging;
		counters->batches = c->batches;
		counters->paused = sim->n_merges > 0 ? c->batches * (uint64_t)sim->pause : 0;
		counters->waiting_for_engine = c->waited;
		if (c->pages > 0)
			counters->waiting_for_pages = (uint64_t)c->end_at - c->pages - c->beats - c->waited;
	}
	else if (sim->again && sim->e.fault == SIM_FAULT_NONE)
	{
		/* of pages that two simulators took a part of, both counted the rows that are skipped */
		alike = counters->tuples == sim->counters.tuples &&
				(sim->e.shared > 0 || counters->skipped == sim->counters.skipped);
		*counters = sim->counters;
	}
	counters->fault = sim->e.fault;
	counters->fault_page = sim->e.fault_page;
	counters->fault_pointer = sim->e.fault_pointer;
	sim->counted = (sim->counts || sim->again) && sim->trains && sim->e.fault == SIM_FAULT_NONE && alike;
	sim->counters = *counters;
	sim->counts = sim->trains;
	sim->begun = false;
	return alike ? true : OTHER_PAGES;
}
