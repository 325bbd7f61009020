/*
 * dana_evaluate(): the metrics of a model's predictions for labelled rows.
 *
 * Rows are read with the caller's rights. A model's metadata contain SQL of its owner (a table, a query, a filter): it
 * runs for that owner only, so that no role runs SQL that another one wrote.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "models/models.h"
#include "predict/evaluate.h"
#include "predict/metric_names.h"
#include "request/training.h"
#include "rows/places.h"
#include "rows/rows.h"
#include "values/datetimes.h"
#include "values/encode.h"
#include "values/texts.h"
#include "values/values.h"

/* Maximum number of a function's arguments, less the model and a spare one; a row is slower to make than arguments */
#define MAX_ARGUMENTS 98

/*
 * One statement evaluates a model. $1: reference of the model's version, $2: threshold or NULL, $3: classes, $4: the
 * model's name, $5: version, $6: part, $7 and $8: as in dana_places, $9: the quantile, NULL for a rule without one,
 * $10: the label's centre, which dana_scored() leaves out because it returns real. Its text has the metrics, the
 * columns that have unseen categories, the label, the features, places, whether each column has one, and the rows;
 * OFFSET 0: each prediction is computed once.
 */
#define STATEMENT \
	"SELECT pg_catalog.jsonb_build_object('model', $4, 'version', $5, 'part', $6) OPERATOR(pg_catalog.||) " UNSEEN "%s, " \
	"pg_catalog.count(*) FILTER (WHERE s.later), pg_catalog.count(*), pg_catalog.array_to_string(ARRAY[%s]::pg_catalog.text[], ', ') " \
	"FROM (SELECT %s, dana.dana_scored($1, %s) AS p, %s AS later, %s AS unseen FROM %s WHERE %s OFFSET 0) AS s"

/* Rows of an evaluation. $1: seed, $2: limit; the columns, FROM and WHERE. The order does not depend on their places. */
#define ROWS \
	"SELECT %1$s FROM (SELECT %1$s FROM %2$s WHERE %3$s OFFSET 0) AS s " \
	"ORDER BY dana.dana_draw(ROW(%1$s), $1) LIMIT $2"

/* The name of rows in memory, in statements */
#define SAMPLE "dana_sample"

/* Share of the rows below which a class is rare */
#define RARE 0.2

/* The metrics of labels s.y and predictions s.p; %s: the aggregates, called with exactly their declared types */
#define METRICS_OF_NUMBERS NOT_PREDICTED "%s(s.y, s.p)"

/*
 * Also the metrics of two classes if the labels have two values; both count non-finite labels and predictions. The last
 * %s: metrics of other rules
 */
#define METRICS_OF_NUMBER \
	NOT_PREDICTED "COALESCE(%s(CASE WHEN $10 OPERATOR(pg_catalog.=) 0::pg_catalog.float8 " \
	"AND s.y OPERATOR(pg_catalog.>) '-Infinity'::pg_catalog.float8 " \
	"AND s.y OPERATOR(pg_catalog.<) 'Infinity'::pg_catalog.float8 THEN s.y END, s.p, $3, $2), '{}') " \
	"OPERATOR(pg_catalog.||) (%s(s.y, s.p[1]::pg_catalog.float8 OPERATOR(pg_catalog.+) $10, $9) " \
	"OPERATOR(pg_catalog.-) '{%s}'::pg_catalog.text[])"

#define METRICS_OF_CLASSES \
	COUNT_IF_ANY(METRIC_OTHER_LABELS, "pg_catalog.count(*) FILTER (WHERE s.y IS NULL AND s.given)") NOT_PREDICTED \
	"%s(s.y, s.p, $3, $2)"

#define UNSEEN COUNT_IF_ANY(METRIC_UNSEEN_CATEGORIES, "pg_catalog.count(s.y) FILTER (WHERE true OPERATOR(pg_catalog.=) ANY (s.unseen))")
#define NOT_PREDICTED COUNT_IF_ANY(METRIC_NOT_PREDICTED, "pg_catalog.count(s.y) FILTER (WHERE s.p IS NULL)")

#define COUNT_IF_ANY(name, count) \
	"CASE WHEN " count " OPERATOR(pg_catalog.=) 0 THEN '{}' " \
	"ELSE pg_catalog.jsonb_build_object('" name "', " count ") END OPERATOR(pg_catalog.||) "

