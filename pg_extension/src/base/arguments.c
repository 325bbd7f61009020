/*
 * Arguments of a call, calls by OID, and results that are sets of rows.
 *
 * A call names its function by OID, so that no other function of the same name is reached. Sets of rows are
 * materialised, as InitMaterializedSRF() of PostgreSQL 15 and later does.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/json.h"
#include "utils/numeric.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "wire.h"

/* Maximum number of bytes of a caller's text in a message */
#define MAX_SHOWN 100

/*
 * Maximum number of elements in a list that a caller passes: columns, labels, metrics. No other limit on lists is
 * higher.
 */
#define MAX_LIST 10000

/* Maximum depth of JSON in an argument; the worker accepts twice as many */
#define MAX_DEPTH 32

/* SQL_ASCII is no encoding: PostgreSQL passes on bytes as they are, and a client that expects UTF-8 cannot read them */
static void
check_encoding(const char *name, const char *text, int length)
{
	if (GetDatabaseEncoding() == PG_SQL_ASCII && !pg_verify_mbstr(PG_UTF8, text, length, true))
		ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE), errmsg("argument \"%s\" must be UTF-8", name),
						errdetail("The database has the encoding SQL_ASCII, where DAnA takes texts as UTF-8.")));
}

char *
dana_cut(const char *text, int most)
{
	const int length = pg_mbcliplen(text, (int)strnlen(text, most + 1), most);

	return text[length] == '\0' ? pstrdup(text) : psprintf("%.*s...", length, text);
}

char *
dana_shown(const char *text)
{
	return dana_cut(text, MAX_SHOWN);
}

char *
dana_plain(const char *text, int most)
{
	char *plain = dana_cut(text, most);

	for (char *at = plain; *at != '\0'; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = ' ';
	return plain;
}

void
dana_check_argument(const char *name, Oid type, Datum value)
{
	const Size size = toast_raw_datum_size(value);

	if (size > DANA_MAX_REQUEST)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "argument \"%s\" has %zu bytes, more than %u", name, size, DANA_MAX_REQUEST);
	if (type == TEXTOID)
	{
		const text *checked = DatumGetTextPP(value);

		check_encoding(name, VARDATA_ANY(checked), VARSIZE_ANY_EXHDR(checked));
	}
}

/* Before any work on each element */
static void
check_count(const char *name, int64 count)
{
	if (count > MAX_LIST)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "argument \"%s\" has " INT64_FORMAT " elements, more than %d", name, count,
				   MAX_LIST);
}

/* Raises an error if an argument's JSON is nested too deeply, or has a number that a double cannot hold */
static void
check_json(const char *name, Jsonb *value)
{
	JsonbIterator	  *parts = JsonbIteratorInit(&value->root);
	JsonbIteratorToken token;
	JsonbValue		   part;
	int				   depth = 0;

	while ((token = JsonbIteratorNext(&parts, &part, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == WJB_BEGIN_OBJECT || token == WJB_BEGIN_ARRAY)
		{
			if (++depth > MAX_DEPTH)
				dana_reject_argument("%s", "be JSON of at most %d levels", name, MAX_DEPTH);
		}
		else if (token == WJB_END_OBJECT || token == WJB_END_ARRAY)
			depth--;
		else if (part.type == jbvString)
			check_encoding(name, part.val.string.val, part.val.string.len);
		else if (part.type == jbvNumeric &&
				 isinf(DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(part.val.numeric)))))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("argument \"%s\" has a number outside the range of double precision", name),
							errhint("Numbers lie between -1.8e308 and 1.8e308.")));
	}
}

/* Fills in names and types, for values that follow */
static void
arguments_declare(Oid function, dana_arguments *arguments)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	char	 *modes;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	arguments->function = function;
	(void)get_func_arg_info(tuple, &arguments->types, &arguments->names, &modes);
	arguments->count = ((Form_pg_proc)GETSTRUCT(tuple))->pronargs;
	ReleaseSysCache(tuple);
	arguments->values = palloc0(sizeof(Datum) * Max(arguments->count, 1));
	arguments->nulls = palloc0(sizeof(bool) * Max(arguments->count, 1));
}

void
dana_require_arguments(FunctionCallInfo fcinfo, int count)
{
	dana_arguments arguments;

	for (int i = 0; i < count; i++)
		if (PG_ARGISNULL(i))
		{
			arguments_declare(fcinfo->flinfo->fn_oid, &arguments);
			dana_error(NULL_VALUE_NOT_ALLOWED, "argument \"%s\" must not be null", arguments.names[i]);
		}
}

