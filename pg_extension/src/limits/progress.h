/*
 * How far a training is, for other sessions. Most of it stands in PostgreSQL's own progress counters
 * (backend_progress.h), which a failing transaction clears.
 */
#pragma once

#include "utils/backend_progress.h"

typedef enum dana_progress_counter
{
	DANA_PROGRESS_PHASE, /* enum dana_progress_phase */
	DANA_PROGRESS_EPOCH, /* epochs that ended */
	DANA_PROGRESS_EPOCHS,
	DANA_PROGRESS_PAGE, /* pages sent in this epoch */
	DANA_PROGRESS_PAGES, /* 0: unknown */
	DANA_PROGRESS_CYCLES, /* over all epochs */
	DANA_PROGRESS_LOSS,	  /* the bits of a double */
	DANA_PROGRESS_HAS_LOSS,
	DANA_PROGRESS_STARTED, /* TimestampTz, as the three that follow */
	DANA_PROGRESS_FIRST_BEGAN, /* the first epoch, once the rule was compiled */
	DANA_PROGRESS_FIRST_ENDED, /* the first epoch, whose time is unlike the others' */
	DANA_PROGRESS_LAST_ENDED,  /* the last one so far */
	DANA_PROGRESS_CURVE,	   /* dsm_handle of the epochs */
	DANA_PROGRESS_COUNTERS
} dana_progress_counter;

typedef enum dana_progress_phase
{
	DANA_PHASE_COMPILING,
	DANA_PHASE_STREAMING,
	DANA_PHASE_TRAINING,
	DANA_PHASE_STORING,
	DANA_PHASE_WAITING, /* for other trainings to end: dana.max_runs */
	DANA_PHASE_LOOKING /* at labels and columns, before the worker is asked */
} dana_progress_phase;

/* Begins to tell of a training on a table, or on none */
extern void dana_progress_begin(Oid source);

extern void dana_progress(dana_progress_counter counter, int64 value);

/* An epoch ended: the worker's EPOCH */
extern void dana_progress_epoch(Jsonb *report);

/* No epoch will follow; for readers, too, whose transaction still sees the counters of the training */
extern void dana_progress_end_epochs(void);
