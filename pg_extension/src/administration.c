/*
 * What the owner of a model does with it: drop, choose the version in use, rename, describe, let others use it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"
#include "models.h"

PG_FUNCTION_INFO_V1(dana_drop_model);
PG_FUNCTION_INFO_V1(dana_activate_model);
PG_FUNCTION_INFO_V1(dana_rollback_model);
PG_FUNCTION_INFO_V1(dana_rename_model);
PG_FUNCTION_INFO_V1(dana_comment_model);
PG_FUNCTION_INFO_V1(dana_grant_model);
PG_FUNCTION_INFO_V1(dana_revoke_model);

/* The model that the first argument names; we are the tables' owner from here on */
static char *
begin(FunctionCallInfo fcinfo, const char *function, dana_identity *before)
{
	char *name;

	PreventCommandIfReadOnly(function);
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's name must not be NULL")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	*before = dana_become_owner();
	if (dana_model_check_owner(before->user, name) == 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("model \"%s\" does not exist", name)));
	return name;
}

static _Noreturn void
no_version(const char *name, int version)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("model \"%s\" has no version %d", name, version),
			 errhint("SELECT version, created FROM dana.model WHERE name = ... lists them.")));
}

/* dana_drop_model(name, version) */
Datum
dana_drop_model(PG_FUNCTION_ARGS)
{
	static dana_statement drop = {
		"DELETE FROM dana.model WHERE name = $1 AND ($2 IS NULL OR version = $2)", 2, {TEXTOID, INT4OID}, NULL};
	dana_identity before;
	char		 *name = begin(fcinfo, "dana_drop_model()", &before);
	Datum		  values[] = {CStringGetTextDatum(name), PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};
	uint64		  dropped = dana_run(&drop, values, PG_ARGISNULL(1) ? " n" : NULL);

	if (dropped == 0)
		no_version(name, PG_GETARG_INT32(1));
	dana_become_caller(before);
	PG_RETURN_INT64((int64)dropped);
}

/* Makes one version the one in use; 0: the highest, whichever that will be */
static void
activate(const char *name, int version)
{
	static dana_statement clear = {"UPDATE dana.model SET active = false WHERE name = $1 AND active", 1, {TEXTOID}, NULL};
	static dana_statement set = {
		"UPDATE dana.model SET active = true WHERE name = $1 AND version = $2", 2, {TEXTOID, INT4OID}, NULL};
	Datum values[] = {CStringGetTextDatum(name), Int32GetDatum(version)};

	dana_run(&clear, values, NULL);
	if (version != 0 && dana_run(&set, values, NULL) == 0)
		no_version(name, version);
}

/* dana_activate_model(name, version) */
Datum
dana_activate_model(PG_FUNCTION_ARGS)
{
	dana_identity before;
	char		 *name = begin(fcinfo, "dana_activate_model()", &before);

	activate(name, PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1));
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_rollback_model(name): the version before the one in use becomes the one in use */
Datum
dana_rollback_model(PG_FUNCTION_ARGS)
{
	static dana_statement find = {
		"SELECT max(version) FROM dana.model WHERE name = $1 AND version < "
		"(SELECT version FROM dana.model WHERE name = $1 ORDER BY active DESC, version DESC LIMIT 1)",
		1,
		{TEXTOID},
		NULL};
	dana_identity before;
	char		 *name = begin(fcinfo, "dana_rollback_model()", &before);
	Datum		  values[] = {CStringGetTextDatum(name)};
	bool		  isnull;
	int			  version;

	dana_run(&find, values, NULL);
	version = DatumGetInt32(dana_value(0, 1, &isnull));
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("model \"%s\" has no version before the one in use", name)));
	activate(name, version);
	dana_become_caller(before);
	PG_RETURN_INT32(version);
}

/* dana_rename_model(name, new_name): all versions; runs keep the name of then */
Datum
dana_rename_model(PG_FUNCTION_ARGS)
{
	static dana_statement taken = {"SELECT FROM dana.model WHERE name = $1 LIMIT 1", 1, {TEXTOID}, NULL};
	static dana_statement models = {"UPDATE dana.model SET name = $2 WHERE name = $1", 2, {TEXTOID, TEXTOID}, NULL};
	dana_identity before;
	char		 *name = begin(fcinfo, "dana_rename_model()", &before);
	char		 *target;
	Datum		  values[2];
	Datum		  wanted[1];

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's new name must not be NULL")));
	target = text_to_cstring(PG_GETARG_TEXT_PP(1));
	dana_model_check_name(target);
	values[0] = CStringGetTextDatum(name);
	values[1] = wanted[0] = CStringGetTextDatum(target);
	if (dana_run(&taken, wanted, NULL) > 0)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("model \"%s\" already exists", target)));
	dana_run(&models, values, NULL);
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_comment_model(name, comment, version) */
Datum
dana_comment_model(PG_FUNCTION_ARGS)
{
	static dana_statement set = {"UPDATE dana.model SET comment = $2 WHERE name = $1 AND ($3 IS NULL OR version = $3)",
								 3,
								 {TEXTOID, TEXTOID, INT4OID},
								 NULL};
	dana_identity before;
	char		 *name = begin(fcinfo, "dana_comment_model()", &before);
	Datum		  values[] = {CStringGetTextDatum(name), PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1),
							  PG_ARGISNULL(2) ? (Datum)0 : PG_GETARG_DATUM(2)};
	char		  nulls[] = {' ', PG_ARGISNULL(1) ? 'n' : ' ', PG_ARGISNULL(2) ? 'n' : ' ', '\0'};

	if (dana_run(&set, values, nulls) == 0)
		no_version(name, PG_GETARG_INT32(2));
	dana_become_caller(before);
	PG_RETURN_VOID();
}

static void
change_users(FunctionCallInfo fcinfo, const char *function, dana_statement *change)
{
	dana_identity before;
	char		 *name = begin(fcinfo, function, &before);
	Datum		  values[] = {CStringGetTextDatum(name), PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the role must not be NULL")));
	dana_run(change, values, NULL);
	dana_become_caller(before);
}

/* dana_grant_model(name, role): all versions; the ones trained later take over what the highest has */
Datum
dana_grant_model(PG_FUNCTION_ARGS)
{
	static dana_statement grant = {"UPDATE dana.model SET users = array_append(array_remove(users, $2), $2) WHERE name = $1",
								   2,
								   {TEXTOID, REGROLEOID},
								   NULL};

	change_users(fcinfo, "dana_grant_model()", &grant);
	PG_RETURN_VOID();
}

/* dana_revoke_model(name, role) */
Datum
dana_revoke_model(PG_FUNCTION_ARGS)
{
	static dana_statement revoke = {
		"UPDATE dana.model SET users = array_remove(users, $2) WHERE name = $1", 2, {TEXTOID, REGROLEOID}, NULL};

	change_users(fcinfo, "dana_revoke_model()", &revoke);
	PG_RETURN_VOID();
}
