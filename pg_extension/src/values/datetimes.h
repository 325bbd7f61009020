/*
 * Dates and times as numbers. A training keeps their types in the metadata's member "datetimes".
 */
#pragma once

#include "base/dana.h"

/* Appends the member of a column, if it is one */
extern void dana_datetimes_append(StringInfo to, Form_pg_attribute column);

/* The types of columns in the training, InvalidOid for others; NULL: none were kept */
extern Oid *dana_datetimes_read(Jsonb *metadata, const dana_texts *columns);

/* The candidate type that a given type is read as: itself, else another one, or InvalidOid */
extern Oid dana_datetime_meant(const Oid *trained, int count, Oid given);

/* Whether a type can be read as one of the training, and with which cast, InvalidOid if none is needed */
extern bool dana_datetime_cast(Oid given, Oid trained, Oid *cast);

/* SQL for a column of a type as the training read it; an error if it cannot be read so */
extern char *dana_datetime_expression(Jsonb *metadata, const char *column, Oid given);

/* Raises an error if a column's type differs from its type in the training of the model to start from */
extern void dana_datetime_require(Jsonb *metadata, const char *model, Form_pg_attribute column, const char *source);
