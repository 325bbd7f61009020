/*
 * Progress of trainings, for other sessions. Most of it is in PostgreSQL's progress counters (backend_progress.h),
 * which an aborted transaction clears.
 */
#pragma once

#include "utils/backend_progress.h"

typedef enum dana_progress_counter
{
	DANA_PROGRESS_PHASE, /* enum dana_progress_phase */
	DANA_PROGRESS_EPOCH, /* epochs completed */
	DANA_PROGRESS_EPOCHS,
	DANA_PROGRESS_PAGE, /* pages sent in this epoch */
	DANA_PROGRESS_PAGES, /* 0: unknown */
	DANA_PROGRESS_CYCLES, /* over all epochs */
	DANA_PROGRESS_LOSS,	  /* the bits of a double */
	DANA_PROGRESS_HAS_LOSS,
	DANA_PROGRESS_STARTED, /* TimestampTz, as the three that follow */
	DANA_PROGRESS_FIRST_BEGAN, /* the first epoch, once the rule was compiled */
	DANA_PROGRESS_FIRST_ENDED, /* the first epoch, which also reads the table */
	DANA_PROGRESS_LAST_ENDED,  /* the last one so far */
	DANA_PROGRESS_CURVE,	   /* dsm_handle of the epochs */
	DANA_PROGRESS_SHARD,	   /* number of the one whose message is waited for, or 0 */
	DANA_PROGRESS_COUNTERS
} dana_progress_counter;

typedef enum dana_progress_phase
{
	DANA_PHASE_COMPILING,
	DANA_PHASE_STREAMING,
	DANA_PHASE_TRAINING,
	DANA_PHASE_STORING,
	DANA_PHASE_WAITING, /* until other trainings end: dana.max_runs */
	DANA_PHASE_LOOKING /* scanning labels and columns, before the worker is asked */
} dana_progress_phase;

/* Begins the progress report of a training on a table, or on a query (InvalidOid) */
extern void dana_progress_begin(Oid source);

extern void dana_progress_set(dana_progress_counter counter, int64 value);

/* An epoch ended: the worker's EPOCH */
extern void dana_progress_epoch(Jsonb *report);

/* No epoch will follow. Also for readers with an old snapshot of the counters */
extern void dana_progress_end_epochs(void);
