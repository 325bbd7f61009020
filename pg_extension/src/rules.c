/*
 * Rules: dana_create_udf(), dana_drop_udf(), and the function that each rule gets.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "catalog.h"
#include "compat.h"
#include "json.h"
#include "rules.h"
#include "session.h"

PG_FUNCTION_INFO_V1(dana_create_udf);
PG_FUNCTION_INFO_V1(dana_drop_udf);
PG_FUNCTION_INFO_V1(dana_grant_rule);
PG_FUNCTION_INFO_V1(dana_revoke_rule);

/* The signature that version 0.1 gave to a rule's function */
#define FORMER_TYPES "regclass, text, text[], text, integer, jsonb, text, jsonb"

/* The signature of a rule's function, for CREATE and for DROP; dana_train()'s without the rule */
#define FUNCTION_ARGUMENTS                                                                                             \
	"source regclass DEFAULT NULL, model text DEFAULT NULL, features text[] DEFAULT NULL, label text DEFAULT NULL, "   \
	"epochs integer DEFAULT NULL, hyper jsonb DEFAULT '{}', backend text DEFAULT 'sim', design jsonb DEFAULT '{}', "   \
	"query text DEFAULT NULL, filter text DEFAULT NULL, nulls text DEFAULT 'skip', nonfinite text DEFAULT 'keep', "    \
	"classes text[] DEFAULT NULL, test double precision DEFAULT NULL, seed integer DEFAULT 1, warm text DEFAULT NULL"
#define FUNCTION_TYPES                                                                                                 \
	"regclass, text, text[], text, integer, jsonb, text, jsonb, text, text, text, text, text[], double precision, "    \
	"integer, text"

/* The rule that the caller may have meant, or NULL; of those that it may see. Called as the tables' owner. */
static char *
closest_rule(const char *name, Oid caller)
{
	static dana_statement list = {
		"SELECT name FROM dana.udf WHERE everybody OR pg_has_role($1, owner, 'USAGE') "
		"OR EXISTS (SELECT FROM unnest(users) AS u (role) WHERE pg_has_role($1, u.role, 'USAGE')) ORDER BY name",
		1,
		{OIDOID},
		NULL};
	Datum  values[] = {ObjectIdGetDatum(caller)};
	int	   length = strlen(name);
	int	   least = 1 + length / 3; /* further away it is another word */
	char  *found = NULL;
	uint64 rules;

	if (length >= NAMEDATALEN)
		return NULL;
	rules = dana_read(&list, values, NULL);
	for (uint64 i = 0; i < rules; i++)
	{
		bool  isnull;
		char *other = TextDatumGetCString(dana_value(i, 1, &isnull));
		int distance = pg_strcasecmp(name, other) == 0
			? 0
			: varstr_levenshtein_less_equal(name, length, other, strlen(other), 1, 1, 1, least, true);

		if (distance < least || (distance == least && found == NULL))
		{
			least = distance;
			found = other;
		}
	}
	return found;
}

/* Called as the tables' owner */
static _Noreturn void
no_rule(const char *name, Oid caller)
{
	char *closest = closest_rule(name, caller);

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("rule \"%s\" does not exist", name),
			 closest != NULL
				 ? errhint("Perhaps you meant \"%s\".", closest)
				 : errhint("SELECT name FROM dana.udf lists the rules; dana_create_udf(name, source) makes one.")));
}

char *
dana_rule_source(const char *name)
{
	static dana_statement find = {
		"SELECT source, owner, CASE WHEN NOT everybody THEN users END FROM dana.udf WHERE name = $1", 1, {TEXTOID}, NULL};
	MemoryContext context = CurrentMemoryContext;
	dana_identity before = dana_become_owner();
	Datum		  values[] = {CStringGetTextDatum(name)};
	char		 *source;
	bool		  isnull;
	bool		  everybody;
	Datum		  users;

	if (dana_run(&find, values, NULL) == 0)
		no_rule(name, before.user);
	users = dana_value(0, 3, &everybody);
	if (!everybody)
		dana_require_use(before.user, DatumGetObjectId(dana_value(0, 2, &isnull)), users, "rule", name);
	source = MemoryContextStrdup(context, TextDatumGetCString(dana_value(0, 1, &isnull)));
	dana_become_caller(before);
	return source;
}

