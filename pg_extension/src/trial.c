/*
 * dana_trial(): trains on some rows, evaluates on others, and leaves nothing behind.
 *
 * Both happen under the snapshot of the statement that calls, so that the trials of one statement see the same rows. The
 * model and its history are written in a subtransaction that is rolled back.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "call.h"
#include "compat.h"
#include "json.h"

PG_FUNCTION_INFO_V1(dana_trial);

/* An error that other data or other arguments may not have: the next trial is worth its time */
static bool
is_of_trial(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_PROGRAM_LIMIT_EXCEEDED;
}

/* The outcome of a trial, as text of a JSON object */
static char *
outcome(Jsonb *training, Jsonb *scores)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "{\"training\":%s", dana_json_utf8(JsonbToCString(NULL, &training->root, VARSIZE(training))));
	appendStringInfo(&text, ",\"scores\":%s}", dana_json_utf8(JsonbToCString(NULL, &scores->root, VARSIZE(scores))));
	return text.data;
}

static char *
failure(const ErrorData *error)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "{\"sqlstate\":\"%s\",\"error\":", unpack_sql_state(error->sqlerrcode));
	dana_json_append(&text, error->message);
	if (error->hint != NULL)
	{
		appendStringInfoString(&text, ",\"hint\":");
		dana_json_append(&text, error->hint);
	}
	appendStringInfoChar(&text, '}');
	return text.data;
}

typedef struct trial
{
	const char *schema;
	Jsonb	   *training;
	Jsonb	   *evaluation;
	Snapshot	snapshot;
	char	   *outcome;
} trial;

static void
train_and_evaluate(void *state)
{
	trial *of = state;
	Jsonb *trained = dana_call_row(dana_call(of->schema, "dana_train", of->training, of->snapshot));
	Jsonb *asked =
		dana_call_with_model(of->evaluation, dana_json_string(trained, "model"), dana_json_integer(trained, "version"));

	of->outcome = outcome(trained, dana_call_row(dana_call(of->schema, "dana_evaluate", asked, of->snapshot)));
}

/* dana_trial(training, evaluation, tolerant): arguments of dana_train() and of dana_evaluate() without its model */
Datum
dana_trial(PG_FUNCTION_ARGS)
{
	bool	   tolerant = PG_GETARG_BOOL(2);
	trial	   one = {.schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)),
					  .training = PG_GETARG_JSONB_P(0),
					  .evaluation = PG_GETARG_JSONB_P(1),
					  .snapshot = GetActiveSnapshot()};
	ErrorData *error;

	PreventCommandIfReadOnly("dana_trial()");
	error = dana_attempt(train_and_evaluate, &one, false);
	if (error != NULL && (!tolerant || !is_of_trial(error->sqlerrcode)))
		ReThrowError(error);
	PG_RETURN_JSONB_P(dana_json_parse(error != NULL ? failure(error) : one.outcome));
}
