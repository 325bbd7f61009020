/*
 * Entry of the library: its settings, when a server or a session loads it.
 */
#include "postgres.h"

#include "utils/guc_tables.h"

#include "base/dana.h"
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

/* Names of our settings that the connection's options gave a value */
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
 * A setting that nobody has defined yet takes what a connection's options say, in the place of what the administrator
 * gave it. PostgreSQL refuses that when it is defined, if a client may not set it, but the administrator's is gone by
 * then, and what is left is no limit at all. So such a session ends, which would not have begun with us preloaded.
 */
void
_PG_init(void)
{
	List *asked = set_by_connection(), *refused;

	dana_session_define();
	dana_bounds_define();
	dana_training_define();
	dana_notices_define();
	refused = list_difference(asked, set_by_connection());
	if (refused != NIL)
		ereport(FATAL, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("the options of a connection may not set parameter \"%s\"", strVal(linitial(refused))),
						errhint("Connect without it (options=…, PGOPTIONS).")));
	MarkGUCPrefixReserved("dana");
}
