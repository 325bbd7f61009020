/*
 * Relations by name, and their kinds: only some have rows with a place of their own.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "utils/varlena.h"

#include "base/dana.h"
#include "base/relations.h"

char *
dana_relation_name(Oid relation)
{
	const bool	quote_all = quote_all_identifiers;
	const char *schema = get_namespace_name(get_rel_namespace(relation));
	const char *name = get_rel_name(relation);
	char	   *qualified = NULL;

	if (name == NULL || schema == NULL)
		dana_error(UNDEFINED_TABLE, "relation with OID %u does not exist", relation);
	PG_TRY();
	{
		quote_all_identifiers = false;
		qualified = quote_qualified_identifier(schema, name);
	}
	PG_FINALLY();
	{
		quote_all_identifiers = quote_all;
	}
	PG_END_TRY();
	return qualified;
}

Oid
dana_relation_owner(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid		  owner;

	if (!HeapTupleIsValid(tuple))
		dana_error(UNDEFINED_TABLE, "relation with OID %u does not exist", relation);
	owner = ((Form_pg_class)GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
dana_require_relation(Oid relation)
{
	const Oid schema = get_rel_namespace(relation);
	AclResult result;

	if (!OidIsValid(schema))
		dana_error(UNDEFINED_TABLE, "relation with OID %u does not exist", relation);
	/* schemas pg_temp_N are reused: the session that has it now may have created a view of that name */
	if (isOtherTempNamespace(schema))
		dana_error(FEATURE_NOT_SUPPORTED, "%s is a temporary table of another session", get_rel_name(relation));
#if PG_VERSION_NUM >= 160000
	result = object_aclcheck(NamespaceRelationId, schema, GetUserId(), ACL_USAGE);
#else
	result = pg_namespace_aclcheck(schema, GetUserId(), ACL_USAGE);
#endif
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_SCHEMA, get_namespace_name(schema));
	result = pg_class_aclcheck(relation, GetUserId(), ACL_SELECT);
	if (result != ACLCHECK_OK)
		result = pg_attribute_aclcheck_all(relation, GetUserId(), ACL_SELECT, ACLMASK_ANY);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(get_rel_relkind(relation)), get_rel_name(relation));
}

char *
dana_denied_columns(Oid relation)
{
	StringInfoData list;
	Relation	   opened;
	TupleDesc	   columns;

	if (pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return NULL;
	initStringInfo(&list);
	opened = relation_open(relation, AccessShareLock);
	columns = RelationGetDescr(opened);
	for (int i = 0; i < columns->natts; i++)
		if (!TupleDescAttr(columns, i)->attisdropped &&
			pg_attribute_aclcheck(relation, i + 1, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", NameStr(TupleDescAttr(columns, i)->attname));
	relation_close(opened, NoLock);
	return list.len > 0 ? list.data : NULL;
}

const char *
dana_type_name(Oid type)
{
	static const char catalog[] = "pg_catalog.";
	const char *name = format_type_extended(type, -1, FORMAT_TYPE_FORCE_QUALIFY);

	return strncmp(name, catalog, sizeof catalog - 1) == 0 ? name + sizeof catalog - 1 : name;
}

bool
dana_relation_is(Oid relation, const char *name)
{
	List *names;

	return SplitIdentifierString(pstrdup(name), '.', &names) && list_length(names) == 2 &&
		get_relname_relid(lsecond(names), get_namespace_oid(linitial(names), true)) == relation;
}

bool
dana_has_places(Oid relation)
{
	ListCell *cell;

	foreach (cell, find_all_inheritors(relation, AccessShareLock, NULL))
		switch (get_rel_relkind(lfirst_oid(cell)))
		{
			case RELKIND_VIEW:
			case RELKIND_FOREIGN_TABLE: /* a wrapper need not set ctid: all rows of file_fdw have the same */
				return false;
			default:
				break;
		}
	return true;
}
