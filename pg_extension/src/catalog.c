/*
 * Access to the extension's own tables, through SPI. Plans are kept: a call on a small table spends its time here.
 */
#include "postgres.h"

#include "catalog/namespace.h"

#include "dana.h"

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

static Oid
table_owner(Oid table)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid		  owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	owner = ((Form_pg_class)GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
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

/* The search_path is set because operators are looked up in it: a caller's own "=" must not run as the owner. */
dana_identity
dana_become_owner(void)
{
	dana_identity before;

	GetUserIdAndSecContext(&before.user, &before.security);
	before.guc_level = NewGUCNestLevel();
	SetUserIdAndSecContext(table_owner(dana_catalog_table("model")),
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

/* SPI's functions end in a context that ends with the connection: what our callers make is to outlive it */
static uint64
catalog_execute(dana_statement *statement, Datum *values, const char *nulls, Snapshot snapshot, bool read_only)
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

uint64
dana_run(dana_statement *statement, Datum *values, const char *nulls)
{
	return catalog_execute(statement, values, nulls, InvalidSnapshot, false);
}

uint64
dana_read(dana_statement *statement, Datum *values, const char *nulls)
{
	return catalog_execute(statement, values, nulls, InvalidSnapshot, true);
}

uint64
dana_run_on_latest(dana_statement *statement, Datum *values)
{
	return catalog_execute(statement, values, NULL, GetLatestSnapshot(), true);
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

void
dana_peek(void (*read)(void *state), void *state)
{
	/* the end of a subtransaction that is rolled back gives its locks back */
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
