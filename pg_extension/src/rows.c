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

/* A receiver of rows; the first member is what the executor knows of it */
typedef struct rows_taking
{
	DestReceiver receiver;
	bool (*take)(TupleTableSlot *row, void *context);
	void *context;
} rows_taking;

static bool
rows_take_one(TupleTableSlot *row, DestReceiver *self)
{
	rows_taking *to = (rows_taking *)self;

	dana_bounds_check();
	return to->take(row, to->context);
}

void
dana_rows_each(dana_rows *rows, uint64 limit, bool (*take)(TupleTableSlot *row, void *context), void *context)
{
	static const char *const other_orders[] = {"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"};
	rows_taking		  to = {*None_Receiver, take, context}; /* it does nothing at the beginning and the end */
	SPIExecuteOptions options = {.read_only = true, .tcount = limit, .dest = &to.receiver};
	MemoryContext	  caller = CurrentMemoryContext;
	int				  level = NewGUCNestLevel();
	int				  code;

	to.receiver.receiveSlot = rows_take_one;
	/* a scan that joins another's would begin in the middle of the table, at another place each time */
	dana_set_for_now("synchronize_seqscans", "off");
	for (int i = 0; i < lengthof(other_orders) && rows->in_order; i++)
		dana_set_for_now(other_orders[i], "off");
	code = SPI_execute_plan_extended(rows->plan, &options);
	MemoryContextSwitchTo(caller);
	if (code < 0)
		elog(ERROR, "could not run the query of %s: %s", rows->name, SPI_result_code_string(code));
	AtEOXact_GUC(true, level);
}

static bool
rows_add_to_frames(TupleTableSlot *row, void *frames)
{
	dana_frames_add(frames, row);
	return true;
}

void
dana_rows_stream(dana_rows *rows, dana_frames *frames)
{
	dana_rows_each(rows, 0, rows_add_to_frames, frames);
}
