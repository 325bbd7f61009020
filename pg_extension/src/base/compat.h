/*
 * The differences between PostgreSQL 14 and 18.
 */
#pragma once

#if PG_VERSION_NUM < 140000 || PG_VERSION_NUM >= 190000
#error "dana supports PostgreSQL 14 to 18"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h" /* split from postgres.h in 16 */
#endif

#include "access/toast_internals.h"
#include "storage/latch.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/* 15 gave it a better name */
#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#endif

/* 17 removed old_snapshot_threshold */
#if PG_VERSION_NUM >= 170000
#define dana_test_for_old_snapshot(snapshot, relation, page) ((void)0)
#else
#define dana_test_for_old_snapshot(snapshot, relation, page) TestForOldSnapshot(snapshot, relation, page)
#endif

/* 16 renamed them */
#if PG_VERSION_NUM >= 160000
#define dana_relation_locator(relation) ((relation)->rd_locator)
#define dana_backend_status(i) pgstat_get_local_beentry_by_index(i)
#else
#define dana_relation_locator(relation) ((relation)->rd_node)
#define dana_backend_status(i) pgstat_fetch_stat_local_beentry(i)
#endif

#if PG_VERSION_NUM >= 160000
#define dana_all_settings(count) get_guc_variables(count)
#else
#define dana_all_settings(count) (*(count) = GetNumConfigOptions(), get_guc_variables())
#endif

/* 18 keeps it itself */
static inline Snapshot
dana_toast_snapshot(SnapshotData *space)
{
#if PG_VERSION_NUM >= 180000
	return get_toast_snapshot();
#else
	init_toast_snapshot(space);
	return space;
#endif
}

/* What a backend waits for */
typedef enum dana_wait_reason
{
	DANA_WAIT_CONNECT, /* the worker has not accepted the connection yet */
	DANA_WAIT_ANSWER,  /* it compiles, or trains on pages that it kept */
	DANA_WAIT_TURN,	   /* all sessions of the worker that this backend may use are busy */
	DANA_WAIT_RING	   /* the ring is full: it trains more slowly than we stream */
} dana_wait_reason;

/* 17 lets extensions name their wait events */
static inline uint32
dana_wait_event(dana_wait_reason wait)
{
#if PG_VERSION_NUM >= 170000
	static const char *const names[] = {"DanaConnect", "DanaWorker", "DanaTurn", "DanaRing"};
	static uint32			 events[lengthof(names)];

	if (events[wait] == 0)
		events[wait] = WaitEventExtensionNew(names[wait]);
	return events[wait];
#else
	return PG_WAIT_EXTENSION;
#endif
}
