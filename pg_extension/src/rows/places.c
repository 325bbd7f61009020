/*
 * How rows are identified and divided into parts: for a training that leaves some out for a test, and an evaluation that
 * finds those again.
 *
 * A table with a primary key identifies rows by it, which survives updates. Without one a row's place identifies it, and
 * the model keeps what shows whether another row has taken that place since. Rows of views, foreign tables and queries
 * have no place: all of their values identify them. A training can name the column instead.
 *
 * A hash of what identifies a row, and of a seed, decides its part, so a training and a test with the same part and seed
 * never share a row.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "common/hashfn.h"
#include "utils/date.h"
#include "utils/float.h"
#include "utils/numeric.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "rows/places.h"
#include "values/texts.h"

#define MAX_RUNNING 1000 /* maximum number of transactions in a list */

/* The kind of a type's values: types of one kind have equal hashes for equal values */
static const char *
kind_of(Oid type)
{
	switch (getBaseType(type))
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return "integer";
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return "text";
		case TIMESTAMPOID:
			return "timestamp";
		case TIMESTAMPTZOID:
			return "timestamptz";
		default:
			return dana_type_name(getBaseType(type));
	}
}

static uint64 hash_of_row(HeapTupleHeader row, uint64 seed);

/* The hash of a type without a case below: its own, or that of its text, by which an enum's value is known in a dump */
static uint64
hash_of_other(Oid type, Datum value, uint64 seed)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_HASH_EXTENDED_PROC_FINFO);
	FmgrInfo		output;
	Oid				function;
	bool			varlena;
	char		   *text;

	if (type == RECORDOID || entry->typtype == TYPTYPE_COMPOSITE)
		return hash_of_row(DatumGetHeapTupleHeader(value), seed);
	if (OidIsValid(entry->hash_extended_proc) && entry->typtype != TYPTYPE_ENUM)
		return DatumGetUInt64(FunctionCall2Coll(&entry->hash_extended_proc_finfo, DEFAULT_COLLATION_OID, value,
												UInt64GetDatum(seed)));
	getTypeOutputInfo(type, &function, &varlena);
	fmgr_info(function, &output);
	text = dana_fixed_output(&output, type, value);
	return hash_bytes_extended((unsigned char *)text, (int)strlen(text), seed);
}

/* The bits of a number; equal numbers, such as 0 and -0, have equal bits */
static int64
bits_of(double number)
{
	int64 bits;

	if (number == 0)
		number = 0;
	else if (isnan(number))
		number = get_float8_nan();
	memcpy(&bits, &number, sizeof bits);
	return bits;
}

/* A hash of a value, the same in each type of its kind; `type` is not a domain */
static uint64
hash_of(Oid type, Datum value, uint64 seed)
{
	ItemPointer place;
	int64		number;
	struct varlena *text;
	const char *bytes;
	Size		length;

	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			text = PG_DETOAST_DATUM_PACKED(value);
			bytes = VARDATA_ANY(text);
			length = VARSIZE_ANY_EXHDR(text);
			if (type == BPCHAROID)
				length = bpchartruelen((char *)bytes, (int)length);
			return hash_bytes_extended((const unsigned char *)bytes, (int)length, seed);
		case NUMERICOID:
			bytes = numeric_normalize(DatumGetNumeric(value));
			return hash_bytes_extended((const unsigned char *)bytes, (int)strlen(bytes), seed);
		case UUIDOID:
			return hash_bytes_extended(DatumGetUUIDP(value)->data, UUID_LEN, seed);
		case INT2OID:
			number = DatumGetInt16(value);
			break;
		case INT4OID:
			number = DatumGetInt32(value);
			break;
		case DATEOID:
			number = DatumGetDateADT(value);
			break;
		case BOOLOID:
			number = DatumGetBool(value);
			break;
		case FLOAT4OID:
		case FLOAT8OID:
			number = bits_of(type == FLOAT4OID ? DatumGetFloat4(value) : DatumGetFloat8(value));
			break;
		case INT8OID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case MONEYOID: /* it has no hash, and its text depends on lc_monetary */
			number = DatumGetInt64(value);
			break;
		case TIDOID:
			place = (ItemPointer)DatumGetPointer(value);
			number = (int64)ItemPointerGetOffsetNumberNoCheck(place) << 32 | ItemPointerGetBlockNumberNoCheck(place);
			break;
		default:
			return hash_of_other(type, value, seed);
	}
	return hash_bytes_extended((const unsigned char *)&number, sizeof number, seed);
}

