/*
 * Dates and times as numbers. A training keeps the types of its columns in the metadata's member "types".
 */
#pragma once

#include "base/dana.h"

/* The date or time type that a type holds, alone or in an array, or InvalidOid */
extern Oid dana_datetime_of(Oid type);

/* Appends the type of a column: SQL's name of its base type, "enum", or that of a date or time, alone or in an array */
extern void dana_types_append(StringInfo to, Form_pg_attribute column);

/* The types of columns in the training, InvalidOid for others; NULL: none is a date or a time */
extern Oid *dana_datetimes_read(Jsonb *metadata, const dana_texts *columns);

/* The candidate type that a given type is read as: itself, else another one, or InvalidOid */
extern Oid dana_datetime_meant(const Oid *trained, int count, Oid given);

/* Whether a type can be read as one of the training, and with which cast, InvalidOid if none is needed */
extern bool dana_datetime_cast(Oid given, Oid trained, Oid *cast);

/* SQL for a column of a type as the training read it; an error if it cannot be read so */
extern char *dana_datetime_expression(Jsonb *metadata, const char *column, Oid given);

/* Raises an error if a column's type differs from its type in the training of the model to start from */
extern void dana_datetime_require(Jsonb *metadata, const char *model, Form_pg_attribute column, const char *source);
