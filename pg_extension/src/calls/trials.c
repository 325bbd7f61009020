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
#include "request/split.h"
#include "request/training.h"

#define MAX_FOLDS 1000

/*
 * dana.dana_trial_rows(rule, source, training, folds, test_size, test_after, seed): SQL for the number of a row's fold, from 0;
 * without folds, for whether the row is left out
 */
DANA_FUNCTION(dana_trial_rows)
{
	static const char *const ours[] = {"model", "test_size", "test_after", "seed"};
	dana_training training;

	dana_training_from_call(fcinfo, 2, &training);
	dana_training_reject_sync(&training);
	for (int i = 0; i < lengthof(ours); i++)
		if (!training.arguments.nulls[dana_argument(&training.arguments, ours[i])])
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"training\" must not have a member \"%s\" here", ours[i]),
							errdetail("Trials choose their rows themselves, and leave no model.")));
	training.test_size = PG_ARGISNULL(4) ? 0 : PG_GETARG_FLOAT8(4);
	training.test_after = PG_ARGISNULL(5) ? NULL : PG_GETARG_JSONB_P(5);
	training.seed = PG_ARGISNULL(6) ? 1 : PG_GETARG_INT32(6);
	if (!PG_ARGISNULL(3) && (PG_GETARG_INT32(3) < 2 || PG_GETARG_INT32(3) > MAX_FOLDS))
		dana_reject_argument("folds", "be from 2 to %d, not %d", MAX_FOLDS, PG_GETARG_INT32(3));
	PG_RETURN_TEXT_P(cstring_to_text(dana_split_folds(&training, PG_ARGISNULL(3) ? 0 : PG_GETARG_INT32(3))));
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

/* dana.dana_trial(rule, source, training, split, fold, threshold, part) */
DANA_COMMAND(dana_trial)
{
	trial	   one = {.snapshot = GetActiveSnapshot()};
	char	  *tested, *rows;
	ErrorData *error;

	if (PG_ARGISNULL(3))
		dana_error(NULL_VALUE_NOT_ALLOWED, "argument \"split\" must not be null");
	tested = text_to_cstring(PG_GETARG_TEXT_PP(3));
	dana_require_execute(dana_extension_function("dana_train"));
	dana_training_from_call(fcinfo, 2, &one.training);
	dana_split_rows(&one.training, true);
	one.training.model = psprintf("trial %d", MyProcPid);
	dana_notices_merge();
	if (!PG_ARGISNULL(4))
		tested = psprintf("(%s OPERATOR(pg_catalog.+) 1 OPERATOR(pg_catalog.=) %d)", tested, PG_GETARG_INT32(4));
	one.evaluation = (dana_evaluation){.source = one.training.rows.relation, .part = "all", .threshold = fcinfo->args[5]};
	/* with the rows that would be for validation */
	if (one.training.whole_query != NULL)
		rows = one.evaluation.query = dana_training_rows(&one.training, tested, one.training.whole_query);
	else
		rows = one.evaluation.filter = dana_training_rows(&one.training, tested, one.training.filter);
	one.labelled = has_label(one.training.rule);
	if (!one.labelled && one.training.held_out != NULL)
		dana_error(INVALID_PARAMETER_VALUE, "argument \"validation_size\" is for rules with a label here: the score of "
				   "others is the loss on the rows that are left out");
	dana_split_restrict(&one.training, psprintf("NOT %s", tested));
	if (!PG_ARGISNULL(6))
		dana_split_restrict(&one.training, text_to_cstring(PG_GETARG_TEXT_PP(6)));
	if (!one.labelled)
		one.training.held_out = rows;
	error = dana_attempt(train_and_evaluate, &one, false);
	if (error != NULL && !is_of_trial(error->sqlerrcode))
		ReThrowError(error);
	PG_RETURN_JSONB_P(error != NULL ? describe_failure(error) : one.outcome);
}
