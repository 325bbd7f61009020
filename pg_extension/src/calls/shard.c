/*
 * Pages of a table on their way to a training on another server: handed over here, and taken there.
 *
 * The server that takes them trusts nothing in them: PostgreSQL would follow a wrong length out of its memory.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "storage/predicate.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/smgr.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"
#include "calls/shard.h"
#include "rows/scan.h"
#include "source/blocks.h"
#include "source/gathered.h"
#include "source/stream.h"
#include "values/contents.h"
#include "values/pack.h"
#include "values/tuples.h"

/* A row of pages stays far below PostgreSQL's limit of 1 GB */
#define MAX_PAGES 4096

typedef struct handed
{
	Oid			relation;
	int			most; /* pages in a row of the result */
	BlockNumber pages, next;
} handed;

/* Packs the visible tuples of a block; false if there are none */
static bool
pack_block(Relation relation, BlockNumber block, Snapshot snapshot, BufferAccessStrategy strategy, Page page)
{
	Buffer		  buffer = dana_read_block(relation, block, InvalidBuffer, strategy);
	bool		  serializable = CheckForSerializableConflictOutNeeded(relation, snapshot);
	bool		  all_visible;
	Page		  from = BufferGetPage(buffer);
	OffsetNumber  last;
	HeapTupleData tuple;
	bool		  any = false;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	dana_test_for_old_snapshot(snapshot, relation, from);
	/* as in stream_pages() */
	all_visible = PageIsAllVisible(from) && !snapshot->takenDuringRecovery && !serializable;
	PageInit(page, BLCKSZ, 0);
	last = PageGetMaxOffsetNumber(from);
	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		if (!dana_tuple_on_page(relation, block, from, i, &tuple))
			continue;
		if (!all_visible)
		{
			bool visible = HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer);

			if (serializable)
				HeapCheckForSerializableConflictOut(visible, relation, &tuple, buffer, snapshot);
			if (!visible)
				continue;
		}
		if (HeapTupleHasExternal(&tuple))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot hand over the pages of %s: values are stored out of line",
								   dana_relation_name(relation->rd_id)),
							errhint("Hand over its rows, with SELECT.")));
		if (!dana_pack(page, i, &tuple))
			dana_page_corrupt(relation, block, "its tuples overlap");
		any = true;
	}
	UnlockReleaseBuffer(buffer);
	return any;
}

/* dana_shard_pages(relation, pages): rows of at most so many pages, in the order of the table */
DANA_FUNCTION(dana_shard_pages)
{
	FuncCallContext		*calls;
	handed				*state;
	Relation			 relation;
	BufferAccessStrategy strategy;
	Snapshot			 snapshot = GetActiveSnapshot();
	bytea				*row;
	int					 count = 0;

	if (SRF_IS_FIRSTCALL())
	{
		calls = SRF_FIRSTCALL_INIT();
		state = calls->user_fctx = MemoryContextAllocZero(calls->multi_call_memory_ctx, sizeof *state);
		dana_require_arguments(fcinfo, 2);
		state->relation = PG_GETARG_OID(0);
		state->most = PG_GETARG_INT32(1);
		if (state->most < 1 || state->most > MAX_PAGES)
			dana_reject_argument("pages", "be from 1 to %d, not %d", MAX_PAGES, state->most);
		if (!IsMVCCSnapshot(snapshot))
			elog(ERROR, "handing over pages needs an MVCC snapshot");
		relation = dana_source_heap(state->relation);
		PredicateLockRelation(relation, snapshot);
		state->pages = RelationGetNumberOfBlocks(relation);
		relation_close(relation, NoLock);
	}
	calls = SRF_PERCALL_SETUP();
	state = calls->user_fctx;
	/* opened in each call, so that nothing is left open where a query reads no further; the lock is kept */
	relation = relation_open(state->relation, NoLock);
	strategy = state->pages > NBuffers / 4 ? GetAccessStrategy(BAS_BULKREAD) : NULL;
	row = palloc(VARHDRSZ + Min(state->most, state->pages - state->next) * (Size)BLCKSZ + MAXIMUM_ALIGNOF);
	while (count < state->most && state->next < state->pages)
	{
		PGAlignedBlock page;

		CHECK_FOR_INTERRUPTS();
		if (pack_block(relation, state->next++, snapshot, strategy, page.data))
			memcpy(VARDATA(row) + BLCKSZ * (Size)count++, page.data, BLCKSZ);
	}
	if (strategy != NULL)
		FreeAccessStrategy(strategy);
	relation_close(relation, NoLock);
	if (count == 0)
		SRF_RETURN_DONE(calls);
	SET_VARSIZE(row, VARHDRSZ + BLCKSZ * (Size)count);
	SRF_RETURN_NEXT(calls, PointerGetDatum(row));
}

