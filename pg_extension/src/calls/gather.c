/*
 * A partitioned table's pages from the servers of postgres_fdw that have its partitions.
 *
 * Connections are PostgreSQL's own of libpqwalreceiver, so that the extension needs no libpq. They are made as
 * postgres_fdw makes them: with the options of the foreign server and of the caller's user mapping, and never with
 * what the server's own account may do on another one. What a shard answers is checked: its columns must be those of
 * the table, since a foreign table may show fewer than its server has, and no text of it becomes SQL here.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "replication/walreceiver.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"
#include "calls/shard.h"

#if PG_VERSION_NUM >= 170000

/* Pages of a shard in its turn; dana/cluster/gather.py has the same */
#define PAGES 64

/* The header of binary COPY: signature, flags, length of its extension */
#define COPY_HEADER 19

/* Before the value in a row of one column: the number of columns, the length */
#define COPY_FIELD 6

/* By name, so that another partition does not renumber those before it in the alphabet */
static dana_statement select_partitions =
	DANA_STATEMENT("SELECT c.oid FROM pg_catalog.pg_partition_tree($1) AS t JOIN pg_catalog.pg_class AS c ON c.oid = "
				   "t.relid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
				   "WHERE t.isleaf AND t.level > 0 "
				   "ORDER BY n.nspname COLLATE \"C\", c.relname COLLATE \"C\"",
				   REGCLASSOID);

#define COLUMNS \
	"pg_catalog.array_to_string(ARRAY(SELECT pg_catalog.quote_ident(a.attname) || ' ' || pg_catalog.format_type(" \
	"a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 " \
	"AND NOT a.attisdropped ORDER BY a.attnum), ', ')"

/* Columns; the columns of the primary key; the table itself; why it has no pages */
#define LOOK \
	"SELECT " COLUMNS ", ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index AS i " \
	"CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) " \
	"JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.number " \
	"WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place), " \
	"(SELECT pg_catalog.concat_ws('/', s.system_identifier, pg_catalog.pg_postmaster_start_time(), d.oid, c.oid) " \
	"FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d " \
	"WHERE d.datname = pg_catalog.current_database()), f.name, CASE " \
	"WHEN f.name IS NULL THEN 'dana_shard_pages() is not there, or you have no right to it' " \
	"WHEN c.relkind NOT IN ('r', 'm') OR am.amname <> 'heap' THEN 'it is not a table of heap pages' " \
	"WHEN pg_catalog.row_security_active(c.oid) THEN 'row-level security hides rows of it' " \
	"WHEN NOT pg_catalog.has_table_privilege(c.oid, 'SELECT') THEN 'you have no right to all of its columns' " \
	"WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid) THEN 'it has child tables' " \
	"WHEN EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 " \
	"AND (a.attisdropped OR a.atthasmissing OR a.attgenerated = 'v')) " \
	"THEN 'columns of it were dropped, were added with a default, or are virtual' " \
	"WHEN c.reltoastrelid <> 0 AND pg_catalog.pg_relation_size(c.reltoastrelid) > 0 " \
	"THEN 'values of it are stored out of line' " \
	"WHEN pg_catalog.current_setting('block_size') <> '%d' OR pg_catalog.current_setting('server_encoding') <> %s " \
	"THEN 'the page size or the encoding is not that of this server' END " \
	"FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_am AS am ON am.oid = c.relam " \
	"LEFT JOIN LATERAL (SELECT p.oid::pg_catalog.regproc::text AS name FROM pg_catalog.pg_extension AS e " \
	"JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid AND d.refclassid = 'pg_catalog.pg_extension'::regclass " \
	"AND d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::regclass " \
	"JOIN pg_catalog.pg_proc AS p ON p.oid = d.objid WHERE e.extname = 'dana' AND p.proname = 'dana_shard_pages' " \
	"AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') " \
	"AND pg_catalog.has_schema_privilege(p.pronamespace, 'USAGE')) AS f ON true " \
	"WHERE c.oid = %s::pg_catalog.regclass"

static const Oid look_types[] = {TEXTOID, TEXTARRAYOID, TEXTOID, TEXTOID, TEXTOID};

typedef struct shard
{
	int		number; /* from 1 */
	int		timeout; /* milliseconds without a message after which it is lost */
	char   *partition, *server;
	char   *table;	   /* its name there, qualified and quoted */
	char   *columns;   /* and their types, as COLUMNS has them */
	char   *key;	   /* columns of the primary key, quoted here; empty: it has none */
	char   *place;	   /* distinguishes it from all other tables */
	char   *function;  /* the name of dana_shard_pages() there */
	bool	has_header; /* of COPY, in the next message */
	bool	ended;
	Portal	portal;	   /* of a partition on this server */
	WalReceiverConn *connection;
} shard;

