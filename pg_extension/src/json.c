/*
 * Reading the worker's JSON, writing ours. PostgreSQL's own jsonb does the parsing.
 */
#include "json.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/numeric.h"

Jsonb *
dana_json_parse(const char *text)
{
	Jsonb *value = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));

	if (!JB_ROOT_IS_OBJECT(value))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker sent JSON that is not an object")));
	return value;
}

static JsonbValue *
member(Jsonb *object, const char *key)
{
	return getKeyJsonValueFromContainer(&object->root, key, strlen(key), NULL);
}

char *
dana_json_string(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);

	if (value == NULL || value->type != jbvString)
		return "";
	return pnstrdup(value->val.string.val, value->val.string.len);
}

int64
dana_json_integer(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);

	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
}

/* Non-finite numbers come as the words that float8in() reads: JSON has no other way */
double
dana_json_double(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);

	if (value != NULL && value->type == jbvString)
		return DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(dana_json_string(object, key))));
	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(value->val.numeric)));
}

bool
dana_json_boolean(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);

	return value != NULL && value->type == jbvBool && value->val.boolean;
}

bool
dana_json_is_null(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);

	return value == NULL || value->type == jbvNull;
}

Jsonb *
dana_json_member(Jsonb *object, const char *key)
{
	JsonbValue *value = member(object, key);
	JsonbValue	nothing = {.type = jbvNull};

	return JsonbValueToJsonb(value != NULL ? value : &nothing);
}

static JsonbContainer *
array_of(Jsonb *object, const char *key)
{
	JsonbValue *found = member(object, key);

	if (found == NULL || found->type != jbvBinary || !JsonContainerIsArray(found->val.binary.data))
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker sent no array \"%s\"", key)));
	return found->val.binary.data;
}

int
dana_json_strings(Jsonb *object, const char *key, char ***values)
{
	JsonbContainer *array = array_of(object, key);
	int				count = JsonContainerSize(array);

	*values = palloc(sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		JsonbValue *value = getIthJsonbValueFromContainer(array, i);

		if (value->type != jbvString)
			ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker sent no texts in \"%s\"", key)));
		(*values)[i] = pnstrdup(value->val.string.val, value->val.string.len);
	}
	return count;
}

int
dana_json_integers(Jsonb *object, const char *key, int **values)
{
	JsonbContainer *array = array_of(object, key);
	int				count = JsonContainerSize(array);

	*values = palloc(sizeof(int) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		JsonbValue *value = getIthJsonbValueFromContainer(array, i);

		if (value->type != jbvNumeric)
			ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker sent no integers in \"%s\"", key)));
		(*values)[i] = DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(value->val.numeric)));
	}
	return count;
}

char *
dana_json_utf8(char *text)
{
	return pg_server_to_any(text, strlen(text), PG_UTF8);
}

void
dana_json_append(StringInfo to, const char *text)
{
	escape_json(to, dana_json_utf8((char *)text));
}
