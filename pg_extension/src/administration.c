/*
 * What the owner of a model does with it: drop, choose the version in use, rename, describe, let others use it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"

#include "catalog.h"
#include "compat.h"
#include "extension.h"
#include "models.h"


/* A model of the caller's, all versions of it */
typedef struct owned_model
{
	const char *reference; /* as in the call */
	Datum		owner;
	Datum		name;
} owned_model;

/* The model that the first argument names; we are the tables' owner from here on */
static owned_model
begin_administration(FunctionCallInfo fcinfo, const char *function, dana_identity *before)
{
	static dana_statement find = DANA_MODEL_FIND("NULL");
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext ours;
	owned_model	  model;
	bool		  isnull;

	PreventCommandIfReadOnly(function);
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's name must not be null")));
	model.reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strchr(model.reference, '@') != NULL)
		dana_model_check_name(model.reference);
	*before = dana_become_owner();
	dana_model_find(&find, model.reference, before->user, dana_run);
	model.owner = dana_value(0, 1, &isnull);
	dana_require_owner(before->user, DatumGetObjectId(model.owner), "model", model.reference);
	ours = MemoryContextSwitchTo(caller);
	model.name = datumCopy(dana_value(0, 3, &isnull), false, -1);
	MemoryContextSwitchTo(ours);
	return model;
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
DANA_FUNCTION(dana_drop_model)
{
	static dana_statement drop = {
		"DELETE FROM dana.model WHERE owner = $1 AND name = $2 AND ($3 IS NULL OR version = $3)", 3, {OIDOID, TEXTOID, INT4OID}, NULL};
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, "dana_drop_model()", &before);
	Datum		  values[] = {model.owner, model.name, PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};
	uint64		  dropped = dana_run(&drop, values, PG_ARGISNULL(1) ? "  n" : NULL);

	if (dropped == 0)
		no_version(model.reference, PG_GETARG_INT32(1));
	dana_become_caller(before);
	PG_RETURN_INT64((int64)dropped);
}

/* Makes one version the one in use; 0: the highest, whichever that will be */
static void
activate_version(owned_model model, int version)
{
	static dana_statement clear = {
		"UPDATE dana.model SET active = false WHERE owner = $1 AND name = $2 AND active", 2, {OIDOID, TEXTOID}, NULL};
	static dana_statement set = {
		"UPDATE dana.model SET active = true WHERE owner = $1 AND name = $2 AND version = $3", 3, {OIDOID, TEXTOID, INT4OID}, NULL};
	Datum values[] = {model.owner, model.name, Int32GetDatum(version)};

	dana_run(&clear, values, NULL);
	if (version != 0 && dana_run(&set, values, NULL) == 0)
		no_version(model.reference, version);
}

/* dana_activate_model(name, version) */
DANA_FUNCTION(dana_activate_model)
{
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, "dana_activate_model()", &before);

	activate_version(model, PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1));
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_rollback_model(name): the version before the one in use becomes the one in use */
DANA_FUNCTION(dana_rollback_model)
{
	static dana_statement find = {
		"SELECT max(version) FROM dana.model WHERE owner = $1 AND name = $2 AND version < "
		"(SELECT version FROM dana.model WHERE owner = $1 AND name = $2 ORDER BY active DESC, version DESC LIMIT 1)",
		2,
		{OIDOID, TEXTOID},
		NULL};
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, "dana_rollback_model()", &before);
	Datum		  values[] = {model.owner, model.name};
	bool		  isnull;
	int			  version;

	dana_run(&find, values, NULL);
	version = DatumGetInt32(dana_value(0, 1, &isnull));
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("model \"%s\" has no version before the one in use", model.reference)));
	activate_version(model, version);
	dana_become_caller(before);
	PG_RETURN_INT32(version);
}

/* dana_rename_model(name, new_name): all versions; runs keep the name of then */
DANA_FUNCTION(dana_rename_model)
{
	static dana_statement taken = {
		"SELECT FROM dana.model WHERE owner = $1 AND name = $2 LIMIT 1", 2, {OIDOID, TEXTOID}, NULL};
	static dana_statement rename = {
		"UPDATE dana.model SET name = $3 WHERE owner = $1 AND name = $2", 3, {OIDOID, TEXTOID, TEXTOID}, NULL};
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, "dana_rename_model()", &before);
	char		 *target;
	Datum		  values[3];
	Datum		  wanted[2];

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's new name must not be null")));
	target = text_to_cstring(PG_GETARG_TEXT_PP(1));
	dana_model_check_name(target);
	values[0] = wanted[0] = model.owner;
	values[1] = model.name;
	values[2] = wanted[1] = CStringGetTextDatum(target);
	if (dana_run(&taken, wanted, NULL) > 0)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("model \"%s\" already exists", target)));
	dana_run(&rename, values, NULL);
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_comment_model(name, comment, version) */
DANA_FUNCTION(dana_comment_model)
{
	static dana_statement set = {"UPDATE dana.model SET comment = $3 WHERE owner = $1 AND name = $2 AND ($4 IS NULL OR version = $4)",
								 4,
								 {OIDOID, TEXTOID, TEXTOID, INT4OID},
								 NULL};
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, "dana_comment_model()", &before);
	Datum		  values[] = {model.owner, model.name, PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1),
							  PG_ARGISNULL(2) ? (Datum)0 : PG_GETARG_DATUM(2)};
	char		  nulls[] = {' ', ' ', PG_ARGISNULL(1) ? 'n' : ' ', PG_ARGISNULL(2) ? 'n' : ' ', '\0'};

	if (dana_run(&set, values, nulls) == 0)
		no_version(model.reference, PG_GETARG_INT32(2));
	dana_become_caller(before);
	PG_RETURN_VOID();
}

static void
change_model_users(FunctionCallInfo fcinfo, const char *function, dana_statement *change)
{
	dana_identity before;
	owned_model	  model = begin_administration(fcinfo, function, &before);
	Datum		  values[] = {model.owner, model.name, PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the role must not be null")));
	dana_run(change, values, NULL);
	dana_become_caller(before);
}

/* dana_grant_model(name, role): all versions; the ones trained later take over what the highest has */
DANA_FUNCTION(dana_grant_model)
{
	static dana_statement grant = {"UPDATE dana.model SET users = array_append(array_remove(users, $3), $3) WHERE owner = $1 AND name = $2",
								   3,
								   {OIDOID, TEXTOID, REGROLEOID},
								   NULL};

	change_model_users(fcinfo, "dana_grant_model()", &grant);
	PG_RETURN_VOID();
}

/* dana_revoke_model(name, role) */
DANA_FUNCTION(dana_revoke_model)
{
	static dana_statement revoke = {
		"UPDATE dana.model SET users = array_remove(users, $3) WHERE owner = $1 AND name = $2", 3, {OIDOID, TEXTOID, REGROLEOID}, NULL};

	change_model_users(fcinfo, "dana_revoke_model()", &revoke);
	PG_RETURN_VOID();
}
