/*
 * The queue for the worker: each request holds a place while the worker answers it, and waits until one is free.
 *
 * Places are locks that no SQL statement can take, so PostgreSQL releases a place however its request ends. The lock
 * tag has the role in the database field, and the number of the place. A waiting request also holds a lock, with the
 * time when it is due. So the lock table holds the whole state, a session reads it under the gate's lock, and all
 * sessions arrive at the same order:
 *
 *   - the last free place is only for a role that has none,
 *   - the role with fewer places comes first,
 *   - among its requests, the one due first: time of arrival plus predicted duration.
 *
 * So a short training overtakes a long one, unless the long one came earlier by more than its duration.
 *
 * Nothing waits for a lock here, since lock waits are served in the order of arrival: the request sleeps until a place
 * is released. So this file applies lock_timeout, and looks for deadlocks, itself.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/resowner.h"

#include "base/dana.h"
#include "limits/turns.h"

char *dana_socket_path;

#define LOCKS			   0x44414e41 /* no catalog has that OID */
#define GATE			   1
#define MAX_PLACES		   10000
#define TRAINING_WAITS	   0xFFFE /* used as the number of a place */
#define REQUEST_WAITS	   0xFFFF
#define LONGEST_NAP_MS	   1000
#define LONGEST_PREDICTION 86400.0

/* Of milliseconds, whose number begins again from 0 every 49 days */
#define BEFORE(a, b) ((int32)((uint32)(a) - (uint32)(b)) < 0)
StaticAssertDecl(BEFORE(PG_UINT32_MAX, 0) && !BEFORE(0, PG_UINT32_MAX), "the clock begins again");

/* A request that has a place, or waits for one */
typedef struct turn
{
	Oid	   role;
	int	   pid;
	uint32 due;	   /* in milliseconds, of a clock that begins again after 49 days */
	int	   number; /* of its place, or TRAINING_WAITS, REQUEST_WAITS */
} turn;

typedef struct queue
{
	int	  trainings; /* number of places for such requests; 0: no limit */
	int	  requests;
	int	  count;
	turn *turns;
} queue;

static LOCKTAG		 held;			/* of the place, or of the turn that waits */
static ResourceOwner owner = NULL; /* of that lock; NULL: there is none */

LOCKTAG
dana_lock(uint32 number)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, LOCKS, number, 0);
	return tag;
}

static void
turn_hold(Oid role, uint32 due, uint16 number)
{
	SET_LOCKTAG_OBJECT(held, role, LOCKS, due, number);
	(void)LockAcquire(&held, ExclusiveLock, false, false);
	owner = CurrentResourceOwner;
}

static void
turn_let_go(void)
{
	owner = NULL;
	LockRelease(&held, ExclusiveLock, false);
}

/* Number of the worker's sessions, which it writes into the file that it locks; 0: unknown */
static int
worker_sessions(void)
{
	char text[16] = "";
	char path[MAXPGPATH];
	int	 file;

	snprintf(path, sizeof path, "%s.lock", dana_socket_path);
	file = OpenTransientFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (file < 0)
		return 0;
	(void)!read(file, text, sizeof text - 1);
	CloseTransientFile(file);
	return Min(Max(atoi(text), 0), MAX_PLACES);
}

static queue
queue_read(int max_runs)
{
	LockData *locks = GetLockStatusData();
	queue	  found = {.requests = worker_sessions(), .turns = palloc(sizeof(turn) * Max(locks->nelements, 1))};

	found.trainings = max_runs == 0 ? found.requests : found.requests == 0 ? max_runs : Min(max_runs, found.requests);
	for (int i = 0; i < locks->nelements; i++)
	{
		const LOCKTAG *tag = &locks->locks[i].locktag;

		if (tag->locktag_type == LOCKTAG_OBJECT && tag->locktag_field2 == LOCKS && OidIsValid(tag->locktag_field1) &&
			locks->locks[i].holdMask != 0)
			found.turns[found.count++] =
				(turn){tag->locktag_field1, locks->locks[i].pid, tag->locktag_field3, tag->locktag_field4};
	}
	return found;
}

/* Wakes the sessions that wait */
static void
turns_wake(void)
{
	queue now = queue_read(0);

	for (int i = 0; i < now.count; i++)
		if (now.turns[i].number >= TRAINING_WAITS)
		{
			PGPROC *process = BackendPidGetProc(now.turns[i].pid);

			if (process != NULL)
				SetLatch(&process->procLatch);
		}
}

/* After an error: the lock has been released with its resource owner */
static void
turn_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *unused)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || owner == NULL || CurrentResourceOwner != owner)
		return;
	owner = NULL;
	turns_wake();
}

/* How many of the first places are held, by one role or, without one, in total */
static int
places_held(const queue *now, Oid role, int places)
{
	int count = 0;

	for (int i = 0; i < now->count; i++)
		count += now->turns[i].number <= places && (!OidIsValid(role) || now->turns[i].role == role);
	return count;
}

static int
places_for(const queue *now, const turn *one)
{
	return one->number == TRAINING_WAITS ? now->trainings : now->requests;
}

