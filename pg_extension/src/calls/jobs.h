/*
 * Calls in the background, each a row of dana.job_log and a background worker of PostgreSQL.
 */
#pragma once

#include "storage/lock.h"

#include "base/arguments.h"

/* What the worker is told when it is registered (bgw_extra); the rest is in the row */
typedef struct dana_job
{
	int64		  id;
	Oid			  database;
	Oid			  owner;
	TransactionId starter; /* the transaction that wrote the row */
} dana_job;

/*
 * The lock that a job's worker holds, in ExclusiveLock, from before its starter's commit until it ends. Where nobody
 * holds it, nobody works on the job. It is the session's, so that a commit does not release it, and neither its tag
 * nor, unlike an advisory lock's, its method can be named in SQL.
 */
extern LOCKTAG dana_job_lock(int64 id);

/* The arguments of a call that can be made in the background; an error where it cannot, or not with these */
extern void dana_job_arguments(const char *function, Jsonb *given, dana_arguments *arguments);
