/*
 * Limits of trainings: how many run at once, how long one may take, and on which machines.
 *
 * The clock is a PostgreSQL timeout that cancels the statement, so it also ends a query that never returns a row.
 * Functions in a query or a filter are user-defined and may catch that cancel. Therefore the timeout also sets a flag,
 * checked between rows outside of them, and cancels again each second. A function that keeps catching cancels loses its
 * session, which no function can catch.
 */
#include "postgres.h"

#include <limits.h>

#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/varlena.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "limits/bounds.h"
#include "limits/progress.h"
#include "limits/turns.h"

#define AGAIN_MS	1000 /* between two cancels, and between two checks of the client */
#define UNKNOWN_SECONDS "60" /* assumed duration of a training that has not run before */
#define MAX_CAUGHT	3	 /* cancels that may be caught */
#define MAX_UNPROCESSED 10 /* cancels while one is pending */

int							 dana_max_epochs;
int							 dana_max_memory;
int							 dana_max_jobs;
int							 dana_max_jobs_per_role;
volatile sig_atomic_t		 dana_bounds_overdue = false;
static int					 max_runs;		   /* in the whole server; 0: any number */
static int					 training_timeout; /* milliseconds of one training; 0: no limit */
static char					*allowed_machines;

static bool					 training = false; /* this session trains */
static bool					 watching = false; /* its client */
static TimeoutId			 timer = MAX_TIMEOUTS;
static TimestampTz			 deadline;		   /* 0: none */
static volatile sig_atomic_t cancels;		   /* since then */
static volatile sig_atomic_t unprocessed;	   /* of these, while one was pending */

/*
 * 0 means no limit where it is allowed. Limits that a role can have are those of the session that starts a job: the job
 * inherits them (dana_bounds_carry()). max_runs and max_jobs belong to the server: sessions that count differently
 * would not limit each other.
 */
static const struct bounds_limit
{
	const char *name;
	int		   *value;
	int			boot;
	int			least;
	int			most;
	GucContext	context;
	int			unit;
	const char *summary;
	const char *detail;
} limits[] = {
	{"dana.max_epochs", &dana_max_epochs, 100000, 1, 10000000, PGC_SUSET, 0, "Most epochs that a training may have.",
	 "Each is a row of dana.epoch."},
	{"dana.max_runs", &max_runs, 0, 0, 10000, PGC_SIGHUP, 0,
	 "Most trainings that run at once in the server; 0: any number.", "The next one waits until it is its turn."},
	{"dana.training_timeout", &training_timeout, 0, 0, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
	 "Longest time that a training may take; 0: any.", "Unlike statement_timeout, a user cannot change it."},
	{"dana.max_memory", &dana_max_memory, 0, 0, INT_MAX, PGC_SUSET, GUC_UNIT_MB,
	 "Most memory of the worker's process for a training; 0: as the worker was started.",
	 "At most half of it keeps pages between epochs."},
	{"dana.max_jobs", &dana_max_jobs, 4, 0, 10000, PGC_SIGHUP, 0, "Maximum number of jobs that run at once in the server; 0: no limit.",
	 "Each takes one of max_worker_processes. Starting another one is an error."},
	{"dana.max_jobs_per_role", &dana_max_jobs_per_role, 2, 0, 10000, PGC_SUSET, 0,
	 "Maximum number of jobs of a role that run at once, in all databases; 0: no limit.", "Starting another one is an error."}};

#define MACHINES	   "dana.machines"
#define KNOWN_MACHINES "sim, rtl, interp"

