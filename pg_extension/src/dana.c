/*
 * Entry of the extension: magic block and settings.
 */
#include "postgres.h"

#include "dana.h"
#include "bounds.h"
#include "notices.h"
#include "session.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "dana", .version = DANA_VERSION);
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
	dana_bounds_define();
	DefineCustomEnumVariable("dana.notices", "What a training tells as NOTICE: nothing, its end, or each epoch.", NULL,
							 &dana_notices, DANA_NOTICES_NONE, dana_notices_options, PGC_USERSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("dana");
}
