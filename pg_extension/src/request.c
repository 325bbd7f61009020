/*
 * The arguments of dana_train(), checked, and the message that they become.
 */
#include "request.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

#include "bounds.h"
#include "compat.h"
#include "json.h"
#include "models.h"

#include <math.h>
#include <sched.h>

enum argument
{
	UDF,
	SOURCE,
	MODEL,
	FEATURES,
	LABEL,
	EPOCHS,
	HYPER,
	BACKEND,
	DESIGN,
	QUERY,
	FILTER,
	NULLS,
	NONFINITE,
	CLASSES,
	TEST,
	SEED,
	WARM,
	ARGUMENTS
};

static const char *const names[ARGUMENTS] = {"udf",	   "source", "model",	"features", "label",	 "epochs",	"hyper", "backend", "design",
											 "query",  "filter", "nulls",	"nonfinite", "classes", "test", "seed",	 "warm"};

static void
bad_value(enum argument number, const char *given, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" must be %s, not \"%s\"", names[number], wanted, given)));
}

static void
require(FunctionCallInfo fcinfo, enum argument number)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be NULL", names[number])));
}

static char *
text_or_null(FunctionCallInfo fcinfo, enum argument number)
{
	return PG_ARGISNULL(number) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

static char *
required_text(FunctionCallInfo fcinfo, enum argument number)
{
	require(fcinfo, number);
	return text_or_null(fcinfo, number);
}

/* A JSON object as given, an empty one for NULL */
static char *
object_argument(FunctionCallInfo fcinfo, enum argument number)
{
	Jsonb *value;

	if (PG_ARGISNULL(number))
		return "{}";
	value = PG_GETARG_JSONB_P(number);
	if (!JB_ROOT_IS_OBJECT(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be a JSON object", names[number]),
				 errhint("For instance %s.", number == DESIGN ? "'{\"threads\": 4}'" : "'{\"lr\": 0.01}'")));
	return JsonbToCString(NULL, &value->root, VARSIZE(value));
}

int
dana_request_texts(FunctionCallInfo fcinfo, int number, const char *name, char ***texts)
{
	Datum *values;
	bool  *nulls;
	int	   count;

	*texts = NULL;
	if (PG_ARGISNULL(number))
		return -1;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(number), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &count);
	*texts = palloc(sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not contain NULL", name)));
		(*texts)[i] = TextDatumGetCString(values[i]);
	}
	return count;
}

static int
texts_argument(FunctionCallInfo fcinfo, enum argument number, char ***texts)
{
	return dana_request_texts(fcinfo, number, names[number], texts);
}

static void
read_cleaning(FunctionCallInfo fcinfo, dana_cleaning *cleaning)
{
	char *nulls = required_text(fcinfo, NULLS);
	char *nonfinite = required_text(fcinfo, NONFINITE);

	if (strcmp(nulls, "skip") == 0)
		cleaning->nulls = DANA_NULLS_SKIP;
	else if (strcmp(nulls, "error") == 0)
		cleaning->nulls = DANA_NULLS_ERROR;
	else
	{
		char *end;

		cleaning->nulls = DANA_NULLS_FILL;
		cleaning->fill = strtof(nulls, &end);
		if (end == nulls || *end != '\0' || !isfinite(cleaning->fill))
			bad_value(NULLS, nulls, "'skip', 'error', or a number to put in their place");
	}
	if (strcmp(nonfinite, "keep") == 0)
		cleaning->nonfinite = DANA_NONFINITE_KEEP;
	else if (strcmp(nonfinite, "skip") == 0)
		cleaning->nonfinite = DANA_NONFINITE_SKIP;
	else if (strcmp(nonfinite, "error") == 0)
		cleaning->nonfinite = DANA_NONFINITE_ERROR;
	else
		bad_value(NONFINITE, nonfinite, "'keep', 'skip' or 'error'");
	cleaning->class_count = texts_argument(fcinfo, CLASSES, &cleaning->classes);
	if (cleaning->class_count == 0)
		bad_value(CLASSES, "{}", "a list of labels");
}

