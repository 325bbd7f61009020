/*
 * dana_progress(): the trainings that run now, from the counters that each backend keeps (progress.h);
 * dana_live_epochs(): their epochs so far (curve.h).
 */
#include "postgres.h"

#include "catalog/pg_authid.h"

#include "dana.h"
#include "curve.h"
#include "progress.h"
#include "results.h"

static const char *const phases[] = {"compiling", "streaming", "training", "storing", "waiting"};

static struct
{
	Oid	  source;
	int64 counters[DANA_PROGRESS_COUNTERS];
} own; /* what this session tells */

void
dana_progress_begin(Oid source)
{
	memset(&own, 0, sizeof own);
	own.source = source;
	pgstat_progress_start_command(DANA_PROGRESS_COMMAND, source);
}

void
dana_progress(dana_progress_counter counter, int64 value)
{
	own.counters[counter] = value;
	if (MyBEEntry == NULL || MyBEEntry->st_progress_command == DANA_PROGRESS_COMMAND)
	{
		pgstat_progress_update_param(counter, value);
		return;
	}
	/* a function in the query caught an error, after which PostgreSQL shows no progress, or ran a command that has its own */
	pgstat_progress_start_command(DANA_PROGRESS_COMMAND, own.source);
	for (int i = 0; i < DANA_PROGRESS_COUNTERS; i++)
		pgstat_progress_update_param(i, own.counters[i]);
}

static double
seconds_between(int64 from, int64 to)
{
	return (to - from) / (double)USECS_PER_SEC;
}

/*
 * Seconds to go, as if the epochs to come took as long as those before; without the first of them, where there are
 * others: it reads the table. False while none has a known part behind it.
 */
static bool
progress_estimate(const int64 *counter, double *seconds)
{
	int64  now = GetCurrentTimestamp();
	double to_come = Max(counter[DANA_PROGRESS_EPOCHS] - counter[DANA_PROGRESS_EPOCH], 0);
	double done = counter[DANA_PROGRESS_EPOCH];

	if (counter[DANA_PROGRESS_EPOCH] > 1)
	{
		double each = seconds_between(counter[DANA_PROGRESS_FIRST_ENDED], counter[DANA_PROGRESS_LAST_ENDED]) / (done - 1);

		*seconds = Max(each * to_come - seconds_between(counter[DANA_PROGRESS_LAST_ENDED], now), 0);
		return true;
	}
	if (counter[DANA_PROGRESS_PHASE] == DANA_PHASE_STREAMING && counter[DANA_PROGRESS_PAGES] > 0 && to_come > 0)
		done += (double)counter[DANA_PROGRESS_PAGE] / counter[DANA_PROGRESS_PAGES];
	*seconds = done > 0 ? seconds_between(counter[DANA_PROGRESS_FIRST_BEGAN], now) * Max(counter[DANA_PROGRESS_EPOCHS] - done, 0) / done : 0;
	return done > 0;
}

static void
put_training(ReturnSetInfo *result, const PgBackendStatus *backend)
{
	const int64 *counter = backend->st_progress_param;
	double		 left;
	bool		 known = progress_estimate(counter, &left);
	Datum		 values[] = {Int32GetDatum(backend->st_procpid),
							 ObjectIdGetDatum(backend->st_databaseid),
							 ObjectIdGetDatum(backend->st_userid),
							 ObjectIdGetDatum(backend->st_progress_command_target),
							 CStringGetTextDatum(phases[Min(Max(counter[DANA_PROGRESS_PHASE], 0), lengthof(phases) - 1)]),
							 Int32GetDatum((int32)counter[DANA_PROGRESS_EPOCH]),
							 Int32GetDatum((int32)counter[DANA_PROGRESS_EPOCHS]),
							 Int64GetDatum(counter[DANA_PROGRESS_PAGE]),
							 Int64GetDatum(counter[DANA_PROGRESS_PAGES]),
							 Int64GetDatum(counter[DANA_PROGRESS_CYCLES]),
							 Int64GetDatum(counter[DANA_PROGRESS_LOSS]), /* the bits of a double, as its Datum has them */
							 Float8GetDatum(left)};
	bool		 nulls[lengthof(values)] = {false};

	nulls[3] = !OidIsValid(backend->st_progress_command_target);
	nulls[8] = counter[DANA_PROGRESS_PAGES] == 0;
	nulls[10] = counter[DANA_PROGRESS_HAS_LOSS] == 0;
	nulls[11] = !known;
	dana_results_add(result, values, nulls);
}

/* Like PostgreSQL's own views, we tell of other roles' sessions to pg_read_all_stats only */
static bool
is_shown(const PgBackendStatus *backend)
{
	return backend->st_progress_command == DANA_PROGRESS_COMMAND &&
		(has_privs_of_role(GetUserId(), backend->st_userid) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

/* dana_progress() */
DANA_FUNCTION(dana_progress_info)
{
	ReturnSetInfo *result = dana_results_begin(fcinfo);

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *backend = &dana_backend_status(i)->backendStatus;

		if (is_shown(backend))
			put_training(result, backend);
	}
	return (Datum)0;
}

static void
put_epoch(ReturnSetInfo *result, const PgBackendStatus *backend, const dana_curve_epoch *epoch)
{
	Datum values[] = {Int32GetDatum(backend->st_procpid),
					  ObjectIdGetDatum(backend->st_progress_command_target),
					  Int32GetDatum((int32)epoch->epoch),
					  Float8GetDatum(epoch->loss),
					  Int64GetDatum(epoch->tuples),
					  Int64GetDatum(epoch->skipped),
					  Int64GetDatum(epoch->cycles),
					  Float8GetDatum(epoch->seconds)};
	bool  nulls[lengthof(values)] = {false};

	/* a number of another database means nothing here, or something else */
	nulls[1] = backend->st_databaseid != MyDatabaseId || !OidIsValid(backend->st_progress_command_target);
	nulls[3] = !epoch->has_loss;
	nulls[6] = !epoch->has_cycles;
	dana_results_add(result, values, nulls);
}

/* dana_live_epochs() */
DANA_FUNCTION(dana_live_epochs)
{
	ReturnSetInfo	 *result = dana_results_begin(fcinfo);
	dana_curve_epoch *epochs = palloc(sizeof *epochs * DANA_CURVE_EPOCHS);

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *backend = &dana_backend_status(i)->backendStatus;
		const int64		*counter = backend->st_progress_param;
		uint64			 count;

		if (!is_shown(backend) || counter[DANA_PROGRESS_CURVE] == DSM_HANDLE_INVALID)
			continue;
		count = dana_curve_read((dsm_handle)counter[DANA_PROGRESS_CURVE], counter[DANA_PROGRESS_STARTED], epochs);
		for (uint64 k = 0; k < count; k++)
			put_epoch(result, backend, &epochs[k]);
	}
	pfree(epochs);
	return (Datum)0;
}
