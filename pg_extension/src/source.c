/*
 * A table as a stream of pages.
 *
 * The worker trains on every line pointer that is LP_NORMAL. This backend alone has the snapshot, so it copies each
 * page under share lock and, in the copy, sets to LP_UNUSED every line pointer whose tuple the snapshot does not see.
 */
#include "source.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "ring.h"

/* Refuses what has no pages of its own, or none that may be shown; names what to do instead */
static void
check_kind(Relation relation, const char *name)
{
	Form_pg_class class = relation->rd_rel;
	const char	 *what = NULL;
	const char	 *hint = "Train on a table that holds the rows, for instance one made by CREATE TABLE AS.";

	switch (class->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_MATVIEW:
			break;
		case RELKIND_VIEW:
			what = "a view";
			break;
		case RELKIND_FOREIGN_TABLE:
			what = "a foreign table";
			break;
		case RELKIND_PARTITIONED_TABLE:
			what = "a partitioned table";
			hint = "Train on one of its partitions, or on a table made by CREATE TABLE AS.";
			break;
		default:
			what = "not a table";
			break;
	}
	if (what != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("cannot train on %s: it is %s", name, what), errhint("%s", hint)));
	if (RELATION_IS_OTHER_TEMP(relation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot train on %s: it is a temporary table of another session", name),
				 errhint("Its pages are in that session's memory. Train there, or on a permanent table.")));
	if (IsCatalogRelation(relation) || IsToastRelation(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot train on %s: it is a system catalog", name),
				 errhint("Copy the rows with CREATE TABLE AS.")));
	if (relation->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot train on %s: its access method is not \"heap\"", name),
				 errhint("Copy the rows with CREATE TABLE ... USING heap AS ...")));
	if (!RelationIsPopulated(relation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("materialized view %s has not been populated", name),
				 errhint("Use the REFRESH MATERIALIZED VIEW command.")));
	if (class->relhassubclass && find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot train on %s: tables inherit from it, and their rows would be left out", name),
				 errhint("Train on one of those tables, or on a table made by CREATE TABLE AS.")));
}

/* A page holds every column and also rows that no one sees any more, so nothing less than SELECT on the table will do */
static void
check_rights(Relation relation, const char *name)
{
	Oid id = RelationGetRelid(relation);

	if (pg_class_aclcheck(id, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s", name),
				 errhint("Training reads whole pages, so it needs SELECT on the table, not on some of its columns.")));
	if (check_enable_rls(id, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot train on %s: it has row-level security for user %s", name, GetUserNameFromId(GetUserId(), false)),
				 errhint("Training reads whole pages. Train as a role with BYPASSRLS, or on a table with the permitted rows.")));
}

dana_source *
dana_source_open(Oid relation_id)
{
	dana_source *source = palloc0(sizeof *source);
	Relation	 relation = try_relation_open(relation_id, AccessShareLock);
	char		*schema;

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("there is no table with OID %u", relation_id)));
	schema = get_namespace_name(RelationGetNamespace(relation));
	source->relation = relation;
	source->name = quote_qualified_identifier(schema, RelationGetRelationName(relation));
	/* rights first: what a table is, is told to those who may read it */
	check_rights(relation, source->name);
	check_kind(relation, source->name);
	source->snapshot = GetActiveSnapshot();
	if (!IsMVCCSnapshot(source->snapshot))
		elog(ERROR, "training needs an MVCC snapshot");
	source->pages = RelationGetNumberOfBlocks(relation);
	return source;
}

void
dana_source_close(dana_source *source)
{
	relation_close(source->relation, NoLock);
}

static void
corrupt(dana_source *source, BlockNumber block, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED), errmsg("page %u of table %s is corrupt: %s", block, source->name, what)));
}

/*
 * Whether the hint bits alone prove that every snapshot of ours sees the tuple: inserted by a transaction that
 * committed before the snapshot's oldest running one, and not deleted or locked. The outcome is that of
 * HeapTupleSatisfiesMVCC() (heapam_visibility.c), without the call.
 */
static inline bool
surely_visible(HeapTupleHeader tuple, TransactionId xmin_horizon)
{
	if ((tuple->t_infomask & (HEAP_XMAX_INVALID | HEAP_XMIN_COMMITTED)) != (HEAP_XMAX_INVALID | HEAP_XMIN_COMMITTED))
		return false;
	return HeapTupleHeaderXminFrozen(tuple) ||
		TransactionIdPrecedes(HeapTupleHeaderGetRawXmin(tuple), xmin_horizon);
}