/* The filter, with the part of the rows that is held out for a test left out */
static char *
read_filter(FunctionCallInfo fcinfo)
{
	char  *filter = text_or_null(fcinfo, FILTER);
	double test;

	if (filter != NULL)
		dana_filter_check(filter);
	if (PG_ARGISNULL(TEST))
		return filter;
	require(fcinfo, SEED);
	test = PG_GETARG_FLOAT8(TEST);
	if (!(test > 0 && test < 1))
		bad_value(TEST, psprintf("%g", test), "a part of the rows between 0 and 1");
	if (!PG_ARGISNULL(QUERY))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"test\" needs a table, whose rows have a place"),
				 errhint("Put NOT dana_holdout(key, %g, %d) into the query's WHERE.", test, PG_GETARG_INT32(SEED))));
	if (!PG_ARGISNULL(SOURCE) && get_rel_relkind(PG_GETARG_OID(SOURCE)) == RELKIND_VIEW)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"test\" needs a table, whose rows have a place, and %s is a view",
						quote_qualified_identifier(get_namespace_name(get_rel_namespace(PG_GETARG_OID(SOURCE))),
												   get_rel_name(PG_GETARG_OID(SOURCE)))),
				 errhint("Use filter => 'NOT dana_holdout(key, %g, %d)' with a column that tells its rows apart.", test, PG_GETARG_INT32(SEED))));
	/* with a cast: whatever functions of that name others may have made, this one's types are exactly these */
	return psprintf("NOT %s(ctid, %.17g::pg_catalog.float8, %d)%s%s%s",
					quote_qualified_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)), "dana_holdout"),
					test, PG_GETARG_INT32(SEED), filter != NULL ? " AND (" : "", filter != NULL ? filter : "",
					filter != NULL ? "\n)" : "");
}

void
dana_request_read(FunctionCallInfo fcinfo, int more, dana_train_call *call)
{
	if (PG_NARGS() != ARGUMENTS + more)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extension's functions are of another version than its library"),
				 errhint("Run ALTER EXTENSION dana UPDATE.")));
	memset(call, 0, sizeof *call);
	call->fcinfo = fcinfo;
	call->udf = required_text(fcinfo, UDF);
	call->backend = required_text(fcinfo, BACKEND);
	dana_bounds_check_backend(call->backend);
	call->model = PG_ARGISNULL(MODEL) ? call->udf : text_or_null(fcinfo, MODEL);
	call->warm = text_or_null(fcinfo, WARM);
	call->features = texts_argument(fcinfo, FEATURES, &call->feature);
	call->label = text_or_null(fcinfo, LABEL);
	call->source.query = text_or_null(fcinfo, QUERY);
	if (PG_ARGISNULL(SOURCE) && call->source.query == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"source\" must not be NULL"),
				 errhint("Name a table, or give query => 'SELECT ...'.")));
	if (!PG_ARGISNULL(SOURCE) && call->source.query != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("give either argument \"source\" or argument \"query\", not both")));
	if (call->source.query != NULL && !PG_ARGISNULL(FILTER))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"filter\" goes with a table"),
				 errhint("Put the condition into the query's WHERE.")));
	call->source.relation = PG_ARGISNULL(SOURCE) ? InvalidOid : PG_GETARG_OID(SOURCE);
	if (!PG_ARGISNULL(EPOCHS) && (PG_GETARG_INT32(EPOCHS) < 1 || PG_GETARG_INT32(EPOCHS) > dana_max_epochs))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"epochs\" must be from 1 to %d, not %d", dana_max_epochs, PG_GETARG_INT32(EPOCHS))));
	read_cleaning(fcinfo, &call->source.cleaning);
	call->source.filter = read_filter(fcinfo);
}

/* The arguments of dana_explain(), each with the argument of dana_train() that it is */
static const enum argument explained[] = {UDF,	 SOURCE, FEATURES, LABEL, EPOCHS,
										  HYPER, DESIGN, QUERY,	   FILTER, CLASSES};

void
dana_request_read_explain(FunctionCallInfo fcinfo, dana_train_call *call, dana_explanation *wanted)
{
	/* read later too, so not on this function's stack */
	FunctionCallInfo training = palloc0(SizeForFunctionCallInfo(ARGUMENTS));
	const int		 own = lengthof(explained); /* device, search, format follow */
	char			*format;

	if (PG_NARGS() != own + 3)
		elog(ERROR, "dana_explain() must have %d arguments", own + 3);
	InitFunctionCallInfoData(*training, fcinfo->flinfo, ARGUMENTS, fcinfo->fncollation, NULL, NULL);
	for (int i = 0; i < ARGUMENTS; i++)
		training->args[i].isnull = true;
	for (int i = 0; i < own; i++)
		training->args[explained[i]] = fcinfo->args[i];
	training->args[BACKEND] = (NullableDatum){CStringGetTextDatum("sim"), false};
	training->args[NULLS] = (NullableDatum){CStringGetTextDatum("skip"), false};
	training->args[NONFINITE] = (NullableDatum){CStringGetTextDatum("keep"), false};
	dana_request_read(training, 0, call);
	for (int i = own; i < own + 3; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("device, search and format must not be NULL")));
	wanted->device = text_to_cstring(PG_GETARG_TEXT_PP(own));
	wanted->search = PG_GETARG_BOOL(own + 1);
	format = text_to_cstring(PG_GETARG_TEXT_PP(own + 2));
	wanted->json = strcmp(format, "json") == 0;
	if (!wanted->json && strcmp(format, "text") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"format\" must be 'text' or 'json', not \"%s\"", format)));
}