void
dana_arguments_of_call(FunctionCallInfo fcinfo, dana_arguments *arguments)
{
	arguments_declare(fcinfo->flinfo->fn_oid, arguments);
	for (int i = 0; i < arguments->count; i++)
	{
		arguments->values[i] = fcinfo->args[i].value;
		arguments->nulls[i] = fcinfo->args[i].isnull;
		if (!arguments->nulls[i] && get_typlen(arguments->types[i]) == -1)
			dana_check_argument(arguments->names[i], arguments->types[i], arguments->values[i]);
		if (arguments->types[i] == JSONBOID && !arguments->nulls[i])
			check_json(arguments->names[i], DatumGetJsonbP(arguments->values[i]));
	}
}

int
dana_argument(const dana_arguments *arguments, const char *name)
{
	for (int i = 0; i < arguments->count; i++)
		if (strcmp(arguments->names[i], name) == 0)
			return i;
	return -1;
}

/* Text of a scalar as its type's input function reads it; NULL if it is not a scalar */
static char *
scalar_text(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		default:
			return NULL;
	}
}

static Datum
texts_from_json(const char *name, const JsonbValue *value)
{
	ArrayBuildState *made = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	JsonbContainer	*array = value->type == jbvBinary ? value->val.binary.data : NULL;

	if (array == NULL || !JsonContainerIsArray(array))
		dana_reject_argument("%s", "be an array of texts", name);
	check_count(name, JsonContainerSize(array));
	for (uint32 i = 0; i < JsonContainerSize(array); i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(array, i);
		char	   *text = scalar_text(element);

		made = accumArrayResult(made, text == NULL ? (Datum)0 : CStringGetTextDatum(text), text == NULL, TEXTOID,
								CurrentMemoryContext);
	}
	return makeArrayResult(made, CurrentMemoryContext);
}

/* Says which argument an input function's error is about */
static void
in_argument(void *name)
{
	errcontext("argument \"%s\"", (char *)name);
}

static Datum
argument_from_json(char *name, Oid type, JsonbValue *value)
{
	ErrorContextCallback context = {error_context_stack, in_argument, name};
	Jsonb				*whole = JsonbValueToJsonb(value);
	char				*text;
	Oid					 input;
	Oid					 parameter;
	Datum				 datum;

	check_json(name, whole);
	if (type == JSONBOID)
		return JsonbPGetDatum(whole);
	text = scalar_text(value);
	if (type == TEXTARRAYOID)
		return texts_from_json(name, value);
	if (text == NULL)
		dana_reject_argument("%s", "be of type %s, not a JSON array or object", name, format_type_be(type));
	error_context_stack = &context;
	getTypeInputInfo(type, &input, &parameter);
	datum = OidInputFunctionCall(input, text, parameter, -1);
	error_context_stack = context.previous;
	return datum;
}

void
dana_arguments_from_json(Oid function, Jsonb *object, dana_arguments *arguments)
{
	JsonbIterator	 *members;
	JsonbIteratorToken token;
	JsonbValue		  member;
	char			 *name = get_func_name(function);

	arguments_declare(function, arguments);
	memset(arguments->nulls, true, sizeof(bool) * arguments->count);
	if (!JB_ROOT_IS_OBJECT(object))
		dana_error(INVALID_PARAMETER_VALUE, "the arguments of %s() must be a JSON object", name);
	members = JsonbIteratorInit(&object->root);
	while ((token = JsonbIteratorNext(&members, &member, true)) != WJB_DONE)
	{
		int number;

		if (token != WJB_KEY)
			continue;
		number = dana_argument(arguments, pnstrdup(member.val.string.val, member.val.string.len));
		if (number < 0)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("%s() has no argument \"%.*s\"", name, member.val.string.len, member.val.string.val),
							errhint("%s", dana_hint_of(pnstrdup(member.val.string.val, member.val.string.len),
													   &(dana_texts){arguments->count, arguments->names}))));
		(void)JsonbIteratorNext(&members, &member, true);
		arguments->nulls[number] = member.type == jbvNull;
		if (member.type != jbvNull)
		{
			arguments->values[number] = argument_from_json(arguments->names[number], arguments->types[number], &member);
			if (get_typlen(arguments->types[number]) == -1)
				dana_check_argument(arguments->names[number], arguments->types[number], arguments->values[number]);
		}
	}
}

