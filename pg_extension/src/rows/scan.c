/*
 * A scan of a heap's pages.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "base/dana.h"
#include "limits/bounds.h"
#include "rows/rows.h"
#include "rows/scan.h"
#include "values/tuples.h"

/* Raises an error for a damaged tuple; its line pointer is unchecked, too */
static void
check_tuple(Relation table, const dana_tuple_shape *shape, TupleTableSlot *row)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(row, false, NULL);
	const char *page = (const char *)BufferGetPage(((BufferHeapTupleTableSlot *)row)->buffer);
	const char *data = (const char *)tuple->t_data;
	const bool	outside = tuple->t_len < SizeofHeapTupleHeader || data + tuple->t_len > page + BLCKSZ;
	const char *damage = outside ? "it points outside the page" : dana_tuple_damage(shape, tuple);

	if (damage != NULL)
		dana_page_corrupt(table, ItemPointerGetBlockNumber(&row->tts_tid),
						  psprintf("line pointer %u: %s", ItemPointerGetOffsetNumber(&row->tts_tid), damage));
}

void
dana_scan(Relation table, Snapshot snapshot, const char *filter, BlockNumber pages, uint32 sample, uint64 limit,
		  bool (*take)(TupleTableSlot *row, void *context), void *context)
{
	TupleTableSlot	 *row = table_slot_create(table, NULL);
	dana_tuple_shape *shape = dana_tuple_shape_of(RelationGetDescr(table));
	dana_filter		 *compiled = filter == NULL ? NULL : dana_filter_compile(table, filter);
	uint64			  left = limit == 0 ? PG_UINT64_MAX : limit;
	bool			  more = true;

	for (uint32 part = 0; more && part < Max(sample, 1); part++)
	{
		TableScanDesc scan = table_beginscan_strat(table, snapshot, 0, NULL, true, false);

		if (sample > 0)
			heap_setscanlimits(scan, (uint64)pages * part / sample, 1);
		for (; more && left > 0 && table_scan_getnextslot(scan, ForwardScanDirection, row); left--)
		{
			CHECK_FOR_INTERRUPTS();
			dana_bounds_check();
			check_tuple(table, shape, row);
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
