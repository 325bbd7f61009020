/*
 * Settings that limit trainings and jobs, and the bracket around a training that enforces them.
 */
#pragma once

#include <signal.h>
#include "storage/lock.h"

extern int dana_max_epochs;
extern int dana_max_memory; /* MB of the worker's session; 0: as the worker was started */
extern int dana_max_jobs;	/* in the whole server; 0: no limit */
extern int dana_max_jobs_per_role;
extern void dana_bounds_define(void);

/* Raises an error inside another training */
extern void dana_bounds_require_idle(void);

/*
 * Runs work that trains under the session's limits: not inside another training, on the clock, and watching the client.
 */
extern Datum dana_bounds_train(Datum (*train)(void *state), void *state);

/* Restarts the clock: a model is stored, and the next one of the same call begins */
extern void dana_bounds_start_clock(void);

/* Raises an error if the training's time is over. Called for each page and row, and before a model is stored */
extern volatile sig_atomic_t dana_bounds_overdue;
extern _Noreturn void		 dana_bounds_raise_overdue(void);

static inline void
dana_bounds_check(void)
{
	if (unlikely(dana_bounds_overdue))
		dana_bounds_raise_overdue();
}

/* What identifies a training before it begins */
typedef struct dana_awaited
{
	const char *rule;
	const char *source;
	int			epochs; /* 0: the rule's */
} dana_awaited;

/*
 * Waits until a place for a request to the worker is free: for a training, one of dana.max_runs; NULL: for another
 * request. The place is held until dana_turn_end(), or an error.
 */
extern void dana_bounds_enter(const dana_awaited *awaited);

/* Raises an error for a machine that dana.machines does not allow */
extern void dana_bounds_check_machine(const char *machine);

/* The limits of this session as a JSON object, and the stricter of such an object and this session's */
extern Jsonb *dana_bounds_carry(void);
extern void	 dana_bounds_adopt(Jsonb *carried);
