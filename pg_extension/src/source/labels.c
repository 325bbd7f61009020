/*
 * Labels on pages: checks the classes that classes.c assumed from a sample.
 *
 * The check runs on the first stream of pages, while they are in the cache: a separate pass over a table takes longer
 * than an epoch. It sees the rows that the training gets, including rows with NULLs in other columns.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"

#include "base/dana.h"
#include "source/labels.h"
#include "source/source.h"
#include "values/tuples.h"
#include "values/values.h"

/* Values that are known to be classes */
#define REMEMBERED 8

struct dana_assumed
{
	dana_type holds;
	int		  attribute;
	int		  classes; /* the label's values are the integers below this, and each occurs */
	int		  found;
	bool	  odd; /* a value is not one of them */
	int		  remembered_count;
	Datum	  remembered[REMEMBERED];
	bool	  seen[FLEXIBLE_ARRAY_MEMBER];
};

dana_assumed *
dana_assumed_begin(const dana_type *holds, int attribute, int classes)
{
	dana_assumed *assumed = palloc0(offsetof(dana_assumed, seen) + sizeof(bool) * classes);

	assumed->holds = *holds;
	assumed->attribute = attribute;
	assumed->classes = classes;
	return assumed;
}

bool
dana_assumed_holds(const dana_assumed *assumed)
{
	return !assumed->odd && assumed->found == assumed->classes;
}

/* Checks a value that is not remembered; false: it is not one of the classes */
static bool
check_value(dana_assumed *assumed, Datum value)
{
	const double number = dana_number_of(&assumed->holds, value);

	/* rows with numbers that are not finite are handled where they are read; a zero with a sign has another text */
	if (isfinite(number))
	{
		if (!(number >= 0 && number < assumed->classes) || number != floor(number) || signbit(number))
			return false;
		assumed->found += !assumed->seen[(int)number];
		assumed->seen[(int)number] = true;
	}
	if (assumed->remembered_count < REMEMBERED)
		assumed->remembered[assumed->remembered_count++] = value;
	return true;
}

static inline bool
is_remembered(const dana_assumed *assumed, Datum value)
{
	for (int i = 0; i < assumed->remembered_count; i++)
		if (assumed->remembered[i] == value)
			return true;
	return false;
}

bool
dana_assumed_check(dana_source *source, BlockNumber block, Page page, const dana_tuple_shape *shape)
{
	dana_assumed	 *assumed = source->chosen.assumed;
	const TupleDesc	  descriptor = RelationGetDescr(source->relation);
	Form_pg_attribute attribute = TupleDescAttr(descriptor, assumed->attribute - 1);
	const int		  size = attribute->attlen;
	const int		  offset = dana_column_offset(shape, assumed->attribute - 1);
	OffsetNumber	  last = PageGetMaxOffsetNumber(page);
	HeapTupleData	  tuple;

	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		bool  isnull;
		Datum value;

		if (!dana_tuple_on_page(source->relation, block, page, i, &tuple))
			continue;
		if (offset >= 0 && !HeapTupleHasNulls(&tuple) && HeapTupleHeaderGetNatts(tuple.t_data) >= assumed->attribute &&
			(uint32)(tuple.t_data->t_hoff + offset + size) <= tuple.t_len)
			value = fetch_att((char *)tuple.t_data + tuple.t_data->t_hoff + offset, true, size);
		else
		{
			const char *damage = dana_tuple_damage(shape, &tuple);

			if (damage != NULL)
				dana_page_corrupt(source->relation, block, psprintf("line pointer %u: %s", i, damage));
			value = heap_getattr(&tuple, assumed->attribute, descriptor, &isnull);
			if (isnull)
				continue;
		}
		if (!is_remembered(assumed, value) && !check_value(assumed, value))
		{
			assumed->odd = true;
			return false;
		}
	}
	return true;
}
