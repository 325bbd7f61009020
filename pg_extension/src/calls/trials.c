/*
 * dana.dana_trial(): trains on some rows, evaluates on others, and stores nothing. Both happen under the snapshot of
 * the calling statement, so that the trials of one statement see the same rows. The model and its history are written
 * in a subtransaction that is rolled back.
 */
#include "postgres.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "calls/train.h"
#include "models/rules.h"
#include "predict/evaluate.h"
#include "request/training.h"
#include "rows/places.h"

#define MAX_FOLDS 1000

/*
 * dana.dana_split(source, training, key, folds, test_size, seed): SQL for the number of a row's fold; without folds,
 * for whether the row is left out
 */
DANA_FUNCTION(dana_split)
{
	static const char *const ours[] = {"model", "test_size", "seed"};
	Jsonb *training = PG_ARGISNULL(1) || !JB_ROOT_IS_OBJECT(PG_GETARG_JSONB_P(1)) ? NULL : PG_GETARG_JSONB_P(1);
	Oid	   source = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	bool   query = training != NULL && !dana_json_is_null(training, "query");
	const char *placeless;
	int	   seed = PG_ARGISNULL(5) ? 1 : PG_GETARG_INT32(5);
	char  *place = "ctid";
	dana_texts key = {.count = 0};

	if (OidIsValid(source))
		dana_require_relation(source);
	placeless = dana_placeless(source);
	for (int i = 0; i < lengthof(ours) && training != NULL; i++)
		if (!dana_json_is_null(training, ours[i]))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"training\" must not have a member \"%s\" here", ours[i]),
							errdetail("Trials choose their rows themselves, and leave no model.")));
	if (!PG_ARGISNULL(2))
		place = psprintf("dana.dana_fixed_text(%s)", quote_identifier(text_to_cstring(PG_GETARG_TEXT_PP(2))));
	else if ((query && !OidIsValid(source)) || placeless != NULL) /* both: dana_trial() raises the error */
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"key\" must name a column of the %s that identifies its rows",
							   placeless != NULL ? placeless : "query"),
						errhint("Rows are chosen by it. Name the features too, unless the key is one.")));
	if (PG_ARGISNULL(3))
	{
		if (!(PG_GETARG_FLOAT8(4) > 0 && PG_GETARG_FLOAT8(4) < 1))
			dana_reject_argument("test_size", "be a part of the rows between 0 and 1, not \"%g\"", PG_GETARG_FLOAT8(4));
		if (PG_ARGISNULL(2) && OidIsValid(source)) /* as dana_train() with test_size does */
			key = dana_key_of(source);
		PG_RETURN_TEXT_P(cstring_to_text(key.count > 0 ? dana_holdout_of_key(&key, PG_GETARG_FLOAT8(4), seed)
													   : dana_holdout_expression(place, PG_GETARG_FLOAT8(4), seed)));
	}
	if (PG_GETARG_INT32(3) < 2 || PG_GETARG_INT32(3) > MAX_FOLDS)
		dana_reject_argument("folds", "be from 2 to %d, not %d", MAX_FOLDS, PG_GETARG_INT32(3));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s(%s, %d, %d)", dana_extension_name("dana_fold"), place,
											  PG_GETARG_INT32(3), seed)));
}

static bool
has_label(const char *rule)
{
	Jsonb **outputs;

	return dana_json_objects(dana_rule_read(rule).description, "outputs", &outputs) > 0;
}

/*
 * dana.dana_check_metrics(rule, metrics): raises an error for metrics that do not fit the rule's label, or lack of one
 */
DANA_FUNCTION(dana_check_metrics)
{
	const char		*rule = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const dana_texts metrics = dana_argument_texts("metrics", PG_GETARG_DATUM(1), false);
	const bool		 labelled = has_label(rule);

	for (int i = 0; i < metrics.count; i++)
		if ((strcmp(metrics.values[i], "loss") == 0) == labelled)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("there is no metric \"%s\" of rule \"%s\", which has %s", metrics.values[i], rule,
								   labelled ? "a label" : "no label to compare with"),
							errhint("%s", labelled ? "Predictions are compared with the label: rmse, accuracy, auc ..."
												   : "The metric is \"loss\", the rule's own on the rows that are left out.")));
	PG_RETURN_VOID();
}

