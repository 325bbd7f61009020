/*
 * The map of shards: which servers have a table's parts, connections to them, and what each part is like.
 *
 * The map is dana.shard, or, for a table without rows there, its partitions on servers of postgres_fdw and on this one.
 * Connections are PostgreSQL's own of libpqwalreceiver, so that the extension needs no libpq. They are made as
 * postgres_fdw makes them: with the options of the foreign server and of the caller's user mapping, and never with
 * what the server's own account may do on another one. What a shard answers is checked: its columns must be those of
 * the table, since a foreign table may show fewer than its server has, and no text of it becomes SQL here.
 */
#include "postgres.h"

#include <sys/socket.h>

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_foreign_server.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/timeout.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"
#include "calls/map.h"

int dana_shards_timeout;

void
dana_shards_define(void)
{
	DefineCustomIntVariable("dana.shard_timeout", "Time without a message after which a shard of a table is lost.", NULL,
							&dana_shards_timeout, 60000, 3000, 86400000, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

#if PG_VERSION_NUM >= 170000

/* Seconds to connect in, unless the server's option connect_timeout says otherwise */
#define CONNECT_TIMEOUT 10

static dana_statement select_map =
	DANA_STATEMENT("SELECT shard, server::text, conninfo, relation FROM dana.shard WHERE source = $1 ORDER BY shard",
				   REGCLASSOID);

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

/* Of the answer to LOOK */
enum
{
	LOOK_COLUMNS,
	LOOK_KEY,
	LOOK_PLACE,
	LOOK_FUNCTION,
	LOOK_NO_PAGES,
	LOOK_ROWS,
	LOOK_PAGES,
	LOOK_VERSION,
	LOOK_RELEASE,
	LOOK_COUNT
};

static const Oid look_types[LOOK_COUNT] = {TEXTOID, TEXTARRAYOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, TEXTOID, TEXTOID};

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
	"THEN 'the page size or the encoding is not that of this server' END, c.reltuples::int8, " \
	"coalesce(pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int8, 0), " \
	"pg_catalog.split_part(pg_catalog.current_setting('server_version'), ' ', 1), " \
	"(SELECT e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = 'dana') " \
	"FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_am AS am ON am.oid = c.relam " \
	"LEFT JOIN LATERAL (SELECT p.oid::pg_catalog.regproc::text AS name FROM pg_catalog.pg_extension AS e " \
	"JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid AND d.refclassid = 'pg_catalog.pg_extension'::regclass " \
	"AND d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::regclass " \
	"JOIN pg_catalog.pg_proc AS p ON p.oid = d.objid WHERE e.extname = 'dana' AND p.proname = 'dana_shard_pages' " \
	"AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') " \
	"AND pg_catalog.has_schema_privilege(p.pronamespace, 'USAGE')) AS f ON true " \
	"WHERE c.oid = %s::pg_catalog.regclass"

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

/*
 * A deadline: connecting and statements there wait for interrupts alone, and what they wait for may have been stopped
 */
static volatile sig_atomic_t expired;

static void
expire(void)
{
	expired = true;
	InterruptPending = QueryCancelPending = true;
	SetLatch(MyLatch);
}

/* Makes a step at a shard; an error that names it if that takes longer */
static void
make_step(dana_shard *shard, void (*step)(dana_shard *shard), int milliseconds, int code)
{
	static TimeoutId timer = MAX_TIMEOUTS;
	MemoryContext	 context = CurrentMemoryContext;

	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, expire);
	expired = false;
	enable_timeout_after(timer, milliseconds);
	PG_TRY();
	{
		step(shard);
	}
	PG_CATCH();
	{
		disable_timeout(timer, false);
		MemoryContextSwitchTo(context);
		if (!expired || geterrcode() != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		FlushErrorState();
		dana_shard_error(code, shard, "no answer within %g s", milliseconds / 1000.0);
	}
	PG_END_TRY();
	disable_timeout(timer, false);
	if (expired)
	{
		QueryCancelPending = false; /* set after the step's last check for interrupts */
		dana_shard_error(code, shard, "no answer within %g s", milliseconds / 1000.0);
	}
}

void
dana_shard_context(void *arg)
{
	errcontext("%s", ((dana_shard *)arg)->label);
}

/* Takes the options of the foreign server and of the caller's user mapping; returns the seconds to connect in */
static int
read_options(dana_shard *shard)
{
	ForeignServer	   *server = GetForeignServer(shard->foreign);
	ForeignDataWrapper *wrapper = GetForeignDataWrapper(server->fdwid);
	List			   *options;
	StringInfoData		text;
	bool				password = false;
	int					seconds = 0;
	ListCell		   *cell;

	if (strcmp(wrapper->fdwname, "postgres_fdw") != 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("%s: the foreign-data wrapper is %s", shard->label, wrapper->fdwname),
						errhint("Only servers of postgres_fdw hand over pages.")));
	options = list_concat_copy(server->options, GetUserMapping(GetUserId(), server->serverid)->options);
	initStringInfo(&text);
	foreach (cell, options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "password_required") == 0 && !defGetBoolean(option))
			shard->password_required = false; /* only a superuser can set it so */
		if (strcmp(option->defname, "password") == 0)
			password = defGetString(option)[0] != '\0';
		if (strcmp(option->defname, "connect_timeout") == 0)
			seconds = atoi(defGetString(option));
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
	if (shard->password_required && !password)
		ereport(ERROR, (errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
						errmsg("%s: a password is required", shard->label),
						errdetail("Non-superusers must provide a password in the user mapping.")));
	shard->conninfo = text.data;
	return seconds;
}