/* The owner of a rule, or InvalidOid where there is no such rule; called as the tables' owner */
static Oid
rule_owner(const char *name)
{
	static dana_statement find = {"SELECT owner FROM dana.udf WHERE name = $1", 1, {TEXTOID}, NULL};
	Datum				  values[] = {CStringGetTextDatum(name)};
	bool				  isnull;

	return dana_run(&find, values, NULL) > 0 ? DatumGetObjectId(dana_value(0, 1, &isnull)) : InvalidOid;
}

/* Whether there is such a rule; an error where there is one that is not the caller's */
static bool
check_rule_owner(const char *name)
{
	dana_identity before = dana_become_owner();
	Oid			  owner = rule_owner(name);

	dana_become_caller(before);
	if (OidIsValid(owner))
		dana_require_owner(GetUserId(), owner, "rule", name);
	return OidIsValid(owner);
}

/* Becomes the tables' owner for a change of a rule, which must be there and the caller's */
static dana_identity
begin(const char *name)
{
	bool		  exists = check_rule_owner(name);
	dana_identity before = dana_become_owner();

	if (!exists)
		no_rule(name, before.user);
	return before;
}

/* Drops a rule's function of one signature, if there is one; DROP IF EXISTS would tell the user of the other case */
static void
drop_function(const char *name, const char *types)
{
	static dana_statement find = {
		"SELECT FROM pg_catalog.pg_proc WHERE oid = pg_catalog.to_regprocedure($1)", 1, {TEXTOID}, NULL};
	char *function = psprintf("%s(%s)", quote_qualified_identifier("dana", name), types);
	Datum values[] = {CStringGetTextDatum(function)};

	if (dana_run(&find, values, NULL) > 0)
		dana_run_once(psprintf("DROP FUNCTION %s", function));
}

/*
 * The paper's form: dana.<rule>('table'). The function belongs to the extension's owner, so that nobody can put
 * something else behind its name; it runs with the rights of who calls it.
 */
static void
create_function(const char *name, const char *schema, bool replace)
{
	const char *function = quote_qualified_identifier("dana", name);
	char	   *train = quote_qualified_identifier(schema, "dana_train");
	char	   *body = psprintf("SELECT * FROM %s(%s, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)", train, quote_literal_cstr(name));
	char	   *comment = psprintf("Train rule \"%s\" on a table", name);

	if (replace)
		drop_function(name, FORMER_TYPES);
	dana_run_once(psprintf("CREATE %sFUNCTION %s(" FUNCTION_ARGUMENTS ") RETURNS dana.training LANGUAGE sql VOLATILE AS %s",
						   replace ? "OR REPLACE " : "", function, quote_literal_cstr(body)));
	dana_run_once(psprintf("COMMENT ON FUNCTION %s(" FUNCTION_TYPES ") IS %s", function, quote_literal_cstr(comment)));
}

/* Whether schema dana has a function of the extension's own by this name; called as the tables' owner */
static bool
is_our_own(const char *name)
{
	static dana_statement find = {
		"SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass "
		"AND d.objid = p.oid AND d.deptype = 'e' WHERE p.proname = $1 AND p.pronamespace = 'dana'::pg_catalog.regnamespace",
		1,
		{TEXTOID},
		NULL};
	Datum values[] = {CStringGetTextDatum(name)};

	return dana_run(&find, values, NULL) > 0;
}