/* Whether it is a temporary heap of the caller's own, in this session */
static bool
is_own_temporary(Relation relation)
{
	return relation->rd_rel->relowner == GetUserId() && relation->rd_rel->relkind == RELKIND_RELATION &&
		relation->rd_rel->relpersistence == RELPERSISTENCE_TEMP && !RELATION_IS_OTHER_TEMP(relation) &&
		relation->rd_tableam == GetHeapamTableAmRoutine();
}

/* Raises an error unless pages may be appended: no other session sees them, and an abort removes them */
static void
check_taking(Relation relation)
{
	const char *name = dana_relation_name(RelationGetRelid(relation));
	TupleDesc	columns = RelationGetDescr(relation);

	if (!is_own_temporary(relation) || relation->rd_rel->relhasindex ||
		relation->rd_createSubid == InvalidSubTransactionId)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("cannot append pages to %s", name),
						errdetail("It must be a temporary table of yours without indexes, created in this transaction.")));
	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		if (column->attisdropped || !dana_contents_known(column->atttypid))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot append pages to %s: column %d, %s, is of a type that is not checked", name, i + 1,
								   NameStr(column->attname)),
							errhint("Copy its rows.")));
	}
}

/* Why the NULLs of a tuple are wrong, or NULL: a key was made of columns that have none before there were rows */
static const char *
find_null(const HeapTupleData *tuple, TupleDesc columns)
{
	for (int c = 0; c < columns->natts; c++)
		if (TupleDescAttr(columns, c)->attnotnull && heap_attisnull((HeapTuple)tuple, c + 1, columns))
			return psprintf("column %s is NULL", NameStr(TupleDescAttr(columns, c)->attname));
	return NULL;
}

typedef struct hashed_column
{
	AttrNumber number;
	FmgrInfo  *hash;
} hashed_column;

struct dana_taking
{
	Relation		  relation;
	dana_tuple_shape *shape;
	MemoryContext	  context; /* of a page's values */
	char			 *pages; /* to be written */
	/* hashes of keys: equal keys have equal hashes */
	bool		  hashing;
	int			  key_columns;
	hashed_column keys[INDEX_MAX_KEYS];
	uint64		 *hashes;
	Size		  count, room;
};

/* Most pages that are written at once */
#define WRITTEN 64

/* As the file system's may need it (PG_IO_ALIGN_SIZE) */
#define ALIGNED 4096

/* Room for the first hashes */
#define FIRST_HASHES 65536

/* Adds the hash of a tuple's key, while all fit the memory that a sort of them would have */
static void
add_hash(dana_taking *taking, HeapTuple tuple)
{
	const TupleDesc columns = RelationGetDescr(taking->relation);
	uint64			hash = 0;

	for (int k = 0; k < taking->key_columns; k++)
	{
		bool		isnull;
		const Datum value = heap_getattr(tuple, taking->keys[k].number, columns, &isnull);
		const Oid	collation = TupleDescAttr(columns, taking->keys[k].number - 1)->attcollation;

		if (isnull)
		{
			taking->hashing = false;
			return;
		}
		hash = hash_combine64(hash, DatumGetUInt64(FunctionCall2Coll(taking->keys[k].hash, collation, value, UInt64GetDatum(0))));
	}
	if (taking->count == taking->room)
	{
		taking->room *= 2;
		taking->hashing = taking->room * sizeof *taking->hashes <= (Size)maintenance_work_mem * 1024;
		if (!taking->hashing)
			return;
		taking->hashes = repalloc_huge(taking->hashes, taking->room * sizeof *taking->hashes);
	}
	taking->hashes[taking->count++] = hash;
}

#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) ((*(a) > *(b)) - (*(a) < *(b)))
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

bool
dana_taking_distinct(dana_taking *taking)
{
	if (!taking->hashing)
		return false;
	sort_hashes(taking->hashes, taking->count);
	for (Size i = 1; i < taking->count; i++)
		if (taking->hashes[i] == taking->hashes[i - 1])
			return false;
	return true;
}

