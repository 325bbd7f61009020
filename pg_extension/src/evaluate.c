/*
 * How good a model is. dana_evaluate(): its predictions beside the labels of some rows.
 *
 * Rows are read with the caller's rights. What a model's metadata says of them (a table, a query, a filter) is
 * somebody's text: it is used for models of the caller's own only, so that nobody runs what another role wrote.
 *
 * dana.dana_trial(): trains on some rows, evaluates on others, and leaves nothing behind. Both happen under the
 * snapshot of the statement that calls, so that the trials of one statement see the same rows. The model and its
 * history are written in a subtransaction that is rolled back.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"

#include "dana.h"
#include "training.h"

/* Arguments of a function at most, less model and one to spare; a row is slower to make than arguments */
#define MOST_ARGUMENTS 98
#define MOST_FOLDS	   1000

/* What dana_evaluate() is asked; NULL where nothing was said */
typedef struct evaluation
{
	char		 *model;
	Oid			  source;
	char		 *query;
	char		 *filter;
	char		 *part;
	NullableDatum threshold;
} evaluation;

typedef struct evaluated_model
{
	char  *name;
	int	   version;
	bool   own;
	Jsonb *metadata;
	char  *reference; /* of this version */
} evaluated_model;

static evaluated_model
find_model(const evaluation *asked, bool wrote)
{
	dana_identity	before = dana_become_owner();
	evaluated_model model;

	dana_model_find(asked->model, before.user, !wrote);
	model.own = DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER)) == before.user;
	model.name = TextDatumGetCString(dana_value(0, DANA_MODEL_NAME));
	model.version = DatumGetInt32(dana_value(0, DANA_MODEL_VERSION));
	model.metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA));
	model.reference = dana_model_version_of(asked->model, model.version);
	dana_become_caller(before);
	return model;
}

/* A text of the metadata, or NULL */
static char *
of_metadata(const evaluated_model *model, const char *key)
{
	return dana_json_is_null(model->metadata, key) ? NULL : dana_json_string(model->metadata, key);
}

/* Which rows: FROM and WHERE of a statement in which they are called r */
typedef struct evaluated_rows
{
	Oid	  table; /* InvalidOid: a query */
	char *from;
	char *condition;
	char *part;
	dana_places places; /* of a part */
	bool		as_trained; /* in words of the metadata, which mean what they meant in the training */
} evaluated_rows;

static void
refuse_text_of_other(const evaluation *asked, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("model \"%s\" belongs to another role, whose %s would be run as you", asked->model, what),
			 errhint("Say on which rows: give argument \"source\" or \"query\", and \"filter\" where you want one. "
					 "dana.model.metadata has the owner's; read them first.")));
}

static void
check_part(const evaluation *asked, const evaluated_model *model, const char *part)
{
	if (strcmp(part, "all") == 0)
		return;
	if (strcmp(part, "test") != 0 && strcmp(part, "train") != 0)
		dana_refuse_argument("part", "be 'all', 'train' or 'test', not \"%s\"", part);
	if (dana_json_is_null(model->metadata, "test_size"))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("model \"%s\" was trained without a part for tests", asked->model),
						errhint("Train with test_size => 0.2, or evaluate on other rows.")));
	if (asked->query != NULL || dana_placeless(asked->source) != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("part '%s' is rows of the table that model \"%s\" was trained on, which those of a %s "
							   "are not", part, asked->model, asked->query != NULL ? "query" : dana_placeless(asked->source)),
						errhint("Evaluate on all of them with part => 'all'.")));
}

