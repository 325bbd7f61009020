/*
 * A training's source: opening it, and streaming a table's pages, or frames made from rows.
 *
 * The worker trains on every line pointer that is LP_NORMAL. Only this backend has the snapshot, so it copies each page
 * under share lock and, in the copy, sets to LP_UNUSED every line pointer of a tuple that the snapshot does not see.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"
#include "utils/rls.h"
#include "utils/varlena.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "limits/bounds.h"
#include "limits/progress.h"
#include "rows/rows.h"
#include "rows/scan.h"
#include "source/blocks.h"
#include "source/frames.h"
#include "source/labels.h"
#include "source/schema.h"
#include "source/stream.h"
#include "values/encode.h"
#include "values/tuples.h"
#include "worker/channel.h"
#include "worker/ring.h"

/* Pages between two updates of the progress */
#define PROGRESS_EVERY 64

/* Raises an error for a relation that cannot be read; true if it has rows but no pages of its own */
static bool
source_check_kind(Relation relation, const char *name)
{
	Form_pg_class class = relation->rd_rel;

	switch (class->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_MATVIEW:
			break;
		case RELKIND_VIEW:
		case RELKIND_FOREIGN_TABLE:
		case RELKIND_PARTITIONED_TABLE:
			return true;
		default:
			ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("cannot train on %s: it is not a table", name),
							errhint("Train on a table, a view, or with query => 'SELECT ...'.")));
	}
	if (RELATION_IS_OTHER_TEMP(relation))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot train on %s: it is a temporary table of another session", name),
						errhint("Its pages are in that session's memory. Train there, or on a permanent table.")));
	if (IsCatalogRelation(relation) || IsToastRelation(relation))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("cannot train on %s: it is a system catalog", name),
						errhint("Copy the rows with CREATE TABLE AS, or use query => 'SELECT ...'.")));
	if (!RelationIsPopulated(relation))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("materialized view %s has not been populated", name),
						errhint("Use the REFRESH MATERIALIZED VIEW command.")));
	if (class->relhassubclass && find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		return true;
	/* other access methods lay out pages differently */
	return relation->rd_tableam != GetHeapamTableAmRoutine();
}

/* A page holds all columns, and rows that are no longer visible: SELECT on the whole table is required */
static void
source_check_rights(Relation relation, const char *name)
{
	Oid			id = RelationGetRelid(relation);
	const char *denied = dana_denied_columns(id);

	if (pg_class_aclcheck(id, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s", name),
				 denied != NULL ? errdetail("There is no SELECT on its columns %s.", denied) : 0,
				 errhint("Training reads whole pages, so it needs SELECT on the table, not on some of its columns. "
						 "With query => 'SELECT ...' it needs what the query needs.")));
	if (check_enable_rls(id, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot train on %s: it has row-level security for user %s", name,
							   GetUserNameFromId(GetUserId(), false)),
						errhint("Training reads whole pages. Train as a role with BYPASSRLS, or on the permitted rows "
								"with query => 'SELECT ...'.")));
}

Relation
dana_source_heap(Oid id)
{
	const char *name;
	Relation	relation;

	dana_require_relation(id);
	name = dana_relation_name(id);
	relation = relation_open(id, AccessShareLock);
	source_check_rights(relation, name);
	if (source_check_kind(relation, name))
		dana_error(WRONG_OBJECT_TYPE, "%s has rows, and no pages of its own", name);
	return relation;
}

/* Opens the table, and its filter if pages are read */
static void
source_open_relation(dana_source *source, Oid id)
{
	Relation relation;

	source->from = dana_relation_name(id);
	source->name = dana_relation_name(source->asked.given);
	relation = source->relation = relation_open(id, AccessShareLock);
	/* rights first: the kind of a table is not revealed to roles without them */
	source_check_rights(relation, source->name);
	source->heap = !source_check_kind(relation, source->name);
	if (source->heap)
		source->pages = RelationGetNumberOfBlocks(relation);
	else
		source->rows = true;
	if (source->asked.filter != NULL && !source->rows)
		source->compiled = dana_filter_compile(relation, source->asked.filter);
}

dana_source *
dana_source_open(const dana_source_request *request)
{
	dana_source *source = palloc0(sizeof *source);

	source->snapshot = GetActiveSnapshot();
	if (!IsMVCCSnapshot(source->snapshot))
		elog(ERROR, "training needs an MVCC snapshot");
	source->asked = *request;
	source->chosen.classes = request->cleaning.classes;
	source->chosen.features.count = -1;
	source->rows = request->query != NULL || request->cleaning.classes.count > 0 ||
		request->cleaning.nonfinite == DANA_NONFINITE_ERROR;
	if (request->query == NULL)
		source_open_relation(source, request->relation);
	else
	{
		source->name = source->from = "the query";
		source->stream.plan = dana_source_plan(source, request->query);
	}
	return source;
}

