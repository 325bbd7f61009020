/*
 * dana_explain(): what a training would run on and how fast, beside what the last one took. Trains nothing.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "json.h"
#include "request.h"
#include "rules.h"
#include "session.h"
#include "source.h"

PG_FUNCTION_INFO_V1(dana_explain);

/* Appends the last run of the rule on the source that the caller may see, or null */
static void
append_last_run(StringInfo to, const char *udf, const char *source)
{
	static dana_statement find = {
		"SELECT jsonb_build_object('id', id, 'started', to_char(started, 'YYYY-MM-DD HH24:MI:SS'), 'backend', backend, "
		" 'epochs', epochs, 'tuples', tuples, 'pages', pages, 'cycles', cycles, 'wall_seconds', wall_seconds, "
		" 'modelled_seconds', modelled_seconds, 'design', design)::text "
		"FROM dana.run WHERE udf = $1 AND source = $2 AND pg_has_role($3, owner, 'USAGE') ORDER BY id DESC LIMIT 1",
		3,
		{TEXTOID, TEXTOID, OIDOID},
		NULL};
	MemoryContext caller = CurrentMemoryContext;
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(udf), CStringGetTextDatum(source), ObjectIdGetDatum(before.user)};
	char		 *run = "null";
	bool		  isnull;

	if (dana_read(&find, values, NULL) > 0)
		run = MemoryContextStrdup(caller, TextDatumGetCString(dana_value(0, 1, &isnull)));
	dana_become_caller(before);
	appendStringInfo(to, ",\"last\":%s", dana_json_utf8(run));
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
		appendStringInfo(to, ",\"rows\":%.0f", class->reltuples / class->relpages * pages);
	}
	else
		appendStringInfoString(to, ",\"rows\":null");
}

/* Asks the worker */
static Jsonb *
ask(StringInfo request)
{
	Jsonb *volatile explained = NULL;

	dana_request_begin();
	PG_TRY();
	{
		dana_send(DANA_MSG_EXPLAIN, request->data, request->len);
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

static Jsonb *
explain(FunctionCallInfo fcinfo, dana_explanation *wanted)
{
	dana_train_call call;
	dana_source	   *source;
	StringInfoData	request;

	dana_request_read_explain(fcinfo, &call, wanted);
	source = dana_source_open(&call.source);
	initStringInfo(&request);
	appendStringInfo(&request, "{\"training\":%s,\"device\":",
					 dana_request_build(&call, dana_rule_source(call.udf), source)->data);
	dana_json_append(&request, wanted->device);
	appendStringInfo(&request, ",\"search\":%s", wanted->search ? "true" : "false");
	append_rows(&request, source);
	append_last_run(&request, call.udf, source->query != NULL ? "" : source->name);
	appendStringInfoChar(&request, '}');
	dana_source_close(source);
	return ask(&request);
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

/* dana_explain(udf, source, ...): request.c has the arguments; one row for each line */
Datum
dana_explain(PG_FUNCTION_ARGS)
{
	FuncCallContext *calls;

	if (SRF_IS_FIRSTCALL())
	{
		dana_explanation wanted;
		MemoryContext	 caller;
		Jsonb			*explained;

		calls = SRF_FIRSTCALL_INIT();
		caller = MemoryContextSwitchTo(calls->multi_call_memory_ctx);
		explained = explain(fcinfo, &wanted);
		calls->user_fctx = as_lines(explained, wanted.json, &calls->max_calls);
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