/* Raises an error with the shard's name before the message */
#define shard_error(code, shard, ...) \
	ereport(ERROR, (errcode(code), errmsg("shard %d (%s on %s): %s", (shard)->number, (shard)->partition, \
										  (shard)->server, psprintf(__VA_ARGS__))))

/* Options of postgres_fdw that are not libpq's */
static bool
is_of_wrapper(const char *name)
{
	static const char *const own[] = {
		"schema_name", "table_name", "use_remote_estimate", "fdw_startup_cost", "fdw_tuple_cost", "extensions", "updatable",
		"truncatable", "fetch_size", "batch_size", "async_capable", "parallel_commit", "parallel_abort", "analyze_sampling",
		"keep_connections", "password_required", "use_scram_passthrough", "client_encoding"};

	for (int i = 0; i < lengthof(own); i++)
		if (strcmp(name, own[i]) == 0)
			return true;
	return false;
}

/* The context of errors that others raise */
static void
name_shard(void *arg)
{
	shard *shard = arg;

	errcontext("shard %d (%s on %s)", shard->number, shard->partition, shard->server);
}

/* Connects with the rights of the caller's user mapping alone */
static void
open_connection(shard *shard, ForeignServer *server)
{
	UserMapping	  *mapping = GetUserMapping(GetUserId(), server->serverid);
	List		  *options = list_concat_copy(server->options, mapping->options);
	StringInfoData text;
	bool		   password = false, required = !superuser();
	char		  *error = NULL;
	ListCell	  *cell;
	ErrorContextCallback frame = {.previous = error_context_stack, .callback = name_shard, .arg = shard};

	initStringInfo(&text);
	foreach (cell, options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "password_required") == 0 && !defGetBoolean(option))
			required = false; /* only a superuser can set it so */
		if (strcmp(option->defname, "password") == 0)
			password = defGetString(option)[0] != '\0';
		if (is_of_wrapper(option->defname))
			continue;
		appendStringInfo(&text, "%s='", option->defname);
		for (const char *at = defGetString(option); *at != '\0'; at++)
		{
			if (*at == '\'' || *at == '\\')
				appendStringInfoChar(&text, '\\');
			appendStringInfoChar(&text, *at);
		}
		appendStringInfoString(&text, "' ");
	}
	if (required && !password)
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("shard %d (%s on %s): a password is required", shard->number, shard->partition, shard->server),
				 errdetail("Non-superusers must provide a password in the user mapping.")));
	appendStringInfo(&text, "client_encoding='%s'", GetDatabaseEncodingName());
	error_context_stack = &frame;
	shard->connection = walrcv_connect(text.data, false, false, required, "dana", &error);
	error_context_stack = frame.previous;
	if (shard->connection == NULL)
		shard_error(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, shard, "%s", error);
}

/* Runs a statement; its result is palloc'd */
static WalRcvExecResult *
run_there(shard *shard, WalRcvExecStatus expected, const char *text, int columns, const Oid *types)
{
	WalRcvExecResult *result = walrcv_exec(shard->connection, text, columns, types);

	if (result->status == WALRCV_ERROR)
		shard_error(result->sqlstate == 0 ? ERRCODE_CONNECTION_FAILURE : result->sqlstate, shard, "%s", result->err);
	if (result->status != expected)
		shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it answers \"%s\" with another kind of result", text);
	return result;
}

/* The first row of a statement, here or there */
static void
look(shard *shard, const char *text, Datum *values, bool *nulls)
{
	const char *lock = psprintf("LOCK TABLE %s IN ACCESS SHARE MODE", shard->table);
	const int	columns = lengthof(look_types);
	WalRcvExecResult *result;
	TupleTableSlot	 *slot;

	if (shard->connection == NULL)
	{
		dana_run_once(lock);
		dana_run_once(text);
		for (int i = 0; i < columns && SPI_processed == 1; i++)
			values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &nulls[i]);
		if (SPI_processed == 1)
			return;
	}
	else
	{
		run_there(shard, WALRCV_OK_COMMAND, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", 0, NULL);
		run_there(shard, WALRCV_OK_COMMAND, lock, 0, NULL);
		result = run_there(shard, WALRCV_OK_TUPLES, text, columns, look_types);
		slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
		if (tuplestore_gettupleslot(result->tuplestore, true, true, slot))
		{
			slot_getallattrs(slot);
			memcpy(values, slot->tts_values, columns * sizeof *values);
			memcpy(nulls, slot->tts_isnull, columns * sizeof *nulls);
			return; /* the tuple is needed until the end */
		}
	}
	shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it has not answered what %s is like", shard->table);
}

