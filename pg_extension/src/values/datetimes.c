/*
 * Dates and times as numbers: each type counts its own units, so a value is converted to the type that its column had
 * in the training.
 */
#include "postgres.h"

#include "parser/parse_coerce.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "values/datetimes.h"
#include "values/encode.h"
#include "values/number_types.h"
#include "values/values.h"

#define DATETIME_ROW(type, name) {type, name},
static const struct
{
	Oid			type;
	const char *name;
} datetimes[] = {DANA_DATETIMES(DATETIME_ROW)};

Oid
dana_datetime_of(Oid type)
{
	dana_type holds;

	for (int i = 0; dana_type_of(type, &holds) && i < lengthof(datetimes); i++)
		if (datetimes[i].type == holds.number->oid)
			return datetimes[i].type;
	return InvalidOid;
}

static const char *
datetime_name(Oid datetime)
{
	int i = 0;

	while (datetimes[i].type != datetime)
		i++;
	return datetimes[i].name;
}

void
dana_types_append(StringInfo to, Form_pg_attribute column)
{
	const Oid	datetime = dana_datetime_of(column->atttypid);
	int32		typmod = column->atttypmod;
	const Oid	base = getBaseTypeAndTypmod(column->atttypid, &typmod);
	const char *name;

	if (OidIsValid(datetime))
		name = datetime_name(datetime);
	else if (type_is_enum(base))
		name = "enum"; /* its own name may be that of a date */
	else
		name = format_type_with_typemod(base, typmod);
	dana_json_text(to, NameStr(column->attname), name);
}

Oid *
dana_datetimes_read(Jsonb *metadata, const dana_texts *columns)
{
	Jsonb *kept = dana_json_member(metadata, "types");
	Oid	  *types;
	bool   found = false;

	if (!JB_ROOT_IS_OBJECT(kept))
		return NULL;
	types = palloc0(sizeof(Oid) * Max(columns->count, 1));
	for (int i = 0; i < columns->count; i++)
		for (int k = 0; k < lengthof(datetimes); k++)
			if (strcmp(dana_json_string(kept, columns->values[i]), datetimes[k].name) == 0)
			{
				types[i] = datetimes[k].type;
				found = true;
			}
	return found ? types : NULL; /* predictions look for casts in each row where there are any */
}

Oid
dana_datetime_meant(const Oid *trained, int count, Oid given)
{
	const Oid datetime = dana_datetime_of(given);
	Oid		  meant = InvalidOid;

	for (int i = 0; i < count && OidIsValid(datetime) && meant != datetime; i++)
		if (OidIsValid(trained[i]))
			meant = trained[i];
	return meant;
}

bool
dana_datetime_cast(Oid given, Oid trained, Oid *cast)
{
	const Oid datetime = dana_datetime_of(given);

	*cast = InvalidOid;
	if (!OidIsValid(trained) || !OidIsValid(datetime) || datetime == trained)
		return true;
	/* PostgreSQL would convert a timestamp to its time of day, but not a date; values of arrays are kept as they are */
	return getBaseType(given) == datetime &&
		(dana_find_date_type(datetime) == NULL) == (dana_find_date_type(trained) == NULL) &&
		find_coercion_pathway(trained, datetime, COERCION_ASSIGNMENT, cast) == COERCION_PATH_FUNC;
}

char *
dana_datetime_expression(Jsonb *metadata, const char *column, Oid given)
{
	const dana_texts name = {1, (char **)&column};
	const Oid		*trained = dana_datetimes_read(metadata, &name);
	const char		*quoted = quote_identifier(column);
	Oid				 cast;

	if (trained == NULL)
		return pstrdup(quoted);
	if (!dana_datetime_cast(given, *trained, &cast))
		dana_error(DATATYPE_MISMATCH, "column \"%s\" has type %s, which is not %s as in the training", column,
				   format_type_be(given), datetime_name(*trained));
	return OidIsValid(cast) ? psprintf("%s::pg_catalog.%s", quoted, datetime_name(*trained)) : pstrdup(quoted);
}

void
dana_datetime_require(Jsonb *metadata, const char *model, Form_pg_attribute column, const char *source)
{
	const char *name = NameStr(column->attname);
	const char *wanted = dana_datetime_expression(metadata, name, column->atttypid);

	if (strcmp(wanted, quote_identifier(name)) != 0)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of %s has type %s, another than when model \"%s\", to start from, was trained",
							   name, source, format_type_be(column->atttypid), model),
						errhint("Give it in a query or a view: %s.", wanted)));
}

/* dana.dana_as_trained(metadata, column, type): SQL for a column of that type */
DANA_FUNCTION(dana_as_trained)
{
	char *made;

	error_context_stack = NULL; /* the context shows internal statements; a handler sets it again */
	made = dana_datetime_expression(PG_GETARG_JSONB_P(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_OID(2));
	PG_RETURN_TEXT_P(cstring_to_text(made));
}
