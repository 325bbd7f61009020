/*
 * The contents of values from another server.
 *
 * Types with OIDs in their values (enums, composites, regclass) differ between servers; those with a format of their own
 * (jsonb, ranges, inet) are not checked here. Both travel as rows, through their types' receive functions.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_compression.h"
#include "mb/pg_wchar.h"

#include "base/dana.h"
#include "values/contents.h"

/* A stored text shrinks at most by so much: both methods write a copy of at most 255 + 18 bytes with one byte or more */
#define MAX_SHRINKING 300

/* Of numeric.c: the digits to the base 10,000 begin behind a header of one or two words */
#define NUMERIC_BASE 10000
#define NUMERIC_SHORT 0x8000
#define NUMERIC_SPECIAL 0xC000

/* The type of an array's elements that this file checks, or InvalidOid */
static Oid
element_of(Oid type)
{
	switch (type)
	{
		case BOOLARRAYOID:
			return BOOLOID;
		case INT2ARRAYOID:
			return INT2OID;
		case INT4ARRAYOID:
			return INT4OID;
		case INT8ARRAYOID:
			return INT8OID;
		case FLOAT4ARRAYOID:
			return FLOAT4OID;
		case FLOAT8ARRAYOID:
			return FLOAT8OID;
		default:
			return InvalidOid;
	}
}

bool
dana_contents_known(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case CASHOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
			return true;
		default:
			return OidIsValid(element_of(type));
	}
}

static const char *
numeric_damage(const char *data, Size size)
{
	uint16 header, digit;
	Size   at;

	if (size < sizeof header || size % sizeof digit != 0)
		return "a numeric of a wrong length";
	memcpy(&header, data, sizeof header);
	if ((header & NUMERIC_SPECIAL) == NUMERIC_SPECIAL)
		return size == sizeof header ? NULL : "a numeric of a wrong length";
	at = (header & NUMERIC_SHORT) != 0 ? sizeof header : sizeof header + sizeof(int16);
	if (size < at)
		return "a numeric of a wrong length";
	for (; at < size; at += sizeof digit)
	{
		memcpy(&digit, data + at, sizeof digit);
		if (digit >= NUMERIC_BASE)
			return "a numeric with a wrong digit";
	}
	return NULL;
}

/* `array` is aligned */
static const char *
array_damage(const ArrayType *array, Size size, Oid type)
{
	int64 items;
	int16 length;
	bool  by_value;
	char  align;
	Size  overhead, present;

	if (size < sizeof *array || array->elemtype != type || array->ndim < 0 || array->ndim > MAXDIM ||
		size < (Size)ARR_OVERHEAD_NONULLS(array->ndim))
		return "an array with a wrong header";
	items = array->ndim > 0;
	for (int i = 0; i < array->ndim; i++)
	{
		int64 count = ARR_DIMS(array)[i];

		items *= count;
		if (count <= 0 || items > (int64)MaxArraySize || ARR_LBOUND(array)[i] + count > PG_INT32_MAX)
			return "an array with wrong dimensions";
	}
	overhead = array->dataoffset == 0 ? ARR_OVERHEAD_NONULLS(array->ndim) : ARR_OVERHEAD_WITHNULLS(array->ndim, items);
	if (size < overhead || (array->dataoffset != 0 && (Size)array->dataoffset != overhead))
		return "an array with a wrong header";
	present = items;
	if (array->dataoffset != 0)
		for (int64 i = 0; i < items; i++)
			present -= (ARR_NULLBITMAP(array)[i / 8] & (1 << i % 8)) == 0;
	get_typlenbyvalalign(type, &length, &by_value, &align);
	return size == overhead + present * length ? NULL : "an array of a wrong length";
}

const char *
dana_contents_damage(Oid type, Datum value)
{
	struct varlena *stored = (struct varlena *)DatumGetPointer(value);
	const bool		text = type == TEXTOID || type == VARCHAROID || type == BPCHAROID;
	const Oid		element = element_of(type);
	Size			size;

	if (!text && type != BYTEAOID && type != NUMERICOID && !OidIsValid(element))
		return NULL;
	if (VARATT_IS_EXTERNAL(stored))
		return "a value that is stored out of line";
	if (VARATT_IS_COMPRESSED(stored))
	{
		if (VARDATA_COMPRESSED_GET_EXTSIZE(stored) > MAX_SHRINKING * (Size)VARSIZE(stored))
			return "a compressed value of an impossible size";
		stored = detoast_attr(stored);
	}
	else if (OidIsValid(element))
		stored = detoast_attr(stored); /* aligns it */
	size = VARSIZE_ANY_EXHDR(stored);
	if (text)
		return pg_verify_mbstr(GetDatabaseEncoding(), VARDATA_ANY(stored), size, true) ? NULL : "a text in another encoding";
	if (type == NUMERICOID)
		return numeric_damage(VARDATA_ANY(stored), size);
	return OidIsValid(element) ? array_damage((ArrayType *)stored, size + VARHDRSZ, element) : NULL;
}
