/*
 * The background worker of a job: waits for the transaction that started it, makes the call as its owner, and records
 * how it ended.
 *
 * The call, and its work at commit, run in a subtransaction: an error ends the subtransaction, and the transaction
 * records it. The abort of the whole transaction would release the job's lock.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/notices.h"
#include "calls/jobs.h"
#include "limits/bounds.h"

#define LONGEST_NAP_MS 100

PGDLLEXPORT void dana_job_main(Datum unused);

/* The columns of the row that the call needs, in TopMemoryContext; and the call's result */
typedef struct job_call
{
	const dana_job *job;
	char		   *function;
	Jsonb		   *arguments;
	Jsonb		   *settings;
	Jsonb		   *limits;
	Jsonb		   *result;
} job_call;

static void
job_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
job_commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
job_take_lock(const dana_job *job)
{
	LOCKTAG tag;

	StartTransactionCommand();
	tag = dana_job_lock(job->id);
	(void)LockAcquire(&tag, ExclusiveLock, true, false);
	CommitTransactionCommand();
}

/* At exit: PostgreSQL releases locks of this method at a transaction's end only */
static void
job_drop_lock(int code, Datum unused)
{
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
}

/*
 * Waits until the starter's transaction has ended. It is about to commit, so this polls instead of waiting for its
 * lock: a lock wait can fail, be cancelled or time out, before there is a row to record that in.
 */
static void
job_await_starter(const dana_job *job)
{
	long nap = 1;

	while (TransactionIdIsInProgress(job->starter))
	{
		(void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap, WAIT_EVENT_BGWORKER_STARTUP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		nap = Min(nap * 2, LONGEST_NAP_MS);
	}
}

/* Marks the job as running; false if there is no such job */
static bool
job_claim(job_call *call)
{
	static dana_statement take = DANA_STATEMENT(
		"UPDATE dana.job_log SET state = 'running', pid = pg_backend_pid(), started = clock_timestamp() "
		"WHERE id = $1 AND state = 'queued' RETURNING function, arguments, settings, limits", INT8OID);
	Datum		  values[] = {Int64GetDatum(call->job->id)};
	dana_identity before = dana_become_owner();
	bool		  found = dana_run(&take, values, NULL) > 0;

	if (found)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		call->function = TextDatumGetCString(dana_value(0, 1));
		call->arguments = DatumGetJsonbPCopy(dana_value(0, 2));
		call->settings = DatumGetJsonbPCopy(dana_value(0, 3));
		call->limits = DatumGetJsonbPCopy(dana_value(0, 4));
		MemoryContextSwitchTo(caller);
	}
	dana_become_caller(before);
	return found;
}

/* The call, under the settings and the limits of the session that started it */
static void
job_make_call(void *state)
{
	static dana_statement set = DANA_STATEMENT(
		"SELECT pg_catalog.count(pg_catalog.set_config(key, value, false)) FROM pg_catalog.jsonb_each_text($1) "
		/* skip the role's own settings: PostgreSQL accepts a tablespace that is gone there, and rejects it in SET */
		"WHERE pg_catalog.current_setting(key, true) IS DISTINCT FROM value",
		JSONBOID);
	job_call		  *call = state;
	dana_arguments	   arguments;
	Datum			   settings[] = {JsonbPGetDatum(call->settings)};
	ConstraintsSetStmt immediate = {.type = T_ConstraintsSetStmt};

	dana_connect();
	dana_run(&set, settings, NULL);
	SPI_finish();
	dana_bounds_adopt(call->limits);
	dana_job_arguments(call->function, call->arguments, &arguments);
	call->result = dana_call(&arguments);
	/* deferred constraints are checked now, so that their errors belong to the call */
	AfterTriggerSetState(&immediate);
}

