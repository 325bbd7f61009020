/*
 * Values of PostgreSQL's types as the machine's numbers.
 *
 * numeric goes through double precision. A date is days since 2000-01-01, a time seconds since midnight, a timestamp
 * seconds since 2000-01-01 00:00 (with time zone, both: of UTC); infinite ones are infinite. Each is rounded once to
 * binary32.
 */
#include "postgres.h"

#include <math.h>

#include "access/transam.h"
#include "access/tupmacs.h"
#include "catalog/dependency.h"
#include "commands/extension.h"
#include "utils/date.h"
#include "utils/float.h"

#include "base/dana.h"
#include "base/extension.h"
#include "values/number_types.h"
#include "values/tuples.h"
#include "values/values.h"
#include "numerics.h"

static inline double
value_infinite(bool negative)
{
	return negative ? -get_float8_infinity() : get_float8_infinity();
}

static double
date_number(DateADT date)
{
	return DATE_NOT_FINITE(date) ? value_infinite(DATE_IS_NOBEGIN(date)) : date;
}

static double
timestamp_number(Timestamp timestamp)
{
	return TIMESTAMP_NOT_FINITE(timestamp) ? value_infinite(TIMESTAMP_IS_NOBEGIN(timestamp))
										   : timestamp / (double)USECS_PER_SEC;
}

/* PostgreSQL's error has all digits of the number */
static double
double_of_numeric(Datum value)
{
	const double number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));

	if (isinf(number) && !numeric_is_inf(DatumGetNumeric(value)))
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("a number of type numeric is outside the range of double precision"),
						errhint("Numbers lie between -1.8e308 and 1.8e308.")));
	return number;
}

#define NO_CONVERSION(...)
#define CONVERSION(type, length, align, number) \
	static double convert_##type(Datum value) \
	{ \
		return number; \
	}
DANA_TYPES(NO_CONVERSION, CONVERSION)

#define STORED_ROW(type, length, align, element) {type, length, align, DANA_ELEMENT_##element, NULL},
#define CONVERTED_ROW(type, length, align, number) {type, length, align, DANA_ELEMENT_CONVERTED, convert_##type},
static const dana_number_type number_types[] = {DANA_TYPES(STORED_ROW, CONVERTED_ROW)};

static const dana_number_type *
find_number_type(Oid type)
{
	for (int i = 0; i < lengthof(number_types); i++)
		if (number_types[i].oid == type)
			return &number_types[i];
	return NULL;
}

/* A value of type vector, as in pgvector's vector.h */
typedef struct pgvector
{
	int32 header;
	int16 dimension;
	int16 unused;
	float elements[FLEXIBLE_ARRAY_MEMBER];
} pgvector;

/* Type "vector" of the extension "vector", in any schema; not another type of that name */
static bool
is_vector(Oid type)
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

static _Noreturn void
reject_array(void)
{
	dana_error(DATA_CORRUPTED, "an array is malformed");
}

static pgvector *
vector_of(Datum value)
{
	pgvector *vector = (pgvector *)PG_DETOAST_DATUM(value);

	if (VARSIZE(vector) < offsetof(pgvector, elements) || vector->dimension < 0 ||
		VARSIZE(vector) != offsetof(pgvector, elements) + sizeof(float) * vector->dimension)
		dana_error(DATA_CORRUPTED, "a value of type vector is malformed");
	return vector;
}

/* An array, checked to contain its shape and bitmap: it may come from a damaged page */
static ArrayType *
array_of(Datum value)
{
	ArrayType *array = DatumGetArrayTypeP(value);
	Size	   size = ARR_SIZE(array);

	if (size < sizeof(ArrayType) || ARR_NDIM(array) < 0 || ARR_NDIM(array) > MAXDIM ||
		size < ARR_OVERHEAD_NONULLS(ARR_NDIM(array)) ||
		(ARR_HASNULL(array) &&
		 (array->dataoffset < ARR_OVERHEAD_WITHNULLS(ARR_NDIM(array), ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array))) ||
		  array->dataoffset > size)))
		reject_array();
	return array;
}

int
dana_array_length(Oid type, Datum value)
{
	ArrayType *array;

	if (is_vector(type))
		return vector_of(value)->dimension;
	array = array_of(value);
	return ARR_NDIM(array) == 1 ? ARR_DIMS(array)[0] : -1;
}

