/*
 * dana_start(), dana_train_wait(): calls in the background, from the side of who asks for them.
 *
 * The row and the worker are made at once; the worker waits for the transaction that wrote the row, and goes home where it
 * was rolled back. Nothing has to be done at commit, when nothing may fail.
 */
#include "jobs.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "attempt.h"
#include "call.h"
#include "catalog.h"
#include "compat.h"

#include <math.h>

PG_FUNCTION_INFO_V1(dana_start);
PG_FUNCTION_INFO_V1(dana_train_wait);
PG_FUNCTION_INFO_V1(dana_job_lost);

LOCKTAG
dana_job_lock(int64 id)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, dana_catalog_table("job_log"), (uint32)id, 0);
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

/* Whether a worker holds the job's lock */
static bool
is_alive(int64 id)
{
	LOCKTAG tag = dana_job_lock(id);

	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ShareLock, false);
	return false;
}

/* Before 17 a background worker cannot connect as a role that may not log in */
static void
check_role(Oid role)
{
#if PG_VERSION_NUM < 170000
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool	  login = HeapTupleIsValid(tuple) && ((Form_pg_authid)GETSTRUCT(tuple))->rolcanlogin;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!login)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" is not permitted to log in", GetUserNameFromId(role, true)),
				 errhint("A call in the background connects as it. Call as a role that may log in, or use PostgreSQL 17.")));
#endif
}

/* Writes the job's row; the session's settings go with it */
static int64
store(Oid owner, Datum function, Datum arguments)
{
	/* all that does not come from the server alone: the job's process would have its own role's, after SET ROLE other ones */
	static dana_statement look = {
		"SELECT coalesce(pg_catalog.jsonb_object_agg(s.name, s.setting), '{}') FROM pg_catalog.pg_settings AS s "
		"WHERE (s.source OPERATOR(pg_catalog.~) '^(global|database|user|database user|client|session)$' "
		" OR EXISTS (SELECT FROM pg_catalog.pg_db_role_setting AS r, pg_catalog.unnest(r.setconfig) AS c (one) "
		"  WHERE r.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[$1, 0]::pg_catalog.oid[]) AND pg_catalog.lower(pg_catalog.split_part(c.one, '=', 1)) "
		"  OPERATOR(pg_catalog.=) pg_catalog.lower(s.name))) "
		"AND s.context OPERATOR(pg_catalog.=) 'user' AND s.name "
		"OPERATOR(pg_catalog.!~) '^(client_encoding|application_name)$|^transaction_|^default_transaction_|_timeout$'",
		1,
		{OIDOID},
		NULL};
	static dana_statement insert = {
		"INSERT INTO dana.job_log (function, arguments, settings, owner) VALUES ($1, $2, $3, $4) RETURNING id",
		4,
		{TEXTOID, JSONBOID, JSONBOID, OIDOID},
		NULL};
	MemoryContext context = CurrentMemoryContext;
	dana_identity before;
	Datum		  role[] = {ObjectIdGetDatum(owner)};
	Datum		  values[4] = {function, arguments};
	bool		  isnull;
	int64		  id;

	/* as they are now, not as they are for the tables' owner; so under the caller's search_path, which finds nothing here */
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	dana_read(&look, role, NULL);
	MemoryContextSwitchTo(context);
	values[2] = JsonbPGetDatum(DatumGetJsonbPCopy(dana_value(0, 1, &isnull)));
	SPI_finish();
	before = dana_become_owner();
	values[3] = ObjectIdGetDatum(owner);
	dana_run(&insert, values, NULL);
	id = DatumGetInt64(dana_value(0, 1, &isnull));
	dana_become_caller(before);
	return id;
}

static BackgroundWorkerHandle *
register_worker(const dana_job *job, const char *function)
{
	BackgroundWorker		worker = {0};
	BackgroundWorkerHandle *handle;

	StaticAssertStmt(sizeof *job <= BGW_EXTRALEN, "a job must fit into bgw_extra");
	snprintf(worker.bgw_name, BGW_MAXLEN, "dana job " INT64_FORMAT ": %s", job->id, function);
	strlcpy(worker.bgw_type, "dana job", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "dana", sizeof worker.bgw_library_name);
	strlcpy(worker.bgw_function_name, "dana_job_main", BGW_MAXLEN);
	memcpy(worker.bgw_extra, job, sizeof *job);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no background worker is free for the call"),
				 errdetail("All max_worker_processes = %d are in use.", max_worker_processes),
				 errhint("Wait until other jobs end, or increase max_worker_processes.")));
	return handle;
}