static evaluated_rows
find_rows(const evaluation *asked, const evaluated_model *model)
{
	evaluated_rows rows = {0};
	const char	  *trained_on = of_metadata(model, "source");
	char		  *filter = asked->filter;
	bool		   given = asked->query != NULL || OidIsValid(asked->source);
	bool		   same; /* the rows of the training, and others that have come since */

	if (asked->query != NULL && OidIsValid(asked->source))
		dana_error(INVALID_PARAMETER_VALUE, "give either argument \"source\" or argument \"query\", not both");
	if (!given && !model->own)
		refuse_text_of_other(asked, dana_json_is_null(model->metadata, "query") ? "table" : "query");
	if (asked->query != NULL)
		rows.from = psprintf("(%s\n)", asked->query);
	else if (given)
		rows.table = asked->source;
	else if (!dana_json_is_null(model->metadata, "query"))
		rows.from = psprintf("(%s\n)", of_metadata(model, "query"));
	else /* as the server wrote it, and an error where there is none any more */
		rows.table = DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(trained_on)));
	if (OidIsValid(rows.table))
		rows.from = dana_relation_name(rows.table);
	same = !given || (OidIsValid(asked->source) && strcmp(rows.from, trained_on) == 0);
	if (filter == NULL && same && !dana_json_is_null(model->metadata, "filter"))
	{
		if (!model->own)
			refuse_text_of_other(asked, "filter");
		filter = of_metadata(model, "filter");
	}
	rows.as_trained = (asked->query == NULL && !OidIsValid(rows.table)) || filter != asked->filter;
	if (filter != NULL)
		dana_filter_check(filter);
	rows.part = asked->part != NULL ? asked->part : same && !dana_json_is_null(model->metadata, "test_size") ? "test" : "all";
	check_part(asked, model, rows.part);
	rows.condition = filter == NULL ? "true" : psprintf("(%s\n)", filter);
	rows.places = (dana_places){.later = "false", .running = PointerGetDatum(construct_empty_array(XIDOID))};
	if (strcmp(rows.part, "all") != 0)
		rows.condition = psprintf("%s AND %s%s", rows.condition, strcmp(rows.part, "train") == 0 ? "NOT " : "",
								  dana_places_read(model->metadata, rows.table, asked->model, &rows.places));
	return rows;
}

/*
 * The features as arguments of dana_predict(), or the row, whose columns it finds by name. No column is called r.name:
 * where there is none, PostgreSQL would call somebody's function of that name, with the row.
 */
static char *
arguments_of(Jsonb *metadata)
{
	dana_texts	   features = dana_json_texts(metadata, "features");
	StringInfoData list;

	if (features.count < 1 || features.count > MOST_ARGUMENTS)
		return "r.*";
	initStringInfo(&list);
	for (int i = 0; i < features.count; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", quote_identifier(features.values[i]));
	return list.data;
}

/* The columns of rows, which must have those that a model needs: else PostgreSQL would show a statement of ours */
static TupleDesc
require_columns(const char *model, const dana_texts *needed, TupleDesc rows, const char *from)
{
	dana_texts there = {.values = palloc(sizeof(char *) * Max(rows->natts, 1))};

	for (int i = 0; i < rows->natts; i++)
		if (!TupleDescAttr(rows, i)->attisdropped)
			there.values[there.count++] = NameStr(TupleDescAttr(rows, i)->attname);
	for (int i = 0; i < needed->count; i++)
		if (!dana_is_one_of(needed->values[i], &there))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("column \"%s\" of model \"%s\" is not in %s", needed->values[i], model, from),
							errhint("%s", dana_hint_of(needed->values[i], &there))));
	return CreateTupleDescCopy(rows);
}

static TupleDesc
require_columns_of(const char *model, const dana_texts *needed, Oid source)
{
	Relation  relation = relation_open(source, AccessShareLock);
	TupleDesc columns = require_columns(model, needed, RelationGetDescr(relation), dana_relation_name(source));

	relation_close(relation, NoLock);
	return columns;
}

/* dana.dana_arguments(metadata, model, source): of a model that the source has the columns of */
DANA_FUNCTION(dana_feature_list)
{
	Jsonb			*metadata = PG_GETARG_JSONB_P(0);
	const dana_texts features = dana_json_texts(metadata, "features");

	(void)require_columns_of(text_to_cstring(PG_GETARG_TEXT_PP(1)), &features, PG_GETARG_OID(2));
	PG_RETURN_TEXT_P(cstring_to_text(arguments_of(metadata)));
}

