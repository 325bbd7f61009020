/*
 * How many trainings run at once, and how long one may take.
 *
 * A training holds one of dana.max_runs locks, which no SQL statement can take. So the one too many waits as for any
 * lock: seen in pg_locks, found by the deadlock detector, ended by lock_timeout, statement_timeout and cancel. The clock
 * is a timeout of PostgreSQL's that cancels the statement: it also ends a query that never gives a row.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/timeout.h"

#include "bounds.h"
#include "compat.h"
#include "progress.h"

int dana_max_epochs = 100000;
int dana_max_runs = 0;
int dana_training_timeout = 0;
int dana_max_memory = 0;

/* The class of our locks, which is no catalog's */
#define RUNS_CLASS ((Oid)0x44414e41)

static int					 place = 0; /* that we hold, or 0 */
static TimeoutId			 timer = MAX_TIMEOUTS;
static volatile sig_atomic_t overdue = false;

static bool
take(int number, bool wait)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, RUNS_CLASS, (Oid)number, 0);
	if (LockAcquire(&tag, ExclusiveLock, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	place = number;
	return true;
}

void
dana_bounds_enter(void)
{
	place = 0;
	if (dana_max_runs == 0)
		return;
	for (int i = 1; i <= dana_max_runs; i++)
		if (take(i, false))
			return;
	dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_WAITING);
	(void)take(1 + MyProcPid % dana_max_runs, true);
	dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_COMPILING);
}

static void
time_is_over(void)
{
	overdue = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

void
dana_bounds_start_clock(void)
{
	overdue = false;
	if (dana_training_timeout == 0)
		return;
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, time_is_over);
	enable_timeout_after(timer, dana_training_timeout);
}

static bool
stop_clock(void)
{
	bool was = overdue;

	if (timer != MAX_TIMEOUTS)
		disable_timeout(timer, false);
	overdue = false;
	return was;
}

void
dana_bounds_leave(void)
{
	if (stop_clock())
		QueryCancelPending = false; /* too late: it is done */
	if (place > 0)
	{
		LOCKTAG tag;

		SET_LOCKTAG_OBJECT(tag, InvalidOid, RUNS_CLASS, (Oid)place, 0);
		LockRelease(&tag, ExclusiveLock, false);
		place = 0;
	}
}

void
dana_bounds_failed(void)
{
	if (!stop_clock() || geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	FlushErrorState();
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("canceling training due to dana.training_timeout"),
			 errhint("Train fewer epochs or fewer rows, or ask the administrator for more time.")));
}