static bool
bounds_is_listed(const char *list, const char *name)
{
	List	 *names;
	ListCell *cell;

	(void)SplitIdentifierString(pstrdup(list), ',', &names);
	foreach (cell, names)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

static bool
bounds_check_machines(char **list, void **extra, GucSource source)
{
	List	 *names;
	ListCell *cell;

	if (!SplitIdentifierString(pstrdup(*list), ',', &names))
	{
		GUC_check_errdetail("List syntax is invalid.");
		return false;
	}
	foreach (cell, names)
		if (!bounds_is_listed(KNOWN_MACHINES, lfirst(cell)))
		{
			GUC_check_errdetail("There is no machine \"%s\", only " KNOWN_MACHINES ".", (char *)lfirst(cell));
			return false;
		}
	return true;
}

void
dana_bounds_define(void)
{
	for (int i = 0; i < lengthof(limits); i++)
		DefineCustomIntVariable(limits[i].name, limits[i].summary, limits[i].detail, limits[i].value, limits[i].boot,
								limits[i].least, limits[i].most, limits[i].context, limits[i].unit, NULL, NULL, NULL);
	DefineCustomStringVariable(MACHINES, "Machines that a training may use.", NULL, &allowed_machines, KNOWN_MACHINES,
							   PGC_SUSET, GUC_LIST_INPUT, bounds_check_machines, NULL, NULL);
}

void
dana_bounds_check_machine(const char *machine)
{
	/* the worker reports an unknown machine */
	if (bounds_is_listed(KNOWN_MACHINES, machine) && !bounds_is_listed(allowed_machines, machine))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for machine \"%s\"", machine),
				 allowed_machines[0] == '\0' ? errdetail("No machine is allowed.")
											 : errdetail("Allowed are: %s.", allowed_machines),
				 errhint("Setting dana.machines lists the machines that are allowed; a superuser can change it.")));
}

Jsonb *
dana_bounds_carry(void)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_text(&text, MACHINES, allowed_machines);
	for (int i = 0; i < lengthof(limits); i++)
		if (limits[i].context == PGC_SUSET)
			dana_json_number(&text, limits[i].name, *limits[i].value);
	return dana_json_end(&text);
}

void
dana_bounds_adopt(Jsonb *carried)
{
	char		  *theirs = dana_json_string(carried, MACHINES);
	StringInfoData both;
	List		  *names;
	ListCell	  *cell;

	for (int i = 0; i < lengthof(limits); i++)
		if (limits[i].context == PGC_SUSET)
		{
			int64 limit = dana_json_integer(carried, limits[i].name);

			if (limit != 0 && (*limits[i].value == 0 || limit < *limits[i].value))
				SetConfigOption(limits[i].name, psprintf(INT64_FORMAT, limit), PGC_SUSET, PGC_S_SESSION);
		}
	initStringInfo(&both);
	(void)SplitIdentifierString(pstrdup(allowed_machines), ',', &names);
	foreach (cell, names)
		if (bounds_is_listed(theirs, lfirst(cell)))
			appendStringInfo(&both, "%s%s", both.len > 0 ? ", " : "", (char *)lfirst(cell));
	SetConfigOption(MACHINES, both.data, PGC_SUSET, PGC_S_SESSION);
}

typedef struct prediction
{
	const dana_awaited *training;
	double				seconds;
} prediction;

/* Predicts a training's duration from the last one of its rule on its source */
static void
bounds_predict(void *state)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT coalesce(avg(e.seconds) * coalesce(nullif($4, 0), max(r.epochs)), " UNKNOWN_SECONDS ") FROM "
		"(SELECT id, epochs FROM dana.run WHERE rule = $1 AND source = $2 AND pg_has_role($3, owner, 'USAGE') "
		" ORDER BY id DESC LIMIT 1) AS r JOIN dana.epoch AS e ON e.run = r.id", TEXTOID, TEXTOID, OIDOID, INT4OID);
	prediction	 *of = state;
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(of->training->rule), CStringGetTextDatum(of->training->source),
							  ObjectIdGetDatum(before.user), Int32GetDatum(of->training->epochs)};

	dana_run_on_latest(&find, values);
	of->seconds = DatumGetFloat8(dana_value(0, 1));
	dana_become_caller(before);
}

static void
bounds_arm(void)
{
	if (deadline != 0)
		enable_timeout_at(timer, deadline);
}

