/*
 * Progress of trainings. A session writes its progress into PostgreSQL's progress counters. Its epochs, which become
 * rows of dana.epoch at commit, go to a shared segment that it makes with its first training and keeps. SQL's
 * dana.dana_progress() and dana.dana_live_epochs() read both.
 *
 * One session writes, any number read, without a lock. An epoch is counted after it was written; a reader drops epochs
 * that may have been overwritten while it copied them, and all of them if the training ended meanwhile. A training
 * without a segment only has no curve.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "port/atomics.h"
#include "storage/dsm.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "limits/progress.h"

/* Unknown to PostgreSQL's views, which show commands of their own kind only */
#define PROGRESS_COMMAND ((ProgressCommandType)0x44414e41)
#define CURVE_MAGIC		 0x44416332
/* number of a training's last epochs that are shown; one more may be in the process of being written */
#define CURVE_EPOCHS 4096
#define CURVE_SLOTS	 (CURVE_EPOCHS + 1)

typedef struct curve_epoch
{
	int64  epoch;
	int64  tuples;
	int64  skipped;
	int64  cycles;
	double loss;
	double validation_loss;
	double seconds;
	bool   has_cycles;
	bool   has_loss;
	bool   has_validation_loss;
} curve_epoch;

typedef struct shared_curve
{
	uint64			 magic;
	pg_atomic_uint64 started; /* TimestampTz; 0: no training runs */
	pg_atomic_uint64 count;	  /* epochs that were added */
	curve_epoch		 epochs[CURVE_SLOTS];
} shared_curve;

static const char *const phases[] = {"compiling", "streaming", "training", "storing", "waiting", "looking"};

static struct
{
	Oid	  source;
	int64 counters[DANA_PROGRESS_COUNTERS];
} own; /* this session's progress */

static dsm_segment *segment;

/* The curve */

static shared_curve *
curve_shared(void)
{
	return dsm_segment_address(segment);
}

static void
curve_make_segment(void *state)
{
	dsm_segment *made = dsm_create(sizeof(shared_curve), DSM_CREATE_NULL_IF_MAXSEGMENTS);

	if (made == NULL)
		return;
	dsm_pin_mapping(made);
	segment = made;
	pg_atomic_init_u64(&curve_shared()->started, 0);
	pg_atomic_init_u64(&curve_shared()->count, 0);
	curve_shared()->magic = CURVE_MAGIC;
}

/*
 * Begins the curve of this session's training. The handle is for other sessions; DSM_HANDLE_INVALID if no shared memory
 * is left.
 */
static dsm_handle
curve_begin(TimestampTz started)
{
	if (segment == NULL)
	{
		ErrorData *error = dana_attempt(curve_make_segment, NULL, true);

		if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		if (segment == NULL)
		{
			ereport(LOG,
					(errmsg("dana.curve will not show the epochs of this training as it goes: %s",
							error != NULL ? error->message : "too many dynamic shared memory segments")));
			return DSM_HANDLE_INVALID;
		}
	}
	pg_atomic_write_u64(&curve_shared()->started, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&curve_shared()->count, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&curve_shared()->started, started);
	return dsm_segment_handle(segment);
}

static void
curve_add(const curve_epoch *epoch)
{
	uint64 count;

	if (segment == NULL)
		return;
	count = pg_atomic_read_u64(&curve_shared()->count);
	/* a reader that sees a part of this epoch also sees the count of the earlier ones */
	pg_write_barrier();
	curve_shared()->epochs[count % CURVE_SLOTS] = *epoch;
	pg_write_barrier();
	pg_atomic_write_u64(&curve_shared()->count, count + 1);
}

void
dana_progress_end_epochs(void)
{
	if (segment != NULL)
		pg_atomic_write_u64(&curve_shared()->started, 0);
}

/*
 * Copies the epochs of the training that a session began at `started`, in order, to an array of CURVE_EPOCHS; returns
 * their number, 0 if that training is over.
 */
