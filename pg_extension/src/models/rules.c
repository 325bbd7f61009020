/*
 * Rules: dana_create_udf(), dana_drop_rule(), and the function that each rule gets.
 */
#include "postgres.h"

#include "utils/varlena.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/role.h"
#include "models/rules.h"
#include "worker/session.h"

/* Arguments of a rule's function, for CREATE and for other statements */
#define FUNCTION_ARGUMENTS "source regclass DEFAULT NULL, training jsonb DEFAULT NULL"
#define FUNCTION_TYPES	   "regclass, jsonb"

/* The rule with the most similar name that the caller may use, or NULL. Called as the tables' owner. */
static char *
closest_rule(const char *name, Oid caller)
{
	static dana_statement list = DANA_STATEMENT(
		"SELECT name FROM dana.rule WHERE public OR pg_has_role($1, owner, 'USAGE') "
		"OR EXISTS (SELECT FROM unnest(users) AS u (role) WHERE pg_has_role($1, u.role, 'USAGE')) ORDER BY name",
		OIDOID);
	Datum  values[] = {ObjectIdGetDatum(caller)};
	int	   length = strlen(name);
	int	   least = 1 + length / 3; /* a larger distance is another word */
	char  *found = NULL;
	uint64 rules;

	if (length >= NAMEDATALEN)
		return NULL;
	rules = dana_read(&list, values, NULL);
	for (uint64 i = 0; i < rules; i++)
	{
		char *other = TextDatumGetCString(dana_value(i, 1));
		int	  distance = pg_strcasecmp(name, other) == 0
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

typedef enum rule_claim
{
	RULE_NEW,	 /* there is no rule of this name */
	RULE_OURS,
	RULE_OTHERS, /* another role's, and the caller may use it */
	RULE_HIDDEN	 /* another role's, hidden from the caller */
} rule_claim;

/* The ownership of a rule, and the rule if `rule` is not NULL and it exists; called as the tables' owner */
static rule_claim
rule_claimed(const char *name, Oid caller, dana_rule *rule)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT owner, users, public, text, description FROM dana.rule WHERE name = $1", TEXTOID);
	Datum values[] = {CStringGetTextDatum(name)};
	Oid	  owner;

	if (dana_run(&find, values, NULL) == 0)
		return RULE_NEW;
	if (rule != NULL)
		*rule = (dana_rule){TextDatumGetCString(dana_value(0, 4)), DatumGetJsonbPCopy(dana_value(0, 5))};
	owner = DatumGetObjectId(dana_value(0, 1));
	if (has_privs_of_role(caller, owner))
		return RULE_OURS;
	return DatumGetBool(dana_value(0, 3)) || dana_may_use(caller, owner, dana_value(0, 2)) ? RULE_OTHERS : RULE_HIDDEN;
}

/* The same for a rule that must exist; a hidden one does not */
static rule_claim
rule_required(const char *name, Oid caller, dana_rule *rule)
{
	rule_claim claim = rule_claimed(name, caller, rule);
	char	  *closest;

	if (claim == RULE_OURS || claim == RULE_OTHERS)
		return claim;
	closest = closest_rule(name, caller);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("rule \"%s\" does not exist", dana_shown(name)),
			 closest != NULL
				 ? errhint("Perhaps you meant \"%s\".", closest)
				 : errhint("SELECT name FROM dana.rule lists the rules; dana_create_udf(name, text) makes one, "
						   "\"dana rules install\" those that come along.")));
}

typedef struct rule_reading
{
	const char *name;
	dana_rule	rule;
} rule_reading;

static void
read_rule(void *state)
{
	rule_reading *reading = state;
	dana_identity before = dana_become_owner();

	(void)rule_required(reading->name, before.user, &reading->rule);
	dana_become_caller(before);
}

dana_rule
dana_rule_read(const char *name)
{
	rule_reading reading = {.name = name};

	dana_peek(read_rule, &reading);
	return reading.rule;
}

/* Becomes the tables' owner to change a rule, which must exist and belong to the caller */
static dana_identity
begin_change(const char *name)
{
	dana_identity before = dana_become_owner();

	if (rule_required(name, before.user, NULL) == RULE_OTHERS)
		dana_error(INSUFFICIENT_PRIVILEGE, "must be owner of rule \"%s\"", name);
	return before;
}

