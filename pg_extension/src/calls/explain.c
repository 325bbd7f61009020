/*
 * dana_explain(): the machine that a training would use and its estimated speed, next to the measured last run. Trains
 * nothing.
 */
#include "postgres.h"

#include <math.h>

#include "storage/bufmgr.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "calls/spread.h"
#include "features/categories.h"
#include "features/classes.h"
#include "features/features.h"
#include "models/rules.h"
#include "request/split.h"
#include "request/training.h"
#include "rows/scan.h"
#include "source/schema.h"
#include "source/stream.h"
#include "worker/session.h"

/* Appends the last run of the rule on the source that the caller may see, or null */
static void
append_last_run(StringInfo to, const char *rule, const char *source)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT jsonb_build_object('id', id, 'started', to_char(started, 'YYYY-MM-DD HH24:MI:SS'), 'machine', machine, "
		" 'epochs', epochs, 'tuples', tuples, 'skipped', skipped, 'pages', pages, 'cycles', cycles, "
		" 'wall_seconds', wall_seconds, 'modelled_seconds', modelled_seconds, 'rule', design -> 'rule', "
		" 'features', design -> 'features', 'labels', design -> 'labels', "
		" 'hyper', (design -> 'metas') || (design -> 'dims'), 'config', design -> 'config') "
		"FROM dana.run WHERE rule = $1 AND source = $2 AND pg_has_role($3, owner, 'USAGE') ORDER BY id DESC LIMIT 1",
		TEXTOID, TEXTOID, OIDOID);
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(rule), CStringGetTextDatum(source), ObjectIdGetDatum(before.user)};

	dana_json_object(to, "last", dana_read(&find, values, NULL) > 0 ? DatumGetJsonbP(dana_value(0, 1)) : NULL);
	dana_become_caller(before);
}

/* Maximum number of pages that are read: each stands for several others of a larger table */
#define SAMPLED_PAGES 1000

/* Number of rows on each page that is read */
typedef struct page_counts
{
	uint32 pages;
	uint32 sampled;
	int	  *rows;
} page_counts;

static bool
count_row(TupleTableSlot *row, void *context)
{
	page_counts	*counts = context;
	/* the inverse of dana_scan()'s choice */
	const uint32 at = (((uint64)ItemPointerGetBlockNumber(&row->tts_tid) + 1) * counts->sampled - 1) / counts->pages;

	if (at < counts->sampled) /* the table may grow meanwhile */
		counts->rows[at]++;
	return true;
}

