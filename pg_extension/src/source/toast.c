/*
 * Reading TOASTed values in the order in which they were stored.
 *
 * PostgreSQL's heap_fetch_toast_slice() (heaptoast.c) opens the TOAST table and its index for each value and finds each
 * chunk through the index. Here the tables stay open, and the next chunk is first looked for behind the last one, where
 * it is if the table was loaded in order; the index is used only if it is not there. Chunks are checked as PostgreSQL
 * does; in any doubt PostgreSQL reads the value itself, and raises its own errors.
 *
 * No buffer stays pinned between two values.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "storage/bufpage.h"
#include "utils/fmgroids.h"

#include "base/dana.h"
#include "source/blocks.h"
#include "source/toast.h"

/* A chunk's tuple has no NULL: header, chunk_id, chunk_seq, chunk_data */
#define CHUNK_HEADER MAXALIGN(SizeofHeapTupleHeader)
#define CHUNK_DATA	 (CHUNK_HEADER + sizeof(Oid) + sizeof(int32))

#define PLACES 8

/* Offset 0: none */
typedef struct chunk_place
{
	BlockNumber	 block;
	OffsetNumber offset;
	Buffer		 buffer; /* that may hold the block */
} chunk_place;

struct dana_toast
{
	Oid			id; /* of the TOAST table that is open, or InvalidOid */
	Relation	table;
	Relation	index;
	Snapshot	snapshot;
	SnapshotData space; /* before 18 */
	BlockNumber blocks;
	/*
	 * Where the next chunk is looked for: behind earlier chunks of its kind. Chunks that end a value are small and
	 * stored separately, and new rows go to a few pages in turn; so the place after the last one's comes first.
	 */
	chunk_place place[2][PLACES];
	unsigned	next[2];
};

dana_toast *
dana_toast_begin(void)
{
	return palloc0(sizeof(dana_toast));
}

void
dana_toast_end(dana_toast *reader)
{
	if (!OidIsValid(reader->id))
		return;
	index_close(reader->index, AccessShareLock);
	table_close(reader->table, AccessShareLock);
	reader->id = InvalidOid;
}

/* Opens a TOAST table in place of the last one; the lock keeps VACUUM from truncating it */
static void
open_table(dana_toast *reader, Oid id)
{
	dana_toast_end(reader);
	reader->table = table_open(id, AccessShareLock);
	reader->index = index_open(toast_get_valid_index(id, AccessShareLock), AccessShareLock);
	reader->blocks = RelationGetNumberOfBlocks(reader->table);
	memset(reader->place, 0, sizeof reader->place);
	memset(reader->next, 0, sizeof reader->next);
	reader->id = id;
}

/* Looks a chunk up in the index; false if there is none */
static bool
toast_find(dana_toast *reader, chunk_place *place, Oid value, int32 sequence)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(sequence));
	scan = systable_beginscan_ordered(reader->table, reader->index, reader->snapshot, 2, keys);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (tuple != NULL)
	{
		place->block = ItemPointerGetBlockNumber(&tuple->t_self);
		place->offset = ItemPointerGetOffsetNumber(&tuple->t_self);
		place->buffer = InvalidBuffer;
	}
	systable_endscan_ordered(scan);
	return tuple != NULL;
}

/* Prefetches the page of the next buffer, a guess that does no harm */
static void
prefetch_after(Buffer buffer)
{
	if (buffer > 0 && buffer < NBuffers)
	{
		const char *page = BufferGetBlock(buffer) + BLCKSZ;

		for (int i = 0; i < BLCKSZ; i += PG_CACHE_LINE_SIZE / 2)
			__builtin_prefetch(page + i);
	}
}

/*
 * Copies the chunks of `value` from `*sequence` on, as long as they follow one another from `place` on, on one page.
 * Returns whether it copied any.
 */
