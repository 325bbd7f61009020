/*
 * The places of requests to the worker, held or waited for.
 */
#pragma once

#include "storage/lock.h"

extern char *dana_socket_path; /* the worker that requests go to: the setting dana.socket_path */

/* Locks of no catalog: 0 is the registration of jobs */
extern LOCKTAG dana_lock(uint32 number);

/* Takes a place if one is free for this session; false: it has to wait */
extern bool dana_turn_take(bool trains, int max_runs);
extern void dana_turn_wait(bool trains, int max_runs, double predicted);
extern void dana_turn_end(void);