/* What a shard's table is like, which cannot change until the connection ends */
static void
look_at(shard *shard)
{
	char	  *query = psprintf(LOOK, BLCKSZ, quote_literal_cstr(GetDatabaseEncodingName()), quote_literal_cstr(shard->table));
	Datum	   values[lengthof(look_types)];
	bool	   nulls[lengthof(look_types)];
	dana_texts key;
	StringInfoData quoted;

	look(shard, query, values, nulls);
	if (!nulls[4])
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("shard %d (%s on %s) has no pages to gather: %s", shard->number, shard->partition,
							   shard->server, TextDatumGetCString(values[4])),
						errhint("Train on the partitioned table itself: rows come through postgres_fdw.")));
	if (nulls[0] || nulls[1] || nulls[2] || nulls[3])
		shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it has not answered what %s is like", shard->table);
	shard->columns = TextDatumGetCString(values[0]);
	shard->place = TextDatumGetCString(values[2]);
	shard->function = TextDatumGetCString(values[3]);
	key = dana_argument_texts("key", values[1], false);
	initStringInfo(&quoted);
	for (int i = 0; i < key.count; i++)
		appendStringInfo(&quoted, "%s%s", i == 0 ? "" : ", ", quote_identifier(key.values[i]));
	shard->key = quoted.data;
}

/* The shards of a table, connected */
static void
open_shards(Oid source, shard *shards, Oid *partitions, int count)
{
	for (int i = 0; i < count; i++)
	{
		shard *shard = &shards[i];

		shard->number = i + 1;
		shard->partition = dana_relation_name(partitions[i]);
		shard->has_header = true;
		if (get_rel_relkind(partitions[i]) == RELKIND_FOREIGN_TABLE)
		{
			ForeignTable	   *table = GetForeignTable(partitions[i]);
			ForeignServer	   *server = GetForeignServer(table->serverid);
			ForeignDataWrapper *wrapper = GetForeignDataWrapper(server->fdwid);
			const char		   *schema = get_namespace_name(get_rel_namespace(partitions[i]));
			const char		   *name = get_rel_name(partitions[i]);
			ListCell		   *cell;

			shard->server = pstrdup(quote_identifier(server->servername));
			if (strcmp(wrapper->fdwname, "postgres_fdw") != 0)
				ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
								errmsg("shard %d (%s on %s): the foreign-data wrapper is %s", i + 1, shard->partition,
									   shard->server, wrapper->fdwname),
								errhint("Only servers of postgres_fdw hand over pages.")));
			foreach (cell, table->options)
			{
				DefElem *option = lfirst(cell);

				if (strcmp(option->defname, "schema_name") == 0)
					schema = defGetString(option);
				if (strcmp(option->defname, "table_name") == 0)
					name = defGetString(option);
			}
			shard->table = quote_qualified_identifier(schema, name);
			open_connection(shard, server);
		}
		else
		{
			shard->server = "this server";
			shard->table = shard->partition;
		}
	}
}

/* Raises an error unless the shards are tables of the columns of `source`, and each is another one */
static void
check_shards(Oid source, shard *shards, int count)
{
	char *expected;

	dana_run_once(psprintf("SELECT " COLUMNS " FROM pg_catalog.pg_class AS c WHERE c.oid = %u", source));
	expected = TextDatumGetCString(dana_value(0, 1));
	for (int i = 0; i < count; i++)
	{
		if (strcmp(shards[i].columns, expected) != 0)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("shard %d (%s on %s) has other columns than %s, or in another order", i + 1,
								   shards[i].partition, shards[i].server, dana_relation_name(source)),
							errdetail("It has: %s. Expected: %s.", dana_shown(shards[i].columns), dana_shown(expected))));
		if (strcmp(shards[i].key, shards[0].key) != 0)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("shard %d (%s on %s) has the primary key (%s), and shard 1 (%s)", i + 1,
								   shards[i].partition, shards[i].server, dana_shown(shards[i].key), shards[0].key)));
		for (int k = 0; k < i; k++)
			if (strcmp(shards[k].place, shards[i].place) == 0)
				ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
								errmsg("shards %d (%s) and %d (%s) are one table, %s", k + 1, shards[k].partition, i + 1,
									   shards[i].partition, shards[i].table)));
	}
}

