/*
 * Calls in the background, each a row of dana.job_log and a background worker of PostgreSQL.
 */
#pragma once

#include "postmaster/bgworker.h"
#include "storage/lock.h"

#include "base/arguments.h"

/* Parameters of the worker's registration (bgw_extra); the others are in the row */
typedef struct dana_job
{
	int64		  id;
	Oid			  database;
	Oid			  owner;
	TransactionId starter; /* the transaction that wrote the row */
} dana_job;

/*
 * The lock that a job's worker holds, in ExclusiveLock, from before its starter's commit until it ends. If the lock is
 * free, no process runs the job. It is a session's lock, so that a commit does not release it, and neither its tag nor,
 * unlike an advisory lock's, its method can be named in SQL.
 */
extern LOCKTAG dana_job_lock(int64 id);

/* A background worker of this library, connected to the database, which is not restarted; without a name or arguments */
extern BackgroundWorker dana_background_worker(const char *function);

/* The arguments of a call that can be made in the background; an error if it cannot, or not with these */
extern void dana_job_arguments(const char *function, Jsonb *given, dana_arguments *arguments);
