/*
 * A label's value as text, as a number, and as a class in a list.
 */
#include "postgres.h"

#include <math.h>

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "values/label_values.h"
#include "values/texts.h"
#include "values/values.h"

void
dana_label_type_of(Oid type, dana_label_type *found, MemoryContext context)
{
	Oid	 output;
	bool varlena;

	found->base = getBaseType(type);
	/* types that count days or seconds are written like dates and times */
	found->number = dana_type_of(type, &found->holds) && !found->holds.array &&
		(found->holds.number->element != DANA_ELEMENT_CONVERTED || found->base == NUMERICOID);
	getTypeOutputInfo(type, &output, &varlena);
	fmgr_info_cxt(output, &found->output, context);
}

/* Bytes of a text, without the padding of char(n) */
static Size
label_length(const dana_label_type *type, const char *text)
{
	Size length = strlen(text);

	while (type->base == BPCHAROID && length > 0 && text[length - 1] == ' ')
		length--;
	return length;
}

/* A label as text, independent of the session's settings; user-defined casts are not used */
char *
dana_label_text(dana_label_type *type, Datum value)
{
	char *text;

	if (type->base == BOOLOID)
		return DatumGetBool(value) ? "true" : "false";
	text = dana_fixed_output(&type->output, type->base, value);
	text[label_length(type, text)] = '\0';
	return text;
}

/* The number in a text, NaN if there is none */
static double
number_in(const dana_label_type *type, const char *text)
{
	bool   truth;
	char  *end;
	double number;

	if (type->base == BOOLOID)
		return parse_bool(text, &truth) ? truth : NAN;
	number = strtod(text, &end);
	return end == text || *end != '\0' ? NAN : number;
}

static Datum
numeric_of(const char *text)
{
	return DirectFunctionCall3(numeric_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

/* Order of two numbers of a label's type: double precision does not distinguish all of them */
int
dana_compare_labels(const dana_label_type *type, double a, const char *text, double b, const char *other)
{
	if (a != b || (type->base != INT8OID && type->base != NUMERICOID) || strcmp(text, other) == 0)
		return (a > b) - (a < b);
	return DatumGetInt32(DirectFunctionCall2(numeric_cmp, numeric_of(text), numeric_of(other)));
}

/* Index of the class with this text; a number may be written in several ways. -1: no class */
int
dana_class_of_text(const dana_label_type *type, const char *text, const dana_texts *classes)
{
	const Size	 length = strlen(text);
	const double number = type->number ? number_in(type, text) : NAN;

	for (int i = 0; i < classes->count; i++)
		if (classes->values[i] != NULL && label_length(type, classes->values[i]) == length &&
			memcmp(classes->values[i], text, length) == 0)
			return i;
	for (int i = 0; i < classes->count && !isnan(number); i++)
		if (classes->values[i] != NULL && number_in(type, classes->values[i]) == number &&
			dana_compare_labels(type, number, text, number, classes->values[i]) == 0)
			return i;
	return -1;
}

int
dana_class_of(dana_label_type *type, Datum value, const dana_texts *classes, char **text)
{
	*text = dana_label_text(type, value);
	return dana_class_of_text(type, *text, classes);
}

typedef struct class_call
{
	dana_label_type type;
	dana_texts		classes;
	bool			constant; /* these are */
} class_call;

/* dana_class(value, classes): the number of a label of any type in a training; NULL if it is not one of the classes */
DANA_FUNCTION(dana_class)
{
	class_call *call = fcinfo->flinfo->fn_extra;
	char	   *text;
	int			number;

	if (call == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		call = fcinfo->flinfo->fn_extra = palloc0(sizeof *call);
		dana_label_type_of(get_fn_expr_argtype(fcinfo->flinfo, 0), &call->type, fcinfo->flinfo->fn_mcxt);
		call->constant = get_fn_expr_arg_stable(fcinfo->flinfo, 1);
		if (call->constant)
			call->classes = dana_texts_of("classes", PG_GETARG_DATUM(1));
		MemoryContextSwitchTo(caller);
	}
	if (!call->constant)
		call->classes = dana_texts_of("classes", PG_GETARG_DATUM(1));
	number = dana_class_of(&call->type, PG_GETARG_DATUM(0), &call->classes, &text);
	if (number < 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(number);
}
