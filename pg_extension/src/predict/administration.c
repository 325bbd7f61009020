/*
 * Functions for the owner of a model: drop, activate a version, rename, comment, grant; and the removal of old objects.
 */
#include "postgres.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/role.h"
#include "models/models.h"

#define OF_MODEL " WHERE owner = $1 AND name = $2"

/* Becomes the tables' owner to change a model, which must be the caller's; its row is then the last result */
static dana_identity
begin_change(const char *reference)
{
	dana_identity before = dana_become_owner();

	dana_model_find(reference, before.user, false);
	if (!has_privs_of_role(before.user, DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER))))
		dana_error(INSUFFICIENT_PRIVILEGE, "must be owner of model \"%s\"", reference);
	return before;
}

/*
 * dana.dana_administered(name, caller): the row of the version in use of a model that the caller may administer, for an
 * SQL function to check before it changes anything
 */
DANA_FUNCTION(dana_administered)
{
	char		 *reference;
	char		 *function;
	dana_identity before;
	Datum		  row;

	dana_require_arguments(fcinfo, 2);
	reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	function = text_to_cstring(PG_GETARG_TEXT_PP(1));
	PreventCommandIfReadOnly(psprintf("%s()", function));
	if (dana_model_names_version(reference))
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME),
						errmsg("%s() takes the name of a model, not \"%s\"", function, reference),
						errhint("It goes by the version in use: dana_activate_model(name, version) chooses another one.")));
	before = begin_change(reference);
	row = dana_model_row("model");
	dana_become_caller(before);
	PG_RETURN_DATUM(row);
}

/*
 * Runs statements about one of the caller's models, the first argument of a call. Their parameters are its owner, its
 * name and the other arguments. Parameter number `version` is a version, or NULL for all of them; 0: there is none, and
 * the second argument must be given. Returns the number of rows that the last statement changed.
 */
