/*
 * The numeric types: one row each, here and in dana/storage/types.py. Dates and times are also in
 * dana/interchange/columns.py.
 *
 * The machine converts types that it can read from the page; this backend, which converts all of them, makes a double
 * of the others: a double holds a day, and a microsecond in 285 years, exactly.
 */
#pragma once

/* Number formats in memory: name, C type, as a Datum, as a binary32 (numerics.h) */
#define DANA_ELEMENTS(ELEMENT) \
	ELEMENT(FLOAT4, float4, DatumGetFloat4, dn_from_float32) \
	ELEMENT(FLOAT8, float8, DatumGetFloat8, dn_from_float64) \
	ELEMENT(INT2, int16, DatumGetInt16, dn_from_int16) \
	ELEMENT(INT4, int32, DatumGetInt32, dn_from_int32) \
	ELEMENT(INT8, int64, DatumGetInt64, dn_from_int64) \
	ELEMENT(BOOL, uint8, DatumGetBool, dn_from_bool)

/* Type, its pg_type.typlen and typalign, and its format in memory, or else how a double is made of the Datum `value` */
#define DANA_TYPES(STORED, CONVERTED) \
	STORED(BOOLOID, 1, TYPALIGN_CHAR, BOOL) \
	STORED(INT2OID, 2, TYPALIGN_SHORT, INT2) \
	STORED(INT4OID, 4, TYPALIGN_INT, INT4) \
	STORED(INT8OID, 8, TYPALIGN_DOUBLE, INT8) \
	STORED(FLOAT4OID, 4, TYPALIGN_INT, FLOAT4) \
	STORED(FLOAT8OID, 8, TYPALIGN_DOUBLE, FLOAT8) \
	CONVERTED(NUMERICOID, -1, TYPALIGN_INT, double_of_numeric(value)) \
	CONVERTED(DATEOID, 4, TYPALIGN_INT, date_number(DatumGetDateADT(value))) \
	CONVERTED(TIMEOID, 8, TYPALIGN_DOUBLE, DatumGetTimeADT(value) / (double)USECS_PER_SEC) \
	CONVERTED(TIMETZOID, 12, TYPALIGN_DOUBLE, \
			  DatumGetTimeTzADTP(value)->time / (double)USECS_PER_SEC + DatumGetTimeTzADTP(value)->zone) \
	CONVERTED(TIMESTAMPOID, 8, TYPALIGN_DOUBLE, timestamp_number(DatumGetTimestamp(value))) \
	CONVERTED(TIMESTAMPTZOID, 8, TYPALIGN_DOUBLE, timestamp_number(DatumGetTimestampTz(value)))

/* Types that count days or seconds, and their names in pg_type */
#define DANA_DATETIMES(DATETIME) \
	DATETIME(DATEOID, "date") \
	DATETIME(TIMEOID, "time") \
	DATETIME(TIMETZOID, "timetz") \
	DATETIME(TIMESTAMPOID, "timestamp") \
	DATETIME(TIMESTAMPTZOID, "timestamptz")

/* Types that have a year: type, microseconds of its unit, whether the Datum `value` is infinite, and its units */
#define DANA_DATES(DATE) \
	DATE(DATEOID, USECS_PER_DAY, DATE_NOT_FINITE(DatumGetDateADT(value)), DatumGetDateADT(value)) \
	DATE(TIMESTAMPOID, 1, TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)), DatumGetTimestamp(value)) \
	DATE(TIMESTAMPTZOID, 1, TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(value)), DatumGetTimestampTz(value))
