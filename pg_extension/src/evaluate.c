/*
 * dana_evaluate(): a model's predictions beside the labels of some rows.
 *
 * Rows are read with the caller's rights. What a model's metadata says of them (a table, a query, a filter) is somebody's
 * text: it is used for models of the caller's own only, so that nobody runs what another role wrote.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "dana.h"
#include "arguments.h"
#include "evaluate.h"
#include "filter.h"
#include "holdout.h"
#include "models.h"
#include "source.h"

/* Arguments of a function at most, less model and one to spare; a row is slower to make than arguments */
#define MOST_ARGUMENTS 98

typedef struct evaluated_model
{
	char  *name;
	int	   version;
	bool   own;
	Jsonb *metadata;
	char  *reference; /* of this version */
} evaluated_model;

static evaluated_model
find_model(const dana_evaluation *asked, bool wrote)
{
	static dana_statement find = DANA_MODEL_FIND("metadata");
	dana_identity	before = dana_become_owner();
	evaluated_model model;

	dana_model_find(&find, asked->model, before.user, wrote ? dana_run : dana_read);
	model.own = DatumGetObjectId(dana_value(0, 1)) == before.user;
	model.name = TextDatumGetCString(dana_value(0, 3));
	model.version = DatumGetInt32(dana_value(0, 4));
	model.metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_COLUMNS + 1));
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
	char *from;
	char *condition;
	char *part;
} evaluated_rows;

static void
refuse_text_of_other(const dana_evaluation *asked, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("model \"%s\" belongs to another role, whose %s would be run as you", asked->model, what),
			 errhint("Say on which rows: give argument \"source\" or \"query\", and \"filter\" where you want one. "
					 "dana.model.metadata has the owner's; read them first.")));
}

static void
check_part(const dana_evaluation *asked, const evaluated_model *model, const char *part)
{
	if (strcmp(part, "all") == 0)
		return;
	if (strcmp(part, "test") != 0 && strcmp(part, "train") != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"part\" must be 'all', 'train' or 'test', not \"%s\"", part)));
	if (dana_json_is_null(model->metadata, "test_size"))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("model \"%s\" was trained without a part for tests", asked->model),
						errhint("Train with test_size => 0.2, or evaluate on other rows.")));
	if (asked->query != NULL || (OidIsValid(asked->source) && get_rel_relkind(asked->source) == RELKIND_VIEW))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("part '%s' is rows of the table that model \"%s\" was trained on, which those of a %s are not", part,
						asked->model, asked->query != NULL ? "query" : "view"),
				 errhint("Evaluate on all of them with part => 'all'.")));
}

static evaluated_rows
find_rows(const dana_evaluation *asked, const evaluated_model *model)
{
	evaluated_rows rows;
	const char	  *trained_on = of_metadata(model, "source");
	char		  *filter = asked->filter;
	bool		   given = asked->query != NULL || OidIsValid(asked->source);
	bool		   same; /* the rows of the training, and others that have come since */

	if (asked->query != NULL && OidIsValid(asked->source))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("give either argument \"source\" or argument \"query\", not both")));
	if (!given && !model->own)
		refuse_text_of_other(asked, dana_json_is_null(model->metadata, "query") ? "table" : "query");
	if (asked->query != NULL)
		rows.from = psprintf("(%s\n)", asked->query);
	else if (given)
		rows.from = dana_relation_name(asked->source);
	else if (!dana_json_is_null(model->metadata, "query"))
		rows.from = psprintf("(%s\n)", of_metadata(model, "query"));
	else /* as the server wrote it, and an error where there is none any more */
		rows.from = dana_relation_name(DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(trained_on))));
	same = !given || (OidIsValid(asked->source) && strcmp(rows.from, trained_on) == 0);
	if (filter == NULL && same && !dana_json_is_null(model->metadata, "filter"))
	{
		if (!model->own)
			refuse_text_of_other(asked, "filter");
		filter = of_metadata(model, "filter");
	}
	if (filter != NULL)
		dana_filter_check(filter);
	rows.part = asked->part != NULL ? asked->part : same && !dana_json_is_null(model->metadata, "test_size") ? "test" : "all";
	check_part(asked, model, rows.part);
	rows.condition = filter == NULL ? "true" : psprintf("(%s\n)", filter);
	if (strcmp(rows.part, "all") != 0)
		rows.condition = psprintf("%s AND %s%s", rows.condition, strcmp(rows.part, "train") == 0 ? "NOT " : "",
								  dana_holdout_expression("ctid", dana_json_double(model->metadata, "test_size"),
														  dana_json_integer(model->metadata, "seed")));
	return rows;
}