static void
bounds_disarm(void)
{
	if (timer != MAX_TIMEOUTS)
		disable_timeout(timer, false);
}

void
dana_bounds_enter(const dana_awaited *awaited)
{
	TimestampTz began;
	prediction	predicted = {.training = awaited};

	if (dana_turn_take(awaited != NULL, max_runs))
		return;
	/* it is not the training that takes this time */
	bounds_disarm();
	began = GetCurrentTimestamp();
	if (awaited != NULL)
	{
		dana_peek(bounds_predict, &predicted);
		dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_WAITING);
	}
	dana_turn_wait(awaited != NULL, max_runs, predicted.seconds);
	if (awaited != NULL)
		dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_COMPILING);
	if (training && deadline != 0)
	{
		deadline += GetCurrentTimestamp() - began;
		bounds_arm();
	}
}

/* The clock */

/* In a signal handler */
static void
bounds_time_is_over(void)
{
	dana_bounds_overdue = true;
	/*
	 * A pending cancel was not caught: it has not been processed yet. Within a message from or to a client that is
	 * silent it never is, but the end of the session is
	 */
	if (QueryCancelPending ? ++unprocessed > MAX_UNPROCESSED : ++cancels > MAX_CAUGHT)
		ProcDiePending = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	enable_timeout_after(timer, AGAIN_MS); /* enable_timeout_every() exists from 15 on */
}

void
dana_bounds_raise_overdue(void)
{
	ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("canceling training due to dana.training_timeout"),
					errhint("Train fewer epochs or fewer rows, or ask the administrator for more time.")));
}

/*
 * Stops the clock; returns whether the time had run out. The cancelled work has ended, so a pending cancel is dropped
 */
static bool
bounds_stop_clock(void)
{
	bool was;

	bounds_disarm();
	was = dana_bounds_overdue;
	if (was)
		QueryCancelPending = false;
	dana_bounds_overdue = false;
	return was;
}

void
dana_bounds_start_clock(void)
{
	dana_bounds_check();
	(void)bounds_stop_clock();
	deadline = 0;
	cancels = unprocessed = 0;
	if (training_timeout == 0)
		return;
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, bounds_time_is_over);
	deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), training_timeout);
	bounds_arm();
}

/* The client */

/*
 * Checks each second whether the client is still connected, unless the session does so by itself: PostgreSQL notices
 * that a client was killed when it sends, which may be hours later. Returns the level of the setting that this takes.
 */
static int
bounds_watch_client(void)
{
	int level = NewGUCNestLevel();

	if (MyProcPort != NULL && client_connection_check_interval == 0)
	{
		dana_set_for_now("client_connection_check_interval", psprintf("%d", AGAIN_MS));
		enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT, AGAIN_MS);
		watching = true;
	}
	return level;
}

/* The bracket's end, also from PG_CATCH; returns whether the time has run out */
static bool
bounds_close(void)
{
	if (watching)
		disable_timeout(CLIENT_CONNECTION_CHECK_TIMEOUT, false);
	watching = false;
	training = false;
	return bounds_stop_clock();
}

void
dana_bounds_require_idle(void)
{
	if (training)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot train while this session is training"),
				 errdetail("The query or the filter that rows are read with, or a function in them, trains itself."),
				 errhint("Train one after the other.")));
}

Datum
dana_bounds_train(Datum (*train)(void *state), void *state)
{
	Datum result;
	int	  level;

	dana_bounds_require_idle();
	training = true;
	PG_TRY();
	{
		level = bounds_watch_client();
		dana_bounds_start_clock();
		result = train(state);
		dana_bounds_check();
		AtEOXact_GUC(true, level); /* after an error the abort does it */
	}
	PG_CATCH();
	{
		if (bounds_close() && geterrcode() == ERRCODE_QUERY_CANCELED)
		{
			FlushErrorState();
			dana_bounds_raise_overdue();
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
	(void)bounds_close();
	return result;
}
