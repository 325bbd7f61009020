/*
 * Entry of the extension: magic block, and the settings of its parts.
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
	dana_session_define();
	dana_bounds_define();
	dana_notices_define();
	MarkGUCPrefixReserved("dana");
}