/*
 * The features as arguments of dana_predict(), or the row, whose columns it finds by name. No column is called r.name:
 * where there is none, PostgreSQL would call somebody's function of that name, with the row.
 */
static char *
arguments_of(const evaluated_model *model)
{
	char		 **names;
	int			   count = dana_json_strings(model->metadata, "features", &names);
	StringInfoData list;

	if (count == 0 || count > MOST_ARGUMENTS)
		return "r.*";
	initStringInfo(&list);
	for (int i = 0; i < count; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", quote_identifier(names[i]));
	return list.data;
}

static char *
label_of(const dana_evaluation *asked, const evaluated_model *model)
{
	char **names;

	if (dana_json_is_null(model->metadata, "labels") || dana_json_strings(model->metadata, "labels", &names) != 1)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" has no label to compare with", asked->model)));
	return dana_json_is_null(model->metadata, "classes") ? psprintf("dana.dana_number(%s)", quote_identifier(names[0]))
														 : psprintf("dana.dana_class(%s, $3)", quote_identifier(names[0]));
}

/* Classes of the label as a text[]; empty where it is a number */
static Datum
classes_of(const evaluated_model *model)
{
	char **names = NULL;
	int	   count = dana_json_is_null(model->metadata, "classes") ? 0 : dana_json_strings(model->metadata, "classes", &names);
	Datum *values = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		values[i] = CStringGetTextDatum(names[i]);
	return PointerGetDatum(construct_array(values, count, TEXTOID, -1, false, TYPALIGN_INT));
}

/* The members of the result that are no metrics */
static Datum
evaluate_document(const evaluated_model *model, const char *part)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_text(&text, "model", model->name);
	dana_json_number(&text, "version", model->version);
	dana_json_text(&text, "part", part);
	dana_json_close(&text, '}');
	return JsonbPGetDatum(dana_json_parse(text.data));
}

Jsonb *
dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot)
{
	const evaluated_model model = find_model(asked, snapshot != InvalidSnapshot);
	const evaluated_rows  rows = find_rows(asked, &model);
	MemoryContext		  caller = CurrentMemoryContext;
	/* the types of the metrics' arguments are exactly the declared ones; OFFSET: each prediction is made once */
	char *text = psprintf("SELECT $4 OPERATOR(pg_catalog.||) COALESCE(%s(s.y, s.p, $2), '{}') "
						  "OPERATOR(pg_catalog.||) %s(s.y, s.p) FROM ("
						  "SELECT %s AS y, dana.dana_predict($1, %s)::pg_catalog.float8 AS p FROM %s AS r WHERE %s OFFSET 0) AS s",
						  dana_extension_name("dana_classification_metrics"),
						  dana_extension_name("dana_regression_metrics"), label_of(asked, &model), arguments_of(&model),
						  rows.from, rows.condition);
	Oid		   types[] = {TEXTOID, FLOAT8OID, TEXTARRAYOID, JSONBOID};
	Datum	   values[] = {CStringGetTextDatum(model.reference), asked->threshold.value, classes_of(&model),
						   evaluate_document(&model, rows.part)};
	char	   nulls[] = {' ', asked->threshold.isnull ? 'n' : ' ', ' ', ' ', '\0'};
	SPIPlanPtr plan;
	Jsonb	  *metrics;
	Datum	   found;
	int		   code;

	dana_connect();
	plan = SPI_prepare(text, lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "could not plan the evaluation: %s", SPI_result_code_string(SPI_result));
	code = SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, snapshot == InvalidSnapshot, true, 0);
	MemoryContextSwitchTo(caller);
	if (code != SPI_OK_SELECT || SPI_processed != 1)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("argument \"query\" must be one SELECT")));
	found = dana_value(0, 1);
	if (DatumGetPointer(found) == NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION), errmsg("there is no row to evaluate on")));
	metrics = DatumGetJsonbPCopy(found);
	SPI_finish();
	return metrics;
}

/* dana_evaluate(model, source, query, filter, part, threshold) */
DANA_FUNCTION(dana_evaluate)
{
	dana_evaluation asked = {.threshold = fcinfo->args[5]};

	dana_require_arguments(fcinfo, 1);
	asked.model = text_to_cstring(PG_GETARG_TEXT_PP(0));
	asked.source = PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
	asked.query = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	asked.filter = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	asked.part = PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4));
	PG_RETURN_JSONB_P(dana_evaluate_model(&asked, InvalidSnapshot));
}