static void
connect_there(dana_shard *shard)
{
	char *error = NULL;

	shard->connection = walrcv_connect(shard->conninfo, false, false, shard->password_required, "dana", &error);
	if (shard->connection == NULL)
		dana_shard_error(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, shard, "%s", error);
}

/* Connects with the rights of the caller alone */
static void
open_connection(dana_shard *shard)
{
	int					 seconds = 0;
	ErrorContextCallback frame = {.previous = error_context_stack, .callback = dana_shard_context, .arg = shard};

	shard->password_required = !superuser();
	if (OidIsValid(shard->foreign))
		seconds = read_options(shard);
	else if (shard->password_required)
		ereport(ERROR, (errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
						errmsg("%s: only superusers may use a connection string of dana.shard", shard->label),
						errdetail("It has no password, so that the server's own account would log in."),
						errhint("Name a foreign server in dana.shard.server, for which you have a user mapping.")));
	shard->conninfo = psprintf("%s client_encoding='%s'", shard->conninfo, GetDatabaseEncodingName());
	error_context_stack = &frame;
	make_step(shard, connect_there, seconds > 0 ? 1000 * seconds : Min(1000 * CONNECT_TIMEOUT, shard->timeout),
			  ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION);
	error_context_stack = frame.previous;
}

/* Runs a statement there; its result is palloc'd */
static WalRcvExecResult *
run_there(dana_shard *shard, WalRcvExecStatus expected, const char *text, int columns, const Oid *types)
{
	WalRcvExecResult *result = walrcv_exec(shard->connection, text, columns, types);

	if (result->status == WALRCV_ERROR)
		dana_shard_error(result->sqlstate == 0 ? ERRCODE_CONNECTION_FAILURE : result->sqlstate, shard, "%s", result->err);
	if (result->status != expected)
		dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it answers \"%s\" with another kind of result", text);
	return result;
}