/* The label, or the labels, as numbers; and whether it is not NULL */
#define LABEL_NUMBERS "dana.dana_numbers(%s) AS y"
#define LABEL_NUMBER "dana.dana_number(%1$s) AS y, (%1$s) IS NOT NULL AS given"
#define LABEL_CLASS "dana.dana_class(%1$s, $3) AS y, (%1$s) IS NOT NULL AS given"

typedef struct evaluated_model
{
	char	  *name;
	int		   version;
	bool	   own;
	Jsonb	  *metadata;
	char	  *reference; /* of this version */
	dana_texts features;
	dana_texts labels;
} evaluated_model;

static bool
predicts(const evaluated_model *model, const char *what)
{
	return strcmp(dana_json_string(model->metadata, "predicts"), what) == 0;
}

static evaluated_model
find_model(const dana_evaluation *asked, bool wrote)
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
	model.features = dana_json_texts(model.metadata, "features");
	model.labels = dana_json_texts(model.metadata, "labels");
	return model;
}

/* A text of the metadata, or NULL */
static char *
of_metadata(const evaluated_model *model, const char *key)
{
	return dana_json_is_null(model->metadata, key) ? NULL : dana_json_string(model->metadata, key);
}

/* The rows to evaluate: FROM and WHERE of a statement */
typedef struct evaluated_rows
{
	Oid	  table; /* InvalidOid: a query */
	char *from;
	char *row; /* SQL for all columns of one */
	TupleDesc columns;
	char *condition;
	char *part;
	dana_places places; /* of a part */
	bool		as_trained; /* metadata with the settings that the SQL above depended on in the training */
} evaluated_rows;

static void
reject_foreign_text(const dana_evaluation *asked, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("model \"%s\" belongs to another role, and its %s would be used with your rights", asked->model, what),
			 errhint("Choose the rows with argument \"source\" or \"query\", and optionally \"filter\". "
					 "dana.model.metadata has the owner's; read them before you use them.")));
}

static void
check_part(const dana_evaluation *asked, const evaluated_model *model, const char *part)
{
	if (strcmp(part, "all") == 0)
		return;
	if (strcmp(part, "test") != 0 && strcmp(part, "train") != 0)
		dana_reject_argument("part", "be 'all', 'train' or 'test', not \"%s\"", dana_shown(part));
	if (!dana_split_exists(model->metadata))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("model \"%s\" was trained without a part for tests", asked->model),
						errhint("Train with test_size => 0.2, or evaluate on other rows.")));
}

/*
 * Reports that a table is not the training's, although a test part or a filter of the training could apply: it may be
 * the same table under another name. A model refers to its table by name, because OIDs do not survive dump and restore.
 */
static void
report_all_rows(const dana_evaluation *asked, const evaluated_model *model, const char *table, const char *trained_on)
{
	const bool part = asked->part == NULL && dana_split_exists(model->metadata);
	const bool filter = asked->filter == NULL && !dana_json_is_null(model->metadata, "filter");

	if (part || filter)
		dana_notice(NOTICE, psprintf("If it is that table, under another name by now: give%s%s%s.",
									 part ? " part => 'test'" : "", part && filter ? " and" : "",
									 filter ? " the training's filter" : ""),
					"%s of %s are evaluated: it is not the table that model \"%s\" was trained on%s%s",
					asked->filter == NULL ? "all rows" : "all rows that the filter leaves", table, asked->model,
					trained_on != NULL ? ", " : "", trained_on != NULL ? trained_on : "");
}

