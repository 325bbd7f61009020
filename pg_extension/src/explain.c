/*
 * dana_explain(): what a training would run on and how fast, beside what the last one took. Trains nothing.
 */
#include "postgres.h"

#include <math.h>

#include "dana.h"
#include "results.h"
#include "rules.h"
#include "session.h"
#include "source.h"
#include "training.h"

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

/* dana_explain(rule, source, training, device, search, format) */
enum
{
	TRAINING = 2,
	DEVICE,
	SEARCH,
	FORMAT
};

/* What the worker says to it */
static Jsonb *
explain_training(FunctionCallInfo fcinfo)
{
	dana_training  training;
	dana_source	  *source;
	StringInfoData request;

	dana_training_from_call(fcinfo, TRAINING, &training);
	source = dana_source_open(&training.rows);
	dana_json_begin(&request);
	dana_json_text(&request, "device", PG_ARGISNULL(DEVICE) ? "xcvu9p" : text_to_cstring(PG_GETARG_TEXT_PP(DEVICE)));
	dana_json_truth(&request, "search", !PG_ARGISNULL(SEARCH) && PG_GETARG_BOOL(SEARCH));
	append_rows(&request, source);
	append_last_run(&request, training.rule, source->query != NULL ? "" : source->name);
	appendStringInfo(&request, ",\"training\":%s", dana_training_request(&training, dana_rule_text(training.rule), source)->data);
	dana_json_close(&request, '}');
	dana_source_close(source);
	return dana_ask(DANA_MSG_EXPLAIN, &request, DANA_MSG_EXPLAINED);
}

DANA_FUNCTION(dana_explain)
{
	char		  *format = PG_ARGISNULL(FORMAT) ? "text" : text_to_cstring(PG_GETARG_TEXT_PP(FORMAT));
	bool		   json = strcmp(format, "json") == 0;
	ReturnSetInfo *result = dana_results_begin(fcinfo);
	Jsonb		  *explained;
	char		 **lines;
	int			   count;

	if (!json && strcmp(format, "text") != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"format\" must be 'text' or 'json', not \"%s\"", format)));
	explained = explain_training(fcinfo);
	count = dana_json_strings(explained, "lines", &lines);
	if (json) /* the rest of the answer, as one */
	{
		explained = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(explained), CStringGetTextDatum("lines")));
		lines[0] = JsonbToCStringIndent(NULL, &explained->root, VARSIZE(explained));
		count = 1;
	}
	for (int i = 0; i < count; i++)
		dana_results_add(result, &(Datum){CStringGetTextDatum(lines[i])}, NULL);
	return (Datum)0;
}
