/*
 * Calls in the background: a row of dana.job_log for each, and a background worker of PostgreSQL that makes the call.
 */
#ifndef DANA_JOBS_H
#define DANA_JOBS_H

#include "postgres.h"

#include "storage/lock.h"

/* What the worker is told when it is registered (bgw_extra); the rest is in the row */
typedef struct dana_job
{
	int64		  id;
	Oid			  database;
	Oid			  owner;
	Oid			  schema; /* of the extension's functions */
	TransactionId starter; /* the transaction that wrote the row */
} dana_job;

/*
 * The lock that a job's worker holds, in ExclusiveLock, from before its starter returns until its row says how it ended.
 * Where nobody holds it, nobody works on the job. It is one of the user's method, which an abort does not release, with a
 * tag that no SQL statement can take.
 */
extern LOCKTAG dana_job_lock(int64 id);

#endif /* DANA_JOBS_H */