/* The same, where the value may be NULL */
static uint64
hash_of_nullable(Oid type, Datum value, bool isnull, uint64 seed)
{
	return isnull ? hash_bytes_extended((const unsigned char *)"", 0, seed) : hash_of(type, value, seed);
}

/* A hash of all values of a row */
static uint64
hash_of_row(HeapTupleHeader row, uint64 seed)
{
	TupleDesc	  columns = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
	Datum		 *values = palloc(sizeof(Datum) * columns->natts);
	bool		 *nulls = palloc(sizeof(bool) * columns->natts);
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};

	heap_deform_tuple(&tuple, columns, values, nulls);
	for (int i = 0; i < columns->natts; i++)
		if (!TupleDescAttr(columns, i)->attisdropped)
			seed = hash_of_nullable(getBaseType(TupleDescAttr(columns, i)->atttypid), values[i], nulls[i], seed);
	ReleaseTupleDesc(columns);
	pfree(values);
	pfree(nulls);
	return seed;
}

/* 53 bits of a hash as a number in [0, 1) */
static double
number_of_hash(uint64 hash)
{
	return (double)(hash >> 11) * DANA_DRAW_UNIT;
}

/* The hash of the first argument, a place or a key, and the third, the seed */
static double
part_number(FunctionCallInfo fcinfo)
{
	return number_of_hash(hash_of(get_fn_expr_argtype(fcinfo->flinfo, 0), PG_GETARG_DATUM(0), (uint32)PG_GETARG_INT32(2)));
}

double
dana_draw(int seed, const Oid *types, const NullableDatum *key, int count)
{
	uint64 hash = (uint32)seed;

	for (int i = 0; i < count; i++)
		hash = hash_of_nullable(types[i], key[i].value, key[i].isnull, hash);
	return number_of_hash(hash);
}

double
dana_draw_of_class(Oid type, NullableDatum label)
{
	return label.isnull ? DANA_OTHER_CLASSES : dana_draw(0, &type, &label, 1);
}

static bool
is_held_out(double number, double part)
{
	if (!(part >= 0 && part <= 1))
		dana_error(INVALID_PARAMETER_VALUE, "the part that is held out must be from 0 to 1, not %g", part);
	return number < part;
}

/* dana_holdout(place tid, part, seed), or with a bigint or text key */
DANA_FUNCTION(dana_holdout)
{
	PG_RETURN_BOOL(is_held_out(part_number(fcinfo), PG_GETARG_FLOAT8(1)));
}

/* dana.dana_draw(row, seed) */
DANA_FUNCTION(dana_draw_row)
{
	static const Oid type = RECORDOID;

	PG_RETURN_FLOAT8(dana_draw(PG_GETARG_INT32(1), &type, &fcinfo->args[0], 1));
}

/* The bounds of a class's parts: rows of `parts`, sorted by the class's number, the last one for all other classes */
static const float8 *
bounds_of(const float8 *parts, int rows, int width, double class)
{
	int first = 0, last = rows - 1;

	while (first < last)
	{
		const int middle = (first + last) / 2;

		if (parts[middle * width] == class)
			return parts + middle * width;
		if (parts[middle * width] > class)
			last = middle;
		else
			first = middle + 1;
	}
	return parts + (rows - 1) * width;
}

/* The types of the label and the key, arguments from number `first` on, as the hashes need them */
static Oid *
types_of(FunctionCallInfo fcinfo, int first)
{
	Oid *types = fcinfo->flinfo->fn_extra;

	if (types == NULL)
	{
		types = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(Oid) * PG_NARGS());
		for (int i = first; i < PG_NARGS(); i++)
			types[i] = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, i));
		fcinfo->flinfo->fn_extra = types;
	}
	return types;
}

