/*
 * The arguments of a call, and calls by identity: the function is one OID, whatever else has its name.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "utils/json.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#include "dana.h"
#include "arguments.h"

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
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"%s\" must not be null", arguments.names[i])));
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

/* Text of a scalar as its type's input function reads it; NULL where it is none */
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

static _Noreturn void
argument_of_other_type(const char *name, const char *wanted)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"%s\" must be %s", name, wanted)));
}

static Datum
texts_from_json(const char *name, const JsonbValue *value)
{
	ArrayBuildState *made = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	JsonbContainer	*array = value->type == jbvBinary ? value->val.binary.data : NULL;

	if (array == NULL || !JsonContainerIsArray(array))
		argument_of_other_type(name, "an array of texts");
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
	char				*text = scalar_text(value);
	Oid					 input;
	Oid					 parameter;
	Datum				 datum;

	if (type == JSONBOID)
		return JsonbPGetDatum(JsonbValueToJsonb(value));
	if (type == TEXTARRAYOID)
		return texts_from_json(name, value);
	if (text == NULL)
		argument_of_other_type(name, psprintf("of type %s, not a JSON array or object", format_type_be(type)));
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
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("the arguments of %s() must be a JSON object", name)));
	members = JsonbIteratorInit(&object->root);
	while ((token = JsonbIteratorNext(&members, &member, true)) != WJB_DONE)
	{
		int number;

		if (token != WJB_KEY)
			continue;
		number = dana_argument(arguments, pnstrdup(member.val.string.val, member.val.string.len));
		if (number < 0)
		{
			StringInfoData known;

			initStringInfo(&known);
			for (int i = 0; i < arguments->count; i++)
				appendStringInfo(&known, "%s%s", i > 0 ? ", " : "", arguments->names[i]);
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("%s() has no argument \"%.*s\"", name, member.val.string.len, member.val.string.val),
							errhint("It has: %s.", known.data)));
		}
		(void)JsonbIteratorNext(&members, &member, true);
		arguments->nulls[number] = member.type == jbvNull;
		if (member.type != jbvNull)
			arguments->values[number] = argument_from_json(arguments->names[number], arguments->types[number], &member);
	}
}

dana_texts
dana_texts_of(Datum array)
{
	dana_texts texts;
	Datum	  *values;
	bool	  *nulls;

	deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &texts.count);
	texts.values = palloc(sizeof(char *) * Max(texts.count, 1));
	for (int i = 0; i < texts.count; i++)
		texts.values[i] = nulls[i] ? NULL : TextDatumGetCString(values[i]);
	return texts;
}

dana_texts
dana_argument_texts(const char *name, Datum value, bool isnull)
{
	dana_texts texts = isnull ? (dana_texts){.count = -1} : dana_texts_of(value);

	for (int i = 0; i < texts.count; i++)
		if (texts.values[i] == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not contain nulls", name)));
	return texts;
}

static void
append_row(StringInfo rows, Datum row)
{
	if (rows->len > 1)
		appendStringInfoChar(rows, ',');
	appendStringInfoString(rows, TextDatumGetCString(DirectFunctionCall1(row_to_json, row)));
}

Jsonb *
dana_call(const dana_arguments *arguments)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	   function;
	ReturnSetInfo  result = {.type = T_ReturnSetInfo, .allowedModes = SFRM_Materialize, .returnMode = SFRM_ValuePerCall};
	Datum		   value;
	StringInfoData rows;

	dana_require_execute(arguments->function);
	fmgr_info(arguments->function, &function);
	result.econtext = CreateStandaloneExprContext();
	result.expectedDesc = lookup_rowtype_tupdesc_copy(get_func_rettype(arguments->function), -1);
	InitFunctionCallInfoData(*fcinfo, &function, arguments->count, DEFAULT_COLLATION_OID, NULL, (Node *)&result);
	for (int i = 0; i < arguments->count; i++)
		fcinfo->args[i] = (NullableDatum){arguments->values[i], arguments->nulls[i]};
	value = FunctionCallInvoke(fcinfo);
	initStringInfo(&rows);
	appendStringInfoChar(&rows, '[');
	if (result.setResult != NULL)
	{
		TupleTableSlot *row = MakeSingleTupleTableSlot(result.setDesc, &TTSOpsMinimalTuple);

		while (tuplestore_gettupleslot(result.setResult, true, false, row))
			append_row(&rows, ExecFetchSlotHeapTupleDatum(row));
		ExecDropSingleTupleTableSlot(row);
	}
	else if (!fcinfo->isnull)
		append_row(&rows, value);
	appendStringInfoChar(&rows, ']');
	FreeExprContext(result.econtext, true);
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(rows.data)));
}
