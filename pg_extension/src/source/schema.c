/*
 * The description of a source for the worker.
 *
 * The description has every attribute of a table in attnum order, as the page's layout needs it; or the columns of a
 * query.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "access/tupmacs.h"

#include "base/dana.h"
#include "base/json.h"
#include "limits/bounds.h"
#include "rows/rows.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/encode.h"
#include "values/tuples.h"
#include "values/values.h"

#define ARRAY_PROBE_ROWS 1000

/* The description */

/* Properties of an array column, from the first rows: a rule's inputs need a size before the rows come */
typedef struct array_column
{
	int	 length;	  /* elements of the first one-dimensional value; -1: none was found */
	bool out_of_line; /* that value is compressed, or stored out of line */
	bool wanted;	  /* it is an array without a known extent */
} array_column;

struct dana_array_probe
{
	int			 unknown; /* columns that are wanted */
	const int	*numbers; /* of the rows' columns; NULL: those of the source */
	array_column columns[FLEXIBLE_ARRAY_MEMBER];
};

/* Raises an error for a damaged tuple found by a scan of the table's pages; its line pointer is unchecked, too */
static void
check_scanned_tuple(dana_source *source, const dana_tuple_shape *shape, TupleTableSlot *row)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(row, false, NULL);
	const char *page = (const char *)BufferGetPage(((BufferHeapTupleTableSlot *)row)->buffer);
	const char *data = (const char *)tuple->t_data;
	const bool	outside = tuple->t_len < SizeofHeapTupleHeader || data + tuple->t_len > page + BLCKSZ;
	const char *damage = outside ? "it points outside the page" : dana_tuple_damage(shape, tuple);

	if (damage != NULL)
		dana_page_corrupt(source->relation, ItemPointerGetBlockNumber(&row->tts_tid),
							psprintf("line pointer %u: %s", ItemPointerGetOffsetNumber(&row->tts_tid), damage));
}

/* Examines a row with the source's columns or, with `numbers`, some of them; false: nothing is left to find */
static bool
probe_row(TupleTableSlot *row, void *context)
{
	dana_array_probe *probe = context;

	slot_getallattrs(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		array_column *column = &probe->columns[probe->numbers != NULL ? probe->numbers[i] - 1 : i];
		const void	 *value = DatumGetPointer(row->tts_values[i]);

		if (!column->wanted || row->tts_isnull[i])
			continue;
		column->length = dana_array_length(TupleDescAttr(row->tts_tupleDescriptor, i)->atttypid, row->tts_values[i]);
		if (column->length < 0)
			continue;
		column->out_of_line = VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value);
		column->wanted = false;
		probe->unknown--;
	}
	return probe->unknown > 0;
}

void
dana_source_scan(dana_source *source, const char *filter, uint32 sample, uint64 limit,
				 bool (*take)(TupleTableSlot *row, void *context), void *context)
{
	TupleTableSlot	 *row = table_slot_create(source->relation, NULL);
	dana_tuple_shape *shape = dana_tuple_shape_of(RelationGetDescr(source->relation));
	dana_filter		 *compiled = filter == NULL ? NULL : dana_filter_compile(source->relation, filter);
	uint64			  left = limit == 0 ? PG_UINT64_MAX : limit;
	bool			  more = true;

	for (uint32 part = 0; more && part < Max(sample, 1); part++)
	{
		TableScanDesc scan = table_beginscan_strat(source->relation, source->snapshot, 0, NULL, true, false);

		if (sample > 0)
			heap_setscanlimits(scan, (uint64)source->pages * part / sample, 1);
		for (; more && left > 0 && table_scan_getnextslot(scan, ForwardScanDirection, row); left--)
		{
			CHECK_FOR_INTERRUPTS();
			dana_bounds_check();
			check_scanned_tuple(source, shape, row);
			if (compiled == NULL || dana_filter_passes(compiled, ExecFetchSlotHeapTuple(row, false, NULL)))
				more = take(row, context);
		}
		ExecClearTuple(row);
		table_endscan(scan);
	}
	if (compiled != NULL)
		dana_filter_free(compiled);
	pfree(shape);
	ExecDropSingleTupleTableSlot(row);
}

TupleDesc
dana_source_columns(dana_source *source)
{
	return source->asked.query != NULL ? dana_rows_descriptor(source->stream.plan) : RelationGetDescr(source->relation);
}

