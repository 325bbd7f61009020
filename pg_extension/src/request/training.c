/*
 * The request for a training: from the arguments of dana_train() to the message for the worker.
 *
 * The SQL script declares the arguments. The table below has the ones that this side reads; all others are passed on to
 * the worker unchanged.
 */
#include "postgres.h"

#include <math.h>
#include <sched.h>

#include "catalog/namespace.h"
#include "commands/dbcommands.h"
#include "nodes/makefuncs.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "limits/bounds.h"
#include "models/models.h"
#include "models/rules.h"
#include "request/training.h"
#include "rows/places.h"
#include "rows/rows.h"
#include "source/gathered.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/encode.h"
#include "worker/session.h"

typedef struct training_member
{
	const char *name;
	Oid			type;
	Size		offset;
	bool		sent; /* passed on unchanged */
} training_member;

#define MEMBER(name, type, sent) {#name, type, offsetof(dana_training, name), sent}

static char *device;

static const training_member members[] = {
	MEMBER(rule, TEXTOID, false),
	{"source", REGCLASSOID, offsetof(dana_training, rows.relation), false},
	MEMBER(model, TEXTOID, false),
	MEMBER(features, TEXTARRAYOID, true),
	MEMBER(label, TEXTOID, true),
	MEMBER(epochs, INT4OID, true),
	MEMBER(machine, TEXTOID, false),
	{"query", TEXTOID, offsetof(dana_training, rows.query), false},
	MEMBER(filter, TEXTOID, false),
	MEMBER(nulls, TEXTOID, false),
	MEMBER(preprocess, JSONBOID, false),
	MEMBER(nonfinite, TEXTOID, true),
	MEMBER(classes, TEXTARRAYOID, true),
	MEMBER(weight, TEXTOID, true),
	MEMBER(test_size, FLOAT8OID, false),
	MEMBER(test_by, TEXTOID, false),
	MEMBER(test_after, JSONBOID, false),
	MEMBER(early_stopping, BOOLOID, false),
	MEMBER(validation_size, FLOAT8OID, false),
	MEMBER(calibrate, TEXTOID, true),
	MEMBER(seed, INT4OID, true),
	MEMBER(warm_start_from, TEXTOID, false),
	MEMBER(sync, TEXTOID, false),
};

