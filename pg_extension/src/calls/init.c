/*
 * Entry point of the library: defines its settings when a server or a session loads it.
 */
#include "postgres.h"

#include "utils/guc_tables.h"

#include "base/dana.h"
#include "calls/map.h"
#include "calls/train.h"
#include "limits/bounds.h"
#include "request/training.h"
#include "worker/session.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "dana", .version = DANA_VERSION);
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

/* Names of the extension's settings that the connection's options set */
static List *
set_by_connection(void)
{
	int						count;
	struct config_generic **settings = dana_all_settings(&count);
	List				   *names = NIL;

	for (int i = 0; i < count; i++)
		if (strncmp(settings[i]->name, "dana.", 5) == 0 && settings[i]->reset_source == PGC_S_CLIENT)
			names = lappend(names, makeString(pstrdup(settings[i]->name)));
	return names;
}

/*
 * When a setting is defined, a value from the connection's options replaces the administrator's. If a client may not
 * set it, PostgreSQL then rejects the client's value, but the administrator's is lost, and no limit is left. So such a
 * session ends here; with the library preloaded, it could not have started.
 */
void
_PG_init(void)
{
	List *asked = set_by_connection(), *rejected;

	dana_session_define();
	dana_bounds_define();
	dana_training_define();
	dana_notices_define();
	dana_shards_define();
	rejected = list_difference(asked, set_by_connection());
	if (rejected != NIL)
		ereport(FATAL, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("connection options may not set parameter \"%s\"", strVal(linitial(rejected))),
						errhint("Connect without it (options=…, PGOPTIONS).")));
	MarkGUCPrefixReserved("dana");
}