/* Sets to LP_UNUSED, in the copy, each line pointer that the snapshot does not see. The buffer is share-locked. */
static void
hide_invisible(dana_source *source, BlockNumber block, Buffer buffer, Page copy, bool serializable)
{
	Page		  page = BufferGetPage(buffer);
	Snapshot	  snapshot = source->snapshot;
	TransactionId horizon = snapshot->snapshot_type == SNAPSHOT_MVCC ? snapshot->xmin : InvalidTransactionId;
	LocationIndex lower = ((PageHeader)page)->pd_lower;
	OffsetNumber  last;
	HeapTupleData tuple;

	if (PageIsNew(page))
		return;
	if (lower < SizeOfPageHeaderData || lower > BLCKSZ)
		corrupt(source, block, psprintf("pd_lower is %u", lower));
	last = PageGetMaxOffsetNumber(page);
	tuple.t_tableOid = RelationGetRelid(source->relation);
	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		ItemId item = PageGetItemId(page, i);
		bool   visible = false;

		if (ItemIdIsNormal(item))
		{
			unsigned offset = ItemIdGetOffset(item);
			unsigned length = ItemIdGetLength(item);

			if (offset < lower || length < SizeofHeapTupleHeader || offset + length > BLCKSZ || offset != MAXALIGN(offset))
				corrupt(source, block, psprintf("line pointer %u points to %u bytes at %u", i, length, offset));
			tuple.t_data = (HeapTupleHeader)PageGetItem(page, item);
			tuple.t_len = length;
			ItemPointerSet(&tuple.t_self, block, i);
			if (!serializable && TransactionIdIsValid(horizon) && surely_visible(tuple.t_data, horizon))
				continue;
			visible = HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer);
			if (serializable)
				HeapCheckForSerializableConflictOut(visible, source->relation, &tuple, buffer, snapshot);
		}
		if (!visible)
			ItemIdSetUnused(PageGetItemId(copy, i));
	}
}

/*
 * Reads a block and pins it. A table that was loaded in order mostly lies in neighbouring buffers: the one after the
 * last block's is tried first, which saves the look-up in the buffer table, two cache misses and two locks per page.
 */
static Buffer
read_block(Relation relation, BlockNumber block, Buffer last, BufferAccessStrategy strategy)
{
	if (last > 0 && last < NBuffers &&
		ReadRecentBuffer(dana_relation_locator(relation), MAIN_FORKNUM, block, last + 1))
	{
		pgstat_count_buffer_read(relation);
		pgstat_count_buffer_hit(relation);
		return last + 1;
	}
	return ReadBufferExtended(relation, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
}

void
dana_source_stream(dana_source *source)
{
	Relation relation = source->relation;
	Snapshot snapshot = source->snapshot;
	bool	 serializable = CheckForSerializableConflictOutNeeded(relation, snapshot);
	/* like initscan() (heapam.c): a table that would fill the buffer pool goes through a small ring of buffers */
	BufferAccessStrategy strategy = source->pages > NBuffers / 4 ? GetAccessStrategy(BAS_BULKREAD) : NULL;
	PGAlignedBlock		 copy;
	Buffer				 buffer = InvalidBuffer;

	PredicateLockRelation(relation, snapshot);
	dana_ring_begin();
	for (BlockNumber block = 0; block < source->pages; block++)
	{
		uint8 *slot;
		Page   page;

		CHECK_FOR_INTERRUPTS();
		/* may wait, so before any pin or lock */
		slot = dana_ring_reserve();
		buffer = read_block(relation, block, buffer, strategy);
		heap_page_prune_opt(relation, buffer);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		dana_test_for_old_snapshot(snapshot, relation, page);
		/* the rule of heapgetpage() (heapam.c): on a standby the flag can be ahead of the snapshot */
		if (PageIsAllVisible(page) && !snapshot->takenDuringRecovery && !serializable)
		{
			dana_ring_fill(slot, page);
			UnlockReleaseBuffer(buffer);
		}
		else
		{
			/* copied first: then the line pointers and tuple headers that visibility looks at are in the cache */
			memcpy(copy.data, page, BLCKSZ);
			hide_invisible(source, block, buffer, copy.data, serializable);
			UnlockReleaseBuffer(buffer);
			dana_ring_fill(slot, copy.data);
		}
		dana_ring_commit();
	}
	if (strategy != NULL)
		FreeAccessStrategy(strategy);
	dana_ring_finish();
}