static bool
copy_from_page(dana_toast *reader, chunk_place *place, Oid value, int32 *sequence, char *to, uint32 size)
{
	const int32 chunks = (size - 1) / TOAST_MAX_CHUNK_SIZE + 1;
	const int32 first = *sequence;
	Buffer		buffer;
	Page		page;

	if (place->offset == InvalidOffsetNumber || place->block >= reader->blocks)
		return false;
	place->buffer = buffer = dana_read_block(reader->table, place->block, place->buffer, NULL);
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	dana_test_for_old_snapshot(reader->snapshot, reader->table, page);
	while (*sequence < chunks && !PageIsNew(page) && place->offset <= PageGetMaxOffsetNumber(page))
	{
		const uint32  at = *sequence * TOAST_MAX_CHUNK_SIZE;
		const uint32  expected = Min(size - at, TOAST_MAX_CHUNK_SIZE);
		ItemId		  item = PageGetItemId(page, place->offset);
		HeapTupleData tuple;
		const char	 *data;

		if (!ItemIdIsNormal(item) || ItemIdGetLength(item) < CHUNK_DATA + VARHDRSZ + expected ||
			ItemIdGetOffset(item) + ItemIdGetLength(item) > BLCKSZ || ItemIdGetOffset(item) != MAXALIGN(ItemIdGetOffset(item)))
			break;
		tuple.t_data = (HeapTupleHeader)PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = reader->id;
		ItemPointerSet(&tuple.t_self, place->block, place->offset);
		data = (const char *)tuple.t_data;
		if (HeapTupleHasNulls(&tuple) || HeapTupleHeaderGetNatts(tuple.t_data) != 3 || tuple.t_data->t_hoff != CHUNK_HEADER ||
			*(const Oid *)(data + CHUNK_HEADER) != value || *(const int32 *)(data + CHUNK_HEADER + sizeof(Oid)) != *sequence ||
			!VARATT_IS_4B_U(data + CHUNK_DATA) || VARSIZE(data + CHUNK_DATA) != VARHDRSZ + expected ||
			!HeapTupleSatisfiesVisibility(&tuple, reader->snapshot, buffer))
			break;
		memcpy(to + at, data + CHUNK_DATA + VARHDRSZ, expected);
		place->offset++;
		(*sequence)++;
	}
	if (*sequence > first && place->offset > PageGetMaxOffsetNumber(page))
	{
		place->block++;
		place->offset = FirstOffsetNumber;
		place->buffer = buffer > 0 ? buffer + 1 : InvalidBuffer;
		prefetch_after(buffer);
	}
	UnlockReleaseBuffer(buffer);
	return *sequence > first;
}

/* Copies at least one chunk of a value from `*sequence` on; false if it finds none, or an unexpected one */
static bool
copy_some(dana_toast *reader, Oid value, int32 *sequence, char *to, uint32 size)
{
	const int	 kind = *sequence == (size - 1) / TOAST_MAX_CHUNK_SIZE;
	chunk_place *place;

	for (int i = 0; i < PLACES; i++)
	{
		unsigned k = (reader->next[kind] + i) % PLACES;

		if (copy_from_page(reader, &reader->place[kind][k], value, sequence, to, size))
		{
			reader->next[kind] = k + 1;
			return true;
		}
	}
	place = &reader->place[kind][reader->next[kind]++ % PLACES];
	return toast_find(reader, place, value, *sequence) && copy_from_page(reader, place, value, sequence, to, size);
}

Datum
dana_toast_fetch(dana_toast *reader, Datum datum)
{
	struct varlena		  *value = (struct varlena *)DatumGetPointer(datum);
	struct varatt_external pointer;
	struct varlena		  *fetched;
	uint32				   size;

	if (!VARATT_IS_EXTERNAL_ONDISK(value))
		return datum;
	VARATT_EXTERNAL_GET_POINTER(pointer, value);
	size = VARATT_EXTERNAL_GET_EXTSIZE(pointer);
	if (reader->id != pointer.va_toastrelid)
		open_table(reader, pointer.va_toastrelid);
	if (size == 0 || reader->table->rd_tableam != GetHeapamTableAmRoutine())
		return datum;
	reader->snapshot = dana_toast_snapshot(&reader->space);
	fetched = palloc(VARHDRSZ + size);
	for (int32 sequence = 0; sequence <= (size - 1) / TOAST_MAX_CHUNK_SIZE;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!copy_some(reader, pointer.va_valueid, &sequence, VARDATA(fetched), size))
		{
			pfree(fetched);
			return datum;
		}
	}
	if (!VARATT_EXTERNAL_IS_COMPRESSED(pointer))
		SET_VARSIZE(fetched, VARHDRSZ + size);
	else
		SET_VARSIZE_COMPRESSED(fetched, VARHDRSZ + size);
	return PointerGetDatum(fetched);
}