typedef enum function_state
{
	FUNCTION_NONE,	/* there is none with the rule's name and arguments */
	FUNCTION_RULES, /* the rule's, as created here; also if a dump restored one without the other */
	FUNCTION_STRAY, /* the same of another owner */
	FUNCTION_OTHER	/* a user's function */
} function_state;

/* Body of a rule's function */
static char *
function_body(const char *name)
{
	return psprintf("SELECT * FROM dana.dana_train_rule(%s::pg_catalog.text, $1, $2)", quote_literal_cstr(name));
}

/* The function with a rule's name in schema dana; called as the tables' owner */
static function_state
find_function(const char *name)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT p.prosrc = $2 AND p.prorettype = 'dana.training'::regtype AND p.prolang = "
		" (SELECT oid FROM pg_language WHERE lanname = 'sql'), p.proowner = $3 FROM pg_proc AS p "
		"WHERE p.oid = to_regprocedure(format('dana.%I(" FUNCTION_TYPES ")', $1))", TEXTOID, TEXTOID, OIDOID);
	Datum values[] = {CStringGetTextDatum(name), CStringGetTextDatum(function_body(name)),
					  ObjectIdGetDatum(GetUserId())};

	if (dana_run(&find, values, NULL) == 0)
		return FUNCTION_NONE;
	if (!DatumGetBool(dana_value(0, 1)))
		return FUNCTION_OTHER;
	return DatumGetBool(dana_value(0, 2)) ? FUNCTION_RULES : FUNCTION_STRAY;
}

/*
 * The paper's form: dana.<rule>('table'). The function belongs to the extension's owner, so that no role can replace
 * it; it runs with the caller's rights. Creates it if it is missing or was restored from a dump.
 */
static void
create_rule_function(const char *name)
{
	const char *function = quote_qualified_identifier("dana", name);
	char	   *comment = psprintf("Train rule \"%s\" on a table; training: other arguments of dana_train()", name);

	if (find_function(name) == FUNCTION_RULES)
		return;
	dana_run_once(psprintf("CREATE OR REPLACE FUNCTION %s(" FUNCTION_ARGUMENTS ") RETURNS dana.training LANGUAGE sql "
						   "AS %s; ALTER FUNCTION %s(" FUNCTION_TYPES ") OWNER TO CURRENT_USER; "
						   "COMMENT ON FUNCTION %s(" FUNCTION_TYPES ") IS %s", function,
						   quote_literal_cstr(function_body(name)), function, function, quote_literal_cstr(comment)));
}

/* Whether schema dana has a function of the extension itself by this name; called as the tables' owner */
static bool
is_our_own(const char *name)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass "
		"AND d.objid = p.oid AND d.deptype = 'e' WHERE p.proname = $1 AND p.pronamespace = 'dana'::pg_catalog.regnamespace",
		TEXTOID);
	Datum values[] = {CStringGetTextDatum(name)};

	return dana_run(&find, values, NULL) > 0;
}

/* Asks the worker whether a text is a valid rule; returns its description */
static Jsonb *
check_rule_text(const char *text)
{
	StringInfoData request;

	dana_json_begin(&request);
	dana_json_text(&request, "text", text);
	dana_json_close(&request, '}');
	return dana_json_member(dana_ask(DANA_MSG_CHECK, &request, DANA_MSG_CHECKED), "description");
}

dana_rule
dana_rule_check(char *text)
{
	return (dana_rule){text, check_rule_text(text)};
}

static void
reject_claim(const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("the name \"%s\" is in use for another rule", name),
					errhint("Rules of all roles have one space of names. Choose another one.")));
}

/* Raises an error unless the caller may create a rule of this name, or replace it; called as the tables' owner */
static void
check_claim(const char *name, Oid caller)
{
	rule_claim claim = rule_claimed(name, caller, NULL);

	if (claim == RULE_OTHERS || claim == RULE_HIDDEN)
		reject_claim(name);
	if (is_our_own(name))
		ereport(ERROR, (errcode(ERRCODE_RESERVED_NAME),
						errmsg("\"%s\" cannot be a rule's name", name),
						errdetail("A rule gives its name to a function of schema dana, where the extension has one "
								  "that is called so.")));
	if (find_function(name) == FUNCTION_OTHER)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_FUNCTION),
						errmsg("function %s(" FUNCTION_TYPES ") exists, and does not belong to a rule",
							   quote_qualified_identifier("dana", name)),
						errhint("Choose another name, or drop that function.")));
}