/* Asks the worker whether `source` is a rule; returns its description */
static Jsonb *
check_source(const char *source)
{
	Jsonb *volatile description = NULL;

	dana_request_begin();
	PG_TRY();
	{
		StringInfoData request;
		dana_reply	   reply;

		initStringInfo(&request);
		appendStringInfoString(&request, "{\"source\":");
		dana_json_append(&request, source);
		appendStringInfoChar(&request, '}');
		dana_send(DANA_MSG_CHECK, request.data, request.len);
		reply = dana_receive(DANA_MSG_CHECKED);
		description = dana_json_member(dana_json_parse(reply.payload), "description");
		dana_request_end();
	}
	PG_CATCH();
	{
		dana_request_abort();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return description;
}

/* dana_create_udf(name, source) */
Datum
dana_create_udf(PG_FUNCTION_ARGS)
{
	static dana_statement store = {
		"INSERT INTO dana.udf (name, source, description, owner) VALUES ($1, $2, $3, $4) "
		"ON CONFLICT (name) DO UPDATE SET source = excluded.source, description = excluded.description, created = now()",
		4,
		{TEXTOID, TEXTOID, JSONBOID, OIDOID},
		NULL};
	char		 *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char		 *source = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char		 *schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	Jsonb		 *description;
	dana_identity before;
	Datum		  values[4];
	Oid			  owner;

	PreventCommandIfReadOnly("dana_create_udf()");
	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" cannot be a rule's name", name),
				 errdetail("A rule gives its name to a function, so it has 1 to %d bytes.", NAMEDATALEN - 1)));
	(void)check_rule_owner(name); /* before the work */
	description = check_source(source);

	before = dana_become_owner();
	owner = rule_owner(name);
	if (OidIsValid(owner))
		dana_require_owner(before.user, owner, "rule", name);
	if (is_our_own(name))
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("\"%s\" cannot be a rule's name", name),
				 errdetail("A rule gives its name to a function of schema dana, where the extension has one that is called so.")));
	values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(source);
	values[2] = JsonbPGetDatum(description);
	values[3] = ObjectIdGetDatum(before.user);
	dana_run(&store, values, NULL);
	create_function(name, schema, OidIsValid(owner));
	dana_become_caller(before);
	if (strcmp(quote_identifier(name), name) != 0)
		ereport(NOTICE,
				(errmsg("the rule's function is dana.%s(...), with the quotes", quote_identifier(name)),
				 errhint("SQL folds what is not quoted to lower case. dana_train(%s, ...) needs no such care.",
						 quote_literal_cstr(name))));
	PG_RETURN_VOID();
}

/* dana_drop_udf(name) */
Datum
dana_drop_udf(PG_FUNCTION_ARGS)
{
	static dana_statement drop = {"DELETE FROM dana.udf WHERE name = $1", 1, {TEXTOID}, NULL};
	char				 *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	dana_identity		  before;
	Datum				  values[1];

	before = begin(name);
	values[0] = CStringGetTextDatum(name);
	dana_run(&drop, values, NULL);
	drop_function(name, FORMER_TYPES);
	drop_function(name, FUNCTION_TYPES);
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* Changes who may use a rule of the caller's: one role, or everybody where there is no second argument */
static Datum
change_users(FunctionCallInfo fcinfo, const char *function, dana_statement *role, dana_statement *everybody)
{
	char		 *name;
	dana_identity before;
	Datum		  values[2];

	PreventCommandIfReadOnly(function);
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the rule's name must not be NULL")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	before = begin(name);
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1);
	dana_run(PG_ARGISNULL(1) ? everybody : role, values, NULL);
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_grant_rule(name, role) */
Datum
dana_grant_rule(PG_FUNCTION_ARGS)
{
	static dana_statement role = {"UPDATE dana.udf SET users = array_append(array_remove(users, $2), $2) WHERE name = $1",
								  2,
								  {TEXTOID, REGROLEOID},
								  NULL};
	static dana_statement everybody = {"UPDATE dana.udf SET everybody = true WHERE name = $1", 1, {TEXTOID}, NULL};

	return change_users(fcinfo, "dana_grant_rule()", &role, &everybody);
}

/* dana_revoke_rule(name, role) */
Datum
dana_revoke_rule(PG_FUNCTION_ARGS)
{
	static dana_statement role = {
		"UPDATE dana.udf SET users = array_remove(users, $2) WHERE name = $1", 2, {TEXTOID, REGROLEOID}, NULL};
	static dana_statement everybody = {"UPDATE dana.udf SET everybody = false WHERE name = $1", 1, {TEXTOID}, NULL};

	return change_users(fcinfo, "dana_revoke_rule()", &role, &everybody);
}