static evaluated_rows
find_rows(const dana_evaluation *asked, const evaluated_model *model)
{
	evaluated_rows rows = {0};
	const char	  *trained_on = dana_json_is_null(model->metadata, "query") ? of_metadata(model, "source") : NULL;
	char		  *filter = asked->filter;
	bool		   given = asked->query != NULL || OidIsValid(asked->source);
	bool		   same; /* the rows of the training, and rows inserted since */

	rows.places = (dana_places){.later = "false", .running = PointerGetDatum(construct_empty_array(XIDOID))};
	if (asked->sample != NULL)
	{
		rows.from = SAMPLE;
		rows.row = SAMPLE ".*";
		rows.condition = "true";
		rows.part = "all";
		return rows;
	}
	if (asked->query != NULL && OidIsValid(asked->source))
		dana_error(INVALID_PARAMETER_VALUE, "give either argument \"source\" or argument \"query\", not both");
	if (!given && !model->own)
		reject_foreign_text(asked, dana_json_is_null(model->metadata, "query") ? "table" : "query");
	if (asked->query != NULL)
		rows.from = psprintf("(%s\n) AS r", asked->query);
	else if (given)
		rows.table = asked->source;
	else if (!dana_json_is_null(model->metadata, "query"))
		rows.from = psprintf("(%s\n) AS r", of_metadata(model, "query"));
	else /* as the server stores it; an error if it no longer exists */
		rows.table = dana_trained_on(model->metadata);
	if (given && OidIsValid(rows.table))
		dana_require_relation(rows.table);
	if (OidIsValid(rows.table))
		rows.from = dana_relation_name(rows.table);
	same = !given || (OidIsValid(asked->source) && trained_on != NULL && dana_relation_is(asked->source, trained_on));
	if (filter == NULL && same && !dana_json_is_null(model->metadata, "filter"))
	{
		if (!model->own)
			reject_foreign_text(asked, "filter");
		filter = of_metadata(model, "filter");
	}
	rows.as_trained = (asked->query == NULL && !OidIsValid(rows.table)) || filter != asked->filter;
	if (filter != NULL)
		dana_filter_check(filter);
	rows.part = asked->part != NULL ? asked->part : same && dana_split_exists(model->metadata) ? "test" : "all";
	check_part(asked, model, rows.part);
	if (OidIsValid(asked->source) && !same)
		report_all_rows(asked, model, rows.from, trained_on);
	rows.condition = filter == NULL ? "true" : psprintf("(%s\n)", filter);
	rows.row = OidIsValid(rows.table) ? psprintf("%s.*", rows.from) : "r.*";
	return rows;
}

/*
 * The features as arguments of dana_predict(), or the row, with columns found by name. A missing column must not become
 * r.name: PostgreSQL would call a user's function of that name, with the row.
 */
static char *
arguments_of(const dana_texts *features, char *row)
{
	StringInfoData list;

	if (features->count < 1 || features->count > MAX_ARGUMENTS)
		return row;
	initStringInfo(&list);
	for (int i = 0; i < features->count; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", quote_identifier(features->values[i]));
	return list.data;
}

/* The columns of rows, which must include the model's: PostgreSQL's error would show an internal statement */
static TupleDesc
require_columns(const char *model, const dana_texts *needed, TupleDesc rows, const char *from)
{
	dana_texts there = {.values = palloc(sizeof(char *) * Max(rows->natts, 1))};

	for (int i = 0; i < rows->natts; i++)
		if (!TupleDescAttr(rows, i)->attisdropped)
			there.values[there.count++] = NameStr(TupleDescAttr(rows, i)->attname);
	for (int i = 0; i < needed->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!dana_is_one_of(needed->values[i], &there))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("column \"%s\" of model \"%s\" is not in %s", needed->values[i], model, from),
							errhint("%s", dana_hint_of(needed->values[i], &there))));
	}
	return CreateTupleDescCopy(rows);
}

static TupleDesc
require_columns_of(const char *model, const dana_texts *needed, Oid source)
{
	Relation  relation;
	TupleDesc columns;

	dana_require_relation(source); /* else a role without any right to the table would keep the lock */
	relation = relation_open(source, AccessShareLock);
	columns = require_columns(model, needed, RelationGetDescr(relation), dana_relation_name(source));

	relation_close(relation, NoLock);
	return columns;
}

/* dana.dana_arguments(metadata, model, source): for a model's columns, all in the source */
DANA_FUNCTION(dana_feature_list)
{
	Jsonb	  *metadata = PG_GETARG_JSONB_P(0);
	dana_texts features;

	if (!dana_json_is_null(metadata, "features") && !dana_json_are_texts(metadata, "features"))
		dana_reject_argument("metadata", "have an array \"features\" of texts, as a model's metadata has");
	features = dana_json_texts(metadata, "features");
	(void)require_columns_of(text_to_cstring(PG_GETARG_TEXT_PP(1)), &features, PG_GETARG_OID(2));
	PG_RETURN_TEXT_P(cstring_to_text(arguments_of(&features, "r.*")));
}