void
dana_training_define(void)
{
	DefineCustomStringVariable("dana.device", 
							   "FPGA that machines must fit; trainings are modelled with its clock and link.",
							   "Its name, as dana design knows it; empty: machines are of no device.", &device, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
}

const char *
dana_device(void)
{
	return device[0] == '\0' ? NULL : device;
}

static const training_member *
member_of(const char *name)
{
	for (int i = 0; i < lengthof(members); i++)
		if (strcmp(members[i].name, name) == 0)
			return &members[i];
	return NULL;
}

static void
member_fill(dana_training *training, const training_member *member, Datum value, bool isnull)
{
	char *at = (char *)training + member->offset;

	if (member->type == TEXTARRAYOID)
		*(dana_texts *)at = dana_argument_texts(member->name, value, isnull);
	else if (isnull)
		return; /* zero already */
	else if (member->type == TEXTOID)
		*(char **)at = TextDatumGetCString(value);
	else if (member->type == JSONBOID)
		*(Jsonb **)at = DatumGetJsonbP(value);
	else if (member->type == FLOAT8OID)
		*(double *)at = DatumGetFloat8(value);
	else if (member->type == INT4OID)
		*(int *)at = DatumGetInt32(value);
	else if (member->type == BOOLOID)
		*(bool *)at = DatumGetBool(value);
	else
		*(Oid *)at = DatumGetObjectId(value);
}

/*
 * Index of a word in a list that ends with NULL, or of that end if it is not in the list. NULL stands for the first
 * word.
 */
static int
place_of_word(const char *word, const char *const *list)
{
	int i = 0;

	while (word != NULL && list[i] != NULL && strcmp(word, list[i]) != 0)
		i++;
	return i;
}

dana_null_policy
dana_read_nulls(const char *argument, const char *word, double *number)
{
	/* in the order of dana_null_policy; the last one is a number */
	static const char *const policies[] = {"skip", "error", "mean", "median", "indicator", NULL};
	dana_null_policy policy = place_of_word(word, policies);
	char *end;

	if (policy == DANA_NULLS_FILL)
	{
		*number = strtod(word, &end);
		if (end == word || *end != '\0' || !isfinite((float)*number))
			dana_reject_argument("%s", "%s 'skip', 'error', 'mean', 'median', 'indicator', or a number to put in their "
								 "place, not \"%s\"", argument, strcmp(argument, "nulls") == 0 ? "be" : "impute",
								 dana_shown(word));
	}
	return policy;
}

static int
compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void
check_different(const dana_texts *classes)
{
	const Size size = sizeof(char *) * classes->count;
	char	 **sorted = memcpy(palloc(size), classes->values, size);

	qsort(sorted, classes->count, sizeof(char *), compare_texts);
	for (int i = 1; i < classes->count; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			dana_reject_argument("classes", "be labels that differ, not \"%s\"", dana_shown(sorted[i]));
}

/* Bytes of classes: a request has them twice, and JSON may need more for them */
#define MAX_CLASSES (DANA_MAX_REQUEST / 8)

static void
read_cleaning(const dana_training *training, dana_cleaning *cleaning)
{
	/* in the order of dana_nonfinite_policy */
	static const char *const nonfinite_policies[] = {"skip", "keep", "error", NULL};
	Size length = 0;

	cleaning->nulls = dana_read_nulls("nulls", training->nulls, &cleaning->fill);
	cleaning->nonfinite = place_of_word(training->nonfinite, nonfinite_policies);
	if (cleaning->nonfinite > DANA_NONFINITE_ERROR)
		dana_reject_argument("nonfinite", "be 'skip', 'keep' or 'error', not \"%s\"", dana_shown(training->nonfinite));
	cleaning->classes = training->classes;
	cleaning->weight = training->weight;
	if (training->classes.count == 0)
		dana_reject_argument("classes", "be a list of labels, not \"{}\"");
	for (int i = 0; i < training->classes.count; i++)
		length += strlen(training->classes.values[i]);
	if (length > MAX_CLASSES)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "argument \"classes\" has texts of %zu bytes, more than %u", length, MAX_CLASSES);
	if (training->classes.count > 1)
		check_different(&training->classes);
}

char *
dana_training_rows(const dana_training *training, const char *condition, const char *rows)
{
	if (training->rows.query != NULL)
		return psprintf("SELECT * FROM (%s\n) AS r WHERE %s", rows, condition);
	/* the newline ends a comment in the filter */
	return rows == NULL ? pstrdup(condition) : psprintf("%s AND (%s\n)", condition, rows);
}

/* Checks the arguments, and derives what the source needs to know */
static void
training_check(dana_training *training)
{
	static const char *const modes[] = {"gather", "batch", "epoch", NULL};
	const dana_arguments *given = &training->arguments;

	if (training->rule == NULL)
		dana_error(NULL_VALUE_NOT_ALLOWED, "argument \"rule\" must not be null");
	for (int i = 0; i < given->count; i++)
		if (given->types[i] == JSONBOID && !given->nulls[i] && !JB_ROOT_IS_OBJECT(DatumGetJsonbP(given->values[i])) &&
			!(strcmp(given->names[i], "class_weight") == 0 && JB_ROOT_IS_SCALAR(DatumGetJsonbP(given->values[i]))))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"%s\" must be a JSON object", given->names[i]),
							errhint("For instance '{%s}'.",
									strcmp(given->names[i], "design") == 0 ? "\"threads\": 4"
									: strcmp(given->names[i], "hyper") == 0 ? "\"lr\": 4"
									: strcmp(given->names[i], "test_after") == 0 ? "\"day\": \"2024-01-01\""
									: strcmp(given->names[i], "class_weight") == 0 ? "\"yes\": 5, \"no\": 1"
																		   : "\"age\": {\"impute\": \"mean\"}")));
	if (!OidIsValid(training->rows.relation) && training->rows.query == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"source\" must not be null"),
						errhint("Name a table, or give query => 'SELECT ...'.")));
	if (OidIsValid(training->rows.relation) && training->rows.query != NULL)
		dana_error(INVALID_PARAMETER_VALUE, "give either argument \"source\" or argument \"query\", not both");
	if (OidIsValid(training->rows.relation))
		dana_require_relation(training->rows.relation);
	if (training->rows.query != NULL && training->filter != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"filter\" goes with a table"),
						errhint("Put the condition into the query's WHERE.")));
	if (training->machine == NULL)
		training->machine = "sim";
	training->unnamed = training->model == NULL;
	if (training->unnamed)
		training->model = training->rule;
	if (given->nulls[dana_argument(given, "seed")])
		training->seed = 1;
	if (!given->nulls[dana_argument(given, "epochs")] && (training->epochs < 1 || training->epochs > dana_max_epochs))
		dana_reject_argument("epochs", "be from 1 to %d, not %d", dana_max_epochs, training->epochs);
	if (training->sync != NULL && place_of_word(training->sync, modes) == lengthof(modes) - 1)
		dana_reject_argument("sync", "be 'gather', 'batch' or 'epoch', not \"%s\"", dana_shown(training->sync));
	if (training->sync != NULL && training->rows.query != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"sync\" goes with a table"),
						errhint("Its shards are those that dana_shards() lists.")));
	training->rows.given = training->rows.relation;
	training->whole_query = training->rows.query;
	training->rows.filter = training->filter;
	if (training->filter != NULL)
		dana_filter_check(training->filter);
	read_cleaning(training, &training->rows.cleaning);
}

