/*
 * What the owner of a model does with it: drop, choose the version in use, rename, describe, let others use it.
 */
#include "postgres.h"

#include "dana.h"
#include "arguments.h"
#include "models.h"

#define OF_MODEL " WHERE owner = $1 AND name = $2"

/*
 * Runs statements about one of the caller's models, the first argument of a call. Their parameters are its owner, its name
 * and the other arguments. Number `version` of these is a version, or NULL for all of them; 0: none is, and the second
 * argument must be given. Returns how many rows the last statement changed.
 */
static uint64
change_model(FunctionCallInfo fcinfo, int version, dana_statement *statements, int count)
{
	static dana_statement find = DANA_MODEL_FIND("NULL");
	char		 *reference;
	dana_identity before;
	Datum		  values[DANA_MAX_ARGUMENTS];
	char		  nulls[DANA_MAX_ARGUMENTS] = "  ";
	uint64		  changed = 0;

	dana_require_arguments(fcinfo, version == 0 ? 2 : 1);
	reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strchr(reference, '@') != NULL)
		dana_model_check_name(reference);
	before = dana_become_owner();
	dana_model_find(&find, reference, before.user, dana_run);
	values[0] = dana_value(0, 1);
	if (!has_privs_of_role(before.user, DatumGetObjectId(values[0])))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of model \"%s\"", reference)));
	values[1] = dana_value(0, 3); /* lasts as long as the connection to SPI */
	for (int i = 1; i < PG_NARGS(); i++)
	{
		values[i + 1] = fcinfo->args[i].value;
		nulls[i + 1] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	for (int i = 0; i < count; i++)
		changed = dana_run(&statements[i], values, nulls);
	dana_become_caller(before);
	if (changed == 0 && version > 0 && !PG_ARGISNULL(version))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("model \"%s\" has no version %d", reference, PG_GETARG_INT32(version)),
						errhint("SELECT version, created FROM dana.model WHERE name = ... lists them.")));
	return changed;
}

/* dana_drop_model(name, version) */
DANA_COMMAND(dana_drop_model)
{
	static dana_statement drop = DANA_STATEMENT(
		"DELETE FROM dana.model" OF_MODEL " AND ($3 IS NULL OR version = $3)", OIDOID, TEXTOID, INT4OID);

	PG_RETURN_INT64((int64)change_model(fcinfo, 1, &drop, 1));
}

/* dana_activate_model(name, version): that one is in use; NULL: the highest, whichever that will be */
DANA_COMMAND(dana_activate_model)
{
	static dana_statement statements[] = {
		DANA_STATEMENT("UPDATE dana.model SET active = false" OF_MODEL " AND active", OIDOID, TEXTOID),
		DANA_STATEMENT("UPDATE dana.model SET active = true" OF_MODEL " AND version = $3", OIDOID, TEXTOID, INT4OID)};

	(void)change_model(fcinfo, 1, statements, lengthof(statements));
	PG_RETURN_VOID();
}

/* dana_rename_model(name, new_name): all versions; runs keep the name of then */
DANA_COMMAND(dana_rename_model)
{
	static dana_statement rename = DANA_STATEMENT("UPDATE dana.model SET name = $3" OF_MODEL
		" AND NOT EXISTS (SELECT FROM dana.model WHERE owner = $1 AND name = $3)", OIDOID, TEXTOID, TEXTOID);

	if (!PG_ARGISNULL(1))
		dana_model_check_name(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (change_model(fcinfo, 0, &rename, 1) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("model \"%s\" already exists", text_to_cstring(PG_GETARG_TEXT_PP(1)))));
	PG_RETURN_VOID();
}

/* dana_comment_model(name, comment, version) */
DANA_COMMAND(dana_comment_model)
{
	static dana_statement set = DANA_STATEMENT(
		"UPDATE dana.model SET comment = $3" OF_MODEL " AND ($4 IS NULL OR version = $4)",
		OIDOID, TEXTOID, TEXTOID, INT4OID);

	(void)change_model(fcinfo, 2, &set, 1);
	PG_RETURN_VOID();
}

/* dana_grant_model(name, role): all versions; the ones trained later take over what the highest has */
DANA_COMMAND(dana_grant_model)
{
	static dana_statement grant = DANA_STATEMENT(
		"UPDATE dana.model SET users = array_append(array_remove(users, $3), $3)" OF_MODEL,
		OIDOID, TEXTOID, REGROLEOID);

	(void)change_model(fcinfo, 0, &grant, 1);
	PG_RETURN_VOID();
}

/* dana_revoke_model(name, role) */
DANA_COMMAND(dana_revoke_model)
{
	static dana_statement revoke = DANA_STATEMENT(
		"UPDATE dana.model SET users = array_remove(users, $3)" OF_MODEL, OIDOID, TEXTOID, REGROLEOID);

	(void)change_model(fcinfo, 0, &revoke, 1);
	PG_RETURN_VOID();
}
