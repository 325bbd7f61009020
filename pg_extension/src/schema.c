/*
 * What a source looks like: its description for the worker, and its tuples as they lie on pages.
 *
 * The description has every attribute of a table in attnum order, as the page's layout needs it; or the columns of a
 * query.
 *
 * PostgreSQL's own functions trust a tuple: a wrong length leads them out of it, out of the page, out of the server's
 * memory. A Strider does not trust it, so that a damaged page is an error and not a crash; nor do we, who look at the
 * page before it.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "access/tupmacs.h"

#include "dana.h"
#include "training.h"

#define ARRAY_PROBE_ROWS 1000

/* Tuples */

Size
dana_value_size(const char *at, Size left, int16 typlen)
{
	Size size;

	if (typlen > 0)
		size = typlen;
	else if (typlen == -2)
		size = strnlen(at, left) + 1;
	else if (VARATT_IS_1B_E(at))
		/* the other tags are addresses in memory */
		size = left >= VARHDRSZ_EXTERNAL && VARTAG_EXTERNAL(at) == VARTAG_ONDISK ? VARSIZE_EXTERNAL(at) : 0;
	else if (VARATT_IS_1B(at))
		size = VARSIZE_1B(at);
	else
	{
		Size least = VARATT_IS_4B_C(at) ? VARHDRSZ_COMPRESSED : VARHDRSZ;

		size = left >= VARHDRSZ && VARSIZE_4B(at) >= least ? VARSIZE_4B(at) : 0;
	}
	return size <= left ? size : 0;
}

typedef struct column_shape
{
	int16  length; /* pg_type.typlen */
	uint16 align;  /* bytes */
	uint32 before; /* bytes of the columns before it, where these have a fixed length and none is NULL */
} column_shape;

struct dana_tuple_shape
{
	int			 count;
	int			 fixed; /* columns at the beginning that have a fixed length */
	column_shape columns[FLEXIBLE_ARRAY_MEMBER];
};

dana_tuple_shape *
dana_tuple_shape_of(TupleDesc descriptor)
{
	const int		  count = descriptor->natts;
	dana_tuple_shape *shape = palloc0(offsetof(dana_tuple_shape, columns) + sizeof(column_shape) * (count + 1));
	Size			  offset = 0;

	shape->count = shape->fixed = count;
	for (int i = 0; i < count; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		column_shape	 *column = &shape->columns[i];

		column->length = attribute->attlen;
		column->align = att_align_nominal(1, attribute->attalign);
		if (column->length < 0)
			shape->fixed = Min(shape->fixed, i);
		column->before = offset;
		offset = TYPEALIGN(column->align, offset) + column->length;
	}
	shape->columns[count].before = offset;
	return shape;
}

int
dana_column_offset(const dana_tuple_shape *shape, int column)
{
	if (column > shape->fixed)
		return -1;
	return TYPEALIGN(shape->columns[column].align, shape->columns[column].before);
}

/* What is checked is what heap_deform_tuple() and nocachegetattr() (heaptuple.c) rely on */
const char *
dana_tuple_damage(const dana_tuple_shape *shape, HeapTuple tuple)
{
	const HeapTupleHeader header = tuple->t_data;
	const int			  natts = HeapTupleHeaderGetNatts(header);
	const bool			  nulls = HeapTupleHasNulls(tuple);
	const Size			  expected = MAXALIGN(SizeofHeapTupleHeader + (nulls ? BITMAPLEN(natts) : 0));
	const char			 *data = (const char *)header + header->t_hoff;
	const int			  first = nulls ? 0 : Min(natts, shape->fixed);
	Size				  offset;
	Size				  length;

	if (natts > shape->count)
		return psprintf("the tuple has %d columns, the table %d", natts, shape->count);
	if (header->t_hoff != expected || expected > tuple->t_len)
		return psprintf("a tuple of %u bytes has a header of %d, not of %zu", tuple->t_len, header->t_hoff, expected);
	length = tuple->t_len - header->t_hoff;
	offset = shape->columns[first].before;
	if (offset > length)
		return psprintf("column %d does not lie within its tuple", first);
	for (int i = first; i < natts; i++)
	{
		const column_shape column = shape->columns[i];
		Size			   size;

		if (nulls && att_isnull(i, header->t_bits))
			continue;
		/* a length of one byte stands anywhere, unlike the padding before one of four */
		if (column.length != -1 || offset >= length || data[offset] == 0)
			offset = TYPEALIGN(column.align, offset);
		size = offset < length ? dana_value_size(data + offset, length - offset, column.length) : 0;
		if (size == 0)
			return psprintf("column %d does not lie within its tuple", i + 1);
		if (column.length < 0 && !HeapTupleHasVarWidth(tuple))
			return psprintf("column %d has a length, and the tuple's header says that none has", i + 1);
		if (column.length == -1 && VARATT_IS_EXTERNAL(data + offset) && !HeapTupleHasExternal(tuple))
			return psprintf("column %d is stored out of line, and the tuple's header says that none is", i + 1);
		offset += size;
	}
	return NULL;
}

/* The description */

/* What the first rows say about an array column: a rule's inputs need a size before the rows come */
typedef struct array_column
{
	int	 length;	  /* elements of the first one-dimensional value; -1: none was found */
	bool out_of_line; /* that value is compressed, or stored out of line */
	bool wanted;	  /* it is an array, and none was found */
} array_column;

struct dana_array_probe
{
	int			 unknown; /* columns that are wanted */
	const int	*numbers; /* of the rows' columns, or NULL: they are the source's */
	array_column columns[FLEXIBLE_ARRAY_MEMBER];
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

/* Looks at a row, whose columns are the source's or, with `numbers`, some of them; false: nothing is left to find */
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
	return source->asked.query != NULL ? dana_rows_descriptor(source->plan) : RelationGetDescr(source->relation);
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
		dana_rows_each(source->plan, ARRAY_PROBE_ROWS, probe_row, probe);
	else if (!source->rows)
		dana_source_scan(source, NULL, 0, ARRAY_PROBE_ROWS, probe_row, probe);
	else
	{
		/* the rows of a view, of a table with children, or of a table as its filter leaves them */
		char *text = dana_source_select(source, probe->unknown, numbers);

		probe->numbers = numbers;
		dana_rows_each(dana_source_plan(source, text), ARRAY_PROBE_ROWS, probe_row, probe);
	}
}

/* One attribute, of a column or of something that an encoder makes; `number` from 0 */
static void
append_attribute(StringInfo to, const char *name, Form_pg_attribute attribute, int number, const array_column *found)
{
	Oid		  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);
	dana_type holds = {0};

	if (OidIsValid(type))
		(void)dana_type_of(type, &holds);
	if (holds.vector)
		type = FLOAT4ARRAYOID; /* to the worker it is one that no Strider reads where it lies */
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

/* The columns that features become, and the labels behind them */
static void
append_encoded(StringInfo to, const dana_source *source, TupleDesc descriptor)
{
	const dana_encoding *encoding = source->encoding;
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
				append_attribute(to, source->features.values[number], &made, number, &scalar);
	}
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc	descriptor = dana_source_columns(source);
	const bool	has_pages = source->relation != NULL && source->encoding == NULL && source->pages > 0 &&
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
	for (int i = 0; i < descriptor->natts && source->encoding == NULL; i++)
		append_attribute(to, NameStr(TupleDescAttr(descriptor, i)->attname), TupleDescAttr(descriptor, i), i,
						 &source->probe->columns[i]);
	if (source->encoding != NULL)
		append_encoded(to, source, descriptor);
	dana_json_close(to, ']');
	dana_json_close(to, '}');
}