static bool
take_key(TupleTableSlot *row, void *context)
{
	dana_taking *taking = context;

	add_hash(taking, ExecFetchSlotHeapTuple(row, false, NULL));
	return taking->hashing;
}

/* Packs a page from another server, tuple by tuple, as block `number`; returns how many it has. `from` is aligned */
static int
take_page(dana_taking *taking, Page from, Page page, BlockNumber number)
{
	const Relation			relation = taking->relation;
	const dana_tuple_shape *shape = taking->shape;
	const PageHeader  header = (PageHeader)from;
	const TupleDesc	  columns = RelationGetDescr(relation);
	Datum			  values[MaxTupleAttributeNumber];
	bool			  nulls[MaxTupleAttributeNumber];
	HeapTupleData	  tuple;
	int				  last, rows = 0;

	if (header->pd_pagesize_version != (BLCKSZ | PG_PAGE_LAYOUT_VERSION) || header->pd_lower < SizeOfPageHeaderData ||
		header->pd_lower > header->pd_upper || header->pd_upper > BLCKSZ || header->pd_special != BLCKSZ)
		dana_page_corrupt(relation, number, "its header is not that of a page");
	PageInit(page, BLCKSZ, 0);
	last = Min(PageGetMaxOffsetNumber(from), MaxHeapTuplesPerPage);
	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		const char *damage;

		if (!dana_tuple_on_page(relation, number, from, i, &tuple))
			continue;
		if (!dana_pack(page, i, &tuple))
			dana_page_corrupt(relation, number, "its tuples overlap");
		/* the copy is checked, which nothing changes any more */
		tuple.t_data = (HeapTupleHeader)PageGetItem(page, PageGetItemId(page, i));
		damage = dana_tuple_damage(shape, &tuple);
		if (damage == NULL && (HeapTupleHasNulls(&tuple) || HeapTupleHeaderGetNatts(tuple.t_data) < columns->natts))
			damage = find_null(&tuple, columns);
		/* any bytes of a fixed length are a value */
		if (damage == NULL && HeapTupleHasVarWidth(&tuple))
		{
			heap_deform_tuple(&tuple, columns, values, nulls);
			for (int c = 0; c < columns->natts && damage == NULL; c++)
				if (!nulls[c] && TupleDescAttr(columns, c)->attlen == -1)
					damage = dana_contents_damage(TupleDescAttr(columns, c)->atttypid, values[c]);
		}
		if (damage != NULL)
			dana_page_corrupt(relation, number, psprintf("line pointer %u: %s", i, damage));
		if (taking->hashing)
			add_hash(taking, &tuple);
		rows++;
	}
	PageSetChecksumInplace(page, number);
	return rows;
}

/*
 * Writes blocks behind the last one, all into one segment of the file, beyond which smgrwritev() raises an error; those
 * before their last in one call, once it has made room for them
 */
static void
append_blocks(Relation relation, BlockNumber first, char *pages, int count)
{
	SMgrRelation file = RelationGetSmgr(relation);
#if PG_VERSION_NUM >= 170000
	const void *blocks[WRITTEN];

	for (int i = 0; i < count; i++)
		blocks[i] = pages + (Size)i * BLCKSZ;
	smgrextend(file, MAIN_FORKNUM, first + count - 1, blocks[count - 1], true);
	if (count > 1)
		smgrwritev(file, MAIN_FORKNUM, first, blocks, count - 1, true);
#else
	for (int i = 0; i < count; i++)
		smgrextend(file, MAIN_FORKNUM, first + i, pages + (Size)i * BLCKSZ, true);
#endif
}

/* The columns of a key, each with the hash of its type */
static bool
prepare_hashes(dana_taking *taking, const dana_texts *key)
{
	taking->hashes = palloc(sizeof *taking->hashes * (taking->room = FIRST_HASHES));
	if (key->count > INDEX_MAX_KEYS) /* another server has named them */
		return false;
	for (int k = 0; k < key->count; k++)
	{
		const AttrNumber number = get_attnum(RelationGetRelid(taking->relation), key->values[k]);
		TypeCacheEntry	*type;

		if (number <= 0)
			return false;
		type = lookup_type_cache(TupleDescAttr(RelationGetDescr(taking->relation), number - 1)->atttypid,
								 TYPECACHE_HASH_EXTENDED_PROC_FINFO);
		if (!OidIsValid(type->hash_extended_proc))
			return false;
		taking->keys[k] = (hashed_column){number, &type->hash_extended_proc_finfo};
	}
	taking->key_columns = key->count;
	return key->count > 0;
}

