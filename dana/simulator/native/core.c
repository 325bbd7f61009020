/*
 * The library's functions, called through ctypes without the GIL (dana/simulator/native.py declares them).
 *
 * A simulator is used by one thread at a time. Every function that computes sets the processor's flushing of subnormals
 * and restores what it was.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "numerics.h"

/* What sim_consume() returns besides 0 */
#define STOPPED	 1 /* a fault: sim_end() tells which */
#define UNLOADED 2

#define MOST_PROVED 16 /* pages on which code is compared with the engine */

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
	free(sim->care);
	free(sim->index);
	free(sim->ops);
	free(sim->masks);
	free(sim->rows);
	free(sim->pending);
	free(sim->scratch);
	free(sim->tuples);
	free(sim->batched);
	free(sim->places);
	free(sim->unproved);
	free(sim->strider);
	free(sim->columns);
	*sim = (struct sim){.machine = sim->machine, .kernels = sim->kernels, .one = 1.0f, .trains = true,
						.lanes = sim->lanes, .unit = sim->unit, .plain = sim->plain};
}

/* A simulator of a machine; `kernels`: see sim_choose_kernels(); NULL: no memory, or no such kernels */
SIM_EXPORT struct sim *
sim_new(const struct sim_machine *machine, const char *kernels)
{
	const struct sim_kernels *chosen = sim_choose_kernels(kernels);
	struct sim *sim = chosen != NULL ? calloc(1, sizeof *sim) : NULL;

	if (sim == NULL)
		return NULL;
	sim->machine = *machine;
	sim->kernels = chosen;
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
		memset(zeroed, 0, size);
	return zeroed;
}

/* The image to every thread's scratchpad */
static void
place_image(struct sim *sim, const struct sim_bundle *bundle)
{
	for (int32_t row = 0; row < bundle->image_rows; row++)
		for (int32_t t = 0; t < sim->machine.threads; t++)
			memcpy(sim->scratch + (size_t)row * (size_t)sim->unit + t * sim->lanes, bundle->image + (size_t)row * (size_t)sim->lanes,
				   sizeof(float) * (size_t)sim->lanes);
}

/* Loads a Bundle; nothing is loaded where *problem says why not */
SIM_EXPORT void
sim_load(struct sim *sim, const struct sim_bundle *bundle, struct sim_problem *problem)
{
	memset(problem, 0, sizeof *problem);
	unload(sim);
	sim->group = bundle->group;
	sim->tuple_rows = bundle->tuple_rows;
	sim->round_tuples = sim->machine.threads * bundle->group;
	sim->tuple_stride = (ptrdiff_t)bundle->tuple_rows * sim->unit;
	sim->levels = bundle->levels;
	sim->batch = bundle->batch;
	if (!sim_verify(sim, bundle, problem))
	{
		unload(sim);
		return;
	}
	sim->scratch = memory((size_t)sim->machine.scratch_depth, (size_t)sim->unit);
	sim->tuples = memory(2 * (size_t)bundle->group * (size_t)bundle->tuple_rows, (size_t)sim->unit);
	if (sim->scratch == NULL || sim->tuples == NULL || !sim_engine_prepare(sim, bundle) || !sim_pipeline_prepare(sim) ||
		!sim_records_prepare(sim, bundle) || !sim_columns_prepare(sim, bundle) || !sim_strider_prepare(sim, bundle) || !sim_walk_prepare(sim) ||
		!sim_clock_prepare(sim))
	{
		problem->kind = SIM_NO_MEMORY;
		unload(sim);
		return;
	}
	place_image(sim, bundle);
	sim_choose_road(sim, false);
	sim->loaded = true;
}

