/*
 * The extension as it is installed. It is looked up once; a change of any function (ALTER EXTENSION ... UPDATE makes some)
 * has it looked up again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"

#include "dana.h"

static struct
{
	bool known;
	bool watched; /* changes of functions are told to us */
	Oid	 id;
	Oid	 schema;
} extension;

static void
extension_forget(Datum unused, int cache, uint32 hash)
{
	extension.known = false;
}

/* Reads the extension's row; returns its version */
static char *
extension_read(void)
{
	Relation	table = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("dana"));
	scan = systable_beginscan(table, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool  isnull;
		Datum datum = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(table), &isnull);

		version = TextDatumGetCString(datum);
		extension.id = ((Form_pg_extension)GETSTRUCT(tuple))->oid;
		extension.schema = ((Form_pg_extension)GETSTRUCT(tuple))->extnamespace;
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return version;
}

void
dana_check_version(void)
{
	char *version;

	if (likely(extension.known))
		return;
	if (!extension.watched)
		CacheRegisterSyscacheCallback(PROCOID, extension_forget, (Datum)0);
	extension.watched = true;
	version = extension_read();
	if (version == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension \"dana\" does not exist"),
						errhint("Run CREATE EXTENSION dana.")));
	if (strcmp(version, DANA_VERSION) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"dana\" has version %s in this database, and its library version " DANA_VERSION, version),
				 errhint("Run ALTER EXTENSION dana UPDATE, and begin a new session where the library was older.")));
	extension.known = true;
}

char *
dana_extension_name(const char *name)
{
	dana_check_version();
	return quote_qualified_identifier(get_namespace_name(extension.schema), name);
}

Oid
dana_extension_function(const char *name)
{
	CatCList *candidates;
	Oid		  found = InvalidOid;

	dana_check_version();
	candidates = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	for (int i = 0; i < candidates->n_members && !OidIsValid(found); i++)
	{
		Form_pg_proc function = (Form_pg_proc)GETSTRUCT(&candidates->members[i]->tuple);

		if (function->pronamespace == extension.schema &&
			getExtensionOfObject(ProcedureRelationId, function->oid) == extension.id)
			found = function->oid;
	}
	ReleaseSysCacheList(candidates);
	if (!OidIsValid(found))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("function %s() of extension \"dana\" does not exist", name)));
	return found;
}

void
dana_require_execute(Oid function)
{
#if PG_VERSION_NUM >= 160000
	AclResult result = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
	AclResult result = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
}