static uint64
curve_copy(shared_curve *from, TimestampTz started, curve_epoch *to)
{
	uint64 count;
	uint64 first;
	uint64 lost;

	if (from->magic != CURVE_MAGIC || pg_atomic_read_u64(&from->started) != (uint64)started)
		return 0;
	pg_read_barrier();
	count = pg_atomic_read_u64(&from->count);
	pg_read_barrier();
	first = count > CURVE_EPOCHS ? count - CURVE_EPOCHS : 0;
	for (uint64 i = first; i < count; i++)
		to[i - first] = from->epochs[i % CURVE_SLOTS];
	pg_read_barrier();
	/* the one that is being written counts as written */
	lost = pg_atomic_read_u64(&from->count) + 1;
	lost = lost > CURVE_SLOTS ? Min(Max(lost - CURVE_SLOTS, first), count) - first : 0;
	memmove(to, to + lost, sizeof *to * (count - first - lost));
	pg_read_barrier();
	return pg_atomic_read_u64(&from->started) == (uint64)started ? count - first - lost : 0;
}

/* The same for a segment by its handle */
static uint64
curve_read(dsm_handle handle, TimestampTz started, curve_epoch *to)
{
	dsm_segment *own = dsm_find_mapping(handle);
	dsm_segment *found = own != NULL ? own : dsm_attach(handle);
	uint64		 count = 0;

	if (found == NULL)
		return 0; /* its session has ended */
	if (dsm_segment_map_length(found) >= sizeof(shared_curve))
		count = curve_copy(dsm_segment_address(found), started, to);
	if (own == NULL)
		dsm_detach(found);
	return count;
}

/* Writing this session's progress */

void
dana_progress_begin(Oid source)
{
	TimestampTz started = GetCurrentTimestamp();
	dsm_handle	curve = curve_begin(started); /* first: ending a subtransaction clears the counters */

	memset(&own, 0, sizeof own);
	own.source = source;
	pgstat_progress_start_command(PROGRESS_COMMAND, source);
	dana_progress_set(DANA_PROGRESS_STARTED, started);
	dana_progress_set(DANA_PROGRESS_CURVE, curve);
}

void
dana_progress_set(dana_progress_counter counter, int64 value)
{
	own.counters[counter] = value;
	if (MyBEEntry == NULL || MyBEEntry->st_progress_command == PROGRESS_COMMAND)
	{
		pgstat_progress_update_param(counter, value);
		return;
	}
	/* a function in the query caught an error, which ends the progress report, or ran a command with its own */
	pgstat_progress_start_command(PROGRESS_COMMAND, own.source);
	for (int i = 0; i < DANA_PROGRESS_COUNTERS; i++)
		pgstat_progress_update_param(i, own.counters[i]);
}

void
dana_progress_epoch(Jsonb *report)
{
	curve_epoch epoch = {.epoch = dana_json_integer(report, "epoch"),
						 .tuples = dana_json_integer(report, "tuples"),
						 .skipped = dana_json_integer(report, "skipped"),
						 .cycles = dana_json_integer(report, "cycles"),
						 .loss = dana_json_double(report, "loss"),
						 .validation_loss = dana_json_double(report, "validation_loss"),
						 .seconds = dana_json_double(report, "seconds"),
						 .has_cycles = !dana_json_is_null(report, "cycles"),
						 .has_loss = !dana_json_is_null(report, "loss"),
						 .has_validation_loss = !dana_json_is_null(report, "validation_loss")};

	curve_add(&epoch);
	dana_progress_set(DANA_PROGRESS_LAST_ENDED, GetCurrentTimestamp());
	if (epoch.epoch == 1)
		dana_progress_set(DANA_PROGRESS_FIRST_ENDED, GetCurrentTimestamp());
	dana_progress_set(DANA_PROGRESS_EPOCH, epoch.epoch);
	dana_progress_set(DANA_PROGRESS_CYCLES, own.counters[DANA_PROGRESS_CYCLES] + epoch.cycles);
	dana_progress_set(DANA_PROGRESS_LOSS, DatumGetInt64(Float8GetDatum(epoch.loss)));
	dana_progress_set(DANA_PROGRESS_HAS_LOSS, epoch.has_loss);
}