/* Has code run epochs in the place of the loaded program's engine; false: no memory, or nothing is loaded */
SIM_EXPORT int32_t
sim_attach(struct sim *sim, const struct sim_compiled *compiled)
{
	const int32_t row = sim->tuple_rows * sim->lanes;

	if (!sim->loaded)
		return false;
	sim->most = BATCHED / (int32_t)sizeof(float) / row / SIM_BLOCK * SIM_BLOCK;
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
	sim->unproved = memory(2 * (size_t)sim->machine.scratch_depth, (size_t)sim->unit);
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
	sim->differs = false;
	return true;
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

/* Address of the function over arrays, for the code */
SIM_EXPORT void *
sim_special_address(void)
{
	return (void *)sim_choose_kernels(NULL)->special;
}

/* Whether each Strider instruction is interpreted by itself; for tests */
SIM_EXPORT void
sim_set_plain(struct sim *sim, int32_t plain)
{
	sim->plain = plain;
}

/* Rows of pages that were walked since the Bundle was loaded; for tests */
SIM_EXPORT uint64_t
sim_walked_rows(const struct sim *sim)
{
	return sim->walk != NULL ? sim->walk->rows : 0;
}

/* What the host reads and writes: rows of thread 0 in the scratchpad, or the same rows of each record of a table */
struct place
{
	float *first;
	int64_t records, rows; /* rows of each */
	ptrdiff_t record, row; /* floats from one to the next */
};

static struct place
place_of(const struct sim *sim, int32_t table, int64_t row, int64_t count)
{
	struct place place = {.records = 1, .rows = count, .row = sim->unit};

	if (table != 0)
	{
		const struct sim_records *found = &sim->tables[table < 0 || table > SIM_MAX_TABLES ? 0 : table];

		place.row = sim->lanes;
		place.record = found->floats;
		place.records = found->records;
		place.rows = found->records > 0 ? count / found->records : 0;
		if (found->records > 0 && count % found->records == 0)
			place.first = sim_records_at(sim, table, row, place.rows);
	}
	else if (sim->loaded && row >= 0 && count >= 0 && row + count <= sim->machine.scratch_depth)
		place.first = sim->scratch + row * sim->unit;
	return place;
}

/* Rows <- words [count][lanes], of table 0 in every thread's scratchpad; false: there are no such rows */
SIM_EXPORT int32_t
sim_write_rows(struct sim *sim, int32_t table, int64_t row, int64_t count, const uint32_t *words)
{
	const struct place to = place_of(sim, table, row, count);

	if (to.first == NULL)
		return false;
	for (int64_t n = 0; n < to.records; n++)
		for (int64_t k = 0; k < to.rows; k++, words += sim->lanes)
			for (ptrdiff_t lane = 0; lane < to.row; lane += sim->lanes)
				memcpy(to.first + n * to.record + k * to.row + lane, words, sizeof(float) * (size_t)sim->lanes);
	return true;
}

/* Words [count][lanes] <- rows, NaNs canonical */
SIM_EXPORT int32_t
sim_read_rows(const struct sim *sim, int32_t table, int64_t row, int64_t count, uint32_t *words)
{
	const struct place from = place_of(sim, table, row, count);

	if (from.first == NULL)
		return false;
	for (int64_t n = 0; n < from.records; n++)
		for (int64_t k = 0; k < from.rows; k++)
			for (int32_t lane = 0; lane < sim->lanes; lane++, words++)
			{
				memcpy(words, from.first + n * from.record + k * from.row + lane, sizeof *words);
				if ((*words & INT32_MAX) > DN_EXPONENT)
					*words = DN_QUIET_NAN;
			}
	return true;
}

/* Forgets an epoch that was not ended; the next page is the first of a new one, which trains, is looked at, or both */
SIM_EXPORT void
sim_begin(struct sim *sim, const struct sim_observer *observer, int32_t trains)
{
	sim->begun = false;
	memset(&sim->observer, 0, sizeof sim->observer);
	if (observer != NULL)
		sim->observer = *observer;
	sim->trains = trains;
	sim_choose_road(sim, sim->trains && sim->compiled.state != NULL);
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
	/* tuples lie downwards, and the processor foresees what lies upwards; there may be no such page */
	sim->ahead = 2 * (ptrdiff_t)page_size;
	sim->until = pages + n_pages * page_size;
	mode = dn_enter();
	if (sim->fast && sim->unproved != NULL && !sim->begun)
	{
		for (size_t k = 0; k < n_pages && sim->unproved != NULL && sim->compiled.state != NULL; k += MOST_PROVED)
			sim_compiled_prove(sim, pages + k * page_size, n_pages - k < MOST_PROVED ? n_pages - k : MOST_PROVED);
		if (sim->unproved != NULL)
			sim_choose_road(sim, false); /* no row to compare code on, or a fault: the next epoch is asked again */
	}
	if (!sim->begun)
		sim_epoch_begin(sim);
	for (size_t k = 0; k < n_pages && sim->e.fault == SIM_FAULT_NONE; k++)
		(void)sim_page(sim, pages + k * page_size);
	if (sim->fast)
		sim_compiled_keep(sim, pages);
	dn_leave(mode);
	return sim->e.fault == SIM_FAULT_NONE ? 0 : STOPPED;
}

/* Ends the epoch after its last page; false: nothing is loaded */
SIM_EXPORT int32_t
sim_end(struct sim *sim, struct sim_counters *counters)
{
	const struct sim_clock *c = &sim->clock;
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
	if (sim->trains)
	{
		counters->engine_busy = c->busy;
		counters->merging = c->merging;
		counters->batches = c->batches;
		counters->waiting_for_engine = c->waited;
		if (c->pages > 0)
			counters->waiting_for_pages = (uint64_t)c->end_at - c->pages - c->beats - c->waited;
	}
	counters->fault = sim->e.fault;
	counters->fault_page = sim->e.fault_page;
	counters->fault_pointer = sim->e.fault_pointer;
	sim->begun = false;
	return true;
}
