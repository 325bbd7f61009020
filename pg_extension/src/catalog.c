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

/*
 * The search_path is set because operators are looked up in it: a caller's own "=" must not run as the owner.
 */
dana_identity
dana_become_owner(void)
{
	dana_identity before;

	GetUserIdAndSecContext(&before.user, &before.security);
	before.guc_level = NewGUCNestLevel();
	SetUserIdAndSecContext(table_owner(dana_catalog_table("model")),
						   before.security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	(void)set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	return before;
}

void
dana_become_caller(dana_identity before)
{
	SPI_finish();
	AtEOXact_GUC(false, before.guc_level);
	SetUserIdAndSecContext(before.user, before.security);
}

static SPIPlanPtr
plan_of(dana_statement *statement)
{
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->text, statement->arguments, statement->types);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan \"%s\": %s", statement->text, SPI_result_code_string(SPI_result));
		statement->plan = plan;
	}
	return statement->plan;
}

static uint64
spi_rows(int code, const char *text)
{
	if (code < 0)
		elog(ERROR, "could not run \"%s\": %s", text, SPI_result_code_string(code));
	return SPI_processed;
}

uint64
dana_run(dana_statement *statement, Datum *values, const char *nulls)
{
	return spi_rows(SPI_execute_plan(plan_of(statement), values, nulls, false, 0), statement->text);
}

uint64
dana_read(dana_statement *statement, Datum *values, const char *nulls)
{
	return spi_rows(SPI_execute_plan(plan_of(statement), values, nulls, true, 0), statement->text);
}

uint64
dana_run_on_latest(dana_statement *statement, Datum *values)
{
	SPIPlanPtr plan = plan_of(statement);

	return spi_rows(SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(), InvalidSnapshot, true, false, 0),
				statement->text);
}

void
dana_run_once(const char *text)
{
	(void)spi_rows(SPI_execute(text, false, 0), text);
}

Datum
dana_value(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

void
dana_peek(void (*read)(void *state), void *state)
{
	/* the end of a subtransaction that is rolled back gives its locks back */
	ErrorData *error = dana_attempt(read, state, false);

	if (error != NULL)
		ReThrowError(error);
}

void
dana_require_owner(Oid caller, Oid owner, const char *kind, const char *name)
{
	if (!has_privs_of_role(caller, owner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of %s \"%s\"", kind, name)));
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