static double
seconds_between(int64 from, int64 to)
{
	return (to - from) / (double)USECS_PER_SEC;
}

/*
 * Seconds to go, assuming that the remaining epochs take as long as the earlier ones. The first one, which reads the
 * table, is left out if there are others. False until a known part is done.
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
	if (done <= 0)
		return false;
	*seconds = seconds_between(counter[DANA_PROGRESS_FIRST_BEGAN], now) *
		Max(counter[DANA_PROGRESS_EPOCHS] - done, 0) / done;
	return true;
}

static void
put_training(ReturnSetInfo *result, const PgBackendStatus *backend)
{
	const int64 *counter = backend->st_progress_param;
	double		 left = 0;
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
							 Int64GetDatum(counter[DANA_PROGRESS_LOSS]), /* a double's bits, as its Datum has them */
							 Float8GetDatum(left),
							 Int32GetDatum((int32)counter[DANA_PROGRESS_SHARD])};
	bool		 nulls[lengthof(values)] = {false};

	nulls[3] = !OidIsValid(backend->st_progress_command_target);
	nulls[8] = counter[DANA_PROGRESS_PAGES] == 0;
	nulls[10] = counter[DANA_PROGRESS_HAS_LOSS] == 0;
	nulls[11] = !known;
	nulls[12] = counter[DANA_PROGRESS_SHARD] == 0;
	dana_results_add(result, values, nulls);
}

/* Like PostgreSQL's own views, shows other roles' sessions to pg_read_all_stats only */
static bool
is_shown(const PgBackendStatus *backend)
{
	return backend->st_progress_command == PROGRESS_COMMAND &&
		(has_privs_of_role(GetUserId(), backend->st_userid) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

static void
put_epoch(ReturnSetInfo *result, const PgBackendStatus *backend, const curve_epoch *epoch)
{
	Datum values[] = {Int32GetDatum(backend->st_procpid),
					  ObjectIdGetDatum(backend->st_progress_command_target),
					  Int32GetDatum((int32)epoch->epoch),
					  Float8GetDatum(epoch->loss),
					  Float8GetDatum(epoch->validation_loss),
					  Int64GetDatum(epoch->tuples),
					  Int64GetDatum(epoch->skipped),
					  Int64GetDatum(epoch->cycles),
					  Float8GetDatum(epoch->seconds)};
	bool  nulls[lengthof(values)] = {false};

	/* an OID of another database means nothing here */
	nulls[1] = backend->st_databaseid != MyDatabaseId || !OidIsValid(backend->st_progress_command_target);
	nulls[3] = !epoch->has_loss;
	nulls[4] = !epoch->has_validation_loss;
	nulls[7] = !epoch->has_cycles;
	dana_results_add(result, values, nulls);
}

static void
put_epochs(ReturnSetInfo *result, const PgBackendStatus *backend)
{
	const int64 *counter = backend->st_progress_param;
	curve_epoch *epochs = palloc(sizeof *epochs * CURVE_EPOCHS);
	uint64		 count = 0;

	if (counter[DANA_PROGRESS_CURVE] != DSM_HANDLE_INVALID)
		count = curve_read((dsm_handle)counter[DANA_PROGRESS_CURVE], counter[DANA_PROGRESS_STARTED], epochs);
	for (uint64 i = 0; i < count; i++)
		put_epoch(result, backend, &epochs[i]);
	pfree(epochs);
}

/* Calls `put` to add rows for each training that runs */
static Datum
put_all(FunctionCallInfo fcinfo, void (*put)(ReturnSetInfo *result, const PgBackendStatus *backend))
{
	ReturnSetInfo *result = dana_results_begin(fcinfo);

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *backend = &dana_backend_status(i)->backendStatus;

		if (is_shown(backend))
			put(result, backend);
	}
	return (Datum)0;
}

/* dana.dana_progress() */
DANA_FUNCTION(dana_progress_info)
{
	return put_all(fcinfo, put_training);
}

/* dana_live_epochs() */
DANA_FUNCTION(dana_live_epochs)
{
	return put_all(fcinfo, put_epochs);
}