dana_texts
dana_texts_of(const char *name, Datum value)
{
	ArrayType *array = DatumGetArrayTypeP(value);
	dana_texts texts;
	Datum	  *values;
	bool	  *nulls;

	check_count(name, ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &texts.count);
	texts.values = palloc(sizeof(char *) * Max(texts.count, 1));
	for (int i = 0; i < texts.count; i++)
	{
		texts.values[i] = nulls[i] ? NULL : TextDatumGetCString(values[i]);
		if (!nulls[i])
			check_encoding(name, texts.values[i], strlen(texts.values[i]));
	}
	return texts;
}

bool
dana_is_one_of(const char *text, const dana_texts *texts)
{
	for (int i = 0; i < texts->count; i++)
		if (texts->values[i] != NULL && strcmp(text, texts->values[i]) == 0)
			return true;
	return false;
}

char *
dana_hint_of(const char *text, const dana_texts *texts)
{
	StringInfoData known;
	int			   nearest = Min((int)strlen(text) / 2, 3) + 1; /* edits beyond which it is another word */
	const char	  *found = NULL;

	initStringInfo(&known);
	for (int i = 0; i < texts->count; i++)
	{
		const char *one = texts->values[i];
		int			edits = strlen(text) < NAMEDATALEN && strlen(one) < NAMEDATALEN
			? varstr_levenshtein_less_equal(text, strlen(text), one, strlen(one), 1, 1, 1, nearest, true) : nearest;

		found = edits < nearest ? one : found;
		nearest = Min(edits, nearest);
		appendStringInfo(&known, "%s%s", i > 0 ? ", " : "", one);
	}
	return found != NULL ? psprintf("Perhaps you meant \"%s\".", found) : psprintf("There are: %s.", known.data);
}

dana_texts
dana_argument_texts(const char *name, Datum value, bool isnull)
{
	dana_texts texts = isnull ? (dana_texts){.count = -1} : dana_texts_of(name, value);

	for (int i = 0; i < texts.count; i++)
		if (texts.values[i] == NULL)
			dana_error(NULL_VALUE_NOT_ALLOWED, "argument \"%s\" must not contain nulls", name);
	return texts;
}

/* Through SPI, by the function's name and with exactly the declared types: no other function matches as well */
Jsonb *
dana_call(const dana_arguments *arguments)
{
	const char	  *schema = get_namespace_name(get_func_namespace(arguments->function));
	MemoryContext  caller = CurrentMemoryContext;
	char		  *nulls = palloc0(arguments->count + 1);
	StringInfoData text;
	Jsonb		  *rows;

	initStringInfo(&text);
	appendStringInfo(&text, "SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(r)), '[]') FROM %s(",
					 quote_qualified_identifier(schema, get_func_name(arguments->function)));
	for (int i = 0; i < arguments->count; i++)
	{
		appendStringInfo(&text, "%s$%d", i > 0 ? ", " : "", i + 1);
		nulls[i] = arguments->nulls[i] ? 'n' : ' ';
	}
	appendStringInfoString(&text, ") AS r");
	dana_connect();
	(void)SPI_execute_with_args(text.data, arguments->count, arguments->types, arguments->values, nulls, false, 0);
	MemoryContextSwitchTo(caller);
	rows = DatumGetJsonbPCopy(dana_value(0, 1));
	SPI_finish();
	return rows;
}

ReturnSetInfo *
dana_results_begin(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *)fcinfo->resultinfo;
	MemoryContext  caller;

	if (result == NULL || !IsA(result, ReturnSetInfo) || !(result->allowedModes & SFRM_Materialize))
		dana_error(FEATURE_NOT_SUPPORTED, "%s() must be called in FROM", get_func_name(fcinfo->flinfo->fn_oid));
	caller = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	result->returnMode = SFRM_Materialize;
	result->setResult = tuplestore_begin_heap(true, false, work_mem);
	result->setDesc = CreateTupleDescCopy(result->expectedDesc);
	MemoryContextSwitchTo(caller);
	return result;
}

void
dana_results_add(ReturnSetInfo *result, Datum *values, bool *nulls)
{
	static bool none[MaxTupleAttributeNumber];

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls != NULL ? nulls : none);
}
