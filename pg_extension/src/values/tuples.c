/*
 * Tuples on a page that may be damaged.
 *
 * PostgreSQL's own functions trust a tuple: a wrong length leads them out of it, out of the page, out of the server's
 * memory. A Strider checks tuples, so that a damaged page is an error and not a crash; this file does the same before
 * the page is read here.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/tupmacs.h"

#include "base/dana.h"
#include "base/relations.h"
#include "values/tuples.h"

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
	uint32 before; /* offset of the column if the ones before it have a fixed length and none is NULL */
} column_shape;

struct dana_tuple_shape
{
	int			 count;
	int			 fixed; /* number of leading columns that have a fixed length */
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

/* Checks what heap_deform_tuple() and nocachegetattr() (heaptuple.c) rely on */
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
		/* a length of one byte is never aligned, unlike the padding before one of four */
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

_Noreturn void
dana_page_corrupt(Relation table, BlockNumber block, const char *what)
{
	dana_error(DATA_CORRUPTED, "page %u of table %s is corrupt: %s", block, dana_relation_name(RelationGetRelid(table)), what);
}

bool
dana_tuple_on_page(Relation table, BlockNumber block, Page page, OffsetNumber i, HeapTuple tuple)
{
	ItemId	 item = PageGetItemId(page, i);
	unsigned offset = ItemIdGetOffset(item);
	unsigned length = ItemIdGetLength(item);

	if (!ItemIdIsNormal(item))
		return false;
	if (offset < ((PageHeader)page)->pd_lower || length < SizeofHeapTupleHeader || offset + length > BLCKSZ ||
		offset != MAXALIGN(offset))
		dana_page_corrupt(table, block, psprintf("line pointer %u points to %u bytes at %u", i, length, offset));
	tuple->t_tableOid = RelationGetRelid(table);
	tuple->t_data = (HeapTupleHeader)PageGetItem(page, item);
	tuple->t_len = length;
	ItemPointerSet(&tuple->t_self, block, i);
	return true;
}
