/*
 * The epochs of a training that runs, in a shared segment that each session makes with its first training and keeps.
 *
 * One session writes, any number read, nobody waits. An epoch is counted after it was written; a reader drops what may
 * have been overwritten while it copied, and all of it where the training ended meanwhile. A training without a segment
 * has no curve and is none the worse.
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/resowner.h"

#include "dana.h"
#include "curve.h"

#define CURVE_MAGIC 0x44416332
/* one more than is shown: the one that may be being written */
#define SLOTS (DANA_CURVE_EPOCHS + 1)

typedef struct shared_curve
{
	uint64			 magic;
	pg_atomic_uint64 started; /* TimestampTz; 0 where none runs */
	pg_atomic_uint64 count;	  /* epochs that were added */
	dana_curve_epoch epochs[SLOTS];
} shared_curve;

static dsm_segment *segment;

static shared_curve *
curve_shared(void)
{
	return dsm_segment_address(segment);
}

static void
make_segment(void *state)
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

dsm_handle
dana_curve_begin(TimestampTz started)
{
	if (segment == NULL)
	{
		ErrorData *error = dana_attempt(make_segment, NULL, true);

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

void
dana_curve_add(const dana_curve_epoch *epoch)
{
	uint64 count;

	if (segment == NULL)
		return;
	count = pg_atomic_read_u64(&curve_shared()->count);
	/* who sees a part of this epoch sees that those before it were counted */
	pg_write_barrier();
	curve_shared()->epochs[count % SLOTS] = *epoch;
	pg_write_barrier();
	pg_atomic_write_u64(&curve_shared()->count, count + 1);
}

void
dana_curve_end(void)
{
	if (segment != NULL)
		pg_atomic_write_u64(&curve_shared()->started, 0);
}

static uint64
read_shared(shared_curve *from, TimestampTz started, dana_curve_epoch *to)
{
	uint64 count;
	uint64 first;
	uint64 lost;

	if (from->magic != CURVE_MAGIC || pg_atomic_read_u64(&from->started) != (uint64)started)
		return 0;
	pg_read_barrier();
	count = pg_atomic_read_u64(&from->count);
	pg_read_barrier();
	first = count > DANA_CURVE_EPOCHS ? count - DANA_CURVE_EPOCHS : 0;
	for (uint64 i = first; i < count; i++)
		to[i - first] = from->epochs[i % SLOTS];
	pg_read_barrier();
	/* the one that is being written counts as written */
	lost = pg_atomic_read_u64(&from->count) + 1;
	lost = lost > SLOTS ? Min(Max(lost - SLOTS, first), count) - first : 0;
	memmove(to, to + lost, sizeof *to * (count - first - lost));
	pg_read_barrier();
	return pg_atomic_read_u64(&from->started) == (uint64)started ? count - first - lost : 0;
}

uint64
dana_curve_read(dsm_handle handle, TimestampTz started, dana_curve_epoch *to)
{
	dsm_segment *own = dsm_find_mapping(handle);
	dsm_segment *found = own != NULL ? own : dsm_attach(handle);
	uint64		 count = 0;

	if (found == NULL)
		return 0; /* its session has ended */
	if (dsm_segment_map_length(found) >= sizeof(shared_curve))
		count = read_shared(dsm_segment_address(found), started, to);
	if (own == NULL)
		dsm_detach(found);
	return count;
}