/*
 * What is chosen FROM the rows: metrics of labels s.y and predictions s.p. Rules with classes are judged by them, others
 * as numbers, and as two classes where their labels are those of two.
 */
static char *
judgement_of(const char *predicts)
{
	const char *classified = dana_extension_name("dana_classification_metrics");
	const char *other = "pg_catalog.count(*) FILTER (WHERE s.y IS NULL AND s.given)";
	const char *unpredicted = "pg_catalog.count(s.y) FILTER (WHERE s.p IS NULL)";

	if (strcmp(predicts, "numbers") == 0)
		return psprintf("%s(s.y, s.p)", dana_extension_name("dana_regression_metrics"));
	if (strcmp(predicts, "number") == 0)
		return psprintf("COALESCE(%s(s.y, s.p, $3, $2), '{}') OPERATOR(pg_catalog.||) "
						"%s(s.y, s.p[1]::pg_catalog.float8)", classified, dana_extension_name("dana_regression_metrics"));
	return psprintf("CASE WHEN %s = 0 THEN '{}' ELSE pg_catalog.jsonb_build_object('other_labels', %s) END "
					"OPERATOR(pg_catalog.||) "
					"CASE WHEN %s = 0 THEN '{}' ELSE pg_catalog.jsonb_build_object('not_predicted', %s) END "
					"OPERATOR(pg_catalog.||) %s(s.y, s.p, $3, $2)", other, other, unpredicted, unpredicted, classified);
}

/* The label's number y, or its labels' numbers, and whether it is given */
static char *
label_of(const evaluated_model *model, const dana_texts *labels, TupleDesc columns, bool several)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < labels->count; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "",
						 dana_datetime_expression(model->metadata, labels->values[i],
												SPI_gettypeid(columns, SPI_fnumber(columns, labels->values[i]))));
	if (several)
		return psprintf("dana.dana_numbers(%s) AS y", list.data);
	return psprintf(dana_json_is_null(model->metadata, "classes") ? "dana.dana_number(%s) AS y, (%s) IS NOT NULL AS given"
					: "dana.dana_class(%s, $3) AS y, (%s) IS NOT NULL AS given", list.data, list.data);
}

/* Classes of the label as a text[]; empty where it is a number */
static Datum
classes_of(const evaluated_model *model)
{
	dana_texts classes = dana_json_texts(model->metadata, "classes");
	Datum	  *values = palloc(sizeof(Datum) * Max(classes.count, 1));

	for (int i = 0; i < classes.count; i++)
		values[i] = CStringGetTextDatum(classes.values[i]);
	return PointerGetDatum(construct_array(values, Max(classes.count, 0), TEXTOID, -1, false, TYPALIGN_INT));
}

