/*
 * Reading and writing JSON. PostgreSQL's own jsonb does the parsing.
 */
#include "postgres.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "base/dana.h"
#include "base/json.h"

void
dana_json_blame_worker(MemoryContext caller)
{
	const int  category = ERRCODE_TO_CATEGORY(geterrcode());
	ErrorData *error;

	if (category != ERRCODE_DATA_EXCEPTION && category != ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION &&
		category != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		PG_RE_THROW();
	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	dana_protocol_error("sent a malformed message: %s", error->message);
}

/* Calls a function of PostgreSQL on the worker's text: invalid JSON is the worker's error */
static Datum
json_read(PGFunction read, Datum sent)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		  result = 0;

	PG_TRY();
	{
		result = DirectFunctionCall1(read, sent);
	}
	PG_CATCH();
	{
		dana_json_blame_worker(caller);
	}
	PG_END_TRY();
	return result;
}

Jsonb *
dana_json_parse(const char *text)
{
	Jsonb *value = DatumGetJsonbP(json_read(jsonb_in, CStringGetDatum(text)));

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
	return DatumGetInt64(json_read(numeric_int8, NumericGetDatum(value->val.numeric)));
}

/* Non-finite numbers are strings that float8in() reads, since JSON has no notation for them */
double
dana_json_double(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	if (value != NULL && value->type == jbvString)
		return DatumGetFloat8(json_read(float8in, CStringGetDatum(dana_json_string(object, key))));
	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetFloat8(json_read(numeric_float8, NumericGetDatum(value->val.numeric)));
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

/* Elements of an array of one type; -1 if there is no such array */
static int
json_elements_if(Jsonb *object, const char *key, enum jbvType type, JsonbValue ***elements)
{
	JsonbValue *found = json_member(object, key);
	bool		array = found != NULL && found->type == jbvBinary && JsonContainerIsArray(found->val.binary.data);
	int			count = array ? JsonContainerSize(found->val.binary.data) : 0;

	*elements = palloc(sizeof(JsonbValue *) * Max(count, 1));
	for (int i = 0; i < count && array; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(*elements)[i] = getIthJsonbValueFromContainer(found->val.binary.data, i);
		array = (*elements)[i]->type == type;
	}
	return array ? count : -1;
}

static int
json_elements(Jsonb *object, const char *key, enum jbvType type, JsonbValue ***elements)
{
	int count = json_elements_if(object, key, type, elements);

	if (count < 0)
		dana_protocol_error("sent no array \"%s\" of %s", key, type == jbvString ? "texts" : "integers");
	return count;
}

dana_texts
dana_json_keys(Jsonb *object)
{
	JsonbIterator *members = JsonbIteratorInit(&object->root);
	JsonbIteratorToken token;
	JsonbValue	   member;
	dana_texts	   keys = {.values = palloc(sizeof(char *) * Max(JB_ROOT_COUNT(object), 1))};

	while ((token = JsonbIteratorNext(&members, &member, true)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == WJB_KEY)
			keys.values[keys.count++] = pnstrdup(member.val.string.val, member.val.string.len);
	}
	return keys;
}

bool
dana_json_are_texts(Jsonb *object, const char *key)
{
	JsonbValue **elements;

	return json_elements_if(object, key, jbvString, &elements) >= 0;
}

char *
dana_json_scalar(Jsonb *object, const char *key)
{
	JsonbValue *value = json_member(object, key);

	if (value != NULL && value->type == jbvNumeric)
		return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
	return dana_json_string(object, key);
}

int
dana_json_objects(Jsonb *object, const char *key, Jsonb ***values)
{
	JsonbValue **elements;
	int			 count = dana_json_is_null(object, key) ? 0 : json_elements_if(object, key, jbvBinary, &elements);

	*values = palloc(sizeof(Jsonb *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(*values)[i] = JsonbValueToJsonb(elements[i]);
		if (!JB_ROOT_IS_OBJECT((*values)[i]))
			return -1;
	}
	return count;
}

int
dana_json_doubles(Jsonb *object, const char *key, double **values)
{
	JsonbValue **elements;
	int			 count = json_elements_if(object, key, jbvNumeric, &elements);

	*values = palloc(sizeof(double) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(*values)[i] = DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(elements[i]->val.numeric)));
	}
	return count;
}

dana_texts
dana_json_texts(Jsonb *object, const char *key)
{
	JsonbValue **elements;
	dana_texts	 texts = {.count = -1};

	if (dana_json_is_null(object, key))
		return texts;
	texts.count = json_elements(object, key, jbvString, &elements);
	texts.values = palloc(sizeof(char *) * Max(texts.count, 1));
	for (int i = 0; i < texts.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		texts.values[i] = pnstrdup(elements[i]->val.string.val, elements[i]->val.string.len);
	}
	return texts;
}

int
dana_json_integers(Jsonb *object, const char *key, int **values)
{
	JsonbValue **elements;
	int			 count = json_elements(object, key, jbvNumeric, &elements);

	*values = palloc(sizeof(int) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(*values)[i] = DatumGetInt32(json_read(numeric_int4, NumericGetDatum(elements[i]->val.numeric)));
	}
	return count;
}

/* Separator before a member or an element: a comma, except after an opening bracket */
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

Jsonb *
dana_json_end(StringInfo to)
{
	dana_json_close(to, '}');
	return dana_json_parse(to->data);
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

void
dana_json_list(StringInfo to, const char *key, const dana_texts *texts)
{
	dana_json_open(to, key, '[');
	for (int i = 0; i < texts->count; i++)
		dana_json_text(to, NULL, texts->values[i]);
	dana_json_close(to, ']');
}