static bool
turn_is_possible(const queue *now, const turn *one)
{
	int places = places_for(now, one);
	int free = places - places_held(now, InvalidOid, places);

	return places == 0 || free > 1 || (free == 1 && (places == 1 || places_held(now, one->role, MAX_PLACES) == 0));
}

static bool
turn_is_before(const queue *now, const turn *one, const turn *other)
{
	int fewer = places_held(now, one->role, MAX_PLACES) - places_held(now, other->role, MAX_PLACES);

	if (fewer != 0)
		return fewer < 0;
	return one->due != other->due ? BEFORE(one->due, other->due) : one->pid < other->pid;
}

/* Whether our request can have a place, and no other such request comes before it */
static bool
turn_is_next(const queue *now, const turn *ours)
{
	for (int i = 0; i < now->count; i++)
		if (now->turns[i].number >= TRAINING_WAITS && now->turns[i].pid != ours->pid &&
			turn_is_before(now, &now->turns[i], ours) && turn_is_possible(now, &now->turns[i]))
			return false;
	return turn_is_possible(now, ours);
}

static bool
place_is_taken(const queue *now, int place)
{
	for (int i = 0; i < now->count; i++)
		if (now->turns[i].number == place)
			return true;
	return false;
}

/* Takes a place if it is our turn. Trainings use the first places, which dana.max_runs counts; others the last. */
static bool
turn_try(const turn *ours, int max_runs)
{
	LOCKTAG gate = dana_lock(GATE);
	queue	now;
	bool	next;

	(void)LockAcquire(&gate, ExclusiveLock, false, false);
	now = queue_read(max_runs);
	next = turn_is_next(&now, ours);
	if (next)
	{
		const int places = places_for(&now, ours);
		const int step = ours->number == TRAINING_WAITS || places == 0 ? 1 : -1;
		int		  place = step == 1 ? 1 : places;

		while (place_is_taken(&now, place))
			place += step;
		if (owner != NULL)
			turn_let_go();
		turn_hold(ours->role, 0, place);
	}
	LockRelease(&gate, ExclusiveLock, false);
	return next;
}

/* Whether a session waits, directly or not, for a lock that we hold */
static bool
waits_for_us(int pid)
{
	List *seen = list_make1_int(pid);

	for (int i = 0; i < list_length(seen); i++)
	{
		ArrayType *blockers =
			DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(list_nth_int(seen, i))));
		int32	  *pids = (int32 *)ARR_DATA_PTR(blockers);

		for (int k = 0; k < ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers)); k++)
		{
			if (pids[k] == MyProcPid)
				return true;
			seen = list_append_unique_int(seen, pids[k]);
		}
	}
	return false;
}

/* Raises an error if each session that has a place waits for one of our locks, which PostgreSQL cannot detect */
static void
turn_check_deadlock(void)
{
	queue now = queue_read(0);
	bool  blocked = false;

	for (int i = 0; i < now.count; i++)
		if (now.turns[i].number < TRAINING_WAITS && !(blocked = waits_for_us(now.turns[i].pid)))
			return;
	if (blocked)
		ereport(ERROR, (errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
						errdetail("This session waits for others to end their requests to the dana worker, and each of "
								  "these waits for a lock of this session."),
						errhint("Train in a transaction that holds no stronger locks.")));
}

static void
turn_sleep(TimestampTz began)
{
	long nap = LONGEST_NAP_MS;

	if (LockTimeout > 0)
	{
		nap = LockTimeout - TimestampDifferenceMilliseconds(began, GetCurrentTimestamp());
		if (nap <= 0)
			dana_error(LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout");
		nap = Min(nap, LONGEST_NAP_MS);
	}
	if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap, dana_wait_event(DANA_WAIT_TURN)) & WL_TIMEOUT)
		turn_check_deadlock();
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static turn
turn_of(bool trains, TimestampTz due)
{
	return (turn){GetSessionUserId(), MyProcPid, (uint32)(due / 1000), trains ? TRAINING_WAITS : REQUEST_WAITS};
}

bool
dana_turn_take(bool trains, int max_runs)
{
	static bool listening = false;
	turn		ours = turn_of(trains, GetCurrentTimestamp());

	/* a standby has no such locks, and runs no trainings */
	if (RecoveryInProgress() || (max_runs == 0 && worker_sessions() == 0))
		return true;
	if (!listening)
		RegisterResourceReleaseCallback(turn_released, NULL);
	listening = true;
	return turn_try(&ours, max_runs);
}

void
dana_turn_wait(bool trains, int max_runs, double predicted)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(caller, "dana turn", ALLOCSET_DEFAULT_SIZES);
	TimestampTz	  began = GetCurrentTimestamp();
	turn		  ours = turn_of(trains, began + (TimestampTz)(Min(predicted, LONGEST_PREDICTION) * USECS_PER_SEC));

	turn_hold(ours.role, ours.due, ours.number);
	MemoryContextSwitchTo(scratch);
	while (!turn_try(&ours, max_runs))
	{
		turn_sleep(began);
		MemoryContextReset(scratch);
	}
	turns_wake(); /* there may be a place for the next one as well */
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
}

void
dana_turn_end(void)
{
	if (owner == NULL)
		return;
	turn_let_go();
	turns_wake();
}