/* The first row of a statement, here or there */
static void
look(dana_shard *shard, const char *text, Datum *values, bool *nulls)
{
	const char		 *lock = psprintf("LOCK TABLE %s IN ACCESS SHARE MODE", shard->table);
	WalRcvExecResult *result;
	TupleTableSlot	 *slot;

	if (shard->connection == NULL)
	{
		dana_run_once(lock);
		dana_run_once(text);
		for (int i = 0; i < LOOK_COUNT && SPI_processed == 1; i++)
			values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &nulls[i]);
		if (SPI_processed == 1)
			return;
	}
	else
	{
		/* operators are looked up in search_path; one message, since each costs a round trip */
		(void)run_there(shard, WALRCV_OK_COMMAND,
						psprintf("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
								 "SET LOCAL search_path = pg_catalog; SET LOCAL datestyle = ISO; "
								 "SET LOCAL intervalstyle = postgres; SET LOCAL extra_float_digits = 3; %s",
								 lock),
						0, NULL);
		result = run_there(shard, WALRCV_OK_TUPLES, text, LOOK_COUNT, look_types);
		slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
		if (tuplestore_gettupleslot(result->tuplestore, true, true, slot))
		{
			slot_getallattrs(slot);
			memcpy(values, slot->tts_values, LOOK_COUNT * sizeof *values);
			memcpy(nulls, slot->tts_isnull, LOOK_COUNT * sizeof *nulls);
			return; /* the tuple is needed until the end */
		}
	}
	dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it has not answered what %s is like", shard->table);
}

static void
look_at(dana_shard *shard)
{
	char	  *query = psprintf(LOOK, BLCKSZ, quote_literal_cstr(GetDatabaseEncodingName()), quote_literal_cstr(shard->table));
	Datum	   values[LOOK_COUNT];
	bool	   nulls[LOOK_COUNT];
	StringInfoData quoted;

	look(shard, query, values, nulls);
	for (int i = 0; i < LOOK_COUNT; i++)
		if (nulls[i] && i != LOOK_NO_PAGES && i != LOOK_RELEASE && (i != LOOK_FUNCTION || nulls[LOOK_NO_PAGES]))
			dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it has not answered what %s is like", shard->table);
	shard->key_columns = dana_argument_texts("key", values[LOOK_KEY], false);
	initStringInfo(&quoted);
	for (int i = 0; i < shard->key_columns.count; i++)
		appendStringInfo(&quoted, "%s%s", i == 0 ? "" : ", ", quote_identifier(shard->key_columns.values[i]));
	shard->key = quoted.data;
	shard->place = TextDatumGetCString(values[LOOK_PLACE]);
	shard->function = nulls[LOOK_FUNCTION] ? NULL : TextDatumGetCString(values[LOOK_FUNCTION]);
	shard->no_pages = nulls[LOOK_NO_PAGES] ? NULL : TextDatumGetCString(values[LOOK_NO_PAGES]);
	shard->rows = DatumGetInt64(values[LOOK_ROWS]);
	shard->pages = DatumGetInt64(values[LOOK_PAGES]);
	shard->version = TextDatumGetCString(values[LOOK_VERSION]);
	shard->release = nulls[LOOK_RELEASE] ? NULL : TextDatumGetCString(values[LOOK_RELEASE]);
	shard->snapshot = GetCurrentTimestamp();
	shard->columns = TextDatumGetCString(values[LOOK_COLUMNS]);
}

static void
label(dana_shard *shard)
{
	shard->label = psprintf("shard %d (%s on %s)", shard->number, shard->table, shard->server);
}

/* A name that is not qualified is in the schema of the table itself */
static char *
qualified(const char *name, Oid source)
{
	List *names = textToQualifiedNameList(cstring_to_text(name));

	if (list_length(names) > 2)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME),
						errmsg("dana.shard.relation must be a table or schema.table, not %s", dana_shown(name))));
	return quote_qualified_identifier(list_length(names) == 2 ? strVal(linitial(names))
															  : get_namespace_name(get_rel_namespace(source)),
									  strVal(llast(names)));
}

/* A foreign server of the map, to which its author has the right */
static ForeignServer *
mapped_server(const char *name, int number, Oid source)
{
	ForeignServer *server = GetForeignServerByName(name, true);
	HeapTuple	   tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(source));
	Oid			   owner = ((Form_pg_class)GETSTRUCT(tuple))->relowner;

	ReleaseSysCache(tuple);
	if (server == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("foreign server %s, of shard %d of %s in dana.shard, does not exist", dana_shown(name),
							   number, dana_relation_name(source))));
	if (object_aclcheck(ForeignServerRelationId, server->serverid, owner, ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("the owner of %s has no right to foreign server %s", dana_relation_name(source), name)));
	return server;
}