static void
append_text(StringInfo to, const char *key, const char *value)
{
	appendStringInfo(to, ",\"%s\":", key);
	if (value == NULL)
		appendStringInfoString(to, "null");
	else
		dana_json_append(to, value);
}

static void
append_texts(StringInfo to, FunctionCallInfo fcinfo, enum argument number)
{
	char **texts;
	int	   count = texts_argument(fcinfo, number, &texts);

	appendStringInfo(to, ",\"%s\":", names[number]);
	if (count < 0)
	{
		appendStringInfoString(to, "null");
		return;
	}
	appendStringInfoChar(to, '[');
	for (int i = 0; i < count; i++)
	{
		if (i > 0)
			appendStringInfoChar(to, ',');
		dana_json_append(to, texts[i]);
	}
	appendStringInfoChar(to, ']');
}

/* What is kept with the model beside what the worker knows of it */
static void
append_notes(StringInfo to, FunctionCallInfo fcinfo, dana_source *source, const dana_group_key *group)
{
	char	   *query = text_or_null(fcinfo, QUERY);
	const char *filter = text_or_null(fcinfo, FILTER);

	if (group != NULL && query != NULL)
		query = psprintf("SELECT * FROM (%s\n) AS r WHERE %s", query, group->condition);
	else if (group != NULL)
		filter = filter == NULL ? group->condition : psprintf("(%s\n) AND %s", filter, group->condition);
	appendStringInfoString(to, ",\"notes\":{\"source\":");
	dana_json_append(to, source->name);
	if (query != NULL)
		append_text(to, "query", query);
	if (filter != NULL)
		append_text(to, "filter", filter);
	if (group != NULL)
	{
		appendStringInfoString(to, ",\"group\":{\"of\":");
		dana_json_append(to, group->of);
		appendStringInfo(to, ",\"key\":%s}", group->key);
	}
	if (!PG_ARGISNULL(CLASSES))
		append_texts(to, fcinfo, CLASSES);
	if (!PG_ARGISNULL(TEST))
		appendStringInfo(to, ",\"test\":%.17g,\"seed\":%d", PG_GETARG_FLOAT8(TEST), PG_GETARG_INT32(SEED));
	if (!PG_ARGISNULL(WARM))
		append_text(to, "warm", text_or_null(fcinfo, WARM));
	appendStringInfoChar(to, '}');
}

StringInfo
dana_request_build(const dana_train_call *call, const char *rule, dana_source *source)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	StringInfo		 request = makeStringInfo();

	appendStringInfoString(request, "{\"relation\":");
	dana_source_describe(source, request);
	append_text(request, "rule", call->udf);
	append_text(request, "source", rule);
	append_texts(request, fcinfo, FEATURES);
	append_text(request, "label", text_or_null(fcinfo, LABEL));
	if (PG_ARGISNULL(EPOCHS))
		appendStringInfoString(request, ",\"epochs\":null");
	else
		appendStringInfo(request, ",\"epochs\":%d", PG_GETARG_INT32(EPOCHS));
	append_text(request, "backend", call->backend);
	appendStringInfo(request, ",\"hyper\":%s", dana_json_utf8(object_argument(fcinfo, HYPER)));
	appendStringInfo(request, ",\"design\":%s", dana_json_utf8(object_argument(fcinfo, DESIGN)));
	/* of rows we refuse a NULL ourselves; what the worker leaves out of them is not finite */
	append_text(request, "nulls", source->cleaning.nulls == DANA_NULLS_ERROR && !source->rows ? "error" : "skip");
	append_texts(request, fcinfo, CLASSES);
	append_notes(request, fcinfo, source, call->group);
	appendStringInfoString(request, ",\"warm\":");
	if (call->warm == NULL)
		appendStringInfoString(request, "null");
	else
		dana_model_append_weights(request, call->warm);
	/* the worker keeps off this CPU while we stream */
	append_text(request, "role", GetUserNameFromId(GetUserId(), true));
	append_text(request, "database", get_database_name(MyDatabaseId));
	appendStringInfo(request, ",\"max_epochs\":%d,\"max_memory\":" INT64_FORMAT ",\"cpu\":%d}", dana_max_epochs,
					 (int64)dana_max_memory * 1024 * 1024, sched_getcpu());
	return request;
}
