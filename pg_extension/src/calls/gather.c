/*
 * A table's pages from the servers that have its shards, in a temporary table to train on.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "port/pg_bswap.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "calls/map.h"
#include "calls/shard.h"
#include "source/gathered.h"
#include "values/agreed.h"

#if PG_VERSION_NUM >= 170000

/* The header of binary COPY: signature, flags, length of its extension */
#define COPY_HEADER 19

/* Before the value in a row of one column: the number of columns, the length */
#define COPY_FIELD 6

/* A shard that hands over its pages */
typedef struct handing
{
	dana_shard *shard;
	bool		has_header; /* of COPY, in the next message */
	bool		ended;
	Portal		portal; /* of a shard on this server */
	int64		rows, pages; /* taken */
} handing;

/* The next message of a shard: its length, -1 at the end */
static int
receive(dana_shard *shard, char **message)
{
	const TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), shard->timeout);

	for (;;)
	{
		const int length = dana_shard_receive(shard, message);
		long	  left;

		if (length != 0)
			return length;
		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
		if (left == 0)
			dana_shard_error(ERRCODE_CONNECTION_FAILURE, shard, "no message within %g s", shard->timeout / 1000.0);
		if (WaitLatchOrSocket(MyLatch, WL_SOCKET_READABLE | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							  shard->socket, left, PG_WAIT_EXTENSION) &
			WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
}

/* Appends pages that a shard has handed over */
static void
take(handing *from, dana_taking *taking, const char *pages, Size size)
{
	from->rows += dana_taking_add(taking, pages, size);
	from->pages += size / BLCKSZ;
}

/* Takes the pages of a shard's turn; false at its end */
static bool
take_turn(handing *from, dana_taking *taking)
{
	dana_shard *shard = from->shard;
	char	   *message;
	int			length;
	uint32		size;
	uint16		fields;

	if (shard->connection == NULL)
	{
		bytea *pages;

		SPI_cursor_fetch(from->portal, true, 1);
		if (SPI_processed == 0)
			return false;
		pages = DatumGetByteaPP(dana_value(0, 1));
		take(from, taking, VARDATA_ANY(pages), VARSIZE_ANY_EXHDR(pages));
		SPI_freetuptable(SPI_tuptable);
		return true;
	}
	while ((length = receive(shard, &message)) > 0)
	{
		const int header = from->has_header ? COPY_HEADER : 0;

		from->has_header = false;
		message += header;
		length -= header;
		if (length == 0 || length == sizeof fields) /* the header alone, or the trailer */
			continue;
		if (length < COPY_FIELD)
			dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "a message of %d bytes has no pages", length);
		memcpy(&fields, message, sizeof fields);
		memcpy(&size, message + sizeof fields, sizeof size);
		if (pg_ntoh16(fields) != 1 || pg_ntoh32(size) != length - COPY_FIELD || pg_ntoh32(size) % BLCKSZ != 0 ||
			pg_ntoh32(size) > DANA_SHARD_PAGES * BLCKSZ)
			dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "a message of %d bytes has no pages", length);
		take(from, taking, message + COPY_FIELD, length - COPY_FIELD);
		return true;
	}
	return false;
}

/*
 * Appends the pages of all shards in turn, until the last has ended. Returns whether all values of `key`, which may be
 * NULL, are known to be distinct
 */
static bool
take_all(handing *from, int count, Oid into, const dana_texts *key)
{
	dana_taking			*taking = dana_taking_begin(into, key);
	bool				 distinct;
	int					 left = count;
	ErrorContextCallback frame = {.previous = error_context_stack, .callback = dana_shard_context};

	for (int i = 0; i < count; i++)
	{
		dana_shard *shard = from[i].shard;
		char	   *pages = psprintf("SELECT %s(%s, %d)", shard->function, quote_literal_cstr(shard->table), DANA_SHARD_PAGES);

		if (shard->connection != NULL)
			dana_shard_copy(shard, pages);
		else
			from[i].portal = SPI_cursor_open_with_args(NULL, pages, 0, NULL, NULL, NULL, true, CURSOR_OPT_NO_SCROLL);
	}
	error_context_stack = &frame;
	while (left > 0)
		for (int i = 0; i < count; i++)
		{
			frame.arg = from[i].shard;
			if (!from[i].ended && !take_turn(&from[i], taking))
			{
				from[i].ended = true;
				left--;
			}
		}
	error_context_stack = frame.previous;
	distinct = dana_taking_distinct(taking);
	dana_taking_end(taking);
	return distinct;
}