/* dana.dana_draws(seed, label, key ...): the numbers of a row's class and of the row */
DANA_FUNCTION(dana_draws)
{
	const int  first = 1; /* the label */
	const Oid *types = types_of(fcinfo, first);
	double	   class, number;
	Datum	   numbers[2];

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	class = dana_draw_of_class(types[first], fcinfo->args[first]);
	number = dana_draw(PG_GETARG_INT32(0), types + first + 1, fcinfo->args + first + 1, PG_NARGS() - first - 1);
	numbers[0] = Int64GetDatum((int64)(class / DANA_DRAW_UNIT));
	numbers[1] = Int64GetDatum((int64)(number / DANA_DRAW_UNIT));
	PG_RETURN_ARRAYTYPE_P(construct_array(numbers, 2, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* dana.dana_part(parts, seed, label, key ...): `parts` as dana_split has it */
DANA_FUNCTION(dana_part)
{
	const int	  first = 2; /* the label */
	const Oid	 *types = types_of(fcinfo, first);
	ArrayType	 *parts;
	const float8 *bounds;
	double		  number;
	int			  width, part = 0;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	parts = PG_GETARG_ARRAYTYPE_P(0);
	if (ARR_NDIM(parts) != 2 || ARR_HASNULL(parts) || ARR_DIMS(parts)[1] < 1)
		dana_error(INVALID_PARAMETER_VALUE, "argument \"parts\" must be an array of two dimensions without NULLs");
	width = ARR_DIMS(parts)[1];
	bounds = bounds_of((const float8 *)ARR_DATA_PTR(parts), ARR_DIMS(parts)[0], width,
					   dana_draw_of_class(types[first], fcinfo->args[first]));
	number = dana_draw(PG_GETARG_INT32(1), types + first + 1, fcinfo->args + first + 1, PG_NARGS() - first - 1);
	for (int i = 1; i < width; i++)
		part += number >= bounds[i];
	PG_RETURN_INT32(part);
}

/*
 * dana_fold(place tid, folds, seed), or a key: from 1; if folds divide a number, its parts are made of whole smaller
 * ones
 */
DANA_FUNCTION(dana_fold)
{
	int32 folds = PG_GETARG_INT32(1);

	if (folds < 1)
		dana_error(INVALID_PARAMETER_VALUE, "there must be at least 1 fold, not %d", folds);
	PG_RETURN_INT32((int32)(part_number(fcinfo) * folds) + 1);
}

dana_texts
dana_key_of(Oid table)
{
	Relation   relation = relation_open(table, AccessShareLock);
	dana_texts key = {.count = 0};
	ListCell  *cell;

	foreach (cell, RelationGetIndexList(relation))
	{
		Relation	  index = index_open(lfirst_oid(cell), AccessShareLock);
		Form_pg_index form = index->rd_index;

		key.values = palloc(sizeof(char *) * form->indnkeyatts);
		for (int i = 0; i < form->indnkeyatts && form->indisprimary; i++)
		{
			Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), form->indkey.values[i] - 1);

			key.values[key.count++] = pstrdup(NameStr(column->attname));
		}
		index_close(index, AccessShareLock);
		if (key.count > 0)
			break;
	}
	relation_close(relation, AccessShareLock);
	return key;
}

char *
dana_split_part(const dana_split *split)
{
	StringInfoData text;

	initStringInfo(&text);
	/* exactly the declared types, so that no user's function of the same name matches better */
	appendStringInfo(&text, "dana.dana_part(%s::pg_catalog.float8[], %d, %s", quote_literal_cstr(split->parts), split->seed,
					 split->label != NULL ? quote_identifier(split->label) : "NULL::pg_catalog.int4");
	for (int i = 0; i < split->key.count; i++)
		appendStringInfo(&text, ", %s", quote_identifier(split->key.values[i]));
	if (split->key.count == 0)
		appendStringInfo(&text, ", %s", split->row != NULL ? split->row : "ctid");
	appendStringInfoChar(&text, ')');
	return text.data;
}

char *
dana_split_condition(const dana_split *split)
{
	if (split->after != NULL) /* a row without a time trains */
		return psprintf("COALESCE(%s OPERATOR(pg_catalog.>) %s::%s, false)", quote_identifier(split->time),
						quote_literal_cstr(split->after),
						format_type_extended(getBaseType(split->time_type), -1, FORMAT_TYPE_FORCE_QUALIFY));
	return psprintf("(%s OPERATOR(pg_catalog.=) 0)", dana_split_part(split));
}

/* The file of a table; 0 if it has none or does not exist */
static Oid
file_of(Oid table)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid		  file = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		file = ((Form_pg_class)GETSTRUCT(tuple))->relfilenode;
		ReleaseSysCache(tuple);
	}
	return file;
}

/*
 * Appends the horizon of the snapshot: the first transaction after it, and the ones running then, as distances from
 * that one. If there are too many, every transaction since the oldest counts as running: an evaluation then reports too
 * many rows as written later, never too few.
 */