void
dana_training_reject_sync(const dana_training *training)
{
	if (training->sync != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("argument \"sync\" is for dana_train() and dana_explain()"),
						errhint("Gather the rows first, with dana_gather().")));
}

void
dana_training_parse(const dana_arguments *arguments, dana_training *training)
{
	memset(training, 0, sizeof *training);
	training->arguments = *arguments;
	for (int i = 0; i < arguments->count; i++)
	{
		const training_member *member = member_of(arguments->names[i]);

		if (member != NULL && member->type != arguments->types[i])
			elog(ERROR, "argument \"%s\" of dana_train() has another type", member->name);
		if (member != NULL)
			member_fill(training, member, arguments->values[i], arguments->nulls[i]);
	}
	training_check(training);
}

void
dana_training_from_call(FunctionCallInfo fcinfo, int options, dana_training *training)
{
	Jsonb		  *given = PG_ARGISNULL(options) ? dana_json_parse("{}") : PG_GETARG_JSONB_P(options);
	dana_arguments arguments;

	if (!JB_ROOT_IS_OBJECT(given))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"training\" must be a JSON object"),
						errhint("For instance '{\"label\": \"y\", \"epochs\": 20}': arguments of dana_train().")));
	dana_arguments_from_json(dana_extension_function("dana_train"), given, &arguments);
	for (int i = 0; i < 2; i++) /* rule and source */
	{
		int number = dana_argument(&arguments, members[i].name);

		if (!arguments.nulls[number])
			dana_error(INVALID_PARAMETER_VALUE,
					   "\"%s\" is an argument of its own, not a member of argument \"training\"", members[i].name);
		arguments.values[number] = fcinfo->args[i].value;
		arguments.nulls[number] = fcinfo->args[i].isnull;
	}
	dana_training_parse(&arguments, training);
}

dana_rule
dana_training_rule(const dana_training *training)
{
	const dana_arguments *given = &training->arguments;
	const int			  hyper = dana_argument(given, "hyper");
	dana_rule			  rule =
		training->text != NULL ? dana_rule_check(training->text) : dana_rule_read(training->rule);
	dana_texts			  names = {.count = 0};
	dana_texts			  known = dana_json_keys(dana_json_member(rule.description, "metas"));
	dana_texts			  dims = dana_json_keys(dana_json_member(rule.description, "dims"));

	if (training->test_by != NULL && !training->tried)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"test_by\" chooses the rows of a part, and there is none"),
						errhint("Give test_size or validation_size, too.")));
	if (!given->nulls[hyper])
		names = dana_json_keys(DatumGetJsonbP(given->values[hyper]));
	known.values = repalloc(known.values, sizeof(char *) * (known.count + dims.count + 1));
	memcpy(known.values + known.count, dims.values, sizeof(char *) * dims.count);
	known.count += dims.count;
	for (int i = 0; i < names.count; i++)
		if (!dana_is_one_of(names.values[i], &known))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("rule \"%s\" has no hyperparameter \"%s\"", training->rule, dana_shown(names.values[i])),
							known.count > 0 ? errhint("%s", dana_hint_of(names.values[i], &known)) : 0));
	return rule;
}

int
dana_training_label(const dana_training *training, TupleDesc columns, Jsonb *description)
{
	Jsonb	   *output = DatumGetJsonbP(DirectFunctionCall2(
		  jsonb_array_element, JsonbPGetDatum(dana_json_member(description, "outputs")), Int32GetDatum(0)));
	const char *name = training->label != NULL ? training->label : dana_json_string(output, "name");
	int			number = SPI_fnumber(columns, name);

	for (int i = columns->natts; number <= 0 && training->label == NULL && i > 0; i--)
		if (!TupleDescAttr(columns, i - 1)->attisdropped &&
			(training->weight == NULL || strcmp(NameStr(TupleDescAttr(columns, i - 1)->attname), training->weight) != 0))
			number = i;
	return number;
}

