/*
 * Settings that bound what a training may use, and the two of them that this backend enforces: how many trainings run at
 * once, and how long one may take.
 */
#ifndef DANA_BOUNDS_H
#define DANA_BOUNDS_H

extern int dana_max_epochs;
extern int dana_max_runs;	 /* in the whole server; 0: any number */
extern int dana_training_timeout; /* milliseconds of one training; 0: any time */
extern int dana_max_memory;	 /* MB of the worker's session; 0: as the worker was started */

/* Waits until fewer than dana.max_runs trainings run. The place is held until dana_bounds_leave(), or an abort. */
extern void dana_bounds_enter(void);

/* Starts the clock; either of the other two stops it */
extern void dana_bounds_start_clock(void);
extern void dana_bounds_leave(void);

/* From PG_CATCH: where the clock ended the training, raises an error that says so */
extern void dana_bounds_failed(void);

#endif /* DANA_BOUNDS_H */
