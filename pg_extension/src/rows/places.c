/*
 * How rows are identified: for a training that leaves some out for a test, and an evaluation that finds those again.
 *
 * A table with a primary key identifies rows by it, which survives updates. Otherwise a row's place identifies it, and
 * the model keeps what shows whether another row has taken that place since.
 *
 * dana_holdout(): whether a row belongs to the part that is kept for a test; dana_fold(): to which of several parts.
 * Both depend on the row's place or key and on a seed only, so a training and a test with the same part and seed never
 * share a row.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/transam.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "common/hashfn.h"
#include "utils/date.h"
#include "utils/numeric.h"
#include "utils/uuid.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "rows/places.h"

#define MAX_RUNNING 1000 /* maximum number of transactions in a list */

/* The kind of a key type's values, independent of their storage; NULL if their hash might change with a setting */
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
		case NUMERICOID:
			return "numeric";
		case UUIDOID:
			return "uuid";
		case DATEOID:
			return "date";
		case TIMESTAMPOID:
			return "timestamp";
		case TIMESTAMPTZOID:
			return "timestamptz";
		default:
			return NULL;
	}
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
		case INT8OID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			number = DatumGetInt64(value);
			break;
		case TIDOID:
			place = (ItemPointer)DatumGetPointer(value);
			number = (int64)ItemPointerGetOffsetNumberNoCheck(place) << 32 | ItemPointerGetBlockNumberNoCheck(place);
			break;
		default:
			dana_error(DATATYPE_MISMATCH, "rows cannot be identified by type %s", format_type_be(type));
	}
	return hash_bytes_extended((const unsigned char *)&number, sizeof number, seed);
}

/* 53 bits of a hash as a number in [0, 1) */
static double
number_of_hash(uint64 hash)
{
	return (double)(hash >> 11) * 0x1p-53;
}

/* The hash of the first argument, a place or a key, and the third, the seed */
static double
part_number(FunctionCallInfo fcinfo)
{
	return number_of_hash(hash_of(get_fn_expr_argtype(fcinfo->flinfo, 0), PG_GETARG_DATUM(0), (uint32)PG_GETARG_INT32(2)));
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

/*
 * dana.dana_holdout_key(part, seed, columns of a key ...): for one column, the result of dana_holdout() for its bigint
 * or text
 */
DANA_FUNCTION(dana_holdout_key)
{
	Oid	  *types = fcinfo->flinfo->fn_extra;
	uint64 hash = (uint32)PG_GETARG_INT32(1);

	if (types == NULL)
	{
		types = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(Oid) * PG_NARGS());
		for (int i = 2; i < PG_NARGS(); i++)
			types[i] = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, i));
		fcinfo->flinfo->fn_extra = types;
	}
	for (int i = 2; i < PG_NARGS(); i++)
		hash = hash_of(types[i], PG_GETARG_DATUM(i), hash);
	PG_RETURN_BOOL(is_held_out(number_of_hash(hash), PG_GETARG_FLOAT8(0)));
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

			key.count = kind_of(column->atttypid) == NULL ? -1 : i + 1;
			if (key.count < 0)
				break;
			key.values[i] = pstrdup(NameStr(column->attname));
		}
		index_close(index, AccessShareLock);
		if (key.count != 0)
			break;
	}
	relation_close(relation, AccessShareLock);
	key.count = Max(key.count, 0);
	return key;
}

/* Casts to exactly the declared types, so that no user's function of the same name matches better */
char *
dana_holdout_expression(const char *place, double part, int seed)
{
	return psprintf("%s(%s, %.17g::pg_catalog.float8, %d)", dana_extension_name("dana_holdout"), place, part, seed);
}

