"""Defences taken out: who may read rows, and whose models and rules are (docs/security.md)."""

from __future__ import annotations

from benchmarks.faults.fault import Mutation, faults

SRC, SQL = "pg_extension/src", "pg_extension/sql"


def in_rights(test: str) -> str:
    return f"tests/postgres/test_rights.py::{test} --postgresql 18"


def in_sources(test: str) -> str:
    return f"tests/sql/test_{test} -k pg18"


HIDDEN = """\
	if (claim == RULE_HIDDEN)
		dana_error(INSUFFICIENT_PRIVILEGE, "permission denied for rule %s", name);
	closest = closest_rule(name, caller);"""

RIGHTS: tuple[Mutation, ...] = (
    *faults(
        SRC,
        in_rights("test_select_on_the_whole_table"),
        ("source.c", "pg_class_aclcheck(id, GetUserId(), ACL_SELECT) != ACLCHECK_OK", "false", "tables without SELECT"),
    ),
    *faults(
        SRC,
        in_rights("test_row_level_security"),
        ("source.c", "check_enable_rls(id, InvalidOid, true) == RLS_ENABLED", "false", "row-level security"),
    ),
    *faults(
        SQL,
        in_rights("test_execute_is_granted_not_given"),
        (
            "dana.sql",
            "dana_revoke_rule, dana_train, dana_train_groups,",
            "dana_revoke_rule, dana_train_groups,",
            "training is everybody's",
        ),
    ),
    *faults(
        SQL,
        in_sources("surface.py::test_who_may_call_what"),
        (
            "dana.sql",
            "dana_search, dana_start, dana_drop_model,",
            "dana_search, dana_drop_model,",
            "jobs are everybody's",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_models_belong_to_their_owner"),
        ("models.c", "dana_may_use(caller, owner, dana_value(0, DANA_MODEL_USERS))", "true", "models of others"),
    ),
    *faults(
        SQL,
        in_rights("test_models_belong_to_their_owner"),
        ("dana.sql", "ALTER TABLE dana.model ENABLE ROW LEVEL SECURITY;", "", "rows of dana.model"),
    ),
    *faults(
        SQL,
        in_rights("test_who_may_read_every_table_sees_no_rows"),
        ("dana.sql", "ALTER TABLE dana.weights ENABLE ROW LEVEL SECURITY;", "", "rows of dana.weights"),
        ("dana.sql", "ALTER TABLE dana.job_log ENABLE ROW LEVEL SECURITY;", "", "rows of dana.job_log"),
    ),
    *faults(
        SQL,
        in_rights("test_default_privileges_open_nothing"),
        ("dana.sql", "WHERE a.grantee <> o.owner\n", "WHERE false\n", "what default privileges gave"),
    ),
    *faults(
        SRC,
        in_sources("administration.py::test_use_is_granted_and_taken_back"),
        (
            "administration.c",
            'users = array_remove(users, $3)" OF_MODEL',
            'users = coalesce(users, ARRAY[$3])" OF_MODEL',
            "a grant that stays",
        ),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_a_hidden_model_is_as_one_that_does_not_exist"),
        ("models.c", "AND (pg_has_role($2, owner, 'USAGE') ", "AND (true ", "a hint at a model that one may not see"),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_references"),
        (
            "models.c",
            "SELECT * FROM dana.model WHERE owner = $1 AND name",
            "SELECT * FROM dana.model WHERE $1 > 0 AND name",
            "names of all roles are one's own",
        ),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_no_role_waits_for_another"),
        (
            "models.c",
            "shared + (name[shared] == '['), owner)",
            "shared + (name[shared] == '['), 0)",
            "a lock of all roles",
        ),
    ),
    *faults(
        SRC,
        in_sources("administration.py::test_only_the_owner_administers"),
        (
            "administration.c",
            "if (!has_privs_of_role(before.user, DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER))))",
            "if (false)",
            "who uses a model administers it",
        ),
    ),
    *faults(
        SQL,
        in_sources("stored_text.py::test_nobody_reads_the_stored_table_of_another_role_for_a_profile"),
        (
            "dana.sql",
            "found.owner::oid <> quote_ident(current_user)::regrole::oid",
            "false",
            "profiles read sources of others",
        ),
        (
            "dana.sql",
            "dana.dana_administered($1, 'dana_profile')",
            "dana.dana_find_model($1)",
            "who uses a model makes its profile",
        ),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_administration_by_reference"),
        (
            "administration.c",
            '#define OF_MODEL " WHERE owner = $1 AND',
            '#define OF_MODEL " WHERE $1 > 0 AND',
            "what is done to one's model is done to its namesakes",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_rules_belong_to_their_owner"),
        (
            "rules.c",
            "if (rule_required(name, before.user, NULL) == RULE_OTHERS)",
            "if (rule_required(name, before.user, NULL) == RULE_NEW)",
            "rules of others are dropped",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_who_is_second_to_take_a_name_does_not_have_it"),
        ("rules.c", "WHERE pg_has_role($4, rule.owner, 'USAGE') ", "", "rules of others are replaced"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_refusals.py::test_reserved_function_name --postgresql 18",
        ("rules.c", "if (find_function(name) == FUNCTION_OTHER)", "if (false)", "a rule replaces any function"),
    ),
    *faults(
        SRC,
        in_sources("callers.py::test_who_replaces_a_rule_owns_it"),
        (
            "rules.c",
            "excluded.description, excluded.owner, now()",
            "excluded.description, rule.owner, now()",
            "a rule stays its first owner's",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_rules_are_granted_and_taken_back"),
        (
            "rules.c",
            "dana_may_use(caller, owner, dana_value(0, 2)) ? RULE_OTHERS",
            "true ? RULE_OTHERS",
            "rules that are not everybody's",
        ),
    ),
    *faults(
        SQL,
        in_rights("test_rules_are_granted_and_taken_back"),
        ("dana.sql", "ALTER TABLE dana.rule ENABLE ROW LEVEL SECURITY;", "", "rows of dana.rule"),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_a_hidden_rule_is_as_one_that_does_not_exist"),
        (
            "rules.c",
            "\tclosest = closest_rule(name, caller);",
            HIDDEN,
            "a hidden rule has an error of its own",
        ),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_what_is_said_of_a_rule_s_name"),
        (
            "rules.c",
            'errhint("Rules of all roles have one',
            'errhint(claim == RULE_HIDDEN ? "It is hidden." : "Rules of all roles have one',
            "that the name in use is a hidden rule's",
        ),
    ),
    *faults(
        SQL,
        in_rights("test_tables_are_written_by_functions_only"),
        (
            "dana.sql",
            "GRANT SELECT ON dana.rule, dana.model, dana.run",
            "GRANT ALL ON dana.rule, dana.model, dana.run",
            "tables that all may write",
        ),
        (
            "dana.sql",
            "GRANT USAGE ON SCHEMA dana TO PUBLIC",
            "GRANT ALL ON SCHEMA dana TO PUBLIC",
            "all may create in schema dana",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_own_operators_never_run_as_the_owner"),
        (
            "extension.c",
            '\tdana_set_for_now("search_path", "pg_catalog, pg_temp");\n',
            "",
            "the owner has the caller's search_path",
        ),
    ),
    *faults(
        SQL,
        in_sources("operators.py::test_no_operator_of_somebody_else_is_called"),
        (
            "dana.sql",
            "training ->> 'hyper'::pg_catalog.text IS NULL",
            "training ->> 'hyper' IS NULL",
            "an operator without a type",
        ),
    ),
    *faults(
        SQL,
        in_sources("operators.py::test_pg_catalog_comes_first"),
        ("dana.sql", "\n\t\tOPERATOR(pg_catalog.<>) 1 THEN", "\n\t\tIS NULL THEN", "pg_catalog behind other schemas"),
    ),
    *faults(
        SQL,
        in_sources("operators.py::test_no_function_of_somebody_else_is_called"),
        (
            "dana.sql",
            "ELSE 'dana.dana_predict(%1$L",
            "ELSE 'dana_predict(%1$L",
            "the function that fits best",
        ),
    ),
    *faults(
        SRC,
        in_sources("operators.py::test_no_function_of_somebody_else_is_called"),
        ("places.c", "%.17g::pg_catalog.float8, %d)", "%.17g, %d)", "a number of another type"),
        (
            "extension.c",
            "getExtensionOfObject(ProcedureRelationId, function->oid) == extension.id",
            "true",
            "a function by name alone",
        ),
    ),
)