/* The next message of a shard: its length, -1 at the end */
static int
receive(shard *shard, char **message)
{
	for (;;)
	{
		MemoryContext context = CurrentMemoryContext;
		pgsocket	  wait = PGINVALID_SOCKET;
		int volatile  length = 0;
		int			  events;

		PG_TRY();
		{
			length = walrcv_receive(shard->connection, message, &wait);
		}
		PG_CATCH();
		{
			static const char walreceiver[] = "could not receive data from WAL stream: ";
			ErrorData *error;
			const char *why;

			MemoryContextSwitchTo(context);
			error = CopyErrorData();
			if (error->sqlerrcode != ERRCODE_PROTOCOL_VIOLATION && error->sqlerrcode != ERRCODE_CONNECTION_FAILURE)
				PG_RE_THROW();
			FlushErrorState();
			why = error->message;
			if (strncmp(why, walreceiver, strlen(walreceiver)) == 0)
				why += strlen(walreceiver);
			shard_error(ERRCODE_CONNECTION_FAILURE, shard, "%s", why);
		}
		PG_END_TRY();
		if (length != 0)
			return length;
		events = WaitLatchOrSocket(MyLatch, WL_SOCKET_READABLE | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait,
								   shard->timeout, PG_WAIT_EXTENSION);
		if (events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		if (events & WL_TIMEOUT)
			shard_error(ERRCODE_CONNECTION_FAILURE, shard, "no message within %g s", shard->timeout / 1000.0);
	}
}

/* Takes the pages of a shard's turn; false at its end */
static bool
take_turn(shard *shard, dana_taking *taking)
{
	char  *message;
	int	   length;
	uint32 size;
	uint16 fields;

	if (shard->connection == NULL)
	{
		bytea *pages;

		SPI_cursor_fetch(shard->portal, true, 1);
		if (SPI_processed == 0)
			return false;
		pages = DatumGetByteaPP(dana_value(0, 1));
		dana_taking_add(taking, VARDATA_ANY(pages), VARSIZE_ANY_EXHDR(pages));
		SPI_freetuptable(SPI_tuptable);
		return true;
	}
	while ((length = receive(shard, &message)) > 0)
	{
		const int header = shard->has_header ? COPY_HEADER : 0;

		shard->has_header = false;
		message += header;
		length -= header;
		if (length == 0 || length == sizeof fields) /* the header alone, or the trailer */
			continue;
		if (length < COPY_FIELD)
			shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "a message of %d bytes has no pages", length);
		memcpy(&fields, message, sizeof fields);
		memcpy(&size, message + sizeof fields, sizeof size);
		if (pg_ntoh16(fields) != 1 || pg_ntoh32(size) != length - COPY_FIELD || pg_ntoh32(size) % BLCKSZ != 0 ||
			pg_ntoh32(size) > PAGES * BLCKSZ)
			shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "a message of %d bytes has no pages", length);
		dana_taking_add(taking, message + COPY_FIELD, length - COPY_FIELD);
		return true;
	}
	return false;
}

/* Appends the pages of all, so many of each in its turn, until the last has ended */
static void
take_all(shard *shards, int count, Oid into)
{
	dana_taking			*taking = dana_taking_begin(into);
	int					 left = count;
	ErrorContextCallback frame = {.previous = error_context_stack, .callback = name_shard};

	for (int i = 0; i < count; i++)
	{
		char *pages = psprintf("SELECT %s(%s, %d)", shards[i].function, quote_literal_cstr(shards[i].table), PAGES);

		if (shards[i].connection != NULL)
			run_there(&shards[i], WALRCV_OK_COPY_OUT, psprintf("COPY (%s) TO STDOUT (FORMAT binary)", pages), 0, NULL);
		else
			shards[i].portal = SPI_cursor_open_with_args(NULL, pages, 0, NULL, NULL, NULL, true, CURSOR_OPT_NO_SCROLL);
	}
	error_context_stack = &frame;
	while (left > 0)
		for (int i = 0; i < count; i++)
		{
			frame.arg = &shards[i];
			if (!shards[i].ended && !take_turn(&shards[i], taking))
			{
				shards[i].ended = true;
				left--;
			}
		}
	error_context_stack = frame.previous;
	dana_taking_end(taking);
}