void
dana_shard_connect(dana_shard *shard)
{
	/* here: dana_shards() shows a row that is wrong, and all others */
	if (shard->named != NULL)
		shard->foreign = mapped_server(shard->named, shard->number, shard->source)->serverid;
	if (shard->relation != NULL)
	{
		shard->table = qualified(shard->relation, shard->source);
		label(shard);
	}
	if (OidIsValid(shard->foreign) || shard->conninfo != NULL)
		open_connection(shard);
}

void
dana_shard_look(dana_shard *shard)
{
	make_step(shard, look_at, shard->timeout, ERRCODE_CONNECTION_FAILURE);
}

void
dana_shards_open(dana_shard *shards, int count, Oid source, bool pages)
{
	for (int i = 0; i < count; i++)
		dana_shard_connect(&shards[i]);
	for (int i = 0; i < count; i++) /* together, for their snapshots */
		dana_shard_look(&shards[i]);
	for (int i = 0; i < count; i++)
		dana_shard_check(shards, i, source, pages);
}

void
dana_shards_say_when(const dana_shard *shards, int count)
{
	ereport(NOTICE, (errmsg("the snapshots of %d shards were taken within %ld ms", count,
							TimestampDifferenceMilliseconds(shards[0].snapshot, shards[count - 1].snapshot))));
}

static void
select_there(dana_shard *shard)
{
	shard->answer = run_there(shard, WALRCV_OK_TUPLES, shard->statement, shard->answer_columns, shard->answer_types);
}

dana_shard_rows
dana_shard_select(dana_shard *shard, char *statement, int columns, const Oid *types, int most)
{
	/* the answer is text, which may be no value of its type */
	ErrorContextCallback frame = {.previous = error_context_stack, .callback = dana_shard_context, .arg = shard};

	shard->statement = statement;
	shard->answer_columns = columns;
	shard->answer_types = types;
	error_context_stack = &frame;
	make_step(shard, select_there, shard->timeout, ERRCODE_CONNECTION_FAILURE);
	error_context_stack = frame.previous;
	return (dana_shard_rows){shard->answer, MakeSingleTupleTableSlot(shard->answer->tupledesc, &TTSOpsMinimalTuple), most};
}

bool
dana_shard_next(dana_shard_rows *rows)
{
	if (rows->left-- > 0 && tuplestore_gettupleslot(rows->answer->tuplestore, true, false, rows->slot))
	{
		slot_getallattrs(rows->slot);
		return true;
	}
	ExecDropSingleTupleTableSlot(rows->slot);
	walrcv_clear_result(rows->answer);
	return false;
}

static void
copy_there(dana_shard *shard)
{
	(void)run_there(shard, WALRCV_OK_COPY_OUT, shard->statement, 0, NULL);
}

void
dana_shard_copy(dana_shard *shard, const char *query)
{
	shard->statement = psprintf("COPY (%s) TO STDOUT (FORMAT binary)", query);
	make_step(shard, copy_there, shard->timeout, ERRCODE_CONNECTION_FAILURE);
}

static void
exchange_there(dana_shard *shard)
{
	(void)run_there(shard, WALRCV_OK_COPY_BOTH, shard->statement, 0, NULL);
}

void
dana_shard_exchange(dana_shard *shard, char *statement)
{
	shard->statement = statement;
	make_step(shard, exchange_there, shard->timeout, ERRCODE_CONNECTION_FAILURE);
}

/* Raises an error of libpqwalreceiver as one of the shard, in its words */
static _Noreturn void
raise_as_shard_s(dana_shard *shard, MemoryContext context)
{
	static const char *const ours[] = {"could not receive data from WAL stream: ", "could not send data to WAL stream: "};
	ErrorData  *error;
	const char *why;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	if (error->sqlerrcode != ERRCODE_PROTOCOL_VIOLATION && error->sqlerrcode != ERRCODE_CONNECTION_FAILURE)
		PG_RE_THROW();
	FlushErrorState();
	why = error->message;
	for (int i = 0; i < lengthof(ours); i++)
		if (strncmp(why, ours[i], strlen(ours[i])) == 0)
			why += strlen(ours[i]);
	/* its SQLSTATE is in no message of libpqwalreceiver */
	dana_shard_error(strncmp(why, "ERROR:", 6) == 0 ? ERRCODE_EXTERNAL_ROUTINE_EXCEPTION : ERRCODE_CONNECTION_FAILURE,
					 shard, "%s", why);
}

