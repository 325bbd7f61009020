/*
 * dana_explain(): what a training would run on and how fast, beside what the last one took. Trains nothing.
 */
#include "postgres.h"

#include <math.h>

#include "dana.h"
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
	MemoryContext caller = CurrentMemoryContext;
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(rule), CStringGetTextDatum(source), ObjectIdGetDatum(before.user)};
	Jsonb		 *run = NULL;
	bool		  isnull;

	if (dana_read(&find, values, NULL) > 0)
	{
		MemoryContext ours = MemoryContextSwitchTo(caller);

		run = DatumGetJsonbPCopy(dana_value(0, 1, &isnull));
		MemoryContextSwitchTo(ours);
	}
	dana_become_caller(before);
	dana_json_object(to, "last", run);
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

/* Asks the worker */
static Jsonb *
ask_worker(StringInfo request)
{
	Jsonb *volatile explained = NULL;

	dana_request_begin();
	PG_TRY();
	{
		dana_send(DANA_MSG_EXPLAIN, request);
		explained = dana_json_parse(dana_receive(DANA_MSG_EXPLAINED).payload);
		dana_request_end();
	}
	PG_CATCH();
	{
		dana_request_abort();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return explained;
}

/* dana_explain(rule, source, training, device, search, format) */
enum
{
	TRAINING = 2,
	DEVICE,
	SEARCH,
	FORMAT
};

static Jsonb *
explain(FunctionCallInfo fcinfo)
{
	dana_training  training;
	dana_source	  *source;
	StringInfoData request;

	dana_training_from_call(fcinfo, TRAINING, &training);
	source = dana_source_open(&training.rows);
	initStringInfo(&request);
	dana_json_open(&request, NULL, '{');
	dana_json_text(&request, "device", PG_ARGISNULL(DEVICE) ? "xcvu9p" : text_to_cstring(PG_GETARG_TEXT_PP(DEVICE)));
	dana_json_truth(&request, "search", !PG_ARGISNULL(SEARCH) && PG_GETARG_BOOL(SEARCH));
	append_rows(&request, source);
	append_last_run(&request, training.rule, source->query != NULL ? "" : source->name);
	appendStringInfo(&request, ",\"training\":%s", dana_training_request(&training, dana_rule_text(training.rule), source)->data);
	dana_json_close(&request, '}');
	dana_source_close(source);
	return ask_worker(&request);
}

/* The lines of the answer, or the rest of it as one */
static char **
as_lines(Jsonb *explained, bool json, uint64 *count)
{
	char **made;

	*count = dana_json_strings(explained, "lines", &made);
	if (json)
	{
		Jsonb *rest = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(explained), CStringGetTextDatum("lines")));

		made = palloc(sizeof(char *));
		made[0] = JsonbToCStringIndent(NULL, &rest->root, VARSIZE(rest));
		*count = 1;
	}
	return made;
}

/* One row for each line */
DANA_FUNCTION(dana_explain)
{
	FuncCallContext *calls;

	if (SRF_IS_FIRSTCALL())
	{
		char		 *format = PG_ARGISNULL(FORMAT) ? "text" : text_to_cstring(PG_GETARG_TEXT_PP(FORMAT));
		bool		  json = strcmp(format, "json") == 0;
		MemoryContext caller;

		if (!json && strcmp(format, "text") != 0)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"format\" must be 'text' or 'json', not \"%s\"", format)));
		calls = SRF_FIRSTCALL_INIT();
		caller = MemoryContextSwitchTo(calls->multi_call_memory_ctx);
		calls->user_fctx = as_lines(explain(fcinfo), json, &calls->max_calls);
		MemoryContextSwitchTo(caller);
	}
	calls = SRF_PERCALL_SETUP();
	if (calls->call_cntr < calls->max_calls)
	{
		Datum line = CStringGetTextDatum(((char **)calls->user_fctx)[calls->call_cntr]);

		SRF_RETURN_NEXT(calls, line); /* counts before it looks at its argument */
	}
	SRF_RETURN_DONE(calls);
}
