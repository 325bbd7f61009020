/*
 * Tables in the record memory: what a round's tuples name is fetched before it and stored behind it (docs/machine.md,
 * "Records").
 *
 * In: watched columns' values, the outbox. Out: rows of tuple memory, records, the fault INDEX. When this happens is
 * clock.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "number.h"

#define LEAST_TUPLE 28 /* bytes of a page that a tuple takes at least */

/* Takes the Bundle's tables over; `held`: where their symbols lie */
bool
sim_records_prepare(struct sim *sim, const struct sim_bundle *bundle, float *const *held)
{
	const int32_t lanes = sim->lanes;
	int32_t most = 0;

	for (int32_t t = 0; t < bundle->n_tables; t++)
	{
		struct sim_records *table = &sim->tables[t + 1];

		*table = (struct sim_records){.records = bundle->tables[t].records, .floats = bundle->tables[t].rows * lanes};
		most = table->floats > most ? table->floats : most;
	}
	if (bundle->n_tables == 0)
		return true;
	sim->record = calloc((size_t)most, sizeof *sim->record);
	sim->held = calloc((size_t)bundle->n_held + 1, sizeof *sim->held);
	if (sim->record == NULL || sim->held == NULL)
		return false;
	for (int32_t k = 0; k < bundle->n_held; k++)
		sim->held[k] = (struct sim_values){.is = bundle->held[k], .first = held[k]};
	sim->n_held = bundle->n_held;
	for (int32_t k = 0; k < bundle->n_columns; k++)
		if (bundle->columns[k].table != 0)
		{
			const int32_t rows = bundle->tables[bundle->columns[k].table - 1].rows;

			sim->named_columns++;
			sim->fetched_rows += rows;
			sim->stored_rows += bundle->columns[k].writes ? rows : 0;
		}
	sim->named = calloc(((size_t)sim->round_tuples + 1) * (size_t)sim->named_columns, sizeof *sim->named);
	sim->outbox = calloc((size_t)sim->group * (size_t)sim->tuple_rows * (size_t)sim->unit, sizeof *sim->outbox);
	return sim->named != NULL && sim->outbox != NULL;
}

