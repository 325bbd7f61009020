/*
 * dana_start(), dana_wait(), dana_cancel(): calls in the background, seen from the session that starts them.
 *
 * The row is written immediately. Its worker is registered when the transaction is about to commit, while an error is
 * still possible: so an open transaction holds no worker, and a full table of workers is an error of COMMIT. The worker
 * waits for the transaction's end, and exits if it was rolled back after all.
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "storage/lmgr.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "calls/jobs.h"
#include "limits/bounds.h"
#include "limits/turns.h"
#include "request/training.h"

#define JOB_TYPE "dana job" /* of a background worker; the login role follows, for the limits */

/* A job of this transaction with a worker that is not registered yet */
typedef struct pending_job
{
	dana_job job;
	char	*function;
	Oid		 login; /* the session's role, which may have several to start jobs as */
	int		 most;	/* jobs of its role: dana.max_jobs_per_role when it was started */
} pending_job;

static List *pending = NIL; /* in TopTransactionContext */

LOCKTAG
dana_job_lock(int64 id)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, dana_catalog_table("job_log"), (uint32)id, 0);
	return tag;
}

/* Whether a worker holds the job's lock */
static bool
job_is_alive(int64 id)
{
	LOCKTAG tag = dana_job_lock(id);

	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ShareLock, false);
	return false;
}

/* Before 17 a background worker cannot connect as a role that may not log in */
static void
job_check_role(Oid role)
{
#if PG_VERSION_NUM < 170000
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool	  login = HeapTupleIsValid(tuple) && ((Form_pg_authid)GETSTRUCT(tuple))->rolcanlogin;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!login)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("role \"%s\" is not permitted to log in", GetUserNameFromId(role, true)),
						errhint("A call in the background connects as it. Call as a role that may log in, or use "
								"PostgreSQL 17.")));
#endif
}

/* Writes the job's row; the session's settings and limits go with it */
static int64
job_store(Oid owner, Datum function, Datum arguments)
{
	/*
	 * all except the server-wide ones: the job's process would otherwise have the settings of its role, even after SET
	 * ROLE
	 */
	static dana_statement settings = DANA_STATEMENT(
		"SELECT coalesce(pg_catalog.jsonb_object_agg(s.name, s.setting), '{}') FROM pg_catalog.pg_settings AS s "
		"WHERE (s.source OPERATOR(pg_catalog.~) '^(global|database|user|database user|client|session)$' "
		" OR EXISTS (SELECT FROM pg_catalog.pg_db_role_setting AS r, pg_catalog.unnest(r.setconfig) AS c (one) "
		"  WHERE r.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[$1, 0]::pg_catalog.oid[]) AND pg_catalog.lower(pg_catalog.split_part(c.one, '=', 1)) "
		"  OPERATOR(pg_catalog.=) pg_catalog.lower(s.name))) "
		"AND s.context OPERATOR(pg_catalog.=) 'user' AND s.name "
		"OPERATOR(pg_catalog.!~) '^(client_encoding|application_name)$|^transaction_|^default_transaction_|_timeout$'",
		OIDOID);
	static dana_statement insert = DANA_STATEMENT(
		"INSERT INTO dana.job_log (function, arguments, settings, limits, owner) VALUES ($1, $2, $3, $4, $5) RETURNING id",
		TEXTOID, JSONBOID, JSONBOID, JSONBOID, OIDOID);
	dana_identity before;
	Datum		  values[5] = {function, arguments, 0, JsonbPGetDatum(dana_bounds_carry()), ObjectIdGetDatum(owner)};
	int64		  id;

	/*
	 * the caller's current ones, not those for the tables' owner; the caller's search_path does not find the functions
	 * used here
	 */
	dana_connect();
	dana_read(&settings, &(Datum){ObjectIdGetDatum(owner)}, NULL);
	values[2] = JsonbPGetDatum(DatumGetJsonbPCopy(dana_value(0, 1)));
	SPI_finish();
	before = dana_become_owner();
	dana_run(&insert, values, NULL);
	id = DatumGetInt64(dana_value(0, 1));
	dana_become_caller(before);
	return id;
}

BackgroundWorker
dana_background_worker(const char *function)
{
	BackgroundWorker worker = {.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_RecoveryFinished,
							   .bgw_restart_time = BGW_NEVER_RESTART,
							   .bgw_notify_pid = MyProcPid};

	strlcpy(worker.bgw_library_name, "dana", sizeof worker.bgw_library_name);
	strlcpy(worker.bgw_function_name, function, sizeof worker.bgw_function_name);
	return worker;
}

