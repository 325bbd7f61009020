/*
 * The features of one call of a function that predicts. Arguments come in the order of the training; columns of a row
 * are found by name, once for each row type. Both are encoded as in the training.
 */
#include "postgres.h"

#include <ctype.h>

#include "utils/typcache.h"

#include "base/dana.h"
#include "predict/inputs.h"
#include "values/datetimes.h"
#include "values/encode.h"
#include "values/values.h"
#include "numerics.h"

static bool
all_reals(const dana_inputs *features)
{
	for (int i = 0; i < features->count; i++)
		if (features->types[i].number == NULL || features->types[i].array ||
			features->types[i].number->element != DANA_ELEMENT_FLOAT4)
			return false;
	return features->encoders == NULL && features->centres == NULL;
}

/* The date or time type of a value of such a type, or InvalidOid; an array may stand for several columns */
static Oid
inputs_datetime(const dana_inputs *features, int i, Oid type)
{
	const bool each = features->count == features->names.count;

	if (features->trained == NULL || (features->encoders != NULL && features->encoders[i].kind == DANA_ENCODE_ONE_HOT))
		return InvalidOid;
	return dana_datetime_meant(&features->trained[each ? i : 0], each ? 1 : features->names.count, type);
}

/* The kind of values of a type for a feature; false if the feature does not accept them */
static bool
inputs_hold(dana_inputs *features, int i, Oid type)
{
	return features->encoders != NULL ? dana_encoder_type(&features->encoders[i], type, &features->types[i])
									  : dana_type_of(type, &features->types[i]);
}

/* The kind of a feature's values; false if the model does not accept them */
static bool
inputs_type(dana_inputs *features, int i, Oid type)
{
	Oid cast;

	if (!inputs_hold(features, i, type) || !dana_datetime_cast(type, inputs_datetime(features, i, type), &cast))
		return false;
	features->casts[i].fn_oid = InvalidOid;
	if (OidIsValid(cast))
	{
		inputs_hold(features, i, get_func_rettype(cast));
		fmgr_info_cxt(cast, &features->casts[i], GetMemoryChunkContext(features->casts));
	}
	return true;
}

static const char *
inputs_wanted(const dana_inputs *features, int i, Oid type)
{
	const Oid datetime = inputs_datetime(features, i, type);

	if (OidIsValid(datetime))
		return psprintf("%s as in the training", format_type_be(datetime));
	return features->encoders != NULL ? dana_encoder_wants(&features->encoders[i]) : "a number";
}

/* The type that a literal is read as: the column's; text for a category, else numbers or boolean */
static Oid
type_of_literal(const dana_inputs *features, int i, const char *literal)
{
	const dana_encoder *encoder = features->encoders == NULL ? NULL : &features->encoders[i];
	bool truth;

	if (features->trained != NULL && features->count == features->names.count && OidIsValid(features->trained[i]))
		return literal[0] == '{' ? get_array_type(features->trained[i]) : features->trained[i];
	if (encoder != NULL && encoder->kind != DANA_ENCODE_NONE)
		return encoder->kind == DANA_ENCODE_ONE_HOT ? TEXTOID : TIMESTAMPOID;
	if (isalpha((unsigned char)literal[0]) && parse_bool(literal, &truth))
		return BOOLOID;
	return literal[0] == '{' ? FLOAT8ARRAYOID : FLOAT8OID;
}

static Datum
read_literal(Oid type, char *literal)
{
	Oid input;
	Oid parameter;

	getTypeInputInfo(type, &input, &parameter);
	return OidInputFunctionCall(input, literal, parameter, -1);
}

_Noreturn void
dana_reject_count(const char *model, uint32 wanted, int64 given)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("model \"%s\" takes %u features, not " INT64_FORMAT, model, wanted, given),
					errhint("Give the columns that it was trained on in their order; dana.model.metadata has "
							"their names. A whole row of the table does, too.")));
}

/* Number of a column, from 0 */
static int
find_row_column(TupleDesc descriptor, const char *name, const char *model)
{
	int number = SPI_fnumber(descriptor, name);

	if (number > 0)
		return number - 1;
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("model \"%s\" needs column \"%s\", which the row does not have", model, name),
					errhint("Give a row with the columns that it was trained on, or the features one by one in their "
							"order.")));
}

/* Finds the features among a row's columns */
static void
find_row_columns(dana_inputs *features, TupleDesc descriptor, const char *model)
{
	for (int i = 0; i < features->count; i++)
	{
		int column = find_row_column(descriptor, features->names.values[i], model);
		Oid column_type = TupleDescAttr(descriptor, column)->atttypid;

		if (!inputs_type(features, i, column_type))
			dana_error(DATATYPE_MISMATCH, "column \"%s\" has type %s, which is not %s", features->names.values[i],
					   format_type_be(column_type), inputs_wanted(features, i, column_type));
		features->columns[i] = column;
	}
	features->reals = all_reals(features);
}