void
dana_source_close(dana_source *source)
{
	if (source->compiled != NULL)
		dana_filter_free(source->compiled);
	if (source->spi)
		SPI_finish();
	if (source->relation != NULL)
		relation_close(source->relation, NoLock);
}

/* The columns behind those that the worker asked for, which must be all the encoded ones, and the labels */
static void
adopt_encoded(const dana_source *source, dana_frame_layout *layout)
{
	const dana_encoding *encoding = source->chosen.encoding;
	int					 at = 0;

	for (int i = 0; i < layout->columns; i++)
		if (layout->columns != encoding->columns + encoding->labels || layout->numbers[i] != i + 1)
			dana_protocol_error("asked for column %d of %s", layout->numbers[i], source->name);
	layout->columns = encoding->count + encoding->labels;
	for (int i = 0; i < layout->columns; i++)
	{
		layout->numbers[i] = encoding->numbers[i];
		layout->lengths[i] = layout->lengths[at];
		at += i < encoding->count ? abs(encoding->encoders[i].width) : 1;
	}
}

/* A row of a scan that has checked its tuple */
static bool
is_sound(TupleTableSlot *row, void *context)
{
	return true;
}

void
dana_source_adopt(dana_source *source, Jsonb *stream, Jsonb *design)
{
	dana_frame_layout *layout = &source->stream.layout;
	int64			   part;
	int				   count, values = 0;

	source->stream.classes =
		dana_json_is_null(design, "classes") ? 0 : dana_json_integer(dana_json_member(design, "classes"), "count");
	source->stream.count = 0;
	if (stream == NULL)
	{
		if (source->rows)
			dana_protocol_error("asked for the pages of %s, which has rows only", source->name);
		source->stream.plan = NULL;
		return;
	}
	layout->page_size = dana_json_integer(stream, "page_size");
	part = dana_json_integer(stream, "part");
	layout->columns = dana_json_integers(stream, "numbers", &layout->numbers);
	if (dana_json_integers(stream, "lengths", &layout->lengths) != layout->columns || part < 0 || part > layout->page_size ||
		(layout->page_size != 8192 && layout->page_size != 16384 && layout->page_size != 32768))
		dana_protocol_error("asked for malformed frames");
	layout->part = part;
	layout->attributes = layout->columns;
	count = dana_json_doubles(stream, "centres", &layout->centres);
	for (int i = 0; i < layout->columns; i++)
		values += Max(layout->lengths[i], 1);
	if (count <= 0)
		layout->centres = NULL;
	else if (count != values)
		dana_protocol_error("asked for malformed frames");
	if (source->chosen.encoding != NULL)
		adopt_encoded(source, layout);
	if (source->heap) /* the executor, which reads them now, trusts tuples */
		dana_scan(source->relation, source->snapshot, NULL, source->pages, 0, 0, is_sound, NULL);
	if (source->asked.query == NULL)
	{
		char *text = dana_source_select(source, layout->columns, layout->numbers);

		source->stream.plan = dana_source_plan(source, text);
		for (int i = 0; i < layout->columns; i++)
			layout->numbers[i] = i + 1;
	}
}

/*
 * Whether the hint bits alone prove that every snapshot here sees the tuple: inserted by a transaction that committed
 * before the snapshot's oldest running one, and not deleted or locked. The outcome is that of HeapTupleSatisfiesMVCC()
 * (heapam_visibility.c), without the call.
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
	OffsetNumber  last = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;

	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		bool visible = false;

		if (dana_tuple_on_page(source->relation, block, page, i, &tuple))
		{
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
 * Examines each remaining tuple of a copied page; no buffer is locked. Sets to LP_UNUSED the line pointers of those
 * that the filter rejects.
 */
static void
check_tuples(dana_source *source, BlockNumber block, Page copy, const dana_tuple_shape *shape)
{
	OffsetNumber  last = PageGetMaxOffsetNumber(copy);
	HeapTupleData tuple;

	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		const char *damage;

		if (!dana_tuple_on_page(source->relation, block, copy, i, &tuple))
			continue;
		CHECK_FOR_INTERRUPTS();
		dana_bounds_check();
		dana_channel_poll();
		damage = dana_tuple_damage(shape, &tuple);
		if (damage != NULL)
			dana_page_corrupt(source->relation, block, psprintf("line pointer %u: %s", i, damage));
		if (!dana_filter_passes(source->compiled, &tuple))
			ItemIdSetUnused(PageGetItemId(copy, i));
	}
}

