/*
 * Entry of the extension: magic block and settings.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "bounds.h"
#include "compat.h"
#include "notices.h"
#include "session.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "dana", .version = "0.3.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	/* not the user's: who chooses the socket chooses who reads the pages */
	DefineCustomStringVariable("dana.socket_path",
							   "Unix socket of the worker; a path without a leading slash is taken from the data directory.",
							   NULL, &dana_socket_path, "dana/worker.sock", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dana.ring_pages",
							"Pages of shared memory between a session and its worker.",
							"Made when a session first trains, and kept.", &dana_ring_pages, 64, 16, 8192, PGC_SUSET,
							0, NULL, NULL, NULL);
	DefineCustomIntVariable("dana.max_epochs", "Most epochs that a training may have.",
							"Each is a row of dana.epoch.", &dana_max_epochs, 100000, 1, 10000000, PGC_SUSET, 0, NULL, NULL,
							NULL);
	/* the server's: sessions that count differently would not bound each other */
	DefineCustomIntVariable("dana.max_runs", "Most trainings that run at once in the server; 0: any number.",
							"The next one waits, as for a lock.", &dana_max_runs, 0, 0, 10000, PGC_SIGHUP, 0, NULL, NULL,
							NULL);
	DefineCustomIntVariable("dana.training_timeout", "Longest time that a training may take; 0: any.",
							"Unlike statement_timeout, a user cannot change it.", &dana_training_timeout, 0, 0, INT_MAX, PGC_SUSET,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("dana.max_memory", "Most memory of the worker's process for a training; 0: as the worker was started.",
							"At most half of it keeps pages between epochs.", &dana_max_memory, 0, 0, INT_MAX, PGC_SUSET,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomEnumVariable("dana.notices", "What a training tells as NOTICE: nothing, its end, or each epoch.", NULL,
							 &dana_notices, DANA_NOTICES_NONE, dana_notices_options, PGC_USERSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("dana");
}
