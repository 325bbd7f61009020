/*
 * Rows of a query as a stream of frames.
 *
 * The executor's rows go straight into frames, through a receiver: no row is kept, none is copied. The statement runs
 * read-only, never in parallel, and under the snapshot of the statement that called us, so that every epoch sees the
 * same rows in the same order.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "optimizer/optimizer.h"
#include "tcop/dest.h"
#include "utils/plancache.h"

#include "dana.h"
#include "bounds.h"
#include "rows.h"
#include "values.h"

struct dana_rows
{
	SPIPlanPtr	plan;
	const char *name;
	bool		in_order;
};

static CachedPlanSource *
source_of(dana_rows *rows)
{
	return linitial(SPI_plan_get_plan_sources(rows->plan));
}

static Query *
query_of(dana_rows *rows)
{
	return linitial_node(Query, source_of(rows)->query_list);
}

dana_rows *
dana_rows_plan(const char *text, const char *name, bool in_order)
{
	dana_rows	 *rows = palloc0(sizeof *rows);
	MemoryContext caller = CurrentMemoryContext;

	rows->name = name;
	rows->in_order = in_order;
	rows->plan = SPI_prepare_cursor(text, 0, NULL, CURSOR_OPT_NO_SCROLL);
	MemoryContextSwitchTo(caller); /* SPI's calls end in a context that ends with the connection */
	if (rows->plan == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot train on %s: %s", name, SPI_result_code_string(SPI_result))));
	if (list_length(SPI_plan_get_plan_sources(rows->plan)) != 1 || !SPI_is_cursor_plan(rows->plan) ||
		source_of(rows)->commandTag != CMDTAG_SELECT)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("cannot train on %s: it is not one SELECT", name),
						errhint("Give one SELECT, VALUES or TABLE.")));
	if (query_of(rows)->hasModifyingCTE || query_of(rows)->rowMarks != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot train on %s: it changes or locks rows", name),
						errhint("Give a SELECT that only reads.")));
	return rows;
}

TupleDesc
dana_rows_descriptor(dana_rows *rows)
{
	return source_of(rows)->resultDesc;
}

/* A sample without REPEATABLE is another one each time */
static bool
samples_at_random(Query *query)
{
	ListCell *cell;

	foreach (cell, query->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->tablesample != NULL && entry->tablesample->repeatable == NULL)
			return true;
		if (entry->rtekind == RTE_SUBQUERY && samples_at_random(entry->subquery))
			return true;
	}
	foreach (cell, query->cteList)
		if (samples_at_random(castNode(Query, lfirst_node(CommonTableExpr, cell)->ctequery)))
			return true;
	return false;
}

bool
dana_rows_volatile(dana_rows *rows)
{
	return contain_volatile_functions((Node *)query_of(rows)) || samples_at_random(query_of(rows));
}

/* Runs the statement into a receiver; 0 rows: all of them */
static void
run(dana_rows *rows, DestReceiver *receiver, uint64 limit)
{
	SPIExecuteOptions options = {.read_only = true, .tcount = limit, .dest = receiver};
	MemoryContext	  caller = CurrentMemoryContext;
	int				  level = NewGUCNestLevel();
	int				  code;

	/* a scan that joins another's would begin in the middle of the table, at another place each time */
	(void)set_config_option("synchronize_seqscans", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (rows->in_order)
	{
		(void)set_config_option("enable_indexscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		(void)set_config_option("enable_indexonlyscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		(void)set_config_option("enable_bitmapscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	}
	code = SPI_execute_plan_extended(rows->plan, &options);
	MemoryContextSwitchTo(caller);
	if (code < 0)
		elog(ERROR, "could not run the query of %s: %s", rows->name, SPI_result_code_string(code));
	AtEOXact_GUC(true, level);
}

static void
start_nothing(DestReceiver *self, int operation, TupleDesc type)
{
}

static void
end_nothing(DestReceiver *self)
{
}

static DestReceiver
receiver_with(bool (*receive)(TupleTableSlot *slot, DestReceiver *self))
{
	return (DestReceiver){
		.receiveSlot = receive, .rStartup = start_nothing, .rShutdown = end_nothing, .rDestroy = end_nothing, .mydest = DestNone};
}

typedef struct probe
{
	DestReceiver receiver;
	int			*lengths;
	int			 unknown;
} probe;

static bool
probe_row(TupleTableSlot *row, DestReceiver *self)
{
	probe *found = (probe *)self;

	dana_bounds_check();
	slot_getallattrs(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		int length;

		if (found->lengths[i] != -2 || row->tts_isnull[i])
			continue;
		length = dana_array_length(TupleDescAttr(row->tts_tupleDescriptor, i)->atttypid, row->tts_values[i]);
		if (length >= 0)
		{
			found->lengths[i] = length;
			found->unknown--;
		}
	}
	return found->unknown > 0;
}

int *
dana_rows_array_lengths(dana_rows *rows, uint64 limit)
{
	TupleDesc descriptor = dana_rows_descriptor(rows);
	probe	  found = {receiver_with(probe_row), palloc(sizeof(int) * Max(descriptor->natts, 1)), 0};

	for (int i = 0; i < descriptor->natts; i++)
	{
		bool array = dana_is_array(TupleDescAttr(descriptor, i)->atttypid);

		found.lengths[i] = array ? -2 : -1;
		found.unknown += array;
	}
	if (found.unknown > 0)
		run(rows, &found.receiver, limit);
	for (int i = 0; i < descriptor->natts; i++)
		found.lengths[i] = Max(found.lengths[i], -1);
	return found.lengths;
}

typedef struct taking
{
	DestReceiver receiver;
	void (*take)(TupleTableSlot *row, void *context);
	void *context;
} taking;

static bool
take_row(TupleTableSlot *row, DestReceiver *self)
{
	taking *to = (taking *)self;

	dana_bounds_check();
	to->take(row, to->context);
	return true;
}

void
dana_rows_each(dana_rows *rows, void (*take)(TupleTableSlot *row, void *context), void *context)
{
	taking to = {receiver_with(take_row), take, context};

	run(rows, &to.receiver, 0);
}

static void
add_to_frames(TupleTableSlot *row, void *frames)
{
	dana_frames_add(frames, row);
}

void
dana_rows_stream(dana_rows *rows, dana_frames *frames)
{
	dana_rows_each(rows, add_to_frames, frames);
}
