/*
 * Dates and times as numbers: each type counts its own units, so a value is brought to the type that its column had in
 * the training.
 */
#include "postgres.h"

#include "parser/parse_coerce.h"

#include "dana.h"
#include "encode.h"

#define MOMENT_ROW(type, name) {type, name},
static const struct
{
	Oid			type;
	const char *name;
} moments[] = {DANA_MOMENTS(MOMENT_ROW)};

/* The date or the time that a type holds, alone or in an array, or InvalidOid */
static Oid
moment_of(Oid type)
{
	dana_type holds;

	for (int i = 0; dana_type_of(type, &holds) && i < lengthof(moments); i++)
		if (moments[i].type == holds.number->oid)
			return moments[i].type;
	return InvalidOid;
}

static const char *
moment_name(Oid moment)
{
	int i = 0;

	while (moments[i].type != moment)
		i++;
	return moments[i].name;
}

void
dana_moments_append(StringInfo to, Form_pg_attribute column)
{
	const Oid moment = moment_of(column->atttypid);

	if (OidIsValid(moment))
		dana_json_text(to, NameStr(column->attname), moment_name(moment));
}

Oid *
dana_moments_read(Jsonb *metadata, const dana_texts *columns)
{
	Jsonb *kept = dana_json_member(metadata, "moments");
	Oid	  *types;

	if (!JB_ROOT_IS_OBJECT(kept))
		return NULL;
	types = palloc0(sizeof(Oid) * Max(columns->count, 1));
	for (int i = 0; i < columns->count; i++)
		for (int k = 0; k < lengthof(moments); k++)
			if (strcmp(dana_json_string(kept, columns->values[i]), moments[k].name) == 0)
				types[i] = moments[k].type;
	return types;
}

Oid
dana_moment_meant(const Oid *trained, int count, Oid given)
{
	const Oid moment = moment_of(given);
	Oid		  meant = InvalidOid;

	for (int i = 0; i < count && OidIsValid(moment) && meant != moment; i++)
		if (OidIsValid(trained[i]))
			meant = trained[i];
	return meant;
}

bool
dana_moment_cast(Oid given, Oid trained, Oid *cast)
{
	const Oid moment = moment_of(given);

	*cast = InvalidOid;
	if (!OidIsValid(trained) || !OidIsValid(moment) || moment == trained)
		return true;
	/* of a timestamp PostgreSQL would take the time, but none of a date; values of arrays are as they are */
	return getBaseType(given) == moment &&
		(dana_find_date_type(moment) == NULL) == (dana_find_date_type(trained) == NULL) &&
		find_coercion_pathway(trained, moment, COERCION_ASSIGNMENT, cast) == COERCION_PATH_FUNC;
}

char *
dana_moment_expression(Jsonb *metadata, const char *column, Oid given)
{
	const dana_texts name = {1, (char **)&column};
	const Oid		*trained = dana_moments_read(metadata, &name);
	const char		*quoted = quote_identifier(column);
	Oid				 cast;

	if (trained == NULL)
		return pstrdup(quoted);
	if (!dana_moment_cast(given, *trained, &cast))
		dana_error(DATATYPE_MISMATCH, "column \"%s\" has type %s, which is not %s as in the training", column,
				   format_type_be(given), moment_name(*trained));
	return OidIsValid(cast) ? psprintf("%s::pg_catalog.%s", quoted, moment_name(*trained)) : pstrdup(quoted);
}

void
dana_moment_require(Jsonb *metadata, const char *model, Form_pg_attribute column, const char *source)
{
	const char *name = NameStr(column->attname);
	const char *wanted = dana_moment_expression(metadata, name, column->atttypid);

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

	error_context_stack = NULL; /* which would show statements of ours; whoever catches the error sets it again */
	made = dana_moment_expression(PG_GETARG_JSONB_P(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_OID(2));
	PG_RETURN_TEXT_P(cstring_to_text(made));
}
