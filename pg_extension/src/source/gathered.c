/*
 * Tables that this session gathered from shards, in its memory: they are temporary, and go with it.
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/datum.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"
#include "source/gathered.h"

typedef struct gathered
{
	Oid	   relation;
	Jsonb *from;
} gathered;

static List *all = NIL;

void
dana_gathered_add(Oid relation, Jsonb *from)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	gathered	 *added = palloc(sizeof *added);
	ListCell	 *cell;

	*added = (gathered){relation, palloc(VARSIZE(from))};
	memcpy(added->from, from, VARSIZE(from));
	foreach (cell, all)
	{
		gathered *one = lfirst(cell);

		if (one->relation == relation || !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(one->relation)))
		{
			pfree(one->from);
			pfree(one);
			all = foreach_delete_current(all, cell);
		}
	}
	all = lappend(all, added);
	MemoryContextSwitchTo(caller);
}

Jsonb *
dana_gathered(Oid relation)
{
	ListCell *cell;

	foreach (cell, all)
	{
		gathered *one = lfirst(cell);

		if (one->relation == relation)
			return one->from;
	}
	return NULL;
}

/* dana.dana_record_shards(relation, gathered): what a client has gathered into a temporary table */
DANA_FUNCTION(dana_record_shards)
{
	const Oid relation = PG_GETARG_OID(0);
	Jsonb	 *gathered = PG_GETARG_JSONB_P(1);

	dana_require_relation(relation);
	if (get_rel_persistence(relation) != RELPERSISTENCE_TEMP)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("%s is not a temporary table", dana_relation_name(relation))));
	if (!JB_ROOT_IS_OBJECT(gathered))
		dana_reject_argument("gathered", "be a JSON object");
	dana_gathered_add(relation, gathered);
	PG_RETURN_VOID();
}