static void
append_transactions(StringInfo to, Snapshot snapshot)
{
	FullTransactionId next = ReadNextFullTransactionId();
	const uint32	  since = XidFromFullTransactionId(next) - snapshot->xmax;
	uint64			  first = U64FromFullTransactionId(next);
	const bool		  listed = !snapshot->suboverflowed && since < MAX_RUNNING &&
		snapshot->xcnt + snapshot->subxcnt < MAX_RUNNING;

	if (!listed)
		first -= (uint32)(XidFromFullTransactionId(next) - snapshot->xmin);
	dana_json_number(to, "first", (double)first);
	dana_json_open(to, "running", '[');
	for (uint32 i = 0; i < snapshot->xcnt && listed; i++)
		dana_json_number(to, NULL, (int32)(snapshot->xip[i] - (uint32)first));
	for (int32 i = 0; i < snapshot->subxcnt && listed; i++)
		dana_json_number(to, NULL, (int32)(snapshot->subxip[i] - (uint32)first));
	for (uint32 i = 0; i < since && listed; i++)
		if (!TransactionIdIsCurrentTransactionId(snapshot->xmax + i))
			dana_json_number(to, NULL, (int32)(snapshot->xmax + i - (uint32)first));
	dana_json_close(to, ']');
}

static void
append_column(StringInfo to, const char *key, const char *name, Oid type)
{
	dana_json_open(to, key, '{');
	dana_json_text(to, "column", name);
	dana_json_text(to, "kind", kind_of(type));
	if (key == NULL)
		dana_json_close(to, '}');
}

static void
append_places(StringInfo to, Oid table, Snapshot snapshot)
{
	ListCell *cell;

	dana_json_open(to, "test_places", '{');
	dana_json_open(to, "files", '{');
	foreach (cell, find_all_inheritors(table, AccessShareLock, NULL))
		dana_json_number(to, psprintf("%u", lfirst_oid(cell)), file_of(lfirst_oid(cell)));
	dana_json_close(to, '}');
	append_transactions(to, snapshot);
	dana_json_close(to, '}');
}

void
dana_split_append(StringInfo to, const dana_split *split, TupleDesc columns, Oid table, Snapshot snapshot)
{
	if (split->after != NULL)
	{
		append_column(to, "test_after", split->time, split->time_type);
		dana_json_text(to, "value", split->after);
		dana_json_close(to, '}');
		return;
	}
	dana_json_text(to, "test_parts", split->parts);
	if (split->label != NULL)
	{
		append_column(to, "test_classes", split->label, SPI_gettypeid(columns, SPI_fnumber(columns, split->label)));
		dana_json_close(to, '}');
	}
	if (split->key.count == 0 && split->row == NULL)
		return append_places(to, table, snapshot);
	dana_json_truth(to, "test_row", split->row != NULL);
	dana_json_open(to, "test_key", '[');
	for (int i = 0; i < split->key.count; i++)
		append_column(to, NULL, split->key.values[i], SPI_gettypeid(columns, SPI_fnumber(columns, split->key.values[i])));
	for (int i = 0; i < columns->natts && split->row != NULL; i++)
		if (!TupleDescAttr(columns, i)->attisdropped)
			append_column(to, NULL, NameStr(TupleDescAttr(columns, i)->attname), TupleDescAttr(columns, i)->atttypid);
	dana_json_close(to, ']');
}

/* The name of a column in the metadata; an error unless the rows have it, with a type of the same kind, at `number` or any */
static char *
read_column(Jsonb *column, TupleDesc columns, int number, const char *model)
{
	char	  *name = dana_json_string(column, "column");
	const int  found = number > 0 ? number : SPI_fnumber(columns, name);
	const bool known = found > 0 && found <= columns->natts;

	if (!known || strcmp(NameStr(TupleDescAttr(columns, found - 1)->attname), name) != 0 ||
		strcmp(kind_of(TupleDescAttr(columns, found - 1)->atttypid), dana_json_string(column, "kind")) != 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\", by which the test rows of model \"%s\" were chosen, is not among the columns "
							   "of these rows, or of another type", name, model),
						errhint("Evaluate on all rows with part => 'all', or train again.")));
	return name;
}

/* Numbers of the columns that are not dropped, from `number` + 1 on; 0: there is no other */
static int
next_column(TupleDesc columns, int number)
{
	while (number < columns->natts && TupleDescAttr(columns, number)->attisdropped)
		number++;
	return number < columns->natts ? number + 1 : columns->natts + 1;
}

static dana_texts
read_key(Jsonb *metadata, TupleDesc columns, bool row, const char *model)
{
	Jsonb	 **listed;
	dana_texts key = {.count = Max(dana_json_objects(metadata, "test_key", &listed), 0)};
	int		   number = 0;

	key.values = palloc(sizeof(char *) * Max(key.count, 1));
	for (int i = 0; i < key.count; i++)
	{
		number = row ? next_column(columns, number) : 0;
		key.values[i] = read_column(listed[i], columns, number, model);
	}
	if (row && next_column(columns, number) <= columns->natts)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("these rows have more columns than those by which the test rows of model \"%s\" were chosen",
							   model),
						errhint("Evaluate on all rows with part => 'all', or train again.")));
	return key;
}