/* The metrics that belong to the loss of other rules, as elements of an array */
static const char *
metrics_of_others(const evaluated_model *model)
{
	const char *deviance = of_metadata(model, "deviance");

	if (deviance == NULL)
		return METRIC_POISSON_DEVIANCE "," METRIC_GAMMA_DEVIANCE;
	return strcmp(deviance, METRIC_POISSON_DEVIANCE) == 0 ? METRIC_GAMMA_DEVIANCE : METRIC_POISSON_DEVIANCE;
}

static char *
metrics_of(const evaluated_model *model)
{
	const char *classification = dana_extension_name("dana_classification_metrics");
	const char *regression = dana_extension_name("dana_regression_metrics");

	if (predicts(model, "numbers"))
		return psprintf(METRICS_OF_NUMBERS, regression);
	if (predicts(model, "number"))
		return psprintf(METRICS_OF_NUMBER, classification, regression, metrics_of_others(model));
	return psprintf(METRICS_OF_CLASSES, classification);
}

static char *
label_of(const evaluated_model *model, TupleDesc columns)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < model->labels.count; i++)
	{
		const char *label = model->labels.values[i];
		const Oid	type = SPI_gettypeid(columns, SPI_fnumber(columns, label));

		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", dana_datetime_expression(model->metadata, label, type));
	}
	if (predicts(model, "numbers"))
		return psprintf(LABEL_NUMBERS, list.data);
	return psprintf(dana_json_is_null(model->metadata, "classes") ? LABEL_NUMBER : LABEL_CLASS, list.data);
}

/*
 * SQL for an array with an element for each one-hot column, true for a row with a category that the training did not
 * have; appends to `names` SQL for the name of each column with such a row, else NULL
 */
static char *
unseen_of(const evaluated_model *model, TupleDesc columns, StringInfo names)
{
	int			   count, found = 0;
	dana_encoder  *encoders = dana_encoders_read(model->metadata, &count);
	StringInfoData condition;

	initStringInfo(&condition);
	appendStringInfoString(&condition, "ARRAY[");
	for (int i = 0; encoders != NULL && i < count; i++)
	{
		const dana_encoder *encoder = &encoders[i];
		const int			number = SPI_fnumber(columns, encoder->column);

		/* what is not listed may have been among the others of the training */
		if (encoder->kind != DANA_ENCODE_ONE_HOT || encoder->other || encoder->categories.count == 0 || number <= 0)
			continue;
		appendStringInfo(names, "%sCASE WHEN pg_catalog.count(s.y) FILTER (WHERE s.unseen[%d]) OPERATOR(pg_catalog.>) 0 "
						 "THEN %s END", found > 0 ? ", " : "", found + 1, quote_literal_cstr(encoder->column));
		/* by bytes, as dana_encode() compares: a collation may ignore case */
		appendStringInfo(&condition, "%s(%s) COLLATE pg_catalog.\"C\" OPERATOR(pg_catalog.<>) ALL (ARRAY[", found++ > 0 ? ", " : "",
						 dana_text_expression(encoder->column, SPI_gettypeid(columns, number)));
		for (int k = 0; k < encoder->categories.count; k++)
			appendStringInfo(&condition, "%s%s", k > 0 ? ", " : "", quote_literal_cstr(encoder->categories.values[k]));
		appendStringInfoString(&condition, "]::pg_catalog.text[])");
	}
	appendStringInfoString(&condition, "]::pg_catalog.bool[]");
	return condition.data;
}

/* The columns of the rows, which must include the model's features and labels */
static TupleDesc
columns_of(const dana_evaluation *asked, const evaluated_model *model, const evaluated_rows *rows)
{
	const int  features = Max(model->features.count, 0);
	dana_texts needed = {.count = features + model->labels.count};
	char	  *query;

	needed.values = palloc(sizeof(char *) * needed.count);
	for (int i = 0; i < needed.count; i++)
		needed.values[i] = i < features ? model->features.values[i] : model->labels.values[i - features];
	if (OidIsValid(rows->table))
		return require_columns_of(asked->model, &needed, rows->table);
	query = psprintf("SELECT * FROM %s", rows->from);
	return require_columns(asked->model, &needed, dana_rows_descriptor(dana_rows_plan(query, "the query", false)),
						   "the query");
}

