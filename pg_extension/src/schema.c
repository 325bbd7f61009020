/*
 * A source's description for the worker: every attribute of a table in attnum order, as the page's layout needs it; or
 * the columns of a query.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"

#include "dana.h"
#include "source.h"
#include "tuple.h"
#include "values.h"

#define ARRAY_PROBE_ROWS 1000

/* What the first rows say about array columns: a rule's inputs need a size before the rows come */
struct dana_array_probe
{
	int	 *lengths;	   /* elements of the first one-dimensional value; -1: none was found */
	bool *out_of_line; /* that value is compressed, or stored out of line */
	/* while it is made: */
	bool *wanted;	   /* columns that are arrays, and of which none was found */
	int	  unknown;	   /* how many these are */
	int	 *numbers;	   /* of the rows' columns, or NULL: they are the source's */
};

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

/* Looks at a row, whose columns are the source's or, with `numbers`, some of them; false where nothing is left to find */
static bool
probe_row(TupleTableSlot *row, void *context)
{
	dana_array_probe *probe = context;

	slot_getallattrs(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		int			k = probe->numbers != NULL ? probe->numbers[i] - 1 : i;
		const void *value = DatumGetPointer(row->tts_values[i]);

		if (!probe->wanted[k] || row->tts_isnull[i])
			continue;
		probe->lengths[k] = dana_array_length(TupleDescAttr(row->tts_tupleDescriptor, i)->atttypid, row->tts_values[i]);
		if (probe->lengths[k] < 0)
			continue;
		probe->out_of_line[k] = VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value);
		probe->wanted[k] = false;
		probe->unknown--;
	}
	return probe->unknown > 0;
}

/* Looks at a table's own rows */
static void
probe_table(dana_source *source, dana_array_probe *probe)
{
	TupleTableSlot	 *row = table_slot_create(source->relation, NULL);
	TableScanDesc	  scan = table_beginscan_strat(source->relation, source->snapshot, 0, NULL, true, false);
	dana_tuple_shape *shape = dana_tuple_shape_of(RelationGetDescr(source->relation));
	bool			  more = true;

	for (int i = 0; more && i < ARRAY_PROBE_ROWS && table_scan_getnextslot(scan, ForwardScanDirection, row); i++)
	{
		check_scanned_tuple(source, shape, row);
		more = probe_row(row, probe);
	}
	pfree(shape);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
}

static TupleDesc
source_columns(dana_source *source)
{
	return source->query != NULL ? dana_rows_descriptor(source->plan) : RelationGetDescr(source->relation);
}

void
dana_source_probe(dana_source *source)
{
	TupleDesc		  descriptor = source_columns(source);
	int				 *numbers = palloc(sizeof(int) * Max(descriptor->natts, 1));
	dana_array_probe *probe;

	if (source->probe != NULL)
		return;
	probe = source->probe = palloc0(sizeof *probe);
	probe->lengths = palloc(sizeof(int) * Max(descriptor->natts, 1));
	probe->out_of_line = palloc0(sizeof(bool) * Max(descriptor->natts, 1));
	probe->wanted = palloc(sizeof(bool) * Max(descriptor->natts, 1));
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		dana_type		  type = {0};

		if (!attribute->attisdropped)
			(void)dana_type_of(attribute->atttypid, &type);
		probe->lengths[i] = -1;
		probe->wanted[i] = type.array;
		if (type.array)
			numbers[probe->unknown++] = i + 1;
	}
	if (probe->unknown == 0)
		return;
	if (source->query != NULL)
		dana_rows_each(source->plan, ARRAY_PROBE_ROWS, probe_row, probe);
	else if (!source->rows)
		probe_table(source, probe);
	else
	{
		/* the rows of a view, of a table with children, or of a table as its filter leaves them */
		char *text = dana_source_select(source, probe->unknown, numbers);

		probe->numbers = numbers;
		dana_rows_each(dana_source_plan(source, text), ARRAY_PROBE_ROWS, probe_row, probe);
	}
}

/* One attribute; `number` from 0 */
static void
append_attribute(StringInfo to, Form_pg_attribute attribute, int number, const dana_array_probe *probe)
{
	Oid		  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);
	dana_type holds = {0};

	if (OidIsValid(type))
		(void)dana_type_of(type, &holds);
	if (holds.vector)
		type = FLOAT4ARRAYOID; /* to the worker it is one that no Strider reads where it lies */
	dana_json_open(to, NULL, '{');
	dana_json_number(to, "number", number + 1);
	dana_json_text(to, "name", NameStr(attribute->attname));
	dana_json_number(to, "type_oid", type);
	dana_json_text(to, "type_name", attribute->attisdropped ? "" : format_type_be(type));
	dana_json_number(to, "length", attribute->attlen);
	dana_json_text(to, "align", (char[]){attribute->attalign, '\0'});
	dana_json_truth(to, "by_value", attribute->attbyval);
	dana_json_truth(to, "not_null", attribute->attnotnull);
	dana_json_truth(to, "dropped", attribute->attisdropped);
	dana_json_text(to, "generated", (char[]){attribute->attgenerated, '\0'});
	dana_json_truth(to, "has_missing", attribute->atthasmissing);
	if (probe->lengths[number] >= 0)
	{
		dana_json_number(to, "array_length", probe->lengths[number]);
		dana_json_truth(to, "out_of_line", holds.vector || probe->out_of_line[number]);
	}
	dana_json_close(to, '}');
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc	descriptor = source_columns(source);
	const bool	has_pages = source->relation != NULL && RELKIND_HAS_STORAGE(source->relation->rd_rel->relkind) && source->pages > 0;

	dana_source_probe(source);
	dana_json_open(to, "relation", '{');
	dana_json_text(to, "name", source->name);
	dana_json_truth(to, "rows", source->rows);
	if (has_pages || !source->rows)
		dana_json_number(to, "pages", has_pages ? source->pages : 0);
	else
		dana_json_text(to, "pages", NULL);
	dana_json_open(to, "attributes", '[');
	for (int i = 0; i < descriptor->natts; i++)
		append_attribute(to, TupleDescAttr(descriptor, i), i, source->probe);
	dana_json_close(to, ']');
	dana_json_close(to, '}');
}