static void
stream_pages(dana_source *source)
{
	Relation relation = source->relation;
	Snapshot snapshot = source->snapshot;
	bool	 serializable = CheckForSerializableConflictOutNeeded(relation, snapshot);
	/* like initscan() (heapam.c): a table that would fill the buffer pool goes through a small ring of buffers */
	BufferAccessStrategy strategy = source->pages > NBuffers / 4 ? GetAccessStrategy(BAS_BULKREAD) : NULL;
	PGAlignedBlock		 copy;
	Buffer				 buffer = InvalidBuffer, next = InvalidBuffer;
	bool				 filtered = source->compiled != NULL;
	dana_tuple_shape	*shape = dana_tuple_shape_of(RelationGetDescr(relation));
	bool				 as_assumed = true;

	PredicateLockRelation(relation, snapshot);
	dana_ring_begin(BLCKSZ);
	dana_progress_set(DANA_PROGRESS_PAGES, source->pages);
	for (BlockNumber block = 0; block < source->pages && as_assumed; block++)
	{
		uint8 *slot;
		Buffer before, expected;
		Page   page, later;
		bool   all_visible;

		CHECK_FOR_INTERRUPTS();
		dana_bounds_check();
		/* may wait, so before any pin or lock */
		slot = dana_ring_reserve();
		before = buffer;
		expected = next;
		buffer = dana_read_block(relation, block, expected, strategy);
		/* pages loaded in order are in order, or reversed: a dropped table's last buffer is reused first */
		next = buffer < before ? buffer - 1 : buffer + 1;
		heap_page_prune_opt(relation, buffer);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		later = buffer == expected ? page + (next - buffer) * BLCKSZ : page;
		dana_test_for_old_snapshot(snapshot, relation, page);
		/* the rule of heapgetpage() (heapam.c): on a standby the flag can be ahead of the snapshot */
		all_visible = PageIsAllVisible(page) && !snapshot->takenDuringRecovery && !serializable;
		if (all_visible && !filtered)
		{
			dana_ring_fill(slot, page, later);
			if (source->chosen.assumed != NULL)
				as_assumed = dana_assumed_check(source, block, page, shape);
			UnlockReleaseBuffer(buffer);
		}
		else
		{
			/* copied first, so that the line pointers and tuple headers are in the cache for the visibility check */
			memcpy(copy.data, page, BLCKSZ);
			if (!all_visible)
				hide_invisible(source, block, buffer, copy.data, serializable);
			UnlockReleaseBuffer(buffer);
			if (filtered)
				check_tuples(source, block, copy.data, shape);
			if (source->chosen.assumed != NULL)
				as_assumed = dana_assumed_check(source, block, copy.data, shape);
			dana_ring_fill(slot, copy.data, later);
		}
		dana_ring_commit();
		if (block % PROGRESS_EVERY == 0)
			dana_progress_set(DANA_PROGRESS_PAGE, block);
	}
	dana_progress_set(DANA_PROGRESS_PAGE, source->pages);
	if (strategy != NULL)
		FreeAccessStrategy(strategy);
	pfree(shape);
	if (as_assumed) /* else the stream or its model will be dropped */
		dana_ring_finish();
}

/* Streams rows from a tuple store; their first columns are the plan's */
static void
stream_stored(dana_source *source, dana_frames *frames)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(source->stream.row_type, &TTSOpsMinimalTuple);

	tuplestore_rescan(source->stream.stored);
	while (tuplestore_gettupleslot(source->stream.stored, true, false, row))
	{
		CHECK_FOR_INTERRUPTS();
		dana_bounds_check();
		(void)dana_frames_add(row, frames);
	}
	ExecDropSingleTupleTableSlot(row);
}

static void
stream_rows(dana_source *source)
{
	dana_frames *frames;

	dana_progress_set(DANA_PROGRESS_PAGES, 0); /* unknown */
	dana_progress_set(DANA_PROGRESS_PAGE, 0);
	if (source->stream.count > 0 && source->stream.stored == NULL && dana_rows_volatile(source->stream.plan))
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the rows of %s do not fit into the worker's memory, and the next epoch would see "
							   "others", source->name),
						errdetail("It contains volatile functions, or a sample without REPEATABLE."),
						errhint("Store the rows in a table, or start the worker with a higher --cache-limit.")));
	frames = dana_frames_begin(source);
	if (source->stream.stored != NULL)
		stream_stored(source, frames);
	else
		dana_rows_each(source->stream.plan, 0, dana_frames_add, frames);
	dana_frames_finish(frames, !source->held_out && !source->stream.reported);
	source->stream.reported = true;
}

void
dana_source_stream(dana_source *source)
{
	if (source->stream.plan != NULL)
		stream_rows(source);
	else
		stream_pages(source);
	source->stream.count++;
}
