/*
 * Tables in the record memory: what a round's tuples name is fetched before it and stored behind it (docs/machine.md,
 * "Records").
 *
 * In: watched columns' values, the outbox. Out: rows of tuple memory, records, the fault INDEX. When this happens is
 * clock.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "number.h"

#define LEAST_TUPLE 28 /* bytes of a page that a tuple takes at least */

/* Takes the Bundle's tables over; records are zero */
bool
sim_records_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	const int32_t lanes = sim->lanes;

	for (int32_t t = 0; t < bundle->n_tables; t++)
	{
		struct sim_records *table = &sim->tables[t + 1];

		*table = (struct sim_records){.records = bundle->tables[t].records, .floats = bundle->tables[t].rows * lanes};
		table->first = calloc((size_t)table->records, sizeof(float) * (size_t)table->floats);
		if (table->first == NULL)
			return false;
	}
	if (bundle->n_tables == 0)
		return true;
	for (int32_t k = 0; k < bundle->n_columns; k++)
		if (bundle->columns[k].table != 0)
		{
			const int32_t rows = bundle->tables[bundle->columns[k].table - 1].rows;

			sim->named_columns++;
			sim->fetched_rows += rows;
			sim->stored_rows += bundle->columns[k].writes ? rows : 0;
		}
	sim->named = calloc(((size_t)sim->round_tuples + 1) * (size_t)sim->named_columns, sizeof *sim->named);
	sim->outbox = calloc((size_t)sim->group * (size_t)sim->tuple_rows * (size_t)lanes, sizeof *sim->outbox);
	return sim->named != NULL && sim->outbox != NULL;
}

void
sim_records_free(struct sim *sim)
{
	for (int32_t t = 0; t <= SIM_MAX_TABLES; t++)
		free(sim->tables[t].first);
	free(sim->named);
	free(sim->outbox);
	free(sim->journal);
}

/* The tuple that comes next names a record; false: there is no such record */
bool
sim_record_named(struct sim *sim, const struct sim_column *column, const uint8_t *from)
{
	const float n = dn_flush(sim_number(column->type, from));
	const int32_t k = sim->e.named++;

	if (!(n >= 0.0f && n < (float)sim->tables[column->table].records && n == (float)(int32_t)n))
		return sim_engine_fault(sim, SIM_FAULT_INDEX, (uint32_t)k);
	if (k < sim->named_columns) /* a tuple comes behind each of its watched columns once */
		sim->named[sim->round_tuples * sim->named_columns + k] = (struct sim_named){.column = column, .record = (int32_t)n};
	return true;
}

/* That tuple begins */
void
sim_records_begin(struct sim *sim)
{
	const int32_t n = sim->named_columns;

	memcpy(sim->named + sim->e.phase.in_round * n, sim->named + sim->round_tuples * n, sizeof *sim->named * (size_t)n);
	sim->e.named = 0;
}

/* A record that is about to be stored, for sim_journal_undo(); false: there is no room for it */
static bool
note(struct sim *sim, float *record, int32_t floats)
{
	struct sim_journal *journal = sim->journal;

	if (journal->n == journal->most)
		return false;
	journal->entries[journal->n] = (struct sim_stored){.record = record, .floats = floats};
	memcpy(journal->contents + journal->n++ * (ptrdiff_t)journal->spacing, record, sizeof *record * (size_t)floats);
	return true;
}

/* Between the records of a round of m tuples and rows of a half, or of the outbox */
static bool
move(struct sim *sim, int32_t m, float *rows, bool stores)
{
	const struct sim_named *one = sim->named;

	for (int32_t j = 0; j < m; j++, rows += (ptrdiff_t)sim->tuple_rows * sim->lanes)
		for (int32_t k = 0; k < sim->named_columns; k++, one++)
		{
			const struct sim_column *column = one->column;
			const struct sim_records *table;
			float *record, *at;

			if (column == NULL || (stores && !column->writes))
				continue;
			table = &sim->tables[column->table];
			record = table->first + one->record * (ptrdiff_t)table->floats;
			at = rows + column->row * (ptrdiff_t)sim->lanes;
			if (stores && sim->journal != NULL && !note(sim, record, table->floats))
				return false;
			memcpy(stores ? record : at, stores ? at : record, sizeof *at * (size_t)table->floats);
		}
	return true;
}

void
sim_records_fetch(struct sim *sim, int32_t half, int32_t m)
{
	(void)move(sim, m, sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->lanes, false);
}

/* False: a record could not be noted */
bool
sim_records_store(struct sim *sim, int32_t m)
{
	return move(sim, m, sim->outbox, true);
}

/* Room to note what some pages' tuples store; false: no memory */
bool
sim_journal_open(struct sim *sim, size_t pages)
{
	const size_t most = pages * (size_t)(sim->machine.page_size / LEAST_TUPLE) * (size_t)sim->named_columns;
	int32_t spacing = 0;

	for (int32_t t = 1; t <= SIM_MAX_TABLES; t++)
		spacing = sim->tables[t].floats > spacing ? sim->tables[t].floats : spacing;
	sim->journal = calloc(1, sizeof *sim->journal + most * (sizeof(struct sim_stored) + sizeof(float) * (size_t)spacing));
	if (sim->journal == NULL)
		return false;
	sim->journal->most = most;
	sim->journal->spacing = spacing;
	sim->journal->entries = (struct sim_stored *)(sim->journal + 1);
	sim->journal->contents = (float *)(sim->journal->entries + most);
	return true;
}

/* Has records be as they were before the journal was opened, and closes it; without a journal nothing */
void
sim_journal_undo(struct sim *sim)
{
	struct sim_journal *journal = sim->journal;

	for (size_t k = journal != NULL ? journal->n : 0; k-- > 0;)
		memcpy(journal->entries[k].record, journal->contents + k * (size_t)journal->spacing,
			   sizeof(float) * (size_t)journal->entries[k].floats);
	free(journal);
	sim->journal = NULL;
}
