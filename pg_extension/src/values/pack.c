/*
 * Pages for another server.
 *
 * The numbers of line pointers are kept, since they are the rows' places. The bytes of tuples that are not visible,
 * which no SELECT would show, are not.
 */
#include "postgres.h"

#include "access/transam.h"

#include "base/dana.h"
#include "values/pack.h"

bool
dana_pack(Page page, OffsetNumber i, HeapTuple tuple)
{
	PageHeader		header = (PageHeader)page;
	const Size		lower = SizeOfPageHeaderData + i * sizeof(ItemIdData);
	const Size		space = MAXALIGN(tuple->t_len);
	HeapTupleHeader packed;

	if (i < FirstOffsetNumber || i > MaxHeapTuplesPerPage || lower + space > header->pd_upper)
		return false;
	header->pd_lower = lower; /* line pointers between are 0, which is LP_UNUSED */
	header->pd_upper -= space;
	ItemIdSetNormal(PageGetItemId(page, i), header->pd_upper, tuple->t_len);
	packed = (HeapTupleHeader)PageGetItem(page, PageGetItemId(page, i));
	memcpy(packed, tuple->t_data, tuple->t_len);
	packed->t_choice.t_heap.t_xmin = FrozenTransactionId;
	packed->t_choice.t_heap.t_xmax = InvalidTransactionId;
	packed->t_choice.t_heap.t_field3.t_cid = FirstCommandId;
	packed->t_ctid = tuple->t_self;
	packed->t_infomask &= HEAP_HASNULL | HEAP_HASVARWIDTH | HEAP_HASEXTERNAL;
	packed->t_infomask |= HEAP_XMIN_FROZEN | HEAP_XMAX_INVALID;
	packed->t_infomask2 &= HEAP_NATTS_MASK;
	return true;
}