static BackgroundWorkerHandle *
job_register(const pending_job *started)
{
	BackgroundWorker		worker = dana_background_worker("dana_job_main");
	BackgroundWorkerHandle *handle;

	StaticAssertStmt(sizeof started->job <= BGW_EXTRALEN, "a job must fit into bgw_extra");
	snprintf(worker.bgw_name, BGW_MAXLEN, JOB_TYPE " " INT64_FORMAT ": %s", started->job.id, started->function);
	snprintf(worker.bgw_type, BGW_MAXLEN, JOB_TYPE " of role %u", started->login);
	memcpy(worker.bgw_extra, &started->job, sizeof started->job);
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("no background worker is free for the call"),
						errdetail("All max_worker_processes = %d are in use.", max_worker_processes),
						errhint("Wait until other jobs end, or increase max_worker_processes.")));
	return handle;
}

/* Waits until the worker holds the job's lock */
static void
job_await_worker(BackgroundWorkerHandle *handle, int64 id)
{
	pid_t pid;

	while (!job_is_alive(id))
	{
		if (GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
			ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
							errmsg("the background worker for the call ended before it began"),
							errhint("The server's log says why.")));
		/* the postmaster and the worker set this latch */
		(void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000L, WAIT_EVENT_BGWORKER_STARTUP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Drops jobs with rows that were rolled back to a savepoint, and those that were cancelled */
static void
jobs_forget_gone(void)
{
	static dana_statement find = DANA_STATEMENT("SELECT FROM dana.job_log WHERE id = $1 AND state = 'queued'", INT8OID);
	dana_identity		  before = dana_become_owner();
	ListCell			 *cell;

	foreach (cell, pending)
	{
		Datum id[] = {Int64GetDatum(((pending_job *)lfirst(cell))->job.id)};

		if (dana_run(&find, id, NULL) == 0)
			pending = foreach_delete_current(pending, cell);
	}
	dana_become_caller(before);
}

/* The login role of a process that is a job, else InvalidOid */
static Oid
job_login(int pid)
{
	const char *type = GetBackgroundWorkerTypeByPid(pid);
	Oid			login;

	return type != NULL && sscanf(type, JOB_TYPE " of role %u", &login) == 1 ? login : InvalidOid;
}

/* The number of jobs that run in the server, in all databases; of the role or the login of a job if it is given */
static int
jobs_running(const pending_job *started)
{
	int count = 0;

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *backend = &dana_backend_status(i)->backendStatus;
		Oid login = backend->st_backendType == B_BG_WORKER ? job_login(backend->st_procpid) : InvalidOid;

		count += OidIsValid(login) &&
				 (started == NULL || backend->st_userid == started->job.owner || login == started->login);
	}
	return count;
}

static void
jobs_check_limit(int running, int started, int most, const char *setting, const char *role)
{
	if (most != 0 && running + started > most)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						role == NULL ? errmsg("too many jobs") : errmsg("too many jobs for role \"%s\"", role),
						errdetail("%d are running, this transaction starts %d, and %s is %d.", running, started,
								  setting, most),
						errhint("Wait until other jobs end, or ask the administrator to increase %s.", setting)));
}

/* Whether the server's and the roles' limits leave room for the pending jobs */
static void
jobs_check_limits(void)
{
	int running;

	/* the current rows, not those that this transaction first saw */
	pgstat_clear_backend_activity_snapshot();
	running = jobs_running(NULL);
	for (int i = 0; i < list_length(pending); i++)
	{
		const pending_job *started = list_nth(pending, i);
		int				   ours = 0;

		for (int k = 0; k <= i; k++)
		{
			const pending_job *other = list_nth(pending, k);

			ours += other->job.owner == started->job.owner || other->login == started->login;
		}
		jobs_check_limit(running, i + 1, dana_max_jobs, "dana.max_jobs", NULL);
		jobs_check_limit(jobs_running(started), ours, started->most, "dana.max_jobs_per_role",
						 GetUserNameFromId(started->job.owner, true));
	}
}