void
dana_training_append(StringInfo to, const dana_arguments *arguments, int number)
{
	const char *name = arguments->names[number];
	Datum		value = arguments->values[number];
	dana_texts	texts;

	if (arguments->nulls[number])
		return dana_json_text(to, name, NULL);
	switch (arguments->types[number])
	{
		case TEXTOID:
			return dana_json_text(to, name, TextDatumGetCString(value));
		case INT4OID:
			return dana_json_number(to, name, DatumGetInt32(value));
		case FLOAT8OID:
			return dana_json_number(to, name, DatumGetFloat8(value));
		case BOOLOID:
			return dana_json_truth(to, name, DatumGetBool(value));
		case JSONBOID:
			return dana_json_object(to, name, DatumGetJsonbP(value));
		case TEXTARRAYOID:
			texts = dana_texts_of(name, value);
			return dana_json_list(to, name, &texts);
		default:
			elog(ERROR, "argument \"%s\" has a type that the worker does not know", name);
	}
}

/* What the meaning of a query or a filter depends on; array_nulls and the like would, too, and are never changed */
static const char *const text_settings[] = {"search_path", "TimeZone", "DateStyle", "IntervalStyle",
											"standard_conforming_strings", "transform_null_equals"};

void
dana_training_settings(Jsonb *metadata)
{
	Jsonb *settings = dana_json_member(metadata, "settings");

	for (int i = 0; i < lengthof(text_settings) && !dana_json_is_null(metadata, "settings"); i++)
		dana_set_for_now(text_settings[i], dana_json_string(settings, text_settings[i]));
}

Oid
dana_trained_on(Jsonb *metadata)
{
	char	   *name = dana_json_string(metadata, "source");
	Oid			table = RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name))), NoLock, true);
	Oid			owner;
	const char *now;

	if (!OidIsValid(table))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation \"%s\" does not exist", name),
						strncmp(name, "pg_temp", 7) != 0
							? 0
							: errhint("It was a temporary table. Create it again, for rows of shards with dana_gather(), and give "
									  "the argument \"source\".")));
	dana_require_relation(table);
	owner = dana_relation_owner(table);
	now = GetUserNameFromId(owner, false);
	if (owner != GetUserId() && strcmp(now, dana_json_string(metadata, "source_owner")) != 0)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("%s belongs to %s, and did not when the model was trained on it", name, now),
						errhint("It may be another table, or a view that calls that role's functions with your rights. Give "
								"the argument \"source\" if it is meant.")));
	return table;
}

/* dana.dana_trained_on(metadata) */
DANA_FUNCTION(dana_trained_on_of)
{
	PG_RETURN_OID(dana_trained_on(PG_GETARG_JSONB_P(0)));
}

/* The options that dana_refresh() repeats: it takes the others from the model, which has what became of them */
static void
append_asked(StringInfo to, const dana_arguments *arguments)
{
	static const char *const others[] = {"rule", "model", "source", "query", "filter", "features",
										 "label", "preprocess", "classes", "warm_start_from"};

	dana_json_open(to, "asked", '{');
	for (int i = 0; i < arguments->count; i++)
	{
		bool other = arguments->nulls[i];

		for (int k = 0; k < lengthof(others) && !other; k++)
			other = strcmp(arguments->names[i], others[k]) == 0;
		if (!other)
			dana_training_append(to, arguments, i);
	}
	dana_json_close(to, '}');
}