static void
receive_there(dana_shard *shard)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		shard->length = walrcv_receive(shard->connection, &shard->message, &shard->socket);
	}
	PG_CATCH();
	{
		raise_as_shard_s(shard, context);
	}
	PG_END_TRY();
}

int
dana_shard_receive(dana_shard *shard, char **message)
{
	/* the last message is followed by others, for which libpqwalreceiver waits */
	make_step(shard, receive_there, shard->timeout, ERRCODE_CONNECTION_FAILURE);
	*message = shard->message;
	return shard->length;
}

/* Every socket takes as much: a shard that answers has read all that was sent before */
#define TAKEN_AT_ONCE 16384

/* How often a wait for room is looked at */
#define LOOK_MS 100

/*
 * libpq waits for room, and looks at no interrupt meanwhile: a server that was stopped takes no more than the buffers on
 * the way hold. A socket that was shut down ends the wait.
 */
static volatile pgsocket sending;
static volatile int looks_left;
static TimeoutId sending_timer = MAX_TIMEOUTS;

/* In a signal handler */
static void
look_at_sending(void)
{
	if (QueryCancelPending || ProcDiePending || --looks_left <= 0)
		(void)shutdown(sending, SHUT_RDWR);
	else
		enable_timeout_after(sending_timer, LOOK_MS);
}

void
dana_shard_send(dana_shard *shard, const char *message, Size length)
{
	MemoryContext context = CurrentMemoryContext;
	const bool	  watched = length > TAKEN_AT_ONCE;

	if (sending_timer == MAX_TIMEOUTS)
		sending_timer = RegisterTimeout(USER_TIMEOUT, look_at_sending);
	sending = shard->socket;
	looks_left = Max(shard->timeout / LOOK_MS, 1);
	if (watched)
		enable_timeout_after(sending_timer, LOOK_MS);
	PG_TRY();
	{
		walrcv_send(shard->connection, message, length);
	}
	PG_CATCH();
	{
		disable_timeout(sending_timer, false);
		CHECK_FOR_INTERRUPTS();
		if (looks_left <= 0)
		{
			FlushErrorState();
			dana_shard_error(ERRCODE_CONNECTION_FAILURE, shard, "no message within %g s", shard->timeout / 1000.0);
		}
		raise_as_shard_s(shard, context);
	}
	PG_END_TRY();
	if (watched)
		disable_timeout(sending_timer, false);
}

int
dana_shard_timeout(double seconds)
{
	if (!(seconds >= 0.001 && seconds <= 86400))
		dana_reject_argument("timeout", "be from 0.001 to 86400 s, not %g", seconds);
	return (int)(1000 * seconds);
}

void
dana_shards_close(dana_shard *shards, int count)
{
	for (int i = 0; i < count; i++)
		if (shards[i].connection != NULL)
			walrcv_disconnect(shards[i].connection);
}

void
dana_shard_check(const dana_shard *shards, int number, Oid source, bool pages)
{
	const dana_shard *shard = &shards[number];
	const char		 *expected;

	dana_run_once(psprintf("SELECT " COLUMNS " FROM pg_catalog.pg_class AS c WHERE c.oid = %u", source));
	expected = TextDatumGetCString(dana_value(0, 1));
	if (strcmp(shard->columns, expected) != 0)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("%s has other columns than %s, or in another order", shard->label,
							   dana_relation_name(source)),
						errdetail("It has: %s. Expected: %s.", dana_shown(shard->columns), dana_shown(expected))));
	if (pages && shard->no_pages != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("%s has no pages to gather: %s", shard->label, shard->no_pages),
						errhint("Rows come through postgres_fdw: train on a table of foreign partitions itself.")));
	for (int k = 0; k < number; k++)
	{
		if (shards[k].columns == NULL) /* it was not reached */
			continue;
		if (strcmp(shards[k].place, shard->place) == 0)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("%s and %s are one table", shards[k].label, shard->label),
							errhint("Each shard is listed once.")));
		if (strcmp(shards[k].key, shard->key) != 0)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("%s has the primary key (%s), and %s (%s)", shard->label, dana_shown(shard->key),
								   shards[k].label, dana_shown(shards[k].key))));
	}
}