static uint64
change_model(FunctionCallInfo fcinfo, int version, dana_statement *statements, int count)
{
	char		 *reference;
	dana_identity before;
	Datum		  values[DANA_MAX_ARGUMENTS];
	char		  nulls[DANA_MAX_ARGUMENTS] = "  ";
	uint64		  changed = 0;

	dana_require_arguments(fcinfo, version == 0 ? 2 : 1);
	reference = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (dana_model_names_version(reference))
		dana_model_check_name(reference);
	before = begin_change(reference);
	values[0] = dana_value(0, DANA_MODEL_OWNER);
	values[1] = dana_value(0, DANA_MODEL_NAME); /* valid until the connection to SPI ends */
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

/* A function that is one statement; if it returns a number, that is the number of rows changed */
#define MODEL_COMMAND(name, version, text, ...) \
	DANA_COMMAND(name) \
	{ \
		static dana_statement statement = DANA_STATEMENT(text, OIDOID, TEXTOID, __VA_ARGS__); \
\
		PG_RETURN_INT64((int64)change_model(fcinfo, version, &statement, 1)); \
	}

/* dana_drop_model(name, version) */
MODEL_COMMAND(dana_drop_model, 1, "DELETE FROM dana.model" OF_MODEL " AND ($3 IS NULL OR version = $3)", INT4OID)

/* dana_comment_model(name, comment, version) */
MODEL_COMMAND(dana_comment_model, 2,
			  "UPDATE dana.model SET comment = $3" OF_MODEL " AND ($4 IS NULL OR version = $4)", TEXTOID, INT4OID)

/* dana.dana_store_profile(name, profile, version) */
MODEL_COMMAND(dana_store_profile, 2,
			  "UPDATE dana.model SET metadata = jsonb_set(metadata, '{profile}', dana.dana_checked_profile($3, $2))" OF_MODEL " AND version = $4",
			  JSONBOID, INT4OID)

/* dana_grant_model(name, role): all versions; later ones inherit from the highest */
DANA_COMMAND(dana_grant_model)
{
	static dana_statement grant = DANA_STATEMENT(
		"UPDATE dana.model SET users = array_append(array_remove(users, $3), $3)" OF_MODEL, OIDOID, TEXTOID, REGROLEOID);

	if (!PG_ARGISNULL(1))
		dana_require_role(PG_GETARG_OID(1));
	PG_RETURN_INT64((int64)change_model(fcinfo, 0, &grant, 1));
}

/* dana_revoke_model(name, role) */
MODEL_COMMAND(dana_revoke_model, 0, "UPDATE dana.model SET users = array_remove(users, $3)" OF_MODEL, REGROLEOID)

/* dana_activate_model(name, version): puts it in use; NULL: always the highest */
DANA_COMMAND(dana_activate_model)
{
	static dana_statement statements[] = {
		DANA_STATEMENT("UPDATE dana.model SET active = false" OF_MODEL " AND active", OIDOID, TEXTOID),
		DANA_STATEMENT("UPDATE dana.model SET active = true" OF_MODEL " AND version = $3", OIDOID, TEXTOID, INT4OID)};

	(void)change_model(fcinfo, 1, statements, lengthof(statements));
	PG_RETURN_VOID();
}

/* dana_rename_model(name, new_name): all versions; runs keep the old name */
DANA_COMMAND(dana_rename_model)
{
	static dana_statement rename = DANA_STATEMENT("UPDATE dana.model SET name = $3" OF_MODEL
		" AND NOT EXISTS (SELECT FROM dana.model WHERE owner = $1 AND name = $3)", OIDOID, TEXTOID, TEXTOID);

	if (!PG_ARGISNULL(1))
		dana_model_check_name(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (change_model(fcinfo, 0, &rename, 1) == 0)
		dana_error(DUPLICATE_OBJECT, "model \"%s\" already exists", text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}

/* $1: caller, $2: age, $3: number to keep */
#define MAY_GO(time) " AND pg_has_role($1, owner, 'USAGE') AND " time " < coalesce(now() - $2, 'infinity')"
#define PRUNE(text)	 DANA_STATEMENT(text, OIDOID, INTERVALOID, INT4OID)

/*
 * dana_prune(older_than, keep): removes old versions of models, runs, jobs and checkpoints. Objects younger than
 * `older_than`, or among the `keep` newest of their kind, stay: versions per model name, runs per model, others per role.
 */
DANA_COMMAND(dana_prune)
{
	static dana_statement prune[] = {
		/* neither the version in use nor the highest, which the next version's number follows */
		PRUNE("DELETE FROM dana.model AS m USING (SELECT owner AS o, name AS n, version AS v, "
		 " row_number() OVER (PARTITION BY owner, name ORDER BY version DESC) AS place FROM dana.model) AS r "
		 "WHERE (owner, name, version) = (o, n, v) AND place > greatest($3, 1) AND NOT active" MAY_GO("created")),
		PRUNE("DELETE FROM dana.run AS u USING (SELECT id AS i, "
		 " row_number() OVER (PARTITION BY owner, model ORDER BY id DESC) AS place FROM dana.run) AS r "
		 "WHERE id = i AND place > coalesce($3, 0)" MAY_GO("started")),
		/* finished or lost: its lock is free, and its transaction is over */
		PRUNE("DELETE FROM dana.job_log AS j USING (SELECT id AS i, "
		 " row_number() OVER (PARTITION BY owner ORDER BY id DESC) AS place FROM dana.job_log) AS r "
		 "WHERE id = i AND place > coalesce($3, 0) AND created < now() AND (ended IS NOT NULL OR NOT EXISTS "
		 " (SELECT FROM pg_locks AS l WHERE l.locktype = 'object' AND l.classid = 'dana.job_log'::regclass "
		 "  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
		 "  AND l.objid = (id & 4294967295)::oid AND l.mode = 'ExclusiveLock' AND l.granted))" MAY_GO("coalesce(ended, created)")),
		PRUNE("DELETE FROM dana.checkpoint USING (SELECT owner AS o, model AS m, "
		 " row_number() OVER (PARTITION BY owner ORDER BY written DESC) AS place FROM dana.checkpoint) AS r "
		 "WHERE (owner, model) = (o, m) AND place > coalesce($3, 0)" MAY_GO("written"))};
	ReturnSetInfo *result;
	Datum		   counts[lengthof(prune)];
	Datum		   values[] = {0, PG_ARGISNULL(0) ? (Datum)0 : PG_GETARG_DATUM(0), PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};
	char		   given[] = {' ', PG_ARGISNULL(0) ? 'n' : ' ', PG_ARGISNULL(1) ? 'n' : ' ', '\0'};
	dana_identity  before;

	if (PG_ARGISNULL(0) && PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("give argument \"older_than\", argument \"keep\", or both"),
						errhint("For instance dana_prune('30 days', keep => 3): what is older than that, except the 3 "
								"newest of each.")));
	if (!PG_ARGISNULL(0) && DatumGetBool(DirectFunctionCall2(interval_lt, values[1], IntervalPGetDatum(&(Interval){0}))))
		dana_reject_argument("older_than", "not be negative");
	if (!PG_ARGISNULL(1) && PG_GETARG_INT32(1) < 0)
		dana_reject_argument("keep", "be a number from 0, not %d", PG_GETARG_INT32(1));
	result = dana_results_begin(fcinfo);
	before = dana_become_owner();
	values[0] = ObjectIdGetDatum(before.user);
	for (int i = 0; i < lengthof(prune); i++)
		counts[i] = Int64GetDatum((int64)dana_run(&prune[i], values, given));
	dana_become_caller(before);
	dana_results_add(result, counts, NULL);
	return (Datum)0;
}
