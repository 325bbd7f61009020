/*
 * Entry of the extension: magic block and settings.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "compat.h"
#include "limits.h"
#include "session.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "dana", .version = "0.3.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

int dana_max_epochs = 100000;

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
	MarkGUCPrefixReserved("dana");
}
