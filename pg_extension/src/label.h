/*
 * The labels of a table's tuples, for rules that number their classes by them.
 */
#pragma once

#include "access/htup.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"

#include "values.h"

typedef struct dana_label
{
	Relation	relation;
	const char *name; /* the table's */
	int			classes; /* that the rule numbers its label by */
	AttrNumber	column;
	dana_type	type;
	AttrNumber *used; /* columns without which the machine skips a tuple */
	int			used_count;
} dana_label;

/* The label of a machine's design on a table that is open; NULL where the rule numbers no classes, `classes` is 0 */
extern dana_label *dana_label_find(Relation relation, const char *name, Jsonb *design, int classes);

/*
 * Refuses a tuple whose label is none of the classes; those that the machine skips pass. dana_tuple_damage() found
 * nothing in it.
 */
extern void dana_label_check(const dana_label *label, HeapTuple tuple);
