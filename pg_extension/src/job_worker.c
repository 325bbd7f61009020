/*
 * The background worker of a job: waits for the transaction that asked for it, makes the call as its owner, and writes down
 * how it ended.
 */
#include "jobs.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "call.h"
#include "catalog.h"
#include "compat.h"

PGDLLEXPORT void dana_job_main(Datum unused);

/* The row, as far as the call needs it; in TopMemoryContext */
typedef struct claim
{
	char  *function;
	Jsonb *arguments;
} claim;

static void
begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Takes the job's lock and tells the starter */
static void
take_lock(const dana_job *job)
{
	LOCKTAG tag;
	PGPROC *starter;

	StartTransactionCommand();
	tag = dana_job_lock(job->id);
	(void)LockAcquire(&tag, ExclusiveLock, true, false);
	CommitTransactionCommand();
	starter = BackendPidGetProc(MyBgworkerEntry->bgw_notify_pid);
	if (starter != NULL)
		SetLatch(&starter->procLatch);
}

static void
drop_lock(const dana_job *job)
{
	LOCKTAG tag;

	StartTransactionCommand();
	tag = dana_job_lock(job->id);
	LockRelease(&tag, ExclusiveLock, true);
	CommitTransactionCommand();
}

/* Copies the error that was caught, ends it and the transaction */
static ErrorData *
catch(MemoryContext context)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(context);
	return error;
}

/* Waits until the starter's transaction ended; the error where we were cancelled meanwhile, or NULL */
static ErrorData *
wait_for_starter(const dana_job *job)
{
	ErrorData *volatile cancelled = NULL;
	volatile bool waiting = true;

	pgstat_report_activity(STATE_RUNNING, "waiting for the transaction that started the job");
	while (waiting)
	{
		PG_TRY();
		{
			StartTransactionCommand();
			/* a role's own limit is for its statements */
			(void)set_config_option("lock_timeout", "0", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
			XactLockTableWait(job->starter, NULL, NULL, XLTW_None);
			CommitTransactionCommand();
			waiting = false;
		}
		PG_CATCH();
		{
			cancelled = catch(TopMemoryContext); /* its row, which is to say so, does not exist yet */
		}
		PG_END_TRY();
	}
	return cancelled;
}

/* Marks the job as running, with the settings of the session that started it; false where there is no such job */
static bool
claim_job(const dana_job *job, claim *claimed)
{
	static dana_statement take = {
		"UPDATE dana.job_log SET state = 'running', pid = pg_backend_pid(), started = clock_timestamp() "
		"WHERE id = $1 AND state = 'queued' RETURNING function, arguments, settings",
		1,
		{INT8OID},
		NULL};
	static dana_statement set = {
		"SELECT pg_catalog.count(pg_catalog.set_config(key, value, false)) FROM pg_catalog.jsonb_each_text($1)", 1, {JSONBOID}, NULL};
	Datum		  values[] = {Int64GetDatum(job->id)};
	dana_identity before = dana_become_owner();
	bool		  found = dana_run(&take, values, NULL) > 0;
	bool		  isnull;
	MemoryContext ours;

	if (found)
	{
		ours = MemoryContextSwitchTo(TopMemoryContext);
		claimed->function = TextDatumGetCString(dana_value(0, 1, &isnull));
		claimed->arguments = DatumGetJsonbPCopy(dana_value(0, 2, &isnull));
		values[0] = JsonbPGetDatum(DatumGetJsonbPCopy(dana_value(0, 3, &isnull)));
		MemoryContextSwitchTo(ours);
	}
	dana_become_caller(before);
	if (found)
	{
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
		dana_run(&set, values, NULL);
		SPI_finish();
	}
	return found;
}

static Datum
text_or_null(const char *text, char *null)
{
	*null = text == NULL ? 'n' : ' ';
	return text == NULL ? (Datum)0 : CStringGetTextDatum(text);
}

/* Writes down how the job ended */
static void
conclude(const dana_job *job, const char *state, Jsonb *result, const ErrorData *error)
{
	static dana_statement store = {
		"UPDATE dana.job_log SET state = $2, ended = clock_timestamp(), result = $3, sqlstate = $4, message = $5, detail = $6, "
		"hint = $7 WHERE id = $1",
		7,
		{INT8OID, TEXTOID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID},
		NULL};
	char		  nulls[8] = "       ";
	dana_identity before = dana_become_owner();
	Datum		  values[7] = {Int64GetDatum(job->id), CStringGetTextDatum(state)};

	nulls[2] = result == NULL ? 'n' : ' ';
	values[2] = result == NULL ? (Datum)0 : JsonbPGetDatum(result);
	values[3] = text_or_null(error == NULL ? NULL : unpack_sql_state(error->sqlerrcode), &nulls[3]);
	values[4] = text_or_null(error == NULL ? NULL : error->message, &nulls[4]);
	values[5] = text_or_null(error == NULL ? NULL : error->detail, &nulls[5]);
	values[6] = text_or_null(error == NULL ? NULL : error->hint, &nulls[6]);
	dana_run(&store, values, nulls);
	dana_become_caller(before);
}

/* The call and its result, in one transaction */
static void
make_call(const dana_job *job, const claim *claimed)
{
	Jsonb *result;

	begin();
	pgstat_report_activity(STATE_RUNNING, psprintf("SELECT * FROM %s(...)", claimed->function));
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	result = dana_call(get_namespace_name(job->schema), claimed->function, claimed->arguments, InvalidSnapshot);
	disable_timeout(STATEMENT_TIMEOUT, false);
	conclude(job, "done", result, NULL);
	commit();
}

static void
run(const dana_job *job)
{
	ErrorData *volatile error = wait_for_starter(job);
	claim		  claimed;
	volatile bool found = true;

	PG_TRY();
	{
		begin();
		found = claim_job(job, &claimed);
		commit();
		if (found && error == NULL)
			make_call(job, &claimed);
	}
	PG_CATCH();
	{
		error = catch(TopMemoryContext);
	}
	PG_END_TRY();
	disable_all_timeouts(false);
	if (!found || error == NULL)
		return;
	begin();
	conclude(job, error->sqlerrcode == ERRCODE_QUERY_CANCELED ? "cancelled" : "failed", NULL, error);
	commit();
}

/* Entry of the process */
void
dana_job_main(Datum unused)
{
	dana_job job;
	uint32	 flags = 0;

	memcpy(&job, MyBgworkerEntry->bgw_extra, sizeof job);
#if PG_VERSION_NUM >= 170000
	flags = BGWORKER_BYPASS_ROLELOGINCHECK;
#endif
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job.database, job.owner, flags);
	take_lock(&job);
	run(&job);
	drop_lock(&job);
	proc_exit(0);
}