/* Finds the columns of the rows, and restricts these to the part that is asked for; connected to SPI */
static void
restrict_to_part(const dana_evaluation *asked, const evaluated_model *model, evaluated_rows *rows)
{
	rows->columns = columns_of(asked, model, rows);
	if (strcmp(rows->part, "all") != 0)
		rows->condition =
			psprintf("%s AND %s%s", rows->condition, strcmp(rows->part, "train") == 0 ? "NOT " : "",
					 dana_split_read(model->metadata, rows->columns, rows->row, rows->table, asked->model, &rows->places));
}

/* Classes of the label as a text[]; empty if it is a number */
static Datum
classes_of(const evaluated_model *model)
{
	dana_texts classes = dana_json_texts(model->metadata, "classes");
	Datum	  *values = palloc(sizeof(Datum) * Max(classes.count, 1));

	for (int i = 0; i < classes.count; i++)
		values[i] = CStringGetTextDatum(classes.values[i]);
	return PointerGetDatum(construct_array(values, Max(classes.count, 0), TEXTOID, -1, false, TYPALIGN_INT));
}

/* Reports a model of two classes that finds less than half of a rare one, as it may at a threshold of 0.5 */
static void
report_rare_class(const dana_evaluation *asked, Jsonb *metrics)
{
	const char *hint = "auc shows how well its predictions separate the two classes: if it is well above 0.5, give another "
					   "threshold, or, if the rule has classes, train with class_weight => '\"balanced\"'.";
	int64		rows, positives, chosen, rare, found;
	const char *positive;
	Jsonb	   *confusion;

	if (dana_json_is_null(metrics, METRIC_AUC)) /* more classes, or rows of one class */
		return;
	confusion = dana_json_member(metrics, METRIC_CONFUSION);
	positive = dana_json_is_null(metrics, "positive") ? "1" : dana_json_string(metrics, "positive");
	rows = dana_json_integer(metrics, "rows");
	positives = dana_json_integer(confusion, "tp") + dana_json_integer(confusion, "fn");
	chosen = dana_json_integer(confusion, "tp") + dana_json_integer(confusion, "fp");
	rare = Min(positives, rows - positives);
	found = dana_json_integer(confusion, positives == rare ? "tp" : "tn");
	if (chosen == 0 || chosen == rows)
		dana_notice(NOTICE, hint,
					"model \"%s\" takes %s of " INT64_FORMAT " rows for \"%s\", the label of " INT64_FORMAT " rows",
					asked->model, chosen == 0 ? "none" : "each", rows, positive, positives);
	else if ((double) rare / rows < RARE && found < rare - found)
		dana_notice(NOTICE, hint,
					"model \"%s\" finds only " INT64_FORMAT " of the " INT64_FORMAT " rows of the rarer class, %.2g %% of all",
					asked->model, found, rare, 100.0 * rare / rows);
}

static int64
count_of(Jsonb *metrics, const char *member)
{
	return dana_json_is_null(metrics, member) ? 0 : dana_json_integer(metrics, member);
}

/* Reports rows that are not like those of the training: a value was renamed since, or is new */
static void
report_unseen(const dana_evaluation *asked, Jsonb *metrics, const char *columns)
{
	const int64 unseen = count_of(metrics, METRIC_UNSEEN_CATEGORIES);
	const int64 others = count_of(metrics, METRIC_OTHER_LABELS);

	if (unseen > 0)
		dana_notice(NOTICE, "A value may have been renamed or added since the training; such rows are predicted as of no "
							"category, and are in the metrics. Train again.",
					INT64_FORMAT " rows have a category that model \"%s\" does not know, in column %s", unseen, asked->model,
					columns);
	if (others > 0)
		dana_notice(NOTICE, "A value may have been renamed or added since the training; such rows are in no metric. Train again.",
					INT64_FORMAT " rows have a label that is not a class of model \"%s\"", others, asked->model);
}

/* Reports metrics that stand for fewer than half of the rows */
static void
report_not_predicted(const dana_evaluation *asked, Jsonb *metrics)
{
	const int64 rows = dana_json_integer(metrics, "rows");
	const int64 missing = count_of(metrics, METRIC_NOT_PREDICTED);

	if (missing > rows)
		dana_notice(WARNING, "The metrics are of the other rows only. A model trained with nulls => 'mean' predicts all.",
					"model \"%s\" predicts " INT64_FORMAT " of " INT64_FORMAT " rows: the others have a NULL in a feature",
					asked->model, rows, rows + missing);
}