/* Metadata of the model that the worker does not know: what dana_evaluate() needs, and how it was trained */
static void
append_metadata(StringInfo to, const dana_training *training, const char *rule, const dana_source *source)
{
	const dana_group_key *group = training->group;
	char				 *query = training->whole_query;
	char				 *filter = training->filter;
	Jsonb				 *gathered = dana_gathered(training->rows.relation);

	if (group != NULL)
		*(query != NULL ? &query : &filter) =
			dana_training_rows(training, group->condition, query != NULL ? query : filter);
	dana_json_open(to, "metadata", '{');
	dana_json_text(to, "source", source->from);
	if (OidIsValid(training->rows.relation))
		dana_json_text(to, "source_owner", GetUserNameFromId(dana_relation_owner(training->rows.relation), false));
	dana_json_text(to, "rule_md5", TextDatumGetCString(DirectFunctionCall1(md5_text, CStringGetTextDatum(rule))));
	append_asked(to, &training->arguments);
	if (gathered != NULL)
		dana_json_object(to, "gathered", gathered);
	if (source->chosen.encoding != NULL)
		dana_encoding_append(to, source->chosen.encoding);
	if (query != NULL)
		dana_json_text(to, "query", query);
	if (filter != NULL)
		dana_json_text(to, "filter", filter);
	if (query != NULL || filter != NULL)
	{
		dana_json_open(to, "settings", '{');
		for (int i = 0; i < lengthof(text_settings); i++)
			dana_json_text(to, text_settings[i], GetConfigOption(text_settings[i], false, false));
		dana_json_close(to, '}');
	}
	if (group != NULL)
	{
		dana_json_open(to, "group", '{');
		dana_json_text(to, "of", group->of);
		dana_json_object(to, "key", group->key);
		dana_json_close(to, '}');
	}
	if (source->chosen.classes.count > 0)
		dana_json_list(to, "classes", &source->chosen.classes);
	if (source->chosen.class_type != NULL)
		dana_json_text(to, "class_type", source->chosen.class_type);
	if (source->chosen.types != NULL && JB_ROOT_COUNT(source->chosen.types) > 0)
		dana_json_object(to, "types", source->chosen.types);
	if (source->chosen.choosing.count > 0)
		dana_json_list(to, "categories", &source->chosen.choosing);
	if (training->test_size > 0)
		dana_json_number(to, "test_size", training->test_size);
	if (training->test_size > 0 || training->test_after != NULL)
		dana_split_append(to, &training->split, dana_source_columns((dana_source *)source), training->rows.relation,
						  source->snapshot);
	if (training->validation_size > 0)
		dana_json_number(to, "validation_size", training->validation_size);
	if (source->asked.cleaning.nonfinite == DANA_NONFINITE_KEEP)
		dana_json_text(to, "nonfinite", "keep");
	if (training->test_size > 0 || training->validation_size > 0)
		dana_json_number(to, "seed", training->seed);
	if (training->warm_start_from != NULL)
		dana_json_text(to, "warm_start_from", training->warm_start_from);
	dana_json_close(to, '}');
}

StringInfo
dana_training_request(const dana_training *training, const char *rule, dana_source *source, dana_raw *weights)
{
	const dana_arguments *arguments = &training->arguments;
	StringInfo			  request = makeStringInfo();

	dana_json_open(request, NULL, '{');
	dana_source_describe(source, request);
	dana_json_text(request, "rule", training->rule);
	dana_json_text(request, "text", rule);
	dana_json_text(request, "machine", training->machine);
	/* NULLs in rows are handled here; rows that the worker leaves out are not finite */
	dana_json_text(request, "nulls", source->asked.cleaning.nulls == DANA_NULLS_ERROR && !source->rows ? "error" : "skip");
	dana_json_open(request, "options", '{');
	for (int i = 0; i < arguments->count; i++)
	{
		const training_member *member = member_of(arguments->names[i]);

		if (source->chosen.classes.count > 0 && strcmp(arguments->names[i], "classes") == 0)
			dana_json_list(request, "classes", &source->chosen.classes);
		else if (member != NULL && member->offset == offsetof(dana_training, features) && source->chosen.features.count >= 0)
			dana_json_list(request, member->name, &source->chosen.features);
		else if (member != NULL && member->offset == offsetof(dana_training, label) && source->chosen.label != NULL)
			dana_json_text(request, member->name, source->chosen.label);
		else if (member == NULL || member->sent)
			dana_training_append(request, arguments, i);
	}
	dana_json_close(request, '}');
	dana_json_truth(request, "held_out", training->held_out != NULL);
	dana_json_truth(request, "validates",
					training->early_stopping || (training->validation_size > 0 && training->calibrate == NULL));
	if (source->chosen.largest != NULL)
		dana_json_object(request, "largest", source->chosen.largest);
	append_metadata(request, training, rule, source);
	if (training->warm_start_from == NULL)
		dana_json_text(request, "warm_start_from", NULL);
	else
		dana_model_append_start(request, training->warm_start_from, weights);
	dana_json_text(request, "role", GetUserNameFromId(GetUserId(), true));
	dana_json_text(request, "database", get_database_name(MyDatabaseId));
	if (training->part != NULL)
		dana_json_object(request, "part", training->part);
	dana_json_text(request, "device", dana_device());
	dana_json_number(request, "max_epochs", dana_max_epochs);
	dana_json_number(request, "max_memory", (double)dana_max_memory * 1024 * 1024);
	if (temp_file_limit >= 0) /* kB */
		dana_json_number(request, "temp_file_limit", (double)temp_file_limit * 1024);
	else
		dana_json_text(request, "temp_file_limit", NULL);
	/* the worker stays off this CPU while pages are streamed */
	dana_json_number(request, "cpu", sched_getcpu());
	dana_json_close(request, '}');
	return request;
}