void
dana_source_probe(dana_source *source)
{
	TupleDesc		  descriptor = dana_source_columns(source);
	int				 *numbers = palloc(sizeof(int) * Max(descriptor->natts, 1));
	dana_array_probe *probe;

	if (source->probe != NULL)
		return;
	probe = palloc0(offsetof(dana_array_probe, columns) + sizeof(array_column) * descriptor->natts);
	source->probe = probe;
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		dana_type		  type = {0};

		if (!attribute->attisdropped)
			(void)dana_type_of(attribute->atttypid, &type);
		probe->columns[i] = (array_column){.length = -1, .wanted = type.array};
		if (type.array)
			numbers[probe->unknown++] = i + 1;
	}
	if (probe->unknown == 0)
		return;
	if (source->asked.query != NULL)
		dana_rows_each(source->stream.plan, ARRAY_PROBE_ROWS, probe_row, probe);
	else if (!source->rows)
		dana_source_scan(source, NULL, 0, ARRAY_PROBE_ROWS, probe_row, probe);
	else
	{
		/* the rows of a view, of a table with children, or of a table under its filter */
		char *text = dana_source_select(source, probe->unknown, numbers);

		probe->numbers = numbers;
		dana_rows_each(dana_source_plan(source, text), ARRAY_PROBE_ROWS, probe_row, probe);
	}
}

/* One attribute, of a column or of an encoded number; `number` from 0 */
static void
append_attribute(StringInfo to, const char *name, Form_pg_attribute attribute, int number, const array_column *found)
{
	Oid		  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);
	dana_type holds = {0};

	if (OidIsValid(type))
		(void)dana_type_of(type, &holds);
	if (holds.vector)
		type = FLOAT4ARRAYOID; /* reported to the worker as unreadable for a Strider */
	dana_json_open(to, NULL, '{');
	dana_json_number(to, "number", number + 1);
	dana_json_text(to, "name", name);
	dana_json_number(to, "type_oid", type);
	dana_json_text(to, "type_name", attribute->attisdropped ? "" : format_type_be(type));
	dana_json_number(to, "length", attribute->attlen);
	dana_json_text(to, "align", (char[]){attribute->attalign, '\0'});
	dana_json_truth(to, "by_value", attribute->attbyval);
	dana_json_truth(to, "not_null", attribute->attnotnull);
	dana_json_truth(to, "dropped", attribute->attisdropped);
	dana_json_text(to, "generated", (char[]){attribute->attgenerated, '\0'});
	dana_json_truth(to, "has_missing", attribute->atthasmissing);
	if (found->length >= 0)
	{
		dana_json_number(to, "array_length", found->length);
		dana_json_truth(to, "out_of_line", holds.vector || found->out_of_line);
	}
	dana_json_close(to, '}');
}

/* The columns that features become, then the labels */
static void
append_encoded(StringInfo to, const dana_source *source, TupleDesc descriptor)
{
	const dana_encoding *encoding = source->chosen.encoding;
	FormData_pg_attribute made = {
		.atttypid = FLOAT4OID, .attlen = sizeof(float4), .attalign = TYPALIGN_INT, .attbyval = true};
	const array_column	  scalar = {.length = -1};
	int					  number = 0;

	for (int i = 0; i < encoding->count + encoding->labels; i++)
	{
		const int		  column = encoding->numbers[i] - 1;
		Form_pg_attribute attribute = TupleDescAttr(descriptor, column);

		if (i >= encoding->count || encoding->encoders[i].kind == DANA_ENCODE_NONE)
			append_attribute(to, NameStr(attribute->attname), attribute, number++, &source->probe->columns[column]);
		else
			for (int k = 0; k < encoding->encoders[i].width; k++, number++)
				append_attribute(to, source->chosen.features.values[number], &made, number, &scalar);
	}
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc	descriptor = dana_source_columns(source);
	const bool	has_pages = source->relation != NULL && source->chosen.encoding == NULL && source->pages > 0 &&
		RELKIND_HAS_STORAGE(source->relation->rd_rel->relkind);

	dana_source_probe(source);
	dana_json_open(to, "relation", '{');
	dana_json_text(to, "name", source->name);
	dana_json_truth(to, "rows", source->rows);
	if (has_pages || !source->rows)
		dana_json_number(to, "pages", has_pages ? source->pages : 0);
	else
		dana_json_text(to, "pages", NULL);
	dana_json_open(to, "attributes", '[');
	for (int i = 0; i < descriptor->natts && source->chosen.encoding == NULL; i++)
		append_attribute(to, NameStr(TupleDescAttr(descriptor, i)->attname), TupleDescAttr(descriptor, i), i,
						 &source->probe->columns[i]);
	if (source->chosen.encoding != NULL)
		append_encoded(to, source, descriptor);
	dana_json_close(to, ']');
	dana_json_close(to, '}');
}