/* The columns of a row that are arguments behind their names */
static TupleDesc
expanded_columns(FunctionCallInfo fcinfo)
{
	Datum	 *names;
	int		  count;
	TupleDesc columns;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &names, NULL, &count);
	if (count != PG_NARGS() - 2)
		dana_error(INVALID_PARAMETER_VALUE, "%d names are given for %d columns", count, PG_NARGS() - 2);
	columns = CreateTemplateTupleDesc(count);
	for (int i = 0; i < count; i++)
		TupleDescInitEntry(columns, i + 1, NameStr(*DatumGetName(names[i])), get_fn_expr_argtype(fcinfo->flinfo, i + 2),
						   -1, 0);
	return columns;
}

void
dana_inputs_inspect(dana_inputs *features, FunctionCallInfo fcinfo, const char *reference, const dana_texts *names,
			   dana_encoder *encoders, double *centres, Jsonb *metadata)
{
	*features = (dana_inputs){.encoders = encoders, .centres = centres};
	features->expanded = PG_NARGS() > 1 && get_fn_expr_argtype(fcinfo->flinfo, 1) == NAMEARRAYOID && !PG_ARGISNULL(1);
	features->row = features->expanded || (PG_NARGS() == 2 && type_is_rowtype(get_fn_expr_argtype(fcinfo->flinfo, 1)));
	features->count = features->row ? Max(names->count, 0) : PG_NARGS() - 1;
	features->names = *names;
	features->types = palloc0(sizeof(dana_type) * Max(features->count, 1));
	features->values = palloc0(sizeof(Datum) * Max(features->count, 1));
	features->nulls = palloc0(sizeof(bool) * Max(features->count, 1));
	features->literals = palloc0(sizeof(Oid) * Max(features->count, 1));
	features->columns = palloc0(sizeof(int) * Max(features->count, 1));
	features->casts = palloc0(sizeof(FmgrInfo) * Max(features->count, 1));
	features->trained = dana_datetimes_read(metadata, names);
	if (features->expanded)
		find_row_columns(features, expanded_columns(fcinfo), reference);
	if (features->row)
		return; /* a row has its own types */
	if (encoders != NULL && features->count != names->count)
		dana_reject_count(reference, names->count, features->count);
	for (int i = 0; i < features->count; i++)
	{
		Oid type = get_fn_expr_argtype(fcinfo->flinfo, i + 1);

		if (type == UNKNOWNOID && !PG_ARGISNULL(i + 1))
			type = features->literals[i] = type_of_literal(features, i, DatumGetCString(PG_GETARG_DATUM(i + 1)));
		if (type != UNKNOWNOID && !inputs_type(features, i, type))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("feature %d of dana_predict() has type %s, which is not %s%s", i + 1,
								   format_type_be(type), inputs_wanted(features, i, type),
								   features->count != names->count ? "" : psprintf(" (column \"%s\")", names->values[i])),
							encoders == NULL && !dana_type_of(type, &features->types[i])
								? errhint("Cast it to real, or to real[].") : 0));
	}
	features->reals = all_reals(features);
}

/* Prepares for a row type that differs from the last call's */
static void
adopt_row_type(dana_inputs *features, Oid type, int32 typmod, const char *model)
{
	/* the position that `features` points to */
	MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(features->types));
	TupleDesc	  shared = lookup_rowtype_tupdesc(type, typmod);

	if (features->descriptor != NULL)
	{
		FreeTupleDesc(features->descriptor);
		pfree(features->row_values);
		pfree(features->row_nulls);
		features->type = InvalidOid;
	}
	features->descriptor = CreateTupleDescCopyConstr(shared);
	ReleaseTupleDesc(shared);
	features->row_values = palloc(sizeof(Datum) * Max(features->descriptor->natts, 1));
	features->row_nulls = palloc(sizeof(bool) * Max(features->descriptor->natts, 1));
	MemoryContextSwitchTo(caller);
	find_row_columns(features, features->descriptor, model);
	features->type = type;
	features->typmod = typmod;
}

