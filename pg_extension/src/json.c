/*
 * Reading and writing JSON. PostgreSQL's own jsonb does the parsing.
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "dana.h"

Jsonb *
dana_json_parse(const char *text)
{
	Jsonb *value = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));

	if (!JB_ROOT_IS_OBJECT(value))
		dana_protocol_error("sent JSON that is not an object");
	return value;
}

static JsonbValue *
json_member(Jsonb *object, const char *key)
{
	return getKeyJsonValueFromContainer(&object->root, key, strlen(key), NULL);
}

char *
dana_json_string(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	if (value == NULL || value->type != jbvString)
		return "";
	return pnstrdup(value->val.string.val, value->val.string.len);
}

int64
dana_json_integer(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
}

/* Non-finite numbers come as the words that float8in() reads: JSON has no other way */
double
dana_json_double(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	if (value != NULL && value->type == jbvString)
		return DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(dana_json_string(object, key))));
	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(value->val.numeric)));
}

bool
dana_json_boolean(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	return value != NULL && value->type == jbvBool && value->val.boolean;
}

bool
dana_json_is_null(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	return value == NULL || value->type == jbvNull;
}

Jsonb *
dana_json_member(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);
	JsonbValue	nothing = {.type = jbvNull};

	return JsonbValueToJsonb(value != NULL ? value : &nothing);
}

/* Elements of an array, which must all be of a type */
static int
json_elements(Jsonb *object, const char *key, enum jbvType type, JsonbValue ***elements)
{
	JsonbValue *found = json_member(object, key);
	bool		array = found != NULL && found->type == jbvBinary && JsonContainerIsArray(found->val.binary.data);
	int			count = array ? JsonContainerSize(found->val.binary.data) : 0;

	*elements = palloc(sizeof(JsonbValue *) * Max(count, 1));
	for (int i = 0; i < count && array; i++)
	{
		(*elements)[i] = getIthJsonbValueFromContainer(found->val.binary.data, i);
		array = (*elements)[i]->type == type;
	}
	if (!array)
		dana_protocol_error("sent no array \"%s\" of %s", key, type == jbvString ? "texts" : "integers");
	return count;
}

int
dana_json_strings(Jsonb *object, const char *key, char ***values)
{
	JsonbValue **elements;
	int			 count = json_elements(object, key, jbvString, &elements);

	*values = palloc(sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*values)[i] = pnstrdup(elements[i]->val.string.val, elements[i]->val.string.len);
	return count;
}

int
dana_json_integers(Jsonb *object, const char *key, int **values)
{
	JsonbValue **elements;
	int			 count = json_elements(object, key, jbvNumeric, &elements);

	*values = palloc(sizeof(int) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*values)[i] = DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(elements[i]->val.numeric)));
	return count;
}

/* What comes before a member or an element: after anything but a bracket that was opened, a comma */
static void
json_key(StringInfo to, const char *key)
{
	if (to->len > 0 && strchr("{[", to->data[to->len - 1]) == NULL)
		appendStringInfoChar(to, ',');
	if (key != NULL)
	{
		escape_json(to, key);
		appendStringInfoChar(to, ':');
	}
}

void
dana_json_begin(StringInfo to)
{
	initStringInfo(to);
	appendStringInfoChar(to, '{');
}

void
dana_json_open(StringInfo to, const char *key, char bracket)
{
	json_key(to, key);
	appendStringInfoChar(to, bracket);
}

void
dana_json_close(StringInfo to, char bracket)
{
	appendStringInfoChar(to, bracket);
}

void
dana_json_text(StringInfo to, const char *key, const char *value)
{
	json_key(to, key);
	if (value == NULL)
		appendStringInfoString(to, "null");
	else
		escape_json(to, value);
}

void
dana_json_number(StringInfo to, const char *key, double value)
{
	char digits[DOUBLE_SHORTEST_DECIMAL_LEN];

	json_key(to, key);
	double_to_shortest_decimal_buf(value, digits);
	appendStringInfoString(to, digits);
}

void
dana_json_truth(StringInfo to, const char *key, bool value)
{
	json_key(to, key);
	appendStringInfoString(to, value ? "true" : "false");
}

void
dana_json_object(StringInfo to, const char *key, Jsonb *value)
{
	json_key(to, key);
	if (value == NULL)
		appendStringInfoString(to, "null");
	else
		(void)JsonbToCString(to, &value->root, VARSIZE(value));
}
