/*
 * The labels of a table's tuples (label.h).
 *
 * PostgreSQL's own functions trust a tuple. A Strider does not, so that a damaged page is an error and not a crash; nor do
 * we, who look at the page before it.
 */
#include "label.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "storage/itemptr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "frames.h"
#include "json.h"

static AttrNumber
column_of(Relation relation, const char *name, const char *column)
{
	AttrNumber number = get_attnum(RelationGetRelid(relation), column);

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker named a column that %s does not have", name)));
	return number;
}

dana_label *
dana_label_find(Relation relation, const char *name, Jsonb *design, int classes)
{
	dana_label		 *label;
	char			**used;
	Form_pg_attribute attribute;

	if (classes == 0)
		return NULL;
	label = palloc0(sizeof *label);
	label->relation = relation;
	label->name = name;
	label->classes = classes;
	label->column = column_of(relation, name, dana_json_string(dana_json_member(design, "classes"), "label"));
	attribute = TupleDescAttr(RelationGetDescr(relation), label->column - 1);
	if (attribute->attlen <= 0 || !dana_type_of(attribute->atttypid, &label->type) || label->type.array)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker asked for the pages of %s, whose label they do not hold", name)));
	label->used_count = dana_json_strings(design, "features", &used);
	label->used = palloc(sizeof *label->used * (label->used_count + 1));
	for (int i = 0; i < label->used_count; i++)
		label->used[i] = column_of(relation, name, used[i]);
	label->used[label->used_count++] = label->column;
	return label;
}

/* Whether a tuple's header fits into it: then its bitmap may be read */
static bool
has_header(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;
	Size			least = SizeofHeapTupleHeader;

	if (HeapTupleHasNulls(tuple))
		least += BITMAPLEN(HeapTupleHeaderGetNatts(header));
	return header->t_hoff >= least && header->t_hoff == MAXALIGN(header->t_hoff) && header->t_hoff <= tuple->t_len;
}

/* A column that is missing at a tuple's end is NULL: one with a default comes as rows */
static bool
is_null(HeapTuple tuple, AttrNumber column)
{
	return column > HeapTupleHeaderGetNatts(tuple->t_data) ||
		(HeapTupleHasNulls(tuple) && att_isnull(column - 1, tuple->t_data->t_bits));
}

/* Bytes of a value of variable length; 0 where it does not lie within `left` bytes */
static Size
varlena_size(const char *at, Size left)
{
	Size size = 0;

	if (left == 0)
		return 0;
	if (VARATT_IS_1B_E(at))
	{
		if (left >= VARHDRSZ_EXTERNAL && VARTAG_EXTERNAL(at) == VARTAG_ONDISK)
			size = VARSIZE_EXTERNAL(at);
	}
	else if (VARATT_IS_1B(at))
		size = VARSIZE_1B(at);
	else if (left >= VARHDRSZ)
	{
		size = VARSIZE_4B(at);
		if (size < VARHDRSZ)
			size = 0;
	}
	return size <= left ? size : 0;
}

/* Where a column's value lies, which is not NULL; NULL where the way there leads out of the tuple */
static const char *
find_value(TupleDesc descriptor, HeapTuple tuple, AttrNumber column)
{
	const char *data = (const char *)tuple->t_data + tuple->t_data->t_hoff;
	Size		length = tuple->t_len - tuple->t_data->t_hoff;
	Size		offset = 0;

	for (AttrNumber i = 1;; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i - 1);
		Size			  size;

		if (is_null(tuple, i))
			continue;
		/* a length of one byte stands anywhere, unlike the padding before one of four */
		if (attribute->attlen != -1 || offset >= length || data[offset] == 0)
			offset = att_align_nominal(offset, attribute->attalign);
		if (offset >= length)
			return NULL;
		if (attribute->attlen > 0)
			size = attribute->attlen;
		else if (attribute->attlen == -1)
			size = varlena_size(data + offset, length - offset);
		else
			size = strnlen(data + offset, length - offset) + 1;
		if (size == 0 || size > length - offset)
			return NULL;
		if (i == column)
			return data + offset;
		offset += size;
	}
}

void
dana_label_check(const dana_label *label, HeapTuple tuple)
{
	TupleDesc		  descriptor = RelationGetDescr(label->relation);
	Form_pg_attribute attribute = TupleDescAttr(descriptor, label->column - 1);
	const char		 *value;
	double			  number;

	if (!has_header(tuple))
		return;
	for (int i = 0; i < label->used_count; i++)
		if (is_null(tuple, label->used[i]))
			return;
	value = find_value(descriptor, tuple, label->column);
	if (value == NULL)
		return;
	number = dana_number_of(&label->type, fetchatt(attribute, value));
	if (!dana_is_class((float)number, label->classes))
		dana_refuse_label(psprintf("row (%u,%u)", ItemPointerGetBlockNumber(&tuple->t_self), ItemPointerGetOffsetNumber(&tuple->t_self)),
						  label->name, NameStr(attribute->attname), (float)number, label->classes);
}