bool
dana_type_of(Oid type, dana_type *found)
{
	Oid element;

	type = getBaseType(type);
	element = get_element_type(type);
	found->array = OidIsValid(element);
	found->vector = !found->array && is_vector(type);
	found->number = find_number_type(found->vector ? FLOAT4OID : found->array ? getBaseType(element) : type);
	found->array |= found->vector;
	return found->number != NULL;
}

/* The elements of an array that are not NULL, in double precision */
static const char *
elements_as_double(const dana_numbers *numbers, const dana_number_type *type, const char *data, Size size)
{
	const bool by_value = type->length > 0 && type->length <= sizeof(Datum);
	float8	  *converted = palloc(sizeof(float8) * Max(numbers->stored, 1));
	Size	   offset = 0;

	for (int i = 0; i < numbers->stored; i++)
	{
		Size length = offset < size ? dana_value_size(data + offset, size - offset, type->length) : 0;

		CHECK_FOR_INTERRUPTS();
		if (length == 0)
			reject_array();
		converted[i] = type->convert(fetch_att(data + offset, by_value, type->length));
		offset = att_align_nominal(offset + length, type->align);
	}
	return (char *)converted;
}

/* Elements that are not NULL and are contiguous */
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
	Size	   size;

	*numbers = (dana_numbers){.element = type->number->element, .count = 1, .stored = 1, .value = value};
	if (!type->array)
	{
		if (type->number->convert != NULL)
		{
			numbers->element = DANA_ELEMENT_FLOAT8;
			numbers->value = Float8GetDatum(type->number->convert(value));
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
	array = array_of(value);
	size = ARR_SIZE(array) - ARR_DATA_OFFSET(array);
	numbers->dimensions = ARR_NDIM(array);
	numbers->count = numbers->stored = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (ARR_HASNULL(array) && array_contains_nulls(array))
	{
		numbers->present = ARR_NULLBITMAP(array);
		numbers->stored = count_present(numbers->present, numbers->count);
	}
	numbers->values = ARR_DATA_PTR(array);
	if (type->number->convert != NULL)
	{
		numbers->element = DANA_ELEMENT_FLOAT8;
		numbers->values = elements_as_double(numbers, type->number, numbers->values, size);
	}
	else if (numbers->stored > size / type->number->length)
		reject_array();
}

/* One number; between dn_enter() and dn_leave() */
static inline float
scalar_as_float(dana_element element, Datum value)
{
#define AS_FLOAT(name, type, of_datum, to_float) \
	case DANA_ELEMENT_##name: \
		return to_float(of_datum(value));
	switch (element)
	{
		DANA_ELEMENTS(AS_FLOAT)
		case DANA_ELEMENT_CONVERTED:
			break;
	}
	pg_unreachable();
}

/* A function of its own: see numerics.h on brackets and loops */
static pg_noinline void
write_stored(const dana_numbers *numbers, float *to)
{
	const int	n = numbers->stored;
	const char *values = numbers->values;

#define WRITE_ALL(name, type, of_datum, to_float) \
	case DANA_ELEMENT_##name: \
		for (int i = 0; i < n; i++) \
			to[i] = to_float(((const type *)values)[i]); \
		break;
	switch (numbers->element)
	{
		DANA_ELEMENTS(WRITE_ALL)
		case DANA_ELEMENT_CONVERTED:
			pg_unreachable();
	}
}

/* What replaces a NULL in an array */
static double
fill_of(const dana_numbers *numbers, int element)
{
	return numbers->fill[Min(element, numbers->fills - 1)];
}

/* Writes numbers less their centres; a function of its own, too */
static pg_noinline void
write_centred(const dana_numbers *numbers, const double *centres, float *to)
{
	int next = 0;

#define AS_EXACT(name, type, of_datum, to_float) \
	case DANA_ELEMENT_##name: \
		exact = numbers->values == NULL ? (double)of_datum(numbers->value) : (double)((const type *)numbers->values)[next++]; \
		break;
	for (int i = 0; i < numbers->count; i++)
	{
		double exact = 0;

		if (numbers->present != NULL && !(numbers->present[i / 8] >> i % 8 & 1))
			exact = fill_of(numbers, i);
		else
			switch (numbers->element)
			{
				DANA_ELEMENTS(AS_EXACT)
				case DANA_ELEMENT_CONVERTED:
					pg_unreachable();
			}
		to[i] = dn_from_float64(exact - centres[i]);
	}
}

void
dana_numbers_write(const dana_numbers *numbers, const double *centres, float *to)
{
	if (centres != NULL)
	{
		write_centred(numbers, centres, to);
		return;
	}
	if (numbers->values == NULL)
	{
		*to = scalar_as_float(numbers->element, numbers->value);
		return;
	}
	write_stored(numbers, to);
	if (numbers->present != NULL)
	{
		int next = numbers->stored;

		/* from the end, so that no number is overwritten before it is moved */
		for (int i = numbers->count - 1; i >= 0; i--)
			to[i] = numbers->present[i / 8] >> i % 8 & 1 ? to[--next] : dn_from_float64(fill_of(numbers, i));
	}
}

bool
dana_numbers_beyond_real(const dana_numbers *numbers)
{
	const double *values = (const double *)numbers->values;

	if (numbers->element != DANA_ELEMENT_FLOAT8)
		return false;
	if (values == NULL)
		return isfinite(DatumGetFloat8(numbers->value)) && !isfinite((float)DatumGetFloat8(numbers->value));
	for (int i = 0; i < numbers->stored; i++)
		if (isfinite(values[i]) && !isfinite((float)values[i]))
			return true;
	return false;
}

double
dana_number_of(const dana_type *type, Datum value)
{
#define AS_DOUBLE(name, type, of_datum, to_float) \
	case DANA_ELEMENT_##name: \
		return of_datum(value);
	switch (type->number->element)
	{
		DANA_ELEMENTS(AS_DOUBLE)
		case DANA_ELEMENT_CONVERTED:
			return type->number->convert(value);
	}
	pg_unreachable();
}

/* dana_number(value): the number of a label of any type, as in a training but not rounded to binary32 */
DANA_FUNCTION(dana_number)
{
	dana_type *type = fcinfo->flinfo->fn_extra;

	if (type == NULL)
	{
		Oid given = get_fn_expr_argtype(fcinfo->flinfo, 0);

		type = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof *type);
		if (!dana_type_of(given, type) || type->array)
			dana_error(DATATYPE_MISMATCH, "a value of type %s is not one number", format_type_be(given));
		fcinfo->flinfo->fn_extra = type;
	}
	PG_RETURN_FLOAT8(dana_number_of(type, PG_GETARG_DATUM(0)));
}