char *
dana_holdout_of_key(const dana_texts *key, double part, int seed)
{
	StringInfoData text;

	if (key->count == 0)
		return dana_holdout_expression("ctid", part, seed);
	initStringInfo(&text);
	appendStringInfo(&text, "dana.dana_holdout_key(%.17g::pg_catalog.float8, %d", part, seed);
	for (int i = 0; i < key->count; i++)
		appendStringInfo(&text, ", %s", quote_identifier(key->values[i]));
	appendStringInfoChar(&text, ')');
	return text.data;
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

void
dana_places_append(StringInfo to, Oid table, const dana_texts *key, Snapshot snapshot)
{
	Relation  relation;
	ListCell *cell;

	if (key->count > 0)
	{
		relation = relation_open(table, AccessShareLock);
		dana_json_open(to, "test_key", '[');
		for (int i = 0; i < key->count; i++)
		{
			const int column = SPI_fnumber(RelationGetDescr(relation), key->values[i]);

			dana_json_open(to, NULL, '{');
			dana_json_text(to, "column", key->values[i]);
			dana_json_text(to, "kind", kind_of(TupleDescAttr(RelationGetDescr(relation), column - 1)->atttypid));
			dana_json_close(to, '}');
		}
		dana_json_close(to, ']');
		relation_close(relation, NoLock);
		return;
	}
	dana_json_open(to, "test_places", '{');
	dana_json_open(to, "files", '{');
	foreach (cell, find_all_inheritors(table, AccessShareLock, NULL))
		dana_json_number(to, psprintf("%u", lfirst_oid(cell)), file_of(lfirst_oid(cell)));
	dana_json_close(to, '}');
	append_transactions(to, snapshot);
	dana_json_close(to, '}');
}

/* Raises an error unless the table has the key's columns, with types of the same kinds */
static dana_texts
read_key(Jsonb *metadata, Oid table, const char *model)
{
	Jsonb	 **columns;
	dana_texts key = {.count = dana_json_objects(metadata, "test_key", &columns)};
	Relation   relation = relation_open(table, AccessShareLock);

	key.values = palloc(sizeof(char *) * Max(key.count, 1));
	for (int i = 0; i < key.count; i++)
	{
		const int	column = SPI_fnumber(RelationGetDescr(relation), dana_json_string(columns[i], "column"));
		const char *kind = column <= 0 ? NULL : kind_of(TupleDescAttr(RelationGetDescr(relation), column - 1)->atttypid);

		key.values[i] = dana_json_string(columns[i], "column");
		if (kind == NULL || strcmp(kind, dana_json_string(columns[i], "kind")) != 0)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("column \"%s\", by which test_size chose the rows of model \"%s\", is not in %s, or of another type",
								   key.values[i], model, dana_relation_name(table)),
							errhint("Evaluate on all rows with part => 'all', or train again.")));
	}
	relation_close(relation, NoLock);
	key.count = Max(key.count, 0);
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

char *
dana_places_read(Jsonb *metadata, Oid table, const char *model, dana_places *places)
{
	dana_texts key = read_key(metadata, table, model);
	Jsonb	  *kept;
	int		  *running;
	int		   count;
	Datum	  *list;
	uint64	   first;

	*places = (dana_places){.later = "false", .first = TransactionIdGetDatum(FirstNormalTransactionId)};
	places->running = PointerGetDatum(construct_empty_array(XIDOID));
	if (key.count == 0)
	{
		kept = dana_json_is_null(metadata, "test_places") ? dana_json_parse("{}") : dana_json_member(metadata, "test_places");
		first = (uint64)dana_json_double(kept, "first");
		places->moved = dana_json_is_null(kept, "files") || have_moved(dana_json_member(kept, "files"), table) ||
			U64FromFullTransactionId(ReadNextFullTransactionId()) - first > PG_INT32_MAX;
	}
	if (key.count == 0 && !places->moved)
	{
		count = dana_json_integers(kept, "running", &running);
		list = palloc(sizeof(Datum) * Max(count, 1));
		for (int i = 0; i < count; i++)
			list[i] = TransactionIdGetDatum((uint32)first + (uint32)running[i]);
		places->running = PointerGetDatum(construct_array(list, count, XIDOID, sizeof(TransactionId), true, TYPALIGN_INT));
		places->first = TransactionIdGetDatum((TransactionId)first);
		places->later = "pg_catalog.age(xmin) OPERATOR(pg_catalog.<=) pg_catalog.age($7) "
						"OR xmin OPERATOR(pg_catalog.=) ANY ($8)";
	}
	return dana_holdout_of_key(&key, dana_json_double(metadata, "test_size"), dana_json_integer(metadata, "seed"));
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