/* Runs the statement in the caller's SPI connection */
static Jsonb *
evaluate(const dana_evaluation *asked, const evaluated_model *model, const evaluated_rows *rows, Snapshot snapshot,
		 char **unseen)
{
	const bool	  current = snapshot == InvalidSnapshot;
	const bool	  from_zero = asked->threshold.isnull && predicts(model, "score"); /* from 0 on: the second class */
	MemoryContext caller = CurrentMemoryContext;
	Oid			  types[] = {TEXTOID, FLOAT8OID, TEXTARRAYOID, TEXTOID, INT4OID, TEXTOID, XIDOID, XIDARRAYOID, FLOAT8OID,
							 FLOAT8OID};
	const bool	  of_quantile = !dana_json_is_null(model->metadata, "quantile");
	Datum		  values[] = {CStringGetTextDatum(model->reference),
							  from_zero ? Float8GetDatum(0) : asked->threshold.value,
							  classes_of(model),
							  CStringGetTextDatum(model->name),
							  Int32GetDatum(model->version),
							  CStringGetTextDatum(rows->part),
							  rows->places.first,
							  rows->places.running,
							  Float8GetDatum(of_quantile ? dana_json_double(model->metadata, "quantile") : 0),
							  Float8GetDatum(dana_json_is_null(model->metadata, "centres")
												 ? 0
												 : dana_json_double(dana_json_member(model->metadata, "centres"), "label"))};
	char		  nulls[] = {' ', asked->threshold.isnull && !from_zero ? 'n' : ' ', ' ', ' ', ' ', ' ', ' ', ' ',
							 of_quantile ? ' ' : 'n', ' ', '\0'};
	char		 *label = label_of(model, rows->columns), *conditions;
	StringInfoData names;
	SPIPlanPtr	  plan;
	Datum		  found;
	int			  code;

	initStringInfo(&names);
	conditions = unseen_of(model, rows->columns, &names);
	plan = SPI_prepare(psprintf(STATEMENT, metrics_of(model), names.data, label, arguments_of(&model->features, rows->row),
								rows->places.later, conditions, rows->from, rows->condition),
					   lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "could not plan the evaluation: %s", SPI_result_code_string(SPI_result));
	code = SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, current, true, 0);
	MemoryContextSwitchTo(caller);
	if (code != SPI_OK_SELECT || SPI_processed != 1)
		dana_error(SYNTAX_ERROR, "argument \"query\" must be one SELECT");
	found = dana_value(0, 1);
	if (DatumGetPointer(found) == NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION), errmsg("there is no row to evaluate on"),
						errhint("Rows that have no label, none of the model's classes, or a NULL in a feature do not count, "
								"nor do those that \"filter\" or \"part\" leaves out.")));
	dana_places_report(&rows->places, rows->table, asked->model, rows->part, DatumGetInt64(dana_value(0, 2)),
					 DatumGetInt64(dana_value(0, 3)));
	*unseen = TextDatumGetCString(dana_value(0, 4));
	return DatumGetJsonbPCopy(found);
}

static void
require_label(const dana_evaluation *asked, const evaluated_model *model)
{
	if (model->labels.count < 1 || (model->labels.count > 1 && !predicts(model, "numbers")))
		dana_error(OBJECT_NOT_IN_PREREQUISITE_STATE, "model \"%s\" has no label to compare with", asked->model);
}

/* Lets the statements of the SPI connection read rows in memory, as those of a trigger read its transition tables */
static void
use_sample(const dana_sample *sample)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));

	relation->md.name = SAMPLE;
	relation->md.tupdesc = sample->columns;
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = tuplestore_tuple_count(sample->stored);
	relation->reldata = sample->stored;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register the rows of a sample");
}