/* Whether a file of the table differs from the one that the model was trained on, or this is unknown */
static bool
have_moved(Jsonb *files, Oid table)
{
	ListCell *cell;

	foreach (cell, find_all_inheritors(table, AccessShareLock, NULL))
	{
		const Oid	one = lfirst_oid(cell);
		const char *name = psprintf("%u", one);

		/* a partition attached since has rows that were not trained on, or were written since */
		if (dana_json_is_null(files, name) ? one == table : dana_json_integer(files, name) != file_of(one))
			return true;
	}
	return false;
}

/* Reads whether the rows of a table still have the places that they had in the training */
static void
read_places(Jsonb *metadata, Oid table, dana_places *places)
{
	Jsonb *kept =
		dana_json_is_null(metadata, "test_places") ? dana_json_parse("{}") : dana_json_member(metadata, "test_places");
	const uint64 first = (uint64)dana_json_double(kept, "first");
	int			*running;
	int			 count;
	Datum		*list;

	places->moved = dana_json_is_null(kept, "files") || have_moved(dana_json_member(kept, "files"), table) ||
		U64FromFullTransactionId(ReadNextFullTransactionId()) - first > PG_INT32_MAX;
	if (places->moved)
		return;
	count = dana_json_integers(kept, "running", &running);
	list = palloc(sizeof(Datum) * Max(count, 1));
	for (int i = 0; i < count; i++)
		list[i] = TransactionIdGetDatum((uint32)first + (uint32)running[i]);
	places->running = PointerGetDatum(construct_array(list, count, XIDOID, sizeof(TransactionId), true, TYPALIGN_INT));
	places->first = TransactionIdGetDatum((TransactionId)first);
	places->later = "pg_catalog.age(xmin) OPERATOR(pg_catalog.<=) pg_catalog.age($7) "
					"OR xmin OPERATOR(pg_catalog.=) ANY ($8)";
}

bool
dana_split_exists(Jsonb *metadata)
{
	return !dana_json_is_null(metadata, "test_size") || !dana_json_is_null(metadata, "test_after");
}

char *
dana_split_read(Jsonb *metadata, TupleDesc columns, const char *row, Oid table, const char *model, dana_places *places)
{
	const bool whole = dana_json_boolean(metadata, "test_row");
	dana_split split = {.seed = dana_json_integer(metadata, "seed")};

	*places = (dana_places){.later = "false", .first = TransactionIdGetDatum(FirstNormalTransactionId)};
	places->running = PointerGetDatum(construct_empty_array(XIDOID));
	if (!dana_json_is_null(metadata, "test_after"))
	{
		split.time = read_column(dana_json_member(metadata, "test_after"), columns, 0, model);
		split.time_type = SPI_gettypeid(columns, SPI_fnumber(columns, split.time));
		split.after = dana_json_string(dana_json_member(metadata, "test_after"), "value");
		return dana_split_condition(&split);
	}
	split.parts = dana_json_string(metadata, "test_parts");
	if (!dana_json_is_null(metadata, "test_classes"))
		split.label = read_column(dana_json_member(metadata, "test_classes"), columns, 0, model);
	split.key = read_key(metadata, columns, whole, model);
	if (whole)
		split.row = row, split.key.count = 0;
	else if (split.key.count == 0 && !(OidIsValid(table) && dana_has_places(table)))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the test rows of model \"%s\" were chosen by their place in a table, which these rows do not have",
							   model),
						errhint("Evaluate on all of them with part => 'all', or on the table.")));
	else if (split.key.count == 0)
		read_places(metadata, table, places);
	return dana_split_condition(&split);
}

void
dana_places_report(const dana_places *places, Oid table, const char *model, const char *part, int64 later, int64 rows)
{
	const char *hint = "Rows of a table without a primary key are chosen by their place: add one, and train again.";

	if (places->moved)
		dana_notice(WARNING, hint, "rows of %s have moved since model \"%s\" was trained, or may have: part '%s' is no "
					"longer those that test_size chose", dana_relation_name(table), model, part);
	else if (later > 0)
		dana_notice(WARNING, hint, INT64_FORMAT " of " INT64_FORMAT " rows in part '%s' of %s were written after model "
					"\"%s\" was trained: of those that were updated it may have seen the values before", later, rows, part,
					dana_relation_name(table), model);
}