static void
add_key(void *statement)
{
	dana_run_once(statement);
}

/* Makes the table, and fills it */
static Oid
gather(Oid source, const char *into, bool dropped, shard *shards, Oid *partitions, int count)
{
	const char *name = quote_qualified_identifier("pg_temp", into);
	TimestampTz begin;
	ErrorData  *error;
	Oid			made;

	open_shards(source, shards, partitions, count);
	begin = GetCurrentTimestamp();
	for (int i = 0; i < count; i++)
		look_at(&shards[i]);
	ereport(NOTICE, (errmsg("the snapshots of %d shards were taken within %ld ms", count,
							TimestampDifferenceMilliseconds(begin, GetCurrentTimestamp()))));
	check_shards(source, shards, count);
	dana_run_once(psprintf("CREATE TEMPORARY TABLE %s%s AS TABLE %s WITH NO DATA", name,
						   dropped ? " ON COMMIT DROP" : "", dana_relation_name(source)));
	made = get_relname_relid(into, LookupNamespaceNoError("pg_temp"));
	take_all(shards, count, made);
	if (shards[0].key[0] != '\0')
	{
		error = dana_attempt(add_key, psprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", name, shards[0].key), true);
		if (error != NULL && error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION)
			ReThrowError(error);
		if (error != NULL)
			ereport(WARNING, (errmsg("the primary key (%s) is not unique over the shards: its columns are like any others",
									 shards[0].key),
							  errhint("List the features without them.")));
	}
	return made;
}

/* dana_gather(source, into, timeout): a temporary table of the pages of a partitioned table's shards */
DANA_COMMAND(dana_gather)
{
	Oid			  source, made;
	Oid			 *partitions;
	char		 *into;
	shard		 *shards;
	int			  count, level;
	double		  timeout;
	MemoryContext context = CurrentMemoryContext;
	Relation	  relation;

	dana_require_arguments(fcinfo, 1);
	source = PG_GETARG_OID(0);
	timeout = PG_ARGISNULL(2) ? 60 : PG_GETARG_FLOAT8(2);
	if (!(timeout >= 0.001 && timeout <= 86400))
		dana_reject_argument("timeout", "be from 0.001 to 86400 s, not %g", timeout);
	dana_require_execute(dana_extension_function("dana_train")); /* which is what the pages are for */
	dana_require_relation(source);
	relation = relation_open(source, AccessShareLock);
	if (pg_class_aclcheck(source, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, RelationGetRelationName(relation));
	if (check_enable_rls(source, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot gather %s: it has row-level security", dana_relation_name(source))));
	into = PG_ARGISNULL(1) ? pstrdup(RelationGetRelationName(relation)) : text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (into[0] == '\0' || strlen(into) >= NAMEDATALEN)
		dana_reject_argument("into", "be a name of 1 to %d bytes", NAMEDATALEN - 1);
	if (WalReceiverFunctions == NULL)
		load_file("libpqwalreceiver", false);

	/* operators are looked up in search_path */
	level = NewGUCNestLevel();
	dana_set_for_now("search_path", "pg_catalog, pg_temp");
	dana_connect();
	count = dana_read(&select_partitions, (Datum[]){ObjectIdGetDatum(source)}, NULL);
	if (count == 0)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("%s has no partitions", dana_relation_name(source)),
						errhint("Its partitions, on servers of postgres_fdw or on this one, are the shards.")));
	shards = palloc0(count * sizeof *shards);
	partitions = palloc(count * sizeof *partitions);
	for (int i = 0; i < count; i++)
	{
		partitions[i] = DatumGetObjectId(dana_value(i, 1));
		shards[i].timeout = (int)(1000 * timeout);
	}
	PG_TRY();
	{
		made = gather(source, into, PG_ARGISNULL(1), shards, partitions, count);
	}
	PG_FINALLY();
	{
		for (int i = 0; i < count; i++)
			if (shards[i].connection != NULL)
				walrcv_disconnect(shards[i].connection);
	}
	PG_END_TRY();
	SPI_finish();
	AtEOXact_GUC(false, level);
	MemoryContextSwitchTo(context);
	relation_close(relation, NoLock);
	PG_RETURN_OID(made);
}

#else

DANA_COMMAND(dana_gather)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("dana_gather() needs PostgreSQL 17 or later"),
					errhint("Gather with Python, db.gather(), or with dana train --shard, for any version.")));
}

#endif