/* Line pointers of a page: Striders walk over invisible rows, too */
static int
count_pointers(Relation relation, BlockNumber block)
{
	Buffer buffer = ReadBuffer(relation, block);
	int	   pointers;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	pointers = PageGetMaxOffsetNumber(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return pointers;
}

static void
append_integers(StringInfo to, const char *name, const int *values, uint32 count)
{
	dana_json_open(to, name, '[');
	for (uint32 i = 0; i < count; i++)
		dana_json_number(to, NULL, values[i]);
	dana_json_close(to, ']');
}

/*
 * Appends the number of rows that the training would read, and the number on each of a heap's pages, or on a sample of
 * them; null if unknown. The planner's statistics do not suffice: a table that was just loaded has none, and its file
 * ends in pages without a row (RelationAddBlocks(), hio.c) until a VACUUM truncates it.
 */
static void
append_rows(StringInfo to, dana_source *source, const char *filter)
{
	page_counts counts = {.pages = source->pages, .sampled = Min(source->pages, SAMPLED_PAGES)};
	int		   *pointers;
	double		rows = 0;

	if (!source->heap)
	{
		if (source->relation != NULL && source->relation->rd_rel->relpages > 0 && source->relation->rd_rel->reltuples >= 0)
			dana_json_number(to, "rows", rint(source->relation->rd_rel->reltuples));
		else
			dana_json_text(to, "rows", NULL);
		dana_json_text(to, "page_rows", NULL);
		dana_json_text(to, "page_pointers", NULL);
		return;
	}
	counts.rows = palloc0(sizeof(int) * Max(counts.sampled, 1));
	pointers = palloc(sizeof(int) * Max(counts.sampled, 1));
	if (counts.sampled > 0)
		dana_scan(source->relation, source->snapshot, filter, source->pages,
				  source->pages > SAMPLED_PAGES ? SAMPLED_PAGES : 0, 0, count_row, &counts);
	for (uint32 i = 0; i < counts.sampled; i++)
	{
		CHECK_FOR_INTERRUPTS();
		rows += counts.rows[i];
		pointers[i] = count_pointers(source->relation, (uint64)counts.pages * i / counts.sampled);
	}
	dana_json_number(to, "rows", counts.sampled > 0 ? rint(rows * source->pages / counts.sampled) : 0);
	append_integers(to, "page_rows", counts.rows, counts.sampled);
	append_integers(to, "page_pointers", pointers, counts.sampled);
}

/* The worker's answer to a call of dana_explain() */
static Jsonb *
explain_training(FunctionCallInfo fcinfo)
{
	dana_training  training;
	dana_rule	   rule;
	dana_source	  *source;
	char		  *name;
	Jsonb		  *shards;
	StringInfoData request;

	dana_training_from_call(fcinfo, 2, &training);
	shards = training.sync != NULL ? dana_shards_sample(&training) : NULL;
	dana_split_rows(&training, true);
	rule = dana_training_rule(&training); /* test_by needs the rows that were left out */
	source = dana_source_open(&training.rows);
	name = source->name;
	if (shards != NULL)
		source->name = psprintf("a sample of %s", name); /* its labels may all be alike, for example */
	dana_classes_find(&training, source, rule.description, false);
	dana_source_encode(source, &training, rule.description);
	dana_categories_find(&training, source, &rule);
	dana_json_begin(&request);
	dana_json_text(&request, "device", PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3)));
	dana_json_truth(&request, "search", !PG_ARGISNULL(4) && PG_GETARG_BOOL(4));
	append_rows(&request, source, training.rows.filter); /* without the rows of a test */
	source->name = name;
	dana_json_object(&request, "shards", shards);
	append_last_run(&request, training.rule, source->asked.query != NULL ? "" : source->name);
	appendStringInfo(&request, ",\"training\":%s",
					 dana_training_request(&training, rule.text, source, NULL)->data);
	dana_json_close(&request, '}');
	dana_source_close(source);
	if (shards != NULL)
		dana_shards_forget(&training);
	return dana_ask(DANA_MSG_EXPLAIN, &request, DANA_MSG_EXPLAINED);
}

/* dana_explain(rule, source, training, device, search, format) */
DANA_FUNCTION(dana_explain)
{
	char		  *format = PG_ARGISNULL(5) ? "text" : text_to_cstring(PG_GETARG_TEXT_PP(5));
	bool		   json = strcmp(format, "json") == 0;
	ReturnSetInfo *result = dana_results_begin(fcinfo);
	Jsonb		  *explained;
	dana_texts	   lines;

	if (!json && strcmp(format, "text") != 0)
		dana_reject_argument("format", "be 'text' or 'json', not \"%s\"", dana_shown(format));
	explained = explain_training(fcinfo);
	lines = dana_json_texts(explained, "lines");
	if (lines.count < 1)
		dana_protocol_error("explained nothing");
	if (json) /* the rest of the answer, as one */
	{
		explained = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(explained),
													   CStringGetTextDatum("lines")));
		lines.values[0] = JsonbToCStringIndent(NULL, &explained->root, VARSIZE(explained));
		lines.count = 1;
	}
	for (int i = 0; i < lines.count; i++)
		dana_results_add(result, &(Datum){CStringGetTextDatum(lines.values[i])}, NULL);
	return (Datum)0;
}