/* Metrics by name, on what `snapshot` sees and this transaction wrote; InvalidSnapshot: what the caller's query sees */
static Jsonb *
evaluate_model(const evaluation *asked, Snapshot snapshot)
{
	const evaluated_model model = find_model(asked, snapshot != InvalidSnapshot);
	const evaluated_rows  rows = find_rows(asked, &model);
	MemoryContext		  caller = CurrentMemoryContext;
	const char *predicts = dana_json_string(model.metadata, "predicts");
	const bool	score = strcmp(predicts, "score") == 0; /* from 0 on it is the second class, a probability from 0.5 on */
	const bool	several = strcmp(predicts, "numbers") == 0;
	dana_texts	labels = dana_json_texts(model.metadata, "labels");
	dana_texts	features = dana_json_texts(model.metadata, "features");
	dana_texts	needed = {.values = palloc(sizeof(char *) * (Max(features.count, 0) + Max(labels.count, 0)))};
	TupleDesc	columns;
	char	   *text;
	Oid		   types[] = {TEXTOID, FLOAT8OID, TEXTARRAYOID, TEXTOID, INT4OID, TEXTOID, XIDOID, XIDARRAYOID};
	Datum	   values[] = {CStringGetTextDatum(model.reference),
						   asked->threshold.isnull ? Float8GetDatum(0) : asked->threshold.value, classes_of(&model),
						   CStringGetTextDatum(model.name), Int32GetDatum(model.version),
						   CStringGetTextDatum(rows.part), rows.places.first, rows.places.running};
	char	   nulls[] = {' ', asked->threshold.isnull && !score ? 'n' : ' ', ' ', ' ', ' ', ' ', ' ', ' ', '\0'};
	int		   level = NewGUCNestLevel();
	SPIPlanPtr plan;
	Jsonb	  *metrics;
	Datum	   found;
	int		   code;

	if (labels.count < 1 || (labels.count > 1 && !several))
		dana_error(OBJECT_NOT_IN_PREREQUISITE_STATE, "model \"%s\" has no label to compare with", asked->model);
	if (rows.as_trained)
		dana_training_settings(model.metadata);
	for (; needed.count < features.count; needed.count++)
		needed.values[needed.count] = features.values[needed.count];
	for (int i = 0; i < labels.count; i++)
		needed.values[needed.count++] = labels.values[i];
	dana_connect();
	if (OidIsValid(rows.table))
		columns = require_columns_of(asked->model, &needed, rows.table);
	else
		columns = require_columns(asked->model, &needed, dana_rows_descriptor(dana_rows_plan(
			psprintf("SELECT * FROM %s AS r", rows.from), "the query", false)), "the query");
	/* the types of the metrics' arguments are exactly the declared ones; OFFSET: each prediction is made once */
	text = psprintf("SELECT pg_catalog.jsonb_build_object('model', $4, 'version', $5, 'part', $6) "
					"OPERATOR(pg_catalog.||) %s, pg_catalog.count(*) FILTER (WHERE s.later), pg_catalog.count(*) "
					"FROM (SELECT %s, dana.dana_predict_array($1, %s) AS p, %s AS later FROM %s AS r WHERE %s OFFSET 0) "
					"AS s",
					judgement_of(predicts), label_of(&model, &labels, columns, several), arguments_of(model.metadata),
					rows.places.later, rows.from, rows.condition);
	plan = SPI_prepare(text, lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "could not plan the evaluation: %s", SPI_result_code_string(SPI_result));
	code = SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, snapshot == InvalidSnapshot, true, 0);
	MemoryContextSwitchTo(caller);
	if (code != SPI_OK_SELECT || SPI_processed != 1)
		dana_error(SYNTAX_ERROR, "argument \"query\" must be one SELECT");
	found = dana_value(0, 1);
	if (DatumGetPointer(found) == NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION), errmsg("there is no row to evaluate on"),
						errhint("Rows that have no label, or none of the model's classes, do not count, nor do those that "
								"\"filter\" or \"part\" leaves out.")));
	metrics = DatumGetJsonbPCopy(found);
	dana_places_tell(&rows.places, rows.table, asked->model, rows.part, DatumGetInt64(dana_value(0, 2)),
					 DatumGetInt64(dana_value(0, 3)));
	SPI_finish();
	AtEOXact_GUC(true, level);
	return metrics;
}

/* dana_evaluate(model, source, query, filter, part, threshold) */
DANA_FUNCTION(dana_evaluate)
{
	evaluation asked = {.threshold = fcinfo->args[5]};

	dana_require_arguments(fcinfo, 1);
	if (!asked.threshold.isnull && isnan(DatumGetFloat8(asked.threshold.value)))
		dana_refuse_argument("threshold", "be a number, not NaN");
	asked.model = text_to_cstring(PG_GETARG_TEXT_PP(0));
	asked.source = PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
	asked.query = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	asked.filter = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	asked.part = PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4));
	PG_RETURN_JSONB_P(evaluate_model(&asked, InvalidSnapshot));
}