/* The shards of dana.shard, the result of the last statement */
static dana_shard *
read_map(Oid source, int count)
{
	dana_shard *shards = palloc0(count * sizeof *shards);

	for (int i = 0; i < count; i++)
	{
		dana_shard *shard = &shards[i];
		Datum		server = dana_value(i, 2), conninfo = dana_value(i, 3), relation = dana_value(i, 4);

		shard->number = DatumGetInt32(dana_value(i, 1));
		shard->server = "this server";
		shard->source = source;
		if (server != 0)
		{
			shard->named = TextDatumGetCString(server);
			shard->server = pstrdup(quote_identifier(shard->named));
		}
		else if (conninfo != 0)
			shard->server = shard->conninfo = TextDatumGetCString(conninfo);
		shard->relation = relation == 0 ? NULL : TextDatumGetCString(relation);
		shard->table = shard->relation == NULL ? dana_relation_name(source) : dana_shown(shard->relation);
		label(shard);
	}
	return shards;
}

/* The partitions, the result of the last statement */
static dana_shard *
read_partitions(int count)
{
	dana_shard *shards = palloc0(count * sizeof *shards);
	Oid		   *partitions = palloc(count * sizeof *partitions);

	for (int i = 0; i < count; i++)
		partitions[i] = DatumGetObjectId(dana_value(i, 1));
	for (int i = 0; i < count; i++)
	{
		dana_shard *shard = &shards[i];

		shard->number = i + 1;
		shard->server = "this server";
		shard->table = dana_relation_name(partitions[i]);
		if (get_rel_relkind(partitions[i]) == RELKIND_FOREIGN_TABLE)
		{
			ForeignTable *table = GetForeignTable(partitions[i]);
			const char	 *schema = get_namespace_name(get_rel_namespace(partitions[i]));
			const char	 *name = get_rel_name(partitions[i]);
			ListCell	 *cell;

			foreach (cell, table->options)
			{
				DefElem *option = lfirst(cell);

				if (strcmp(option->defname, "schema_name") == 0)
					schema = defGetString(option);
				if (strcmp(option->defname, "table_name") == 0)
					name = defGetString(option);
			}
			shard->foreign = table->serverid;
			shard->server = pstrdup(quote_identifier(GetForeignServer(table->serverid)->servername));
			shard->label = psprintf("shard %d (%s on %s)", i + 1, shard->table, shard->server);
			shard->table = quote_qualified_identifier(schema, name);
		}
		else
			shard->label = psprintf("shard %d (%s on %s)", i + 1, shard->table, shard->server);
	}
	return shards;
}

int
dana_shards_of(Oid source, int timeout, dana_shard **shards)
{
	Datum		  argument = ObjectIdGetDatum(source);
	dana_identity before = dana_become_owner(); /* SELECT on the table is the right to its map */
	int			  count = (int)dana_read(&select_map, &argument, NULL);

	if (count > 0)
		*shards = read_map(source, count);
	dana_become_caller(before);
	if (count == 0)
	{
		count = (int)dana_read(&select_partitions, &argument, NULL);
		*shards = read_partitions(count);
	}
	if (count == 0)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("%s has no shards: no rows in dana.shard, and no partitions", dana_relation_name(source)),
						errhint("INSERT INTO dana.shard (source, shard, server) names the foreign servers that have its parts.")));
	for (int i = 0; i < count; i++)
		(*shards)[i].timeout = timeout;
	if (WalReceiverFunctions == NULL)
		load_file("libpqwalreceiver", false);
	return count;
}

