/*
 * dana.dana_trial(): trains on some rows, evaluates on others, and leaves nothing behind.
 *
 * Both happen under the snapshot of the statement that calls, so that the trials of one statement see the same rows. The
 * model and its history are written in a subtransaction that is rolled back.
 */
#include "postgres.h"

#include "utils/json.h"

#include "dana.h"
#include "evaluate.h"
#include "holdout.h"
#include "train.h"

#define MOST_FOLDS 1000

/*
 * dana.dana_split(source, training, key, folds, test_size, seed): SQL for the number of a row's fold; without folds, for
 * whether the row is left out
 */
DANA_FUNCTION(dana_split)
{
	static const char *const ours[] = {"model", "test_size", "seed"};
	Jsonb *training = PG_ARGISNULL(1) || !JB_ROOT_IS_OBJECT(PG_GETARG_JSONB_P(1)) ? NULL : PG_GETARG_JSONB_P(1);
	Oid	   source = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	bool   query = training != NULL && !dana_json_is_null(training, "query");
	bool   view = OidIsValid(source) && get_rel_relkind(source) == RELKIND_VIEW;
	int	   seed = PG_ARGISNULL(5) ? 1 : PG_GETARG_INT32(5);
	char  *place = "ctid";

	for (int i = 0; i < lengthof(ours) && training != NULL; i++)
		if (!dana_json_is_null(training, ours[i]))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"training\" must not have a member \"%s\" here", ours[i]),
							errdetail("Trials choose their rows themselves, and leave no model.")));
	if (!PG_ARGISNULL(2))
		place = psprintf("dana.dana_text(%s)", quote_identifier(text_to_cstring(PG_GETARG_TEXT_PP(2))));
	else if ((query && !OidIsValid(source)) || view) /* both: dana_trial() says so */
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"key\" must name a column of the %s that tells its rows apart", view ? "view" : "query"),
				 errhint("Rows are chosen by it. Name the features too, unless the key is one.")));
	if (PG_ARGISNULL(3))
	{
		if (!(PG_GETARG_FLOAT8(4) > 0 && PG_GETARG_FLOAT8(4) < 1))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"test_size\" must be a part of the rows between 0 and 1, not \"%g\"", PG_GETARG_FLOAT8(4))));
		PG_RETURN_TEXT_P(cstring_to_text(dana_holdout_expression(place, PG_GETARG_FLOAT8(4), seed)));
	}
	if (PG_GETARG_INT32(3) < 2 || PG_GETARG_INT32(3) > MOST_FOLDS)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"folds\" must be from 2 to %d, not %d", MOST_FOLDS, PG_GETARG_INT32(3))));
	PG_RETURN_TEXT_P(cstring_to_text(dana_fold_expression(place, PG_GETARG_INT32(3), seed)));
}

/* An error that other data or other arguments may not have: the next trial is worth its time */
static bool
is_of_trial(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_PROGRAM_LIMIT_EXCEEDED;
}

typedef struct trial
{
	dana_training  training;
	dana_evaluation evaluation;
	Snapshot		snapshot;
	StringInfoData	outcome; /* text of a JSON object */
} trial;

static void
train_and_evaluate(void *state)
{
	trial *of = state;
	Datum  row = dana_train_and_store(&of->training);
	bool   isnull;
	int	   version = DatumGetInt32(GetAttributeByNum(DatumGetHeapTupleHeader(row), 2, &isnull));

	of->evaluation.model = psprintf("%s@%d", of->training.model, version);
	dana_json_open(&of->outcome, NULL, '{');
	appendStringInfo(&of->outcome, "\"training\":%s", TextDatumGetCString(DirectFunctionCall1(row_to_json, row)));
	dana_json_object(&of->outcome, "scores", dana_evaluate_model(&of->evaluation, of->snapshot));
	dana_json_close(&of->outcome, '}');
}

static void
describe_failure(StringInfo outcome, const ErrorData *error)
{
	resetStringInfo(outcome);
	dana_json_open(outcome, NULL, '{');
	dana_json_text(outcome, "sqlstate", unpack_sql_state(error->sqlerrcode));
	dana_json_text(outcome, "error", error->message);
	if (error->hint != NULL)
		dana_json_text(outcome, "hint", error->hint);
	dana_json_close(outcome, '}');
}

/* dana.dana_trial(rule, source, training, split, fold, threshold) */
DANA_COMMAND(dana_trial)
{
	trial	   one = {.snapshot = GetActiveSnapshot()};
	char	  *tested;
	ErrorData *error;

	if (PG_ARGISNULL(3))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"split\" must not be null")));
	tested = text_to_cstring(PG_GETARG_TEXT_PP(3));
	dana_require_execute(dana_extension_function("dana_train"));
	dana_training_from_call(fcinfo, 2, &one.training);
	one.training.model = psprintf("trial %d", MyProcPid);
	initStringInfo(&one.outcome);
	if (!PG_ARGISNULL(4))
		tested = psprintf("%s OPERATOR(pg_catalog.=) %d", tested, PG_GETARG_INT32(4));
	one.evaluation = (dana_evaluation){.source = one.training.source, .part = "all", .threshold = fcinfo->args[5]};
	if (one.training.query != NULL)
		one.evaluation.query = psprintf("SELECT * FROM (%s\n) AS r WHERE (%s)", one.training.query, tested);
	else if (one.training.rows.filter != NULL)
		one.evaluation.filter = psprintf("(%s) AND (%s\n)", tested, one.training.rows.filter);
	else
		one.evaluation.filter = tested;
	dana_training_restrict(&one.training, psprintf("NOT (%s)", tested));
	error = dana_attempt(train_and_evaluate, &one, false);
	if (error != NULL && !is_of_trial(error->sqlerrcode))
		ReThrowError(error);
	if (error != NULL)
		describe_failure(&one.outcome, error);
	PG_RETURN_JSONB_P(dana_json_parse(one.outcome.data));
}