/* For the metadata of models: the shards in their order; dana/cluster/gather.py writes the same members */
static void
record(Oid made, const char *source, const handing *from, int count, const dana_texts *key)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_text(&text, "source", source);
	dana_json_open(&text, "shards", '[');
	for (int i = 0; i < count; i++)
	{
		const dana_shard *shard = from[i].shard;

		dana_json_open(&text, NULL, '{');
		dana_json_number(&text, "shard", shard->number);
		dana_json_text(&text, "server", shard->server);
		dana_json_text(&text, "relation", shard->table);
		dana_json_number(&text, "rows", from[i].rows);
		dana_json_number(&text, "pages", from[i].pages);
		dana_json_text(&text, "snapshot", timestamptz_to_str(shard->snapshot));
		dana_json_close(&text, '}');
	}
	dana_json_close(&text, ']');
	dana_gathered_add(made, dana_json_end(&text), key);
}

static void
add_key(void *statement)
{
	dana_run_once(statement);
}

void
dana_shards_index(const char *name, const char *key)
{
	ErrorData *error = dana_attempt(add_key, psprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", name, key), true);

	if (error == NULL)
		return;
	if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION)
		ReThrowError(error);
	ereport(WARNING, (errmsg("the primary key (%s) is not unique over the shards: its columns are like any others", key),
					  errhint("List the features without them.")));
}

/* Makes the table, and fills it */
static Oid
gather(Oid source, const char *into, bool dropped, bool one_training, dana_shard *shards, int count)
{
	const char *name = quote_qualified_identifier("pg_temp", into);
	handing	   *from = palloc0(count * sizeof *from);
	dana_texts	key = {0};
	Oid			made;

	dana_shards_open(shards, count, source, true);
	dana_shards_say_when(shards, count);
	for (int i = 0; i < count; i++)
		from[i] = (handing){.shard = &shards[i], .has_header = true};
	dana_run_once(psprintf("CREATE TEMPORARY TABLE %s%s AS TABLE %s WITH NO DATA", name,
						   dropped ? " ON COMMIT DROP" : "", dana_relation_name(source)));
	made = get_relname_relid(into, LookupNamespaceNoError("pg_temp"));
	/* before there are rows, which would be scanned for NULLs; the pages are checked for them as they are taken */
	for (int i = 0; i < shards[0].key_columns.count; i++)
		dana_run_once(psprintf("ALTER TABLE %s ALTER %s SET NOT NULL", name,
							   quote_identifier(shards[0].key_columns.values[i])));
	if (take_all(from, count, made, one_training ? &shards[0].key_columns : NULL))
		key = shards[0].key_columns;
	else if (shards[0].key[0] != '\0')
		dana_shards_index(name, shards[0].key);
	record(made, dana_relation_name(source), from, count, &key);
	return made;
}

Oid
dana_gather_shards(Oid source, char *into, int timeout, bool one_training)
{
	Oid volatile  made = InvalidOid;
	dana_shard	 *shards;
	int			  count, level;
	MemoryContext context = CurrentMemoryContext;
	Relation	  relation = dana_shards_lock(source);

	/* operators are looked up in search_path */
	level = NewGUCNestLevel();
	dana_set_for_now("search_path", "pg_catalog, pg_temp");
	dana_connect();
	count = dana_shards_of(source, timeout, &shards);
	PG_TRY();
	{
		made = gather(source, into != NULL ? into : RelationGetRelationName(relation), into == NULL,
					  one_training, shards, count);
	}
	PG_FINALLY();
	{
		dana_shards_close(shards, count);
	}
	PG_END_TRY();
	SPI_finish();
	AtEOXact_GUC(false, level);
	MemoryContextSwitchTo(context);
	relation_close(relation, NoLock);
	return made;
}

/* dana_gather(source, into, timeout): a temporary table of the pages of a table's shards */
DANA_COMMAND(dana_gather)
{
	char *into;

	dana_require_arguments(fcinfo, 1);
	into = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (into != NULL && (into[0] == '\0' || strlen(into) >= NAMEDATALEN))
		dana_reject_argument("into", "be a name of 1 to %d bytes", NAMEDATALEN - 1);
	PG_RETURN_OID(dana_gather_shards(PG_GETARG_OID(0), into,
									 PG_ARGISNULL(2) ? dana_shards_timeout : dana_shard_timeout(PG_GETARG_FLOAT8(2)),
									 false));
}

#else

DANA_COMMAND(dana_gather)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("dana_gather() needs PostgreSQL 17 or later"),
					errhint("Gather with Python, db.gather(), or with dana train --shard, for any version.")));
}

#endif
