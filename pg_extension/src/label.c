/*
 * The labels of a table's tuples (label.h).
 */
#include "postgres.h"

#include "storage/itemptr.h"

#include "dana.h"
#include "frames.h"
#include "label.h"

static AttrNumber
label_column_number(Relation relation, const char *name, const char *column)
{
	AttrNumber number = get_attnum(RelationGetRelid(relation), column);

	if (number <= 0)
		dana_protocol_error("named a column that %s does not have", name);
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
	label->column = label_column_number(relation, name, dana_json_string(dana_json_member(design, "classes"), "label"));
	attribute = TupleDescAttr(RelationGetDescr(relation), label->column - 1);
	if (attribute->attlen <= 0 || !dana_type_of(attribute->atttypid, &label->type) || label->type.array)
		dana_protocol_error("asked for the pages of %s, whose label they do not hold", name);
	label->used_count = dana_json_strings(design, "features", &used);
	label->used = palloc(sizeof *label->used * (label->used_count + 1));
	for (int i = 0; i < label->used_count; i++)
		label->used[i] = label_column_number(relation, name, used[i]);
	label->used[label->used_count++] = label->column;
	return label;
}

void
dana_label_check(const dana_label *label, HeapTuple tuple)
{
	TupleDesc descriptor = RelationGetDescr(label->relation);
	bool	  isnull;
	Datum	  value;
	float	  number;

	/* a column that is missing at a tuple's end is NULL: one with a default comes as rows */
	for (int i = 0; i < label->used_count; i++)
		if (heap_attisnull(tuple, label->used[i], descriptor))
			return;
	value = heap_getattr(tuple, label->column, descriptor, &isnull);
	number = (float)dana_number_of(&label->type, value);
	if (!dana_is_class(number, label->classes))
		dana_refuse_label(psprintf("row (%u,%u) of %s", ItemPointerGetBlockNumber(&tuple->t_self),
								   ItemPointerGetOffsetNumber(&tuple->t_self), label->name),
						  NameStr(TupleDescAttr(descriptor, label->column - 1)->attname), number, label->classes);
}
