/*
 * Values as texts. Texts that are stored and compared later (labels, keys of groups, categories) are the same in every
 * session: dates in ISO style, timestamps in UTC.
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "pgtime.h"
#include "utils/bytea.h"
#include "utils/float.h"

#include "base/dana.h"
#include "base/extension.h"
#include "values/texts.h"

/* Whether a type's text depends on no setting; an unlisted type may contain a date, or be user-defined */
static bool
is_plain_type(Oid base)
{
	switch (base)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case CHAROID:
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case OIDOID:
		case UUIDOID:
			return true;
		default:
			return type_is_enum(base);
	}
}

/* The text under PostgreSQL's default settings, in UTC. No GUC is set, since this runs for each row */
static char *
output_in_iso(FmgrInfo *output, Datum value)
{
	const int	   date_style = DateStyle, interval_style = IntervalStyle, digits = extra_float_digits, bytes = bytea_output;
	pg_tz *const   zone = session_timezone;
	char *volatile text = NULL;

	PG_TRY();
	{
		DateStyle = USE_ISO_DATES;
		IntervalStyle = INTSTYLE_POSTGRES;
		extra_float_digits = 1;
		bytea_output = BYTEA_OUTPUT_HEX;
		session_timezone = pg_tzset("GMT");
		text = OutputFunctionCall(output, value);
	}
	PG_FINALLY();
	{
		DateStyle = date_style;
		IntervalStyle = interval_style;
		extra_float_digits = digits;
		bytea_output = bytes;
		session_timezone = zone;
	}
	PG_END_TRY();
	return text;
}

char *
dana_fixed_output(FmgrInfo *output, Oid base, Datum value)
{
	return is_plain_type(base) ? OutputFunctionCall(output, value) : output_in_iso(output, value);
}

char *
dana_text_expression(const char *column, Oid type)
{
	const bool cast = type < FirstNormalObjectId && is_plain_type(type);

	return psprintf(cast ? "%s::pg_catalog.text" : "dana.dana_fixed_text(%s)", quote_identifier(column));
}

typedef struct text_call
{
	FmgrInfo function;
	Oid		 base;
	bool	 output; /* of the type, not a cast */
} text_call;

/* How the text of the call's argument is made */
static text_call *
text_call_of(FunctionCallInfo fcinfo)
{
	text_call *call = fcinfo->flinfo->fn_extra;

	if (call == NULL)
	{
		Oid	 type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 0));
		Oid	 function;
		bool varlena;

		call = fcinfo->flinfo->fn_extra = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof *call);
		call->base = type;
		call->output = find_coercion_pathway(TEXTOID, type, COERCION_EXPLICIT, &function) != COERCION_PATH_FUNC ||
			function >= FirstNormalObjectId;
		if (call->output)
			getTypeOutputInfo(type, &function, &varlena);
		fmgr_info_cxt(function, &call->function, fcinfo->flinfo->fn_mcxt);
	}
	return call;
}

/*
 * dana_text(value): like a cast to text, but never a user-defined one, which would run with the rights of the reader.
 * Only superusers define output functions.
 */
DANA_FUNCTION(dana_text)
{
	text_call *call = text_call_of(fcinfo);

	if (call->output)
		PG_RETURN_TEXT_P(cstring_to_text(OutputFunctionCall(&call->function, PG_GETARG_DATUM(0))));
	PG_RETURN_DATUM(FunctionCall1(&call->function, PG_GETARG_DATUM(0)));
}

/* dana_fixed_text(value): the same, independent of the session's settings */
DANA_FUNCTION(dana_fixed_text)
{
	text_call *call = text_call_of(fcinfo);

	if (call->output)
		PG_RETURN_TEXT_P(cstring_to_text(dana_fixed_output(&call->function, call->base, PG_GETARG_DATUM(0))));
	PG_RETURN_DATUM(FunctionCall1(&call->function, PG_GETARG_DATUM(0)));
}