void
dana_shards_require(Oid source)
{
	dana_require_execute(dana_extension_function("dana_train")); /* which is what the shards are for */
	dana_require_relation(source);
	if (pg_class_aclcheck(source, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(source));
}

Relation
dana_shards_lock(Oid source)
{
	Relation relation;

	dana_shards_require(source);
	relation = relation_open(source, AccessShareLock);
	if (check_enable_rls(source, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot read the shards of %s: it has row-level security", dana_relation_name(source))));
	return relation;
}

/* A shard and what is to be compared, for dana_attempt() */
typedef struct showing
{
	dana_shard *shards;
	int			number;
	Oid			source;
} showing;

static void
open_and_check(void *arg)
{
	showing *shown = arg;

	dana_shard_connect(&shown->shards[shown->number]);
	dana_shard_look(&shown->shards[shown->number]);
	dana_shard_check(shown->shards, shown->number, shown->source, true);
}

/* The error of a shard, without its name: it has a column of its own */
static char *
shown_error(const dana_shard *shard, const ErrorData *error)
{
	const char *message = error->message;

	if (strncmp(message, shard->label, strlen(shard->label)) == 0)
		message += strlen(shard->label) + strspn(message + strlen(shard->label), ": ");
	return error->detail == NULL ? pstrdup(message) : psprintf("%s %s", message, error->detail);
}

/* Adds a row for a shard, with the error that keeps it from being gathered, if there is one */
static void
show(showing *shown, ReturnSetInfo *result)
{
	dana_shard *shard = &shown->shards[shown->number];
	ErrorData  *error = dana_attempt(open_and_check, shown, false);
	const bool	looked = shard->columns != NULL;
	const bool	is_here = shard->named == NULL && !OidIsValid(shard->foreign) && shard->conninfo == NULL;
	const bool	reached = looked || shard->connection != NULL || is_here;
	Datum		values[8] = {0};
	bool		nulls[8] = {[3] = !looked || shard->rows < 0, [4] = !looked, [5] = !looked, [7] = error == NULL};

	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	values[0] = Int32GetDatum(shard->number);
	values[1] = CStringGetTextDatum(shard->server);
	values[2] = CStringGetTextDatum(shard->table);
	values[3] = Int64GetDatum(shard->rows);
	values[4] = Int64GetDatum(shard->pages);
	if (looked)
		values[5] = CStringGetTextDatum(shard->version);
	values[6] = BoolGetDatum(reached);
	if (error != NULL)
		values[7] = CStringGetTextDatum(shown_error(shard, error));
	dana_results_add(result, values, nulls);
}

/* dana_shards(source, timeout): the shards of a table, each with what its server answers */
DANA_FUNCTION(dana_shards)
{
	showing		   shown = {0};
	int			   count, timeout, level;
	ReturnSetInfo *result;
	MemoryContext  context = CurrentMemoryContext;

	dana_require_arguments(fcinfo, 1);
	shown.source = PG_GETARG_OID(0);
	timeout = dana_shard_timeout(PG_ARGISNULL(1) ? CONNECT_TIMEOUT : PG_GETARG_FLOAT8(1));
	dana_shards_require(shown.source);
	result = dana_results_begin(fcinfo);
	/* operators are looked up in search_path */
	level = NewGUCNestLevel();
	dana_set_for_now("search_path", "pg_catalog, pg_temp");
	dana_connect();
	count = dana_shards_of(shown.source, timeout, &shown.shards);
	PG_TRY();
	{
		for (shown.number = 0; shown.number < count; shown.number++)
			show(&shown, result);
	}
	PG_FINALLY();
	{
		dana_shards_close(shown.shards, count);
	}
	PG_END_TRY();
	SPI_finish();
	AtEOXact_GUC(false, level);
	MemoryContextSwitchTo(context);
	return (Datum)0;
}

#else

DANA_FUNCTION(dana_shards)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("dana_shards() needs PostgreSQL 17 or later")));
}

#endif