/* Trials */

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
	const char *placeless = dana_placeless(source);
	int	   seed = PG_ARGISNULL(5) ? 1 : PG_GETARG_INT32(5);
	char  *place = "ctid";
	dana_texts key = {.count = 0};

	for (int i = 0; i < lengthof(ours) && training != NULL; i++)
		if (!dana_json_is_null(training, ours[i]))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"training\" must not have a member \"%s\" here", ours[i]),
							errdetail("Trials choose their rows themselves, and leave no model.")));
	if (!PG_ARGISNULL(2))
		place = psprintf("dana.dana_text(%s)", quote_identifier(text_to_cstring(PG_GETARG_TEXT_PP(2))));
	else if ((query && !OidIsValid(source)) || placeless != NULL) /* both: dana_trial() says so */
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"key\" must name a column of the %s that tells its rows apart",
							   placeless != NULL ? placeless : "query"),
						errhint("Rows are chosen by it. Name the features too, unless the key is one.")));
	if (PG_ARGISNULL(3))
	{
		if (!(PG_GETARG_FLOAT8(4) > 0 && PG_GETARG_FLOAT8(4) < 1))
			dana_refuse_argument("test_size", "be a part of the rows between 0 and 1, not \"%g\"", PG_GETARG_FLOAT8(4));
		if (PG_ARGISNULL(2) && OidIsValid(source)) /* as dana_train() with test_size does */
			key = dana_key_of(source);
		PG_RETURN_TEXT_P(cstring_to_text(key.count > 0 ? dana_holdout_of_key(&key, PG_GETARG_FLOAT8(4), seed)
													   : dana_holdout_expression(place, PG_GETARG_FLOAT8(4), seed)));
	}
	if (PG_GETARG_INT32(3) < 2 || PG_GETARG_INT32(3) > MOST_FOLDS)
		dana_refuse_argument("folds", "be from 2 to %d, not %d", MOST_FOLDS, PG_GETARG_INT32(3));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s(%s, %d, %d)", dana_extension_name("dana_fold"), place,
											  PG_GETARG_INT32(3), seed)));
}

static bool
has_label(const char *rule)
{
	Jsonb **outputs;

	return dana_json_objects(dana_rule_read(rule).description, "outputs", &outputs) > 0;
}

/* dana.dana_check_metrics(rule, metrics): refuses those that a rule without a label has not, or one with a label */
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
	evaluation evaluation;
	bool		   labelled; /* else the loss on the rows left out is all that there is */
	Snapshot		snapshot;
	Jsonb		   *outcome;
} trial;

/* The loss on the rows that the training left out, as the only score */
static Jsonb *
loss_of_training(Datum row)
{
	bool		   isnull;
	Datum		   loss = GetAttributeByName(DatumGetHeapTupleHeader(row), "test_loss", &isnull);
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
	dana_json_object(&outcome, "scores", of->labelled ? evaluate_model(&of->evaluation, of->snapshot) : loss_of_training(row));
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
	one.evaluation = (evaluation){.source = one.training.rows.relation, .part = "all", .threshold = fcinfo->args[5]};
	if (one.training.rows.query != NULL)
		one.evaluation.query = psprintf("SELECT * FROM (%s\n) AS r WHERE (%s)", one.training.rows.query, tested);
	else if (one.training.rows.filter != NULL)
		one.evaluation.filter = psprintf("(%s) AND (%s\n)", tested, one.training.rows.filter);
	else
		one.evaluation.filter = tested;
	one.labelled = has_label(one.training.rule);
	if (!one.labelled)
		one.training.held_out = one.evaluation.query != NULL ? one.evaluation.query : one.evaluation.filter;
	dana_training_restrict(&one.training, psprintf("NOT (%s)", tested));
	error = dana_attempt(train_and_evaluate, &one, false);
	if (error != NULL && !is_of_trial(error->sqlerrcode))
		ReThrowError(error);
	PG_RETURN_JSONB_P(error != NULL ? describe_failure(error) : one.outcome);
}
