/*
 * A source's description for the worker: every attribute of a table in attnum order, as the page's layout needs it; or
 * the columns of a query.
 */
#include "postgres.h"

#include "source.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "json.h"
#include "tuple.h"
#include "values.h"

#define ARRAY_PROBE_ROWS 1000

/* What the first rows say about array columns: a rule's inputs need a size before the rows come */
typedef struct array_probe
{
	int	 *lengths;	   /* elements of the first one-dimensional value; -1: none was found */
	bool *out_of_line; /* that value is compressed, or stored out of line */
} array_probe;

static bool
is_array(TupleDesc descriptor, int i)
{
	Form_pg_attribute attribute = TupleDescAttr(descriptor, i);

	return !attribute->attisdropped && dana_is_array(attribute->atttypid);
}

/* Refuses a damaged tuple that a scan of the table's pages found; nobody has checked its line pointer, either */
static void
check_scanned_tuple(dana_source *source, const dana_tuple_shape *shape, TupleTableSlot *row)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(row, false, NULL);
	const char *page = (const char *)BufferGetPage(((BufferHeapTupleTableSlot *)row)->buffer);
	const char *data = (const char *)tuple->t_data;
	const bool	outside = tuple->t_len < SizeofHeapTupleHeader || data + tuple->t_len > page + BLCKSZ;
	const char *damage = outside ? "it points outside the page" : dana_tuple_damage(shape, tuple);

	if (damage != NULL)
		dana_source_corrupt(source, ItemPointerGetBlockNumber(&row->tts_tid),
							psprintf("line pointer %u: %s", ItemPointerGetOffsetNumber(&row->tts_tid), damage));
}

/* Looks at a table's own rows */
static void
probe_table(dana_source *source, array_probe *probe, int unknown)
{
	TupleDesc		descriptor = RelationGetDescr(source->relation);
	TupleTableSlot *row = table_slot_create(source->relation, NULL);
	TableScanDesc	scan = table_beginscan_strat(source->relation, source->snapshot, 0, NULL, true, false);
	dana_tuple_shape *shape = dana_tuple_shape_of(descriptor);

	for (int rows = 0; rows < ARRAY_PROBE_ROWS && unknown > 0 && table_scan_getnextslot(scan, ForwardScanDirection, row); rows++)
	{
		check_scanned_tuple(source, shape, row);
		for (int i = 0; i < descriptor->natts; i++)
		{
			bool  isnull;
			Datum datum;
			int	  length;

			if (probe->lengths[i] >= 0 || !is_array(descriptor, i))
				continue;
			datum = slot_getattr(row, i + 1, &isnull);
			if (isnull)
				continue;
			length = dana_array_length(TupleDescAttr(descriptor, i)->atttypid, datum);
			if (length >= 0)
			{
				probe->lengths[i] = length;
				probe->out_of_line[i] = VARATT_IS_EXTERNAL(DatumGetPointer(datum)) || VARATT_IS_COMPRESSED(DatumGetPointer(datum));
				unknown--;
			}
		}
	}
	pfree(shape);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
}

/* Looks at the rows of a view, of a table with children, or of a table as its filter leaves them */
static void
probe_rows(dana_source *source, array_probe *probe)
{
	TupleDesc descriptor = RelationGetDescr(source->relation);
	int		 *numbers = palloc(sizeof(int) * descriptor->natts);
	int		 *lengths;
	int		  count = 0;

	for (int i = 0; i < descriptor->natts; i++)
		if (is_array(descriptor, i))
			numbers[count++] = i + 1;
	lengths = dana_rows_array_lengths(dana_source_plan(source, dana_source_select(source, count, numbers)), ARRAY_PROBE_ROWS);
	for (int k = 0; k < count; k++)
		probe->lengths[numbers[k] - 1] = lengths[k];
}

static array_probe
probe_arrays(dana_source *source, TupleDesc descriptor)
{
	array_probe probe;
	int			unknown = 0;

	probe.out_of_line = palloc0(sizeof(bool) * Max(descriptor->natts, 1));
	if (source->query != NULL)
	{
		probe.lengths = dana_rows_array_lengths(source->plan, ARRAY_PROBE_ROWS);
		return probe;
	}
	probe.lengths = palloc(sizeof(int) * Max(descriptor->natts, 1));
	for (int i = 0; i < descriptor->natts; i++)
	{
		probe.lengths[i] = -1;
		unknown += is_array(descriptor, i);
	}
	if (unknown > 0 && source->rows)
		probe_rows(source, &probe);
	else if (unknown > 0)
		probe_table(source, &probe, unknown);
	return probe;
}

static const char *
truth(bool value)
{
	return value ? "true" : "false";
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc	descriptor;
	array_probe probe;

	if (source->description != NULL)
	{
		appendStringInfoString(to, source->description);
		return;
	}
	descriptor = source->query != NULL ? dana_rows_descriptor(source->plan) : RelationGetDescr(source->relation);
	probe = probe_arrays(source, descriptor);

	appendStringInfoString(to, "{\"name\":");
	dana_json_append(to, source->name);
	appendStringInfo(to, ",\"rows\":%s", truth(source->rows));
	if (source->relation != NULL && RELKIND_HAS_STORAGE(source->relation->rd_rel->relkind) && source->pages > 0)
		appendStringInfo(to, ",\"pages\":%u", source->pages);
	else
		appendStringInfo(to, ",\"pages\":%s", source->rows ? "null" : "0");
	appendStringInfoString(to, ",\"attributes\":[");
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		Oid				  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);
		const char		 *name = attribute->attisdropped ? "" : format_type_be(type);

		/* to the worker it is an array of real that no Strider reads where it lies */
		if (!attribute->attisdropped && dana_is_vector(type))
		{
			type = FLOAT4ARRAYOID;
			probe.out_of_line[i] = true;
		}

		appendStringInfo(to, "%s{\"number\":%d,\"name\":", i > 0 ? "," : "", i + 1);
		dana_json_append(to, NameStr(attribute->attname));
		appendStringInfo(to, ",\"type_oid\":%u,\"type_name\":", type);
		dana_json_append(to, name);
		appendStringInfo(to, ",\"length\":%d,\"align\":\"%c\",\"by_value\":%s,\"not_null\":%s,\"dropped\":%s",
						 attribute->attlen, attribute->attalign, truth(attribute->attbyval), truth(attribute->attnotnull),
						 truth(attribute->attisdropped));
		appendStringInfo(to, ",\"generated\":\"%.1s\",\"has_missing\":%s",
						 attribute->attgenerated == '\0' ? "" : &attribute->attgenerated,
						 truth(attribute->atthasmissing));
		if (probe.lengths[i] >= 0)
			appendStringInfo(to, ",\"array_length\":%d,\"out_of_line\":%s", probe.lengths[i], truth(probe.out_of_line[i]));
		appendStringInfoChar(to, '}');
	}
	appendStringInfoString(to, "]}");
}
