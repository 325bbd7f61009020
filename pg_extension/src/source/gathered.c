/*
 * Tables that this session gathered from shards, in its memory: they are temporary, and go with it.
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/lsyscache.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"
#include "source/gathered.h"

typedef struct gathered
{
	Oid		   relation;
	Jsonb	  *from;
	dana_texts key;
} gathered;

static List *all = NIL;

void
dana_gathered_add(Oid relation, Jsonb *from, const dana_texts *key)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	gathered	 *added = palloc(sizeof *added);
	ListCell	 *cell;

	*added = (gathered){relation, palloc(VARSIZE(from)), {key->count, palloc(sizeof(char *) * Max(key->count, 1))}};
	memcpy(added->from, from, VARSIZE(from));
	for (int i = 0; i < key->count; i++)
		added->key.values[i] = pstrdup(key->values[i]);
	foreach (cell, all)
	{
		gathered *one = lfirst(cell);

		if (one->relation == relation || !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(one->relation)))
		{
			for (int i = 0; i < one->key.count; i++)
				pfree(one->key.values[i]);
			pfree(one->key.values);
			pfree(one->from);
			pfree(one);
			all = foreach_delete_current(all, cell);
		}
	}
	all = lappend(all, added);
	MemoryContextSwitchTo(caller);
}

static const gathered *
find(Oid relation)
{
	ListCell *cell;

	foreach (cell, all)
	{
		gathered *one = lfirst(cell);

		if (one->relation == relation)
			return one;
	}
	return NULL;
}

Jsonb *
dana_gathered(Oid relation)
{
	const gathered *one = find(relation);

	return one == NULL ? NULL : one->from;
}

dana_texts
dana_gathered_key(Oid relation)
{
	const gathered *one = find(relation);

	for (int i = 0; one != NULL && i < one->key.count; i++)
		if (get_attnum(relation, one->key.values[i]) <= 0) /* its name has changed since */
			one = NULL;
	return one == NULL ? (dana_texts){0} : one->key;
}
