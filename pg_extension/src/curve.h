/*
 * The epochs of a training that runs, for other sessions: their rows in dana.epoch are there when it commits.
 */
#pragma once

#include "datatype/timestamp.h"
#include "storage/dsm.h"

/* How many epochs are shown; the last ones */
#define DANA_CURVE_EPOCHS 4096

typedef struct dana_curve_epoch
{
	int64  epoch;
	int64  tuples;
	int64  skipped;
	int64  cycles;
	double loss;
	double seconds;
	bool   has_cycles;
	bool   has_loss;
} dana_curve_epoch;

/*
 * Begins the curve of this session's training. The handle is for dana_curve_read() in other sessions; DSM_HANDLE_INVALID
 * where there is no shared memory left: then the training has no curve. Before the progress counters: it may need a
 * subtransaction, whose end clears them.
 */
extern dsm_handle dana_curve_begin(TimestampTz started);

/* Adds an epoch to it */
extern void dana_curve_add(const dana_curve_epoch *epoch);

/* Ends it, for readers too whose transaction still sees the progress counters of the training */
extern void dana_curve_end(void);

/*
 * Copies the epochs of the training that a session began at `started`, in order, to a place for DANA_CURVE_EPOCHS of them;
 * returns how many, 0 where that training is over.
 */
extern uint64 dana_curve_read(dsm_handle handle, TimestampTz started, dana_curve_epoch *to);
