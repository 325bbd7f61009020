/*
 * Values of PostgreSQL's types as the machine's numbers.
 *
 * numeric goes through double precision. A date is days since 2000-01-01, a time seconds since midnight, a timestamp
 * seconds since 2000-01-01 00:00 (with time zone: UTC); infinite ones are infinite. Each is rounded once to binary32.
 */
#include "postgres.h"

#include "values.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "extension.h"
#include "numerics.h"


static bool
is_number(Oid type)
{
	switch (type)
	{
		case FLOAT4OID:
		case FLOAT8OID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case BOOLOID:
		case NUMERICOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return false;
	}
}

/* A value of type vector, as vector.h of pgvector has it */
typedef struct pgvector
{
	int32 header;
	int16 dimension;
	int16 unused;
	float elements[FLEXIBLE_ARRAY_MEMBER];
} pgvector;

/* Type "vector" of the extension "vector", wherever it was put; another one of that name is not it */
bool
dana_is_vector(Oid type)
{
	HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(getBaseType(type)));
	Oid		  found = InvalidOid;
	Oid		  extension;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (strcmp(NameStr(((Form_pg_type)GETSTRUCT(tuple))->typname), "vector") == 0)
		found = ((Form_pg_type)GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	extension = OidIsValid(found) ? get_extension_oid("vector", true) : InvalidOid;
	return OidIsValid(extension) && getExtensionOfObject(TypeRelationId, found) == extension;
}

bool
dana_is_array(Oid type)
{
	return OidIsValid(get_element_type(getBaseType(type))) || dana_is_vector(type);
}

static pgvector *
vector_of(Datum value)
{
	pgvector *vector = (pgvector *)PG_DETOAST_DATUM(value);

	if (VARSIZE(vector) < offsetof(pgvector, elements) || vector->dimension < 0 ||
		VARSIZE(vector) != offsetof(pgvector, elements) + sizeof(float) * vector->dimension)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("a value of type vector is malformed")));
	return vector;
}

int
dana_array_length(Oid type, Datum value)
{
	ArrayType *array;

	if (dana_is_vector(type))
		return vector_of(value)->dimension;
	array = DatumGetArrayTypeP(value);
	return ARR_NDIM(array) == 1 ? ARR_DIMS(array)[0] : -1;
}

bool
dana_type_of(Oid type, dana_type *found)
{
	Oid element;

	type = getBaseType(type);
	element = get_element_type(type);
	found->array = OidIsValid(element);
	found->element = found->array ? getBaseType(element) : type;
	found->vector = false;
	if (is_number(found->element))
		return true;
	if (found->array || !dana_is_vector(type))
		return false;
	found->array = found->vector = true;
	found->element = FLOAT4OID;
	return true;
}

static inline double
infinite(bool negative)
{
	return negative ? -get_float8_infinity() : get_float8_infinity();
}

/* Whether dana_numbers_write() takes the type as it is stored */
static inline bool
is_plain(Oid type)
{
	return type == FLOAT4OID || type == FLOAT8OID || type == INT2OID || type == INT4OID || type == INT8OID ||
		type == BOOLOID;
}

/* A value of any other type in double precision, which holds a day, a microsecond of 285 years, and more exactly */
static double
to_double(Oid type, Datum value)
{
	switch (type)
	{
		case NUMERICOID:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8, value));
		case DATEOID:
			if (DATE_NOT_FINITE(DatumGetDateADT(value)))
				return infinite(DATE_IS_NOBEGIN(DatumGetDateADT(value)));
			return DatumGetDateADT(value);
		case TIMEOID:
			return DatumGetTimeADT(value) / (double)USECS_PER_SEC;
		default: /* timestamps, with and without time zone */
			if (TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)))
				return infinite(TIMESTAMP_IS_NOBEGIN(DatumGetTimestamp(value)));
			return DatumGetTimestamp(value) / (double)USECS_PER_SEC;
	}
}

/* The elements of an array that are not NULL, in double precision */
static const char *
elements_as_double(ArrayType *array, Oid type, int *stored)
{
	int16	length;
	bool	by_value;
	char	align;
	Datum  *elements;
	bool   *nulls;
	int		count;
	float8 *converted;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, align, &elements, &nulls, &count);
	converted = palloc(sizeof(float8) * Max(count, 1));
	*stored = 0;
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			converted[(*stored)++] = to_double(type, elements[i]);
	return (char *)converted;
}

/* Elements that are not NULL; these lie side by side */
static int
count_present(const uint8 *bitmap, int count)
{
	int present = 0;

	for (int i = 0; i < count; i++)
		present += bitmap[i / 8] >> i % 8 & 1;
	return present;
}

void
dana_numbers_of(const dana_type *type, Datum value, dana_numbers *numbers)
{
	ArrayType *array;

	numbers->type = type->element;
	numbers->count = numbers->stored = 1;
	numbers->value = value;
	numbers->values = NULL;
	numbers->present = NULL;
	numbers->dimensions = 0;
	if (!type->array)
	{
		if (!is_plain(type->element))
		{
			numbers->type = FLOAT8OID;
			numbers->value = Float8GetDatum(to_double(type->element, value));
		}
		return;
	}
	if (type->vector)
	{
		pgvector *vector = vector_of(value);

		numbers->dimensions = 1;
		numbers->count = numbers->stored = vector->dimension;
		numbers->values = (const char *)vector->elements;
		return;
	}
	array = DatumGetArrayTypeP(value);
	numbers->dimensions = ARR_NDIM(array);
	numbers->count = numbers->stored = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (ARR_HASNULL(array) && array_contains_nulls(array))
	{
		numbers->present = ARR_NULLBITMAP(array);
		numbers->stored = count_present(numbers->present, numbers->count);
	}
	if (is_plain(type->element))
		numbers->values = ARR_DATA_PTR(array);
	else
	{
		numbers->type = FLOAT8OID;
		numbers->values = elements_as_double(array, type->element, &numbers->stored);
	}
}