/* Registers the workers of this transaction, one transaction after another */
static void
jobs_register(void)
{
	List	 *handles = NIL;
	ListCell *cell;
	ListCell *handle;
	LOCKTAG	  tag = dana_lock(0);

	(void)LockAcquire(&tag, ExclusiveLock, false, false);
	jobs_check_limits();
	foreach (cell, pending)
	{
		pending_job *started = lfirst(cell);

		started->job.starter = GetTopTransactionId();
		handles = lappend(handles, job_register(started));
	}
	forboth (cell, pending, handle, handles)
		job_await_worker(lfirst(handle), ((pending_job *)lfirst(cell))->job.id);
	LockRelease(&tag, ExclusiveLock, false);
}

static void
jobs_at_end(XactEvent event, void *unused)
{
	if (pending == NIL)
		return;
	if (event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE)
	{
		pending = NIL;
		return;
	}
	/* the statement's snapshot is gone */
	PushActiveSnapshot(GetTransactionSnapshot());
	jobs_forget_gone();
	if (event == XACT_EVENT_PRE_PREPARE && pending != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot PREPARE a transaction that has started jobs"),
						errhint("Start them in a transaction of their own.")));
	if (pending != NIL)
		jobs_register();
	PopActiveSnapshot();
}

void
dana_job_arguments(const char *function, Jsonb *given, dana_arguments *arguments)
{
	static const char *const possible[] = {"dana_train", "dana_train_groups", "dana_cross_validate", "dana_search"};

	for (int i = 0; i < lengthof(possible); i++)
		if (strcmp(function, possible[i]) == 0)
		{
			dana_arguments_from_json(dana_extension_function(function), given, arguments);
			return;
		}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s() cannot be called in the background", function),
			 errhint("These can: dana_train, dana_train_groups, dana_cross_validate, dana_search.")));
}

/* dana_start(function, arguments): the number of the job */
DANA_COMMAND(dana_start)
{
	static bool	  listening = false;
	char		 *function = text_to_cstring(PG_GETARG_TEXT_PP(0));
	dana_arguments arguments;
	dana_training  training;
	pending_job	 *started;
	MemoryContext caller;

	if (InSecurityRestrictedOperation())
		dana_error(INSUFFICIENT_PRIVILEGE, "cannot start a job within a security-restricted operation");
	job_check_role(GetUserId());
	dana_job_arguments(function, PG_GETARG_JSONB_P(1), &arguments);
	dana_require_execute(arguments.function);
	if (strcmp(function, "dana_train") == 0)
		dana_training_parse(&arguments, &training); /* to raise its errors early */
	if (!listening)
		RegisterXactCallback(jobs_at_end, NULL);
	listening = true;
	caller = MemoryContextSwitchTo(TopTransactionContext);
	started = palloc0(sizeof *started);
	started->job = (dana_job){.database = MyDatabaseId, .owner = GetUserId()};
	started->function = pstrdup(function);
	started->login = GetSessionUserId();
	started->most = dana_max_jobs_per_role;
	started->job.id = job_store(started->job.owner, PG_GETARG_DATUM(0), PG_GETARG_DATUM(1));
	pending = lappend(pending, started);
	MemoryContextSwitchTo(caller);
	jobs_forget_gone();
	jobs_check_limits(); /* checked here to report it early, and again at commit */
	PG_RETURN_INT64(started->job.id);
}

typedef struct job_row
{
	char *state;
	int	  pid;	/* the process that makes the call, or made it; 0 before */
	bool  ours; /* this transaction started it */
} job_row;

/* The current row, regardless of the caller's snapshot; false if the caller may not see it */
static bool
job_find(int64 id, job_row *row)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT state, coalesce(pid, 0), xmin FROM dana.job_log WHERE id = $1 AND pg_has_role($2, owner, 'USAGE')",
		INT8OID, OIDOID);
	dana_identity before = dana_become_owner();
	Datum		  values[] = {Int64GetDatum(id), ObjectIdGetDatum(before.user)};
	bool		  found = dana_run_on_latest(&find, values) > 0;

	if (found)
	{
		row->state = TextDatumGetCString(dana_value(0, 1));
		row->pid = DatumGetInt32(dana_value(0, 2));
		row->ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(dana_value(0, 3)));
	}
	dana_become_caller(before);
	return found;
}

static job_row
job_require(int64 id)
{
	job_row row;

	if (!job_find(id, &row))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("job " INT64_FORMAT " does not exist", id),
						errhint("SELECT id, state FROM dana.job lists the jobs.")));
	return row;
}

static bool
job_is_over(const job_row *row)
{
	return strcmp(row->state, "queued") != 0 && strcmp(row->state, "running") != 0;
}

/*
 * Whether a job was killed, given that its lock was free before its row was read. Its process briefly has no lock when
 * it takes it again after its transaction failed at the commit.
 */
