/*
 * dana_explain(): what a training would run on and how fast, beside what the last one took. Trains nothing.
 */
#include "postgres.h"

#include <math.h>

#include "dana.h"
#include "training.h"
#include "worker.h"

/* Appends the last run of the rule on the source that the caller may see, or null */
static void
append_last_run(StringInfo to, const char *rule, const char *source)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT jsonb_build_object('id', id, 'started', to_char(started, 'YYYY-MM-DD HH24:MI:SS'), 'backend', backend, "
		" 'epochs', epochs, 'tuples', tuples, 'pages', pages, 'cycles', cycles, 'wall_seconds', wall_seconds, "
		" 'modelled_seconds', modelled_seconds, 'design', design) "
		"FROM dana.run WHERE rule = $1 AND source = $2 AND pg_has_role($3, owner, 'USAGE') ORDER BY id DESC LIMIT 1",
		TEXTOID, TEXTOID, OIDOID);
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(rule), CStringGetTextDatum(source), ObjectIdGetDatum(before.user)};

	dana_json_object(to, "last", dana_read(&find, values, NULL) > 0 ? DatumGetJsonbP(dana_value(0, 1)) : NULL);
	dana_become_caller(before);
}

/* Appends the rows that the table's statistics know of, or null */
static void
append_rows(StringInfo to, const dana_source *source)
{
	if (source->relation != NULL && source->relation->rd_rel->relpages > 0 && source->relation->rd_rel->reltuples >= 0)
	{
		Form_pg_class class = source->relation->rd_rel;
		double		  pages = source->pages > 0 ? source->pages : class->relpages;

		/* as the planner does: the density of the last ANALYZE, the pages of today */
		dana_json_number(to, "rows", rint(class->reltuples / class->relpages * pages));
	}
	else
		dana_json_text(to, "rows", NULL);
}

/* What the worker says to a call of dana_explain() */
static Jsonb *
explain_training(FunctionCallInfo fcinfo)
{
	dana_training  training;
	dana_rule	   rule;
	dana_source	  *source;
	StringInfoData request;

	dana_training_from_call(fcinfo, 2, &training);
	rule = dana_training_rule(&training);
	source = dana_source_open(&training.rows);
	dana_classes_find(&training, source, rule.description, false);
	dana_source_encode(source, &training, rule.description);
	dana_categories_find(&training, source, &rule);
	dana_json_begin(&request);
	dana_json_text(&request, "device", PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3)));
	dana_json_truth(&request, "search", !PG_ARGISNULL(4) && PG_GETARG_BOOL(4));
	append_rows(&request, source);
	append_last_run(&request, training.rule, source->asked.query != NULL ? "" : source->name);
	appendStringInfo(&request, ",\"training\":%s",
					 dana_training_request(&training, rule.text, source, NULL)->data);
	dana_json_close(&request, '}');
	dana_source_close(source);
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
		dana_refuse_argument("format", "be 'text' or 'json', not \"%s\"", format);
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