/* Waits until the worker holds the job's lock */
static void
wait_for_worker(BackgroundWorkerHandle *handle, int64 id)
{
	pid_t pid;

	while (!is_alive(id))
	{
		if (GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("the background worker for the call ended before it began"),
					 errhint("The server's log says why.")));
		/* the postmaster and the worker set our latch */
		(void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000L, WAIT_EVENT_BGWORKER_STARTUP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* dana_start(function, arguments): the number of the job */
Datum
dana_start(PG_FUNCTION_ARGS)
{
	char					*function = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Oid						 schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	dana_job				 job = {.database = MyDatabaseId, .owner = GetUserId(), .schema = schema};
	BackgroundWorkerHandle	*handle;

	PreventCommandIfReadOnly("dana_start()");
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot start a job within a security-restricted operation")));
	check_role(job.owner);
	dana_call_check(get_namespace_name(schema), function, PG_GETARG_JSONB_P(1));
	job.id = store(job.owner, PG_GETARG_DATUM(0), PG_GETARG_DATUM(1));
	job.starter = GetTopTransactionId();
	handle = register_worker(&job, function);
	PG_TRY();
	{
		wait_for_worker(handle, job.id);
	}
	PG_CATCH();
	{
		TerminateBackgroundWorker(handle);
		PG_RE_THROW();
	}
	PG_END_TRY();
	pfree(handle);
	PG_RETURN_INT64(job.id);
}

/* The job's state as its row has it now, whatever the caller's snapshot, or NULL; an error where it is not the caller's */
static char *
read_state(int64 id, bool *ours)
{
	static dana_statement find = {"SELECT owner, state, xmin FROM dana.job_log WHERE id = $1", 1, {INT8OID}, NULL};
	MemoryContext		  context = CurrentMemoryContext;
	Datum				  values[] = {Int64GetDatum(id)};
	dana_identity		  before = dana_become_owner();
	char				 *state = NULL;
	bool				  isnull;

	if (dana_run_on_latest(&find, values) > 0)
	{
		dana_require_owner(before.user, DatumGetObjectId(dana_value(0, 1, &isnull)), "job", psprintf(INT64_FORMAT, id));
		state = MemoryContextStrdup(context, TextDatumGetCString(dana_value(0, 2, &isnull)));
		*ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(dana_value(0, 3, &isnull)));
	}
	dana_become_caller(before);
	return state;
}

static _Noreturn void
no_job(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("job " INT64_FORMAT " does not exist", id),
			 errhint("SELECT id, state FROM dana.job lists the jobs.")));
}

static bool
is_over(const char *state)
{
	return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

typedef struct waiting
{
	LOCKTAG tag;
	int		milliseconds;
} waiting;

static void
wait_for_lock(void *state)
{
	waiting *wait = state;

	/* for this subtransaction */
	(void)set_config_option("lock_timeout", psprintf("%d", wait->milliseconds), PGC_USERSET, PGC_S_SESSION,
							GUC_ACTION_LOCAL, true, 0, false);
	(void)LockAcquire(&wait->tag, ShareLock, false, false);
	LockRelease(&wait->tag, ShareLock, false);
}

/* Waits until nobody holds the job's lock; false: the time was over before. 0: without limit */
static bool
wait_for_end(int64 id, int milliseconds)
{
	waiting	   wait = {.tag = dana_job_lock(id), .milliseconds = milliseconds};
	ErrorData *error = dana_attempt(wait_for_lock, &wait, false);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return error == NULL;
}

/* dana_train_wait(job, timeout): the state after it ended, or after so many seconds; NULL: without limit */
Datum
dana_train_wait(PG_FUNCTION_ARGS)
{
	int64	   id;
	char	  *state;
	bool	   ours;
	bool	   ended;
	double	   timeout = PG_ARGISNULL(1) ? INFINITY : PG_GETARG_FLOAT8(1);

	PreventCommandIfReadOnly("dana_train_wait()");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	id = PG_GETARG_INT64(0);
	if (!(timeout >= 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"timeout\" must be a number of seconds from 0, not %g", timeout)));
	state = read_state(id, &ours);
	if (state == NULL)
		no_job(id);
	if (is_over(state))
		PG_RETURN_TEXT_P(cstring_to_text(state));
	if (ours)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job " INT64_FORMAT " begins when this transaction commits", id),
				 errhint("Wait for it in a later transaction.")));
	if (timeout * 1000 < 1)
		ended = !is_alive(id);
	else
		ended = wait_for_end(id, timeout * 1000 < PG_INT32_MAX ? (int)(timeout * 1000) : 0);
	state = read_state(id, &ours);
	if (state == NULL)
		no_job(id);
	PG_RETURN_TEXT_P(cstring_to_text(ended && !is_over(state) ? "lost" : state));
}

/*
 * dana_job_lost(job): whether nobody works on a job that is not over. The lock is asked before the row: its worker drops
 * it when the row says how the job ended, which an older snapshot does not see. A standby has no such locks.
 */
Datum
dana_job_lost(PG_FUNCTION_ARGS)
{
	int64 id = PG_GETARG_INT64(0);
	char *state;
	bool  ours;

	if (RecoveryInProgress() || is_alive(id))
		PG_RETURN_BOOL(false);
	state = read_state(id, &ours);
	PG_RETURN_BOOL(state != NULL && !is_over(state));
}