static bool
job_is_lost(const job_row *row)
{
	return !row->ours && !job_is_over(row) && !(row->pid != 0 && OidIsValid(job_login(row->pid)));
}

typedef struct waiting
{
	LOCKTAG tag;
	int		milliseconds;
} waiting;

static void
job_wait_for_lock(void *state)
{
	waiting *wait = state;

	dana_set_for_now("lock_timeout", psprintf("%d", wait->milliseconds)); /* the subtransaction is rolled back */
	(void)LockAcquire(&wait->tag, ShareLock, false, false);
	LockRelease(&wait->tag, ShareLock, false);
}

/* Waits until the job's lock is free; false: the timeout expired first. 0: no timeout */
static bool
job_wait_for_end(int64 id, int milliseconds)
{
	waiting	   wait = {.tag = dana_job_lock(id), .milliseconds = milliseconds};
	ErrorData *error = dana_attempt(job_wait_for_lock, &wait, false);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return error == NULL;
}

/* dana_wait(job, timeout): the state after it ended, or after so many seconds; NULL: no timeout */
DANA_COMMAND(dana_wait)
{
	int64	id;
	job_row row;
	bool	ended;
	double	timeout = PG_ARGISNULL(1) ? INFINITY : PG_GETARG_FLOAT8(1);

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	id = PG_GETARG_INT64(0);
	if (!(timeout >= 0))
		dana_reject_argument("timeout", "be a number of seconds from 0, not %g", timeout);
	row = job_require(id);
	if (row.ours && !job_is_over(&row))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("job " INT64_FORMAT " begins when this transaction commits", id),
						errhint("Wait for it in a later transaction.")));
	for (ended = false; !job_is_over(&row); row = job_require(id))
	{
		if (ended && job_is_lost(&row))
			PG_RETURN_TEXT_P(cstring_to_text("lost"));
		if (ended)
			pg_usleep(10000L); /* it ends, or continues in order to record how it ended */
		CHECK_FOR_INTERRUPTS();
		if (timeout * 1000 < 1)
			ended = !job_is_alive(id);
		else
			ended = job_wait_for_end(id, timeout * 1000 < PG_INT32_MAX ? (int)(timeout * 1000) : 0);
		if (!ended)
		{
			row = job_require(id);
			break;
		}
	}
	PG_RETURN_TEXT_P(cstring_to_text(row.state));
}

/* The process that holds the job's lock, or 0 */
static int
job_process(int64 id)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT pid FROM pg_locks WHERE locktype = 'object' AND classid = 'dana.job_log'::regclass AND objid = $1 "
		"AND database = $2 AND mode = 'ExclusiveLock' AND granted", OIDOID, OIDOID);
	Datum		  values[] = {ObjectIdGetDatum((Oid)id), ObjectIdGetDatum(MyDatabaseId)};
	dana_identity before = dana_become_owner();
	int			  pid = dana_run(&find, values, NULL) > 0 ? DatumGetInt32(dana_value(0, 1)) : 0;

	dana_become_caller(before);
	return pid;
}

/* dana_cancel(job): false if it is over */
DANA_COMMAND(dana_cancel)
{
	static dana_statement cancel = DANA_STATEMENT(
		"UPDATE dana.job_log SET state = 'cancelled', ended = clock_timestamp() WHERE id = $1", INT8OID);
	int64	id = PG_GETARG_INT64(0);
	job_row row;
	int		pid;

	row = job_require(id);
	if (job_is_over(&row))
		PG_RETURN_BOOL(false);
	if (row.ours)
	{
		dana_identity before = dana_become_owner();

		dana_run(&cancel, &(Datum){Int64GetDatum(id)}, NULL);
		dana_become_caller(before);
		PG_RETURN_BOOL(true);
	}
	pid = job_process(id);
	PG_RETURN_BOOL(pid != 0 && DatumGetBool(DirectFunctionCall1(pg_cancel_backend, Int32GetDatum(pid))));
}

/*
 * dana_job_lost(job): whether an unfinished job has no process. The lock is checked before the row is read: the worker
 * releases it once the row records how the job ended, which an older snapshot does not see. A standby has no such
 * locks.
 */
DANA_FUNCTION(dana_job_lost)
{
	int64	id = PG_GETARG_INT64(0);
	job_row row;

	if (RecoveryInProgress() || job_is_alive(id))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(job_find(id, &row) && job_is_lost(&row));
}