/* Writes the numbers of arguments; a function of its own: see numerics.h on brackets and loops */
static pg_noinline void
write_numbers(const dana_numbers *numbers, int count, float *to)
{
	unsigned mode = dn_enter();

	for (int i = 0; i < count; i++)
	{
		dana_numbers_write(&numbers[i], NULL, to);
		to += numbers[i].count;
	}
	dn_leave(mode);
}

/* dana_numbers(value, ...): the numbers of labels in sequence, as in a training; NULL if one is NULL */
DANA_FUNCTION(dana_label_numbers)
{
	const int	  count = PG_NARGS();
	dana_type	 *types = fcinfo->flinfo->fn_extra;
	dana_numbers *numbers = palloc(sizeof(dana_numbers) * count);
	Datum		 *made;
	float		 *values;
	int			  total = 0;

	if (types == NULL)
	{
		types = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(dana_type) * count);
		for (int i = 0; i < count; i++)
			if (!dana_type_of(get_fn_expr_argtype(fcinfo->flinfo, i), &types[i]))
				dana_error(DATATYPE_MISMATCH, "a value of type %s is not a number",
						   format_type_be(get_fn_expr_argtype(fcinfo->flinfo, i)));
		fcinfo->flinfo->fn_extra = types;
	}
	for (int i = 0; i < count; i++)
	{
		if (PG_ARGISNULL(i))
			PG_RETURN_NULL();
		dana_numbers_of(&types[i], PG_GETARG_DATUM(i), &numbers[i]);
		if (numbers[i].present != NULL)
			PG_RETURN_NULL();
		total += numbers[i].count;
	}
	values = palloc(sizeof(float) * Max(total, 1));
	write_numbers(numbers, count, values);
	made = palloc(sizeof(Datum) * Max(total, 1));
	for (int i = 0; i < total; i++)
		made[i] = Float4GetDatum(values[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(made, total, FLOAT4OID, sizeof(float4), true, TYPALIGN_INT));
}