void
sim_records_free(struct sim *sim)
{
	free(sim->record);
	free(sim->held);
	free(sim->named);
	free(sim->outbox);
	sim_journal_free(sim);
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

/* Between a record's floats and its rows of lanes, `step` floats apart; the other lanes are zero and hold anything */
static void
copy(const struct sim *sim, int32_t table, int32_t record, float *rows, int32_t step, bool stores)
{
	const int32_t lanes = sim->lanes;

	for (int32_t k = 0; !stores && k < sim->tables[table].floats / lanes; k++)
		memset(rows + k * (ptrdiff_t)step, 0, sizeof *rows * (size_t)lanes);
	for (const struct sim_values *one = sim->held; one < sim->held + sim->n_held; one++)
	{
		float *own = one->first + record * (ptrdiff_t)one->is.vectors * one->is.stride;
		float *row = rows + one->is.row * (ptrdiff_t)step;
		const int32_t together = one->is.broadcast ? 1 : lanes; /* elements of a row */

		for (int32_t v = 0; one->is.table == table && v < one->is.vectors; v++, own += one->is.stride)
			for (int32_t e = 0; e < one->is.last; e += together, row += step)
			{
				const int32_t left = one->is.last - e, n = left < together ? left : together;

				memcpy(stores ? own + e : row, stores ? row : own + e, sizeof *own * (size_t)n);
				for (int32_t lane = 1; !stores && one->is.broadcast && lane < lanes; lane++)
					row[lane] = row[0];
			}
	}
}

/* Words [count][lanes] from or to rows from `row` on of all records, as many of each; false: there are no such rows */
bool
sim_records_rows(struct sim *sim, int32_t table, int64_t row, int64_t count, uint32_t *words, bool write)
{
	const struct sim_records *found = &sim->tables[table < 0 || table > SIM_MAX_TABLES ? 0 : table];
	const int64_t rows = found->records > 0 ? count / found->records : 0;

	if (found->records == 0 || row < 0 || count < 0 || count % found->records != 0 ||
		(row + rows) * sim->lanes > found->floats)
		return false;
	for (int32_t n = 0; n < found->records; n++, words += rows * sim->lanes)
	{
		float *own = sim->record + row * sim->lanes;
		const size_t some = (size_t)(rows * sim->lanes);

		copy(sim, table, n, sim->record, sim->lanes, false);
		if (write)
		{
			memcpy(own, words, sizeof *own * some);
			for (size_t k = 0; k < some; k++)
				own[k] = dn_flush(own[k]);
			copy(sim, table, n, sim->record, sim->lanes, true);
		}
		else
			memcpy(words, own, sizeof *own * some);
	}
	return true;
}

/* A record that is about to be stored; false: there is no room for it */
static bool
note(struct sim *sim, int32_t table, int32_t record)
{
	struct sim_journal *journal = sim->journal;

	if (journal->n == journal->most)
		return false;
	journal->entries[journal->n] = (struct sim_stored){.table = table, .record = record};
	copy(sim, table, record, journal->contents + journal->n++ * (size_t)journal->spacing, sim->lanes, false);
	return true;
}

/* Between the records of a round of m tuples and a half, or the outboxes: in a row of lanes of the tuple's thread */
static bool
move(struct sim *sim, int32_t m, float *rows, bool stores)
{
	const struct sim_named *one = sim->named;

	for (int32_t j = 0; j < m; j++)
		for (int32_t k = 0; k < sim->named_columns; k++, one++)
		{
			const struct sim_column *column = one->column;
			float *at;

			if (column == NULL || (stores && !column->writes))
				continue;
			at = rows + (j % sim->group * sim->tuple_rows + column->row) * (ptrdiff_t)sim->unit + j / sim->group * sim->lanes;
			if (stores && sim->journal != NULL && !note(sim, column->table, one->record))
				return false;
			copy(sim, column->table, one->record, at, sim->unit, stores);
		}
	return true;
}

void
sim_records_fetch(struct sim *sim, int32_t half, int32_t m)
{
	(void)move(sim, m, sim->tuples + (ptrdiff_t)half * sim->group * sim->tuple_rows * sim->unit, false);
}

/* False: a record could not be noted */
bool
sim_records_store(struct sim *sim, int32_t m)
{
	return move(sim, m, sim->outbox, true);
}

/* A checksum over all tables that depends on the place of each word */
static uint64_t
sum_of(const struct sim *sim)
{
	uint64_t sum = 0;

	for (const struct sim_values *one = sim->held; one < sim->held + sim->n_held; one++)
	{
		const uint32_t *words = (const uint32_t *)one->first;
		const size_t vectors = (size_t)sim->tables[one->is.table].records * (size_t)one->is.vectors;

		for (size_t v = 0; v < vectors; v++, words += one->is.stride) /* behind `last` there may be anything */
			for (int32_t e = 0; e < one->is.last; e++)
				sum += (uint64_t)words[e] * (2 * (v * (size_t)one->is.last + (size_t)e) + 1);
	}
	return sum;
}

/* Room to note what some pages' tuples store; false: no memory */
bool
sim_journal_open(struct sim *sim, size_t pages)
{
	const size_t most = pages * (size_t)(sim->machine.page_size / LEAST_TUPLE) * (size_t)sim->named_columns;
	struct sim_journal *journal = sim->journal = calloc(1, sizeof *journal);

	if (journal == NULL)
		return false;
	for (int32_t t = 1; t <= SIM_MAX_TABLES; t++)
		journal->spacing = sim->tables[t].floats > journal->spacing ? sim->tables[t].floats : journal->spacing;
	journal->most = most;
	journal->entries = calloc(most, sizeof *journal->entries);
	journal->contents = calloc(2 * most * (size_t)journal->spacing, sizeof *journal->contents);
	journal->others = journal->contents + most * (size_t)journal->spacing;
	journal->sum = sum_of(sim);
	if (journal->entries != NULL && journal->contents != NULL)
		return true;
	sim_journal_free(sim);
	return false;
}

/* Records are as they were before the first of them was stored */
static void
undo(struct sim *sim)
{
	const struct sim_journal *journal = sim->journal;

	for (size_t k = journal != NULL ? journal->n : 0; k-- > 0;)
		copy(sim, journal->entries[k].table, journal->entries[k].record,
			 journal->contents + k * (size_t)journal->spacing, sim->lanes, true);
}

/* Notes what the engine has stored; records are as they were before */
void
sim_journal_swap(struct sim *sim)
{
	const struct sim_journal *journal = sim->journal;

	for (size_t k = 0; k < (journal != NULL ? journal->n : 0); k++)
		copy(sim, journal->entries[k].table, journal->entries[k].record,
			 journal->others + k * (size_t)journal->spacing, sim->lanes, false);
	undo(sim);
}

/* Whether records hold what the engine stored; they are as before then, unless code has changed others: `spoilt` */
bool
sim_journal_settle(struct sim *sim)
{
	const struct sim_journal *journal = sim->journal;
	bool same = true;

	for (size_t k = 0; k < (journal != NULL ? journal->n : 0); k++)
	{
		const struct sim_stored *one = &journal->entries[k];
		const float *left = journal->others + k * (size_t)journal->spacing;

		copy(sim, one->table, one->record, sim->record, sim->lanes, false);
		for (int32_t e = 0; e < sim->tables[one->table].floats; e++)
			same &= dn_bits(dn_canonical(dn_flush(left[e]))) == dn_bits(dn_canonical(sim->record[e]));
	}
	undo(sim);
	sim->spoilt = journal != NULL && journal->sum != sum_of(sim);
	return same;
}

/* Ends the journal, if there is one */
void
sim_journal_free(struct sim *sim)
{
	if (sim->journal != NULL)
	{
		free(sim->journal->entries);
		free(sim->journal->contents);
	}
	free(sim->journal);
	sim->journal = NULL;
}