/* dana_create_udf(name, text) */
DANA_COMMAND(dana_create_udf)
{
	static dana_statement store = DANA_STATEMENT(
		"INSERT INTO dana.rule (name, text, description, owner) VALUES ($1, $2, $3, $4) "
		/* a superuser or a member who replaces another role's rule becomes its owner: the text is theirs */
		"ON CONFLICT (name) DO UPDATE SET (text, description, owner, created) = "
		" ROW (excluded.text, excluded.description, excluded.owner, now()) "
		/* checked again: another session may have created it since */
		"WHERE pg_has_role($4, rule.owner, 'USAGE') "
		/* as the statement found it */
		"RETURNING EXISTS (SELECT FROM dana.rule AS old WHERE old.name = $1 AND old.text <> $2)",
		TEXTOID, TEXTOID, JSONBOID, OIDOID);
	char		 *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Jsonb		 *description;
	dana_identity before;
	Datum		  values[4];

	dana_check_argument("name", TEXTOID, PG_GETARG_DATUM(0));
	dana_check_argument("text", TEXTOID, PG_GETARG_DATUM(1));
	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("\"%s\" cannot be a rule's name", name),
						errdetail("A rule gives its name to a function, so it has 1 to %d bytes.", NAMEDATALEN - 1)));
	before = dana_become_owner();
	check_claim(name, before.user); /* before the work */
	dana_become_caller(before);
	description = check_rule_text(text_to_cstring(PG_GETARG_TEXT_PP(1)));

	before = dana_become_owner();
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = JsonbPGetDatum(description);
	values[3] = ObjectIdGetDatum(before.user);
	if (dana_run(&store, values, NULL) == 0)
		reject_claim(name);
	if (DatumGetBool(dana_value(0, 1)))
		ereport(NOTICE, (errmsg("rule \"%s\" is replaced by another text", name),
						 errdetail("Models that were trained with the old one predict as they did.")));
	create_rule_function(name);
	dana_become_caller(before);
	if (strcmp(quote_identifier(name), name) != 0)
		ereport(NOTICE,
				(errmsg("the rule's function is dana.%s(...), with the quotes", quote_identifier(name)),
				 errhint("SQL folds what is not quoted to lower case. dana_train(%s, ...) needs no such care.",
						 quote_literal_cstr(name))));
	PG_RETURN_VOID();
}

/* dana_drop_rule(name) */
DANA_COMMAND(dana_drop_rule)
{
	static dana_statement drop = DANA_STATEMENT("DELETE FROM dana.rule WHERE name = $1", TEXTOID);
	char				 *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	dana_identity		  before = begin_change(name);
	Datum				  values[] = {CStringGetTextDatum(name)};
	function_state		  function;

	dana_run(&drop, values, NULL);
	function = find_function(name);
	if (function == FUNCTION_RULES || function == FUNCTION_STRAY)
		dana_run_once(psprintf("DROP FUNCTION %s(" FUNCTION_TYPES ")", quote_qualified_identifier("dana", name)));
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* Changes the roles that may use a rule of the caller's: one role, or PUBLIC without a second argument */
static Datum
change_rule_users(FunctionCallInfo fcinfo, dana_statement *change)
{
	char		 *name;
	dana_identity before;
	Datum		  values[2];

	dana_require_arguments(fcinfo, 1);
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	before = begin_change(name);
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1);
	dana_run(change, values, PG_ARGISNULL(1) ? " n" : NULL);
	dana_become_caller(before);
	PG_RETURN_VOID();
}

/* dana_grant_rule(name, role) */
DANA_COMMAND(dana_grant_rule)
{
	static dana_statement grant = DANA_STATEMENT(
		"UPDATE dana.rule SET public = public OR $2 IS NULL, "
		"users = CASE WHEN $2 IS NULL THEN users ELSE array_append(array_remove(users, $2), $2) END WHERE name = $1",
		TEXTOID, REGROLEOID);

	if (!PG_ARGISNULL(1))
		dana_require_role(PG_GETARG_OID(1));
	return change_rule_users(fcinfo, &grant);
}

/* dana_revoke_rule(name, role) */
DANA_COMMAND(dana_revoke_rule)
{
	static dana_statement revoke = DANA_STATEMENT(
		"UPDATE dana.rule SET public = public AND $2 IS NOT NULL, users = array_remove(users, $2) WHERE name = $1",
		TEXTOID, REGROLEOID);

	return change_rule_users(fcinfo, &revoke);
}
