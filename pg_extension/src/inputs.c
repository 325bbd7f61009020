/*
 * The features of one call of dana_predict(). Arguments come in the order of the training; of a row, the columns that
 * the model was trained on are found by name, once for each row type.
 */
#include "postgres.h"

#include "utils/typcache.h"

#include "dana.h"
#include "inputs.h"
#include "numerics.h"

static bool
all_reals(const dana_inputs *features)
{
	for (int i = 0; i < features->count; i++)
		if (features->types[i].array || features->types[i].number->element != DANA_ELEMENT_FLOAT4)
			return false;
	return true;
}

void
dana_inputs_inspect(dana_inputs *features, FunctionCallInfo fcinfo, const dana_texts *names)
{
	memset(features, 0, sizeof *features);
	features->row = PG_NARGS() == 2 && type_is_rowtype(get_fn_expr_argtype(fcinfo->flinfo, 1));
	features->count = features->row ? names->count : PG_NARGS() - 1;
	features->names = names->values;
	features->types = palloc0(sizeof(dana_type) * Max(features->count, 1));
	features->values = palloc0(sizeof(Datum) * Max(features->count, 1));
	features->columns = palloc0(sizeof(int) * Max(features->count, 1));
	if (features->row)
		return; /* a row says itself what it is */
	for (int i = 0; i < features->count; i++)
	{
		Oid type = get_fn_expr_argtype(fcinfo->flinfo, i + 1);

		if (!dana_type_of(type, &features->types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("feature %d of dana_predict() has type %s, which is not a number", i + 1, format_type_be(type)),
					 errhint("Cast it to real, or to real[].")));
	}
	features->reals = all_reals(features);
}

/* Number of a column, from 0 */
static int
find_row_column(TupleDesc descriptor, const char *name, const char *model)
{
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);

		if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), name) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("model \"%s\" needs column \"%s\", which the row does not have", model, name),
			 errhint("Give a row with the columns that it was trained on, or the features one by one in their order.")));
}

/* Takes a row type that is not the last call's */
static void
adopt_row_type(dana_inputs *features, Oid type, int32 typmod, const char *model)
{
	/* what `features` points to is where it should go */
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
	for (int i = 0; i < features->count; i++)
	{
		int column = find_row_column(features->descriptor, features->names[i], model);
		Oid column_type = TupleDescAttr(features->descriptor, column)->atttypid;

		if (!dana_type_of(column_type, &features->types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" has type %s, which is not a number", features->names[i], format_type_be(column_type))));
		features->columns[i] = column;
	}
	features->reals = all_reals(features);
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
		if (features->row_nulls[features->columns[i]])
			return false;
		features->values[i] = features->row_values[features->columns[i]];
	}
	return true;
}

bool
dana_inputs_read(dana_inputs *features, FunctionCallInfo fcinfo, const char *model)
{
	if (features->row)
		return read_feature_row(features, PG_GETARG_HEAPTUPLEHEADER(1), model);
	for (int i = 0; i < features->count; i++)
		features->values[i] = PG_GETARG_DATUM(i + 1);
	return true;
}

int64
dana_inputs_prepare(const dana_inputs *features, dana_numbers *numbers)
{
	int64 count = 0;

	if (features->reals)
		return features->count;
	for (int i = 0; i < features->count; i++)
	{
		dana_numbers_of(&features->types[i], features->values[i], &numbers[i]);
		if (numbers[i].present != NULL)
			return -1;
		count += numbers[i].count;
	}
	return count;
}

/* In a function of its own: see numerics.h on brackets and loops */
static pg_noinline void
write_reals(const Datum *values, int count, float *to)
{
	for (int i = 0; i < count; i++)
		to[i] = dn_from_float32(DatumGetFloat4(values[i]));
}

void
dana_inputs_write(const dana_inputs *features, const dana_numbers *numbers, float *to)
{
	if (features->reals)
		write_reals(features->values, features->count, to);
	else
		for (int i = 0; i < features->count; i++)
		{
			dana_numbers_write(&numbers[i], 0, to);
			to += numbers[i].count;
		}
}