/* Records how the job ended */
static void
job_conclude(const job_call *call, const ErrorData *error)
{
	static dana_statement store = DANA_STATEMENT(
		"UPDATE dana.job_log SET state = $2, ended = clock_timestamp(), result = $3, sqlstate = $4, message = $5, detail = $6, "
		"hint = $7, notices = $8 WHERE id = $1", INT8OID, TEXTOID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTARRAYOID);
	char		  nulls[] = "  nnnnn "; /* set together with a result or an error */
	const char	 *state = error == NULL ? "done" : error->sqlerrcode == ERRCODE_QUERY_CANCELED ? "cancelled" : "failed";
	dana_identity before = dana_become_owner();
	Datum		  values[8] = {Int64GetDatum(call->job->id), CStringGetTextDatum(state), [7] = dana_notices_kept()};

	if (error == NULL)
	{
		values[2] = JsonbPGetDatum(call->result);
		nulls[2] = ' ';
	}
	else
	{
		const char *const texts[] = {unpack_sql_state(error->sqlerrcode), error->message, error->detail, error->hint};

		for (int i = 0; i < lengthof(texts); i++)
			if (texts[i] != NULL)
			{
				values[3 + i] = CStringGetTextDatum(texts[i]);
				nulls[3 + i] = ' ';
			}
	}
	dana_run(&store, values, nulls);
	dana_become_caller(before);
	if (error != NULL)
		ereport(LOG, (errcode(error->sqlerrcode),
					  errmsg("job " INT64_FORMAT " %s: %s", call->job->id, state, error->message)));
}

/*
 * Claims the job, if there is one; runs the call and records its end in one transaction. Returns the error that ended
 * the transaction
 */
static ErrorData *
job_run(job_call *call)
{
	ErrorData *volatile error = NULL;
	ErrorData *of_call;

	PG_TRY();
	{
		bool found;
		int	 limit;

		job_begin();
		found = job_claim(call);
		job_commit();
		if (!found)
			proc_exit(0);
		RESUME_CANCEL_INTERRUPTS();
		job_begin();
		pgstat_report_activity(STATE_RUNNING, psprintf("SELECT * FROM %s(...)", call->function));
		limit = StatementTimeout;
#if PG_VERSION_NUM >= 170000
		/* one of the role would end the process, which could not record why */
		if (TransactionTimeout > 0 && (limit == 0 || TransactionTimeout < limit))
			limit = TransactionTimeout;
		disable_timeout(TRANSACTION_TIMEOUT, false);
#endif
		if (limit > 0)
			enable_timeout_after(STATEMENT_TIMEOUT, limit);
		of_call = dana_attempt(job_make_call, call, true);
		disable_timeout(STATEMENT_TIMEOUT, false);
		job_conclude(call, of_call);
		job_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		disable_all_timeouts(false);
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_END_TRY();
	return error;
}

/* Entry of the process */
void
dana_job_main(Datum unused)
{
	dana_job   job;
	job_call   call = {.job = &job};
	PGPROC	  *starter;
	ErrorData *error;
	uint32	   flags = 0;

	memcpy(&job, MyBgworkerEntry->bgw_extra, sizeof job);
#if PG_VERSION_NUM >= 170000
	flags = BGWORKER_BYPASS_ROLELOGINCHECK;
#endif
	/*
	 * before the connection, so it is called after that is undone: once the lock is free, this job does not count for
	 * limits
	 */
	on_shmem_exit(job_drop_lock, 0);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job.database, job.owner, flags);
	HOLD_CANCEL_INTERRUPTS(); /* a cancel is for the call */
	dana_notices_keep();
	job_take_lock(&job);
	starter = BackendPidGetProc(MyBgworkerEntry->bgw_notify_pid);
	if (starter != NULL)
		SetLatch(&starter->procLatch);
	pgstat_report_activity(STATE_RUNNING, "waiting for the transaction that started the job");
	job_await_starter(&job);
	error = job_run(&call);
	if (error != NULL)
	{
		/* such as a serialization failure at the commit; it also ended the hold on interrupts */
		HOLD_CANCEL_INTERRUPTS();
		job_take_lock(&job);
		job_begin();
		job_conclude(&call, error);
		job_commit();
	}
	proc_exit(0);
}