dana_taking *
dana_taking_begin(Oid relation, const dana_texts *key)
{
	dana_taking *taking = palloc0(sizeof *taking);

	taking->relation = relation_open(relation, RowExclusiveLock);
	check_taking(taking->relation);
	taking->shape = dana_tuple_shape_of(RelationGetDescr(taking->relation));
	taking->hashing = key != NULL && prepare_hashes(taking, key);
	taking->pages = (char *)TYPEALIGN(ALIGNED, palloc((Size)WRITTEN * BLCKSZ + ALIGNED));
	taking->context = AllocSetContextCreate(CurrentMemoryContext, "pages from another server", ALLOCSET_DEFAULT_SIZES);
	return taking;
}

int64
dana_taking_add(dana_taking *taking, const char *pages, Size size)
{
	BlockNumber first = RelationGetNumberOfBlocks(taking->relation);
	int64		rows = 0;
	int			count = 0;

	for (Size at = 0; at < size; at += BLCKSZ)
	{
		PGAlignedBlock page;
		MemoryContext  before = MemoryContextSwitchTo(taking->context);

		CHECK_FOR_INTERRUPTS();
		memcpy(page.data, pages + at, BLCKSZ);
		rows += take_page(taking, page.data, taking->pages + (Size)count * BLCKSZ, first + count);
		MemoryContextSwitchTo(before);
		MemoryContextReset(taking->context);
		if (++count == WRITTEN || at + BLCKSZ == size || (first + count) % RELSEG_SIZE == 0)
		{
			append_blocks(taking->relation, first, taking->pages, count);
			first += count;
			count = 0;
		}
	}
	return rows;
}

void
dana_taking_end(dana_taking *taking)
{
	MemoryContextDelete(taking->context);
	relation_close(taking->relation, NoLock);
}

/* dana.dana_take_pages(relation, pages): appends what dana_shard_pages() returned on another server; how many rows */
DANA_COMMAND(dana_take_pages)
{
	bytea		*pages;
	dana_taking *taking;
	int64		 rows;

	dana_require_arguments(fcinfo, 2);
	dana_require_execute(dana_extension_function("dana_train")); /* which is what the pages are for */
	dana_require_relation(PG_GETARG_OID(0)); /* before a lock, and before an error names it */
	taking = dana_taking_begin(PG_GETARG_OID(0), NULL);
	pages = PG_GETARG_BYTEA_PP(1);
	if (VARSIZE_ANY_EXHDR(pages) % BLCKSZ != 0)
		dana_reject_argument("pages", "be pages of %d bytes, not %zu bytes", BLCKSZ, VARSIZE_ANY_EXHDR(pages));
	rows = dana_taking_add(taking, VARDATA_ANY(pages), VARSIZE_ANY_EXHDR(pages));
	dana_taking_end(taking);
	PG_RETURN_INT64(rows);
}

/* dana.dana_record_shards(relation, gathered, key): what a client has gathered; whether no two rows have the same key */
DANA_FUNCTION(dana_record_shards)
{
	const Oid	relation = PG_GETARG_OID(0);
	Jsonb	   *gathered = PG_GETARG_JSONB_P(1);
	dana_texts	key = dana_argument_texts("key", PG_GETARG_DATUM(2), false);
	dana_taking taking = {0};
	bool		distinct;

	dana_require_relation(relation);
	if (!JB_ROOT_IS_OBJECT(gathered))
		dana_reject_argument("gathered", "be a JSON object");
	taking.relation = relation_open(relation, AccessShareLock);
	if (!is_own_temporary(taking.relation))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("%s is not a temporary table of yours", dana_relation_name(relation))));
	taking.hashing = prepare_hashes(&taking, &key);
	if (taking.hashing)
		dana_scan(taking.relation, GetActiveSnapshot(), NULL, 0, 0, 0, take_key, &taking);
	distinct = dana_taking_distinct(&taking);
	relation_close(taking.relation, NoLock);
	dana_gathered_add(relation, gathered, distinct ? &key : &(dana_texts){0});
	PG_RETURN_BOOL(distinct);
}