static bool
read_feature_row(dana_inputs *features, HeapTupleHeader row, const char *model)
{
	HeapTupleData tuple = {0};

	if (features->type != HeapTupleHeaderGetTypeId(row) || features->typmod != HeapTupleHeaderGetTypMod(row))
		adopt_row_type(features, HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row), model);
	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_data = row;
	heap_deform_tuple(&tuple, features->descriptor, features->row_values, features->row_nulls);
	for (int i = 0; i < features->count; i++)
	{
		features->nulls[i] = features->row_nulls[features->columns[i]];
		if (features->nulls[i] && features->encoders == NULL)
			return false;
		features->values[i] = features->row_values[features->columns[i]];
	}
	return true;
}

typedef struct reading
{
	const dana_inputs *features;
	int				   feature;
} reading;

/* Names the feature that an error is about */
static void
in_feature(void *arg)
{
	const reading *of = arg;

	if (of->features->count == of->features->names.count)
		errcontext("feature %d, column \"%s\"", of->feature + 1, of->features->names.values[of->feature]);
	else
		errcontext("feature %d", of->feature + 1);
}

/* The features of the call's arguments; false if one is NULL without a replacement */
static bool
read_feature_arguments(dana_inputs *features, const NullableDatum *given)
{
	reading				 of = {.features = features};
	ErrorContextCallback context = {.previous = error_context_stack, .callback = in_feature, .arg = &of};

	for (int i = of.feature = 0; i < features->count; of.feature = ++i)
	{
		features->values[i] = given[i].value;
		features->nulls[i] = given[i].isnull;
		if (given[i].isnull && features->encoders == NULL)
			return false;
		if (!OidIsValid(features->literals[i]) || given[i].isnull)
			continue;
		error_context_stack = &context;
		features->values[i] = read_literal(features->literals[i], DatumGetCString(given[i].value));
		error_context_stack = context.previous;
	}
	return true;
}

/* The same of a row's columns; each has a type */
static bool
read_expanded_row(dana_inputs *features, const NullableDatum *columns)
{
	for (int i = 0; i < features->count; i++)
	{
		const NullableDatum *column = &columns[features->columns[i]];

		features->values[i] = column->value;
		features->nulls[i] = column->isnull;
		if (column->isnull && features->encoders == NULL)
			return false;
	}
	return true;
}

bool
dana_inputs_read(dana_inputs *features, FunctionCallInfo fcinfo, const char *model)
{
	const NullableDatum *given = &fcinfo->args[1];

	if (features->expanded ? !read_expanded_row(features, given + 1)
		: features->row	   ? given->isnull || !read_feature_row(features, PG_GETARG_HEAPTUPLEHEADER(1), model)
						   : !read_feature_arguments(features, given))
		return false;
	for (int i = 0; i < features->count && features->trained != NULL; i++)
		if (OidIsValid(features->casts[i].fn_oid) && !features->nulls[i])
			features->values[i] = FunctionCall1(&features->casts[i], features->values[i]);
	return true;
}

int64
dana_inputs_prepare(const dana_inputs *features, dana_numbers *numbers)
{
	int64				 count = 0;
	reading				 of = {.features = features};
	ErrorContextCallback context = {.previous = error_context_stack, .callback = in_feature, .arg = &of};
	bool				 known = true;

	if (features->reals)
		return features->count;
	error_context_stack = &context;
	for (int i = of.feature = 0; known && i < features->count; of.feature = ++i)
	{
		const dana_encoder *encoder = features->encoders == NULL ? NULL : &features->encoders[i];

		if (encoder == NULL)
			dana_numbers_of(&features->types[i], features->values[i], &numbers[i]);
		else
			known = dana_encode(encoder, &features->types[i], features->values[i], features->nulls[i], &numbers[i]);
		known = known && (numbers[i].present == NULL || (encoder != NULL && encoder->fill != NULL));
		count += numbers[i].count;
	}
	error_context_stack = context.previous;
	return known ? count : -1;
}

/* A function of its own: see numerics.h on brackets and loops */
static pg_noinline void
write_reals(const Datum *values, int count, float *to)
{
	for (int i = 0; i < count; i++)
		to[i] = dn_from_float32(DatumGetFloat4(values[i]));
}

int
dana_inputs_at(const dana_inputs *features, const dana_numbers *numbers, uint32 at, int *element)
{
	*element = -1;
	if (features->reals)
		return at;
	for (int i = 0;; at -= numbers[i++].count)
		if (at < numbers[i].count)
		{
			if (numbers[i].count > 1)
				*element = at;
			return i;
		}
}

void
dana_inputs_write(const dana_inputs *features, const dana_numbers *numbers, float *to)
{
	const double *centres = features->centres;

	if (features->reals)
		write_reals(features->values, features->count, to);
	else
		for (int i = 0; i < features->count; i++)
		{
			dana_numbers_write(&numbers[i], centres, to);
			to += numbers[i].count;
			if (centres != NULL)
				centres += numbers[i].count;
		}
}
