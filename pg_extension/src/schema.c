/*
 * A table's description for the worker: every attribute in attnum order, as the page's layout needs it.
 */
#include "source.h"

#include "access/tableam.h"
#include "executor/tuptable.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "json.h"

#define ARRAY_PROBE_ROWS 1000

/*
 * Elements of each array column, taken from the first row that has a one-dimensional value there; -1 where none of the
 * first ARRAY_PROBE_ROWS rows has. An input's size has to be known before the rows come.
 */
static int *
array_lengths(dana_source *source)
{
	TupleDesc		descriptor = RelationGetDescr(source->relation);
	int			   *lengths = palloc(sizeof(int) * Max(descriptor->natts, 1));
	int				unknown = 0;
	TableScanDesc	scan;
	TupleTableSlot *row;

	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);

		lengths[i] = -1;
		if (!attribute->attisdropped && OidIsValid(get_element_type(getBaseType(attribute->atttypid))))
			unknown++;
	}
	if (unknown == 0)
		return lengths;
	row = table_slot_create(source->relation, NULL);
	scan = table_beginscan_strat(source->relation, source->snapshot, 0, NULL, true, false);
	for (int rows = 0; rows < ARRAY_PROBE_ROWS && unknown > 0 && table_scan_getnextslot(scan, ForwardScanDirection, row); rows++)
	{
		for (int i = 0; i < descriptor->natts; i++)
		{
			Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
			ArrayType		 *value;
			bool			  isnull;
			Datum			  datum;

			if (lengths[i] >= 0 || attribute->attisdropped || !OidIsValid(get_element_type(getBaseType(attribute->atttypid))))
				continue;
			datum = slot_getattr(row, i + 1, &isnull);
			if (isnull)
				continue;
			value = DatumGetArrayTypeP(datum);
			if (ARR_NDIM(value) == 1)
			{
				lengths[i] = ARR_DIMS(value)[0];
				unknown--;
			}
			if ((Pointer)value != DatumGetPointer(datum))
				pfree(value);
		}
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	return lengths;
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc descriptor = RelationGetDescr(source->relation);
	int		 *lengths = array_lengths(source);

	appendStringInfoString(to, "{\"name\":");
	dana_json_append(to, source->name);
	appendStringInfo(to, ",\"pages\":%u,\"attributes\":[", source->pages);
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		Oid				  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);

		appendStringInfo(to, "%s{\"number\":%d,\"name\":", i > 0 ? "," : "", attribute->attnum);
		dana_json_append(to, NameStr(attribute->attname));
		appendStringInfo(to, ",\"type_oid\":%u,\"type_name\":", type);
		dana_json_append(to, attribute->attisdropped ? "" : format_type_be(type));
		appendStringInfo(to, ",\"length\":%d,\"align\":\"%c\",\"by_value\":%s,\"not_null\":%s,\"dropped\":%s",
						 attribute->attlen, attribute->attalign, attribute->attbyval ? "true" : "false",
						 attribute->attnotnull ? "true" : "false", attribute->attisdropped ? "true" : "false");
		appendStringInfo(to, ",\"generated\":\"%.1s\",\"has_missing\":%s",
						 attribute->attgenerated == '\0' ? "" : &attribute->attgenerated,
						 attribute->atthasmissing ? "true" : "false");
		if (lengths[i] >= 0)
			appendStringInfo(to, ",\"array_length\":%d", lengths[i]);
		appendStringInfoChar(to, '}');
	}
	appendStringInfoString(to, "]}");
}
