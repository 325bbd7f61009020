/*
 * The installed extension: its version and functions, statements on its tables, subtransactions.
 *
 * Functions are looked up once, and again after a change of any function, since ALTER EXTENSION ... UPDATE creates
 * some. Plans of statements are kept: a training on a small table spends most of its time in them.
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
#include "nodes/value.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/resowner.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/relations.h"

static struct
{
	bool known;
	bool watched; /* invalidations of functions are registered */
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
				 errmsg("extension \"dana\" has version %s in this database, and its library version %s", version,
						DANA_VERSION),
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
		dana_error(UNDEFINED_FUNCTION, "function %s() of extension \"dana\" does not exist", name);
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

/* Tables */

Oid
dana_catalog_table(const char *name)
{
	Oid schema = get_namespace_oid("dana", true);
	Oid table = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	if (!OidIsValid(table))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table dana.%s is missing", name),
						errhint("Run CREATE EXTENSION dana.")));
	return table;
}

void
dana_set_for_now(const char *name, const char *value)
{
	(void)set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
dana_connect(void)
{
	MemoryContext caller = CurrentMemoryContext;

	(void)SPI_connect(); /* raises its errors itself */
	MemoryContextSwitchTo(caller);
}

/* Operators are looked up in search_path: a caller's own "=" must not run as the owner. */
dana_identity
dana_become_owner(void)
{
	dana_identity before;

	GetUserIdAndSecContext(&before.user, &before.security);
	before.guc_level = NewGUCNestLevel();
	SetUserIdAndSecContext(dana_relation_owner(dana_catalog_table("model")),
						   before.security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	dana_set_for_now("search_path", "pg_catalog, pg_temp");
	dana_connect();
	return before;
}

void
dana_become_caller(dana_identity before)
{
	SPI_finish();
	AtEOXact_GUC(false, before.guc_level);
	SetUserIdAndSecContext(before.user, before.security);
}

/* SPI's functions leave a context that ends with the connection, but results must outlive it */
uint64
dana_execute(dana_statement *statement, Datum *values, const char *nulls, Snapshot snapshot, bool read_only)
{
	MemoryContext caller = CurrentMemoryContext;
	int			  code;

	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->text, statement->arguments, statement->types);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan \"%s\": %s", statement->text, SPI_result_code_string(SPI_result));
		statement->plan = plan;
	}
	code = SPI_execute_snapshot(statement->plan, values, nulls, snapshot, InvalidSnapshot, read_only, !read_only, 0);
	if (code < 0)
		elog(ERROR, "could not run \"%s\": %s", statement->text, SPI_result_code_string(code));
	MemoryContextSwitchTo(caller);
	return SPI_processed;
}

void
dana_run_once(const char *text)
{
	MemoryContext caller = CurrentMemoryContext;
	int			  code = SPI_execute(text, false, 0);

	if (code < 0)
		elog(ERROR, "could not run \"%s\": %s", text, SPI_result_code_string(code));
	MemoryContextSwitchTo(caller);
}

Datum
dana_value(uint64 row, int column)
{
	bool  isnull;
	Datum value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);

	return isnull ? (Datum)0 : value;
}

ErrorData *
dana_attempt(void (*run)(void *state), void *state, bool keep)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		run(state);
		if (keep)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

void
dana_peek(void (*read)(void *state), void *state)
{
	/* the rollback of a subtransaction releases its locks */
	ErrorData *error = dana_attempt(read, state, false);

	if (error != NULL)
		ReThrowError(error);
}

bool
dana_may_use(Oid caller, Oid owner, Datum users)
{
	ArrayType *array = DatumGetArrayTypeP(users);
	int		   count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	for (int i = 0; i < count; i++)
		if (has_privs_of_role(caller, ((Oid *)ARR_DATA_PTR(array))[i]))
			return true;
	return has_privs_of_role(caller, owner);
}