bool
dana_evaluation_rows(const dana_evaluation *asked, int64 most, int seed, dana_sample *sample, HeapTuple **rows,
					 uint64 *count)
{
	const evaluated_model model = find_model(asked, false);
	evaluated_rows		  from = find_rows(asked, &model);
	const int			  level = NewGUCNestLevel();
	MemoryContext		  caller = CurrentMemoryContext;
	Oid					  types[] = {INT4OID, INT8OID};
	Datum				  values[] = {Int32GetDatum(seed), Int64GetDatum(most + 1)};
	StringInfoData		  columns;
	bool				  all;

	require_label(asked, &model);
	if (from.as_trained)
		dana_training_settings(model.metadata);
	initStringInfo(&columns);
	sample->features = Max(model.features.count, 0);
	for (int i = 0; i < sample->features + model.labels.count; i++)
		appendStringInfo(&columns, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(i < sample->features ? model.features.values[i]
															   : model.labels.values[i - sample->features]));
	dana_connect();
	restrict_to_part(asked, &model, &from);
	if (SPI_execute_with_args(psprintf(ROWS, columns.data, from.from, from.condition), lengthof(types), types, values, NULL,
							  true, 0) != SPI_OK_SELECT)
		dana_error(SYNTAX_ERROR, "argument \"query\" must be one SELECT");
	MemoryContextSwitchTo(caller);
	all = SPI_processed <= (uint64)most;
	*count = all ? SPI_processed : (uint64)most;
	*rows = MemoryContextAllocHuge(caller, sizeof(HeapTuple) * Max(*count, 1));
	for (uint64 i = 0; i < *count; i++)
		(*rows)[i] = heap_copytuple(SPI_tuptable->vals[i]);
	sample->columns = CreateTupleDescCopy(SPI_tuptable->tupdesc);
	SPI_finish();
	AtEOXact_GUC(true, level);
	dana_places_report(&from.places, from.table, asked->model, from.part, 0, 0);
	return all;
}

Jsonb *
dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot)
{
	const evaluated_model model = find_model(asked, snapshot != InvalidSnapshot);
	evaluated_rows		  rows = find_rows(asked, &model);
	const int			  level = NewGUCNestLevel();
	Jsonb				 *metrics;
	char				 *unseen; /* columns */

	require_label(asked, &model);
	if (rows.as_trained)
		dana_training_settings(model.metadata);
	dana_connect();
	if (asked->sample != NULL)
		use_sample(asked->sample);
	restrict_to_part(asked, &model, &rows);
	metrics = evaluate(asked, &model, &rows, snapshot, &unseen);
	SPI_finish();
	AtEOXact_GUC(true, level);
	if (asked->sample != NULL)
		return metrics;
	if (snapshot == InvalidSnapshot)
	{
		report_rare_class(asked, metrics);
		report_unseen(asked, metrics, unseen);
	}
	report_not_predicted(asked, metrics);
	return metrics;
}

dana_evaluation
dana_evaluation_of(FunctionCallInfo fcinfo)
{
	dana_evaluation asked = {.threshold = fcinfo->args[5]};

	dana_require_arguments(fcinfo, 1);
	if (!asked.threshold.isnull && isnan(DatumGetFloat8(asked.threshold.value)))
		dana_reject_argument("threshold", "be a number, not NaN");
	asked.model = text_to_cstring(PG_GETARG_TEXT_PP(0));
	asked.source = PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
	asked.query = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	asked.filter = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	asked.part = PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4));
	return asked;
}

/* dana_evaluate(model, source, query, filter, part, threshold) */
DANA_FUNCTION(dana_evaluate)
{
	const dana_evaluation asked = dana_evaluation_of(fcinfo);

	PG_RETURN_JSONB_P(dana_evaluate_model(&asked, InvalidSnapshot));
}

/* dana_test_rows(model): SQL that is true for the rows that its training held out */
DANA_FUNCTION(dana_test_rows)
{
	const dana_evaluation asked = {.model = text_to_cstring(PG_GETARG_TEXT_PP(0)), .part = "test"};
	const evaluated_model model = find_model(&asked, false);
	evaluated_rows		  rows = find_rows(&asked, &model);
	const int			  level = NewGUCNestLevel();
	char				 *condition;

	if (rows.as_trained)
		dana_training_settings(model.metadata);
	dana_connect();
	rows.columns = columns_of(&asked, &model, &rows);
	condition = dana_split_read(model.metadata, rows.columns, rows.row, rows.table, asked.model, &rows.places);
	SPI_finish();
	AtEOXact_GUC(true, level);
	PG_RETURN_TEXT_P(cstring_to_text(condition));
}