/* One number of a plain type; between dn_enter() and dn_leave() */
static inline float
scalar(Oid type, Datum value)
{
	switch (type)
	{
		case FLOAT4OID:
			return dn_from_float32(DatumGetFloat4(value));
		case FLOAT8OID:
			return dn_from_float64(DatumGetFloat8(value));
		case INT2OID:
			return dn_from_int16(DatumGetInt16(value));
		case INT4OID:
			return dn_from_int32(DatumGetInt32(value));
		case INT8OID:
			return dn_from_int64(DatumGetInt64(value));
		default:
			return dn_from_bool(DatumGetBool(value));
	}
}

/* In a function of its own: see numerics.h on brackets and loops */
static pg_noinline void
write_stored(const dana_numbers *numbers, float *to)
{
	const int	n = numbers->stored;
	const char *values = numbers->values;

	switch (numbers->type)
	{
		case FLOAT4OID:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_float32(((const float4 *)values)[i]);
			break;
		case FLOAT8OID:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_float64(((const float8 *)values)[i]);
			break;
		case INT2OID:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_int16(((const int16 *)values)[i]);
			break;
		case INT4OID:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_int32(((const int32 *)values)[i]);
			break;
		case INT8OID:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_int64(((const int64 *)values)[i]);
			break;
		default:
			for (int i = 0; i < n; i++)
				to[i] = dn_from_bool(((const uint8 *)values)[i]);
			break;
	}
}

void
dana_numbers_write(const dana_numbers *numbers, float fill, float *to)
{
	if (numbers->values == NULL)
	{
		*to = scalar(numbers->type, numbers->value);
		return;
	}
	write_stored(numbers, to);
	if (numbers->present != NULL)
	{
		int next = numbers->stored;

		/* from the end, so that no number is overwritten before it is moved */
		for (int i = numbers->count - 1; i >= 0; i--)
			to[i] = numbers->present[i / 8] >> i % 8 & 1 ? to[--next] : fill;
	}
}

double
dana_number_of(const dana_type *type, Datum value)
{
	switch (type->element)
	{
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case FLOAT8OID:
			return DatumGetFloat8(value);
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return (double)DatumGetInt64(value);
		case BOOLOID:
			return DatumGetBool(value);
		default:
			return to_double(type->element, value);
	}
}

/* dana_number(value): the number that a label of any type stands for, as for a training but not rounded to binary32 */
DANA_FUNCTION(dana_number)
{
	dana_type *type = fcinfo->flinfo->fn_extra;

	if (type == NULL)
	{
		Oid given = get_fn_expr_argtype(fcinfo->flinfo, 0);

		type = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof *type);
		if (!dana_type_of(given, type) || type->array)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("a value of type %s is not one number", format_type_be(given))));
		fcinfo->flinfo->fn_extra = type;
	}
	PG_RETURN_FLOAT8(dana_number_of(type, PG_GETARG_DATUM(0)));
}

void
dana_class_output(Oid type, FmgrInfo *output, MemoryContext context)
{
	Oid	 function;
	bool varlena;

	getTypeOutputInfo(type, &function, &varlena);
	fmgr_info_cxt(function, output, context);
}

int
dana_class_of(FmgrInfo *output, Datum value, char *const *classes, int count, char **text)
{
	*text = OutputFunctionCall(output, value);
	for (int i = 0; i < count; i++)
		if (classes[i] != NULL && strcmp(*text, classes[i]) == 0)
			return i;
	return -1;
}

typedef struct class_call
{
	FmgrInfo output;
	char   **classes;
	int		 count;
} class_call;

/* Reads the list of classes into the current memory context */
static void
read_classes(class_call *call, ArrayType *array)
{
	Datum *texts;
	bool  *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &texts, &nulls, &call->count);
	call->classes = palloc(sizeof(char *) * Max(call->count, 1));
	for (int i = 0; i < call->count; i++)
		call->classes[i] = nulls[i] ? NULL : TextDatumGetCString(texts[i]);
}

/* dana_class(value, classes): the number that a training gives a label of any type; NULL where it is none of them */
DANA_FUNCTION(dana_class)
{
	class_call *call = fcinfo->flinfo->fn_extra;
	bool		constant = get_fn_expr_arg_stable(fcinfo->flinfo, 1);
	char	   *text;
	int			number;

	if (call == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		call = fcinfo->flinfo->fn_extra = palloc0(sizeof *call);
		dana_class_output(get_fn_expr_argtype(fcinfo->flinfo, 0), &call->output, fcinfo->flinfo->fn_mcxt);
		if (constant)
			read_classes(call, PG_GETARG_ARRAYTYPE_P(1));
		MemoryContextSwitchTo(caller);
	}
	if (!constant)
		read_classes(call, PG_GETARG_ARRAYTYPE_P(1));
	number = dana_class_of(&call->output, PG_GETARG_DATUM(0), call->classes, call->count, &text);
	if (number < 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(number);
}