/* An error that may not occur with other data or arguments: the next trial is made */
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
	bool		   labelled; /* else the loss on the rows left out is the only score */
	Snapshot		snapshot;
	Jsonb		   *outcome;
} trial;

/* The loss on the rows that the training left out, as the only score */
static Jsonb *
loss_of_training(Datum row)
{
	bool		   isnull;
	Datum		   loss = GetAttributeByName(DatumGetHeapTupleHeader(row), "validation_loss", &isnull);
	StringInfoData scores;

	if (isnull)
		dana_error(DATA_EXCEPTION, "there is no loss on the rows that are left out: the rule has none, or there is no such row");
	dana_json_begin(&scores);
	dana_json_number(&scores, "loss", DatumGetFloat8(loss));
	return dana_json_end(&scores);
}

static void
train_and_evaluate(void *state)
{
	trial *of = state;
	Datum  row = dana_train_and_store(&of->training);
	bool   isnull;
	int	   version = DatumGetInt32(GetAttributeByNum(DatumGetHeapTupleHeader(row), 2, &isnull));
	StringInfoData outcome;

	of->evaluation.model = psprintf("%s@%d", of->training.model, version);
	dana_json_begin(&outcome);
	appendStringInfo(&outcome, "\"training\":%s", TextDatumGetCString(DirectFunctionCall1(row_to_json, row)));
	dana_json_object(&outcome, "scores", of->labelled ? dana_evaluate_model(&of->evaluation, of->snapshot) : loss_of_training(row));
	of->outcome = dana_json_end(&outcome);
}

static Jsonb *
describe_failure(const ErrorData *error)
{
	StringInfoData outcome;
	dana_json_begin(&outcome);
	dana_json_text(&outcome, "sqlstate", unpack_sql_state(error->sqlerrcode));
	dana_json_text(&outcome, "error", error->message);
	if (error->hint != NULL)
		dana_json_text(&outcome, "hint", error->hint);
	return dana_json_end(&outcome);
}

/* dana.dana_trial(rule, source, training, split, fold, threshold) */
DANA_COMMAND(dana_trial)
{
	trial	   one = {.snapshot = GetActiveSnapshot()};
	char	  *tested;
	ErrorData *error;

	if (PG_ARGISNULL(3))
		dana_error(NULL_VALUE_NOT_ALLOWED, "argument \"split\" must not be null");
	tested = text_to_cstring(PG_GETARG_TEXT_PP(3));
	dana_require_execute(dana_extension_function("dana_train"));
	dana_training_from_call(fcinfo, 2, &one.training);
	one.training.model = psprintf("trial %d", MyProcPid);
	dana_notices_merge();
	if (!PG_ARGISNULL(4))
		tested = psprintf("%s OPERATOR(pg_catalog.=) %d", tested, PG_GETARG_INT32(4));
	one.evaluation = (dana_evaluation){.source = one.training.rows.relation, .part = "all", .threshold = fcinfo->args[5]};
	if (one.training.rows.query != NULL)
		one.evaluation.query = psprintf("SELECT * FROM (%s\n) AS r WHERE (%s)", one.training.rows.query, tested);
	else if (one.training.filter != NULL) /* with the rows that would be for validation */
		one.evaluation.filter = psprintf("(%s) AND (%s\n)", tested, one.training.filter);
	else
		one.evaluation.filter = tested;
	one.labelled = has_label(one.training.rule);
	if (one.training.tried == NULL) /* else all rows */
		one.training.tried = one.evaluation.query != NULL ? one.evaluation.query : one.evaluation.filter;
	if (!one.labelled && one.training.held_out != NULL)
		dana_error(INVALID_PARAMETER_VALUE, "argument \"validation_size\" is for rules with a label here: the score of "
				   "others is the loss on the rows that are left out");
	if (!one.labelled)
		one.training.held_out = one.training.tried;
	dana_training_restrict(&one.training, psprintf("NOT (%s)", tested));
	error = dana_attempt(train_and_evaluate, &one, false);
	if (error != NULL && !is_of_trial(error->sqlerrcode))
		ReThrowError(error);
	PG_RETURN_JSONB_P(error != NULL ? describe_failure(error) : one.outcome);
}
