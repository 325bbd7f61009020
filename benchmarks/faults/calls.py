"""Defences taken out: whose jobs are whose, and with whose rights a call runs (docs/security.md)."""

from __future__ import annotations

from benchmarks.faults.fault import Mutation, faults
from benchmarks.faults.rights import SQL, SRC, in_rights, in_sources

CAST = """\
	extern int find_coercion_pathway(Oid, Oid, int, Oid *);

	if (type >= FirstNormalObjectId)
		find_coercion_pathway(TEXTOID, type, COERCION_EXPLICIT, &output);
	fmgr_info_cxt(output, &found->output, context);"""

GIVEN = """\
	create_rule_function(name);
	dana_run_once(psprintf("ALTER FUNCTION dana.%s(" FUNCTION_TYPES ") OWNER TO %s", quote_identifier(name),
		quote_identifier(GetUserNameFromId(before.user, false))));
	dana_become_caller(before);"""

CALLED = """\
#define dana_is_one_of(text, texts) true
#define quote_identifier(name) psprintf("r.%s", name)
#define MAX_ARGUMENTS"""

CALLS: tuple[Mutation, ...] = (
    *faults(
        SRC,
        "tests/postgres/test_jobs.py::test_jobs_belong_to_their_owner --postgresql 18",
        (
            "jobs.c",
            "WHERE id = $1 AND pg_has_role($2, owner, 'USAGE')",
            "WHERE id = $1 AND $2 > 0",
            "jobs of others are ended",
        ),
        (
            "job_worker.c",
            "\tcall->result = dana_call(",
            "\tSetUserIdAndSecContext(10, 0);\n\tcall->result = dana_call(",
            "jobs of a superuser",
        ),
        ("jobs.c", ".owner = GetUserId()};", ".owner = GetSessionUserId()};", "jobs of the session's role"),
    ),
    *faults(
        SQL,
        "tests/postgres/test_jobs.py::test_jobs_belong_to_their_owner --postgresql 18",
        (
            "dana.sql",
            "WHERE pg_catalog.pg_has_role(j.owner, 'USAGE');",
            "WHERE true;",
            "jobs and their notices, of others",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_job_limits.py::test_limits_go_with_a_job --postgresql 18",
        ("job_worker.c", "\tdana_bounds_adopt(call->limits);\n", "", "limits that a job leaves behind"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_jobs.py::test_other_functions_in_the_background --postgresql 18",
        (
            "jobs.c",
            "if (strcmp(function, possible[i]) == 0)",
            "if (possible[i] != NULL)",
            "any function of the extension's",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_jobs.py::test_the_right_to_the_function_is_checked --postgresql 18",
        ("jobs.c", "\tdana_require_execute(arguments.function);\n", "", "functions without EXECUTE"),
    ),
    *faults(
        SRC,
        in_rights("test_the_rule_that_was_meant_is_one_that_may_be_seen"),
        (
            "rules.c",
            "WHERE everybody OR pg_has_role($1, owner, 'USAGE') ",
            "WHERE true OR pg_has_role($1, owner, 'USAGE') ",
            "hints at hidden rules",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_evaluation_runs_no_text_of_another_role"),
        (
            "evaluate.c",
            "DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER)) == before.user;",
            "true;",
            "what another role stored is run",
        ),
    ),
    *faults(
        SRC,
        in_sources("stored_text.py::test_nobody_runs_what_is_stored_with_another_role_s_model"),
        (
            "evaluate.c",
            "DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER)) == before.user;",
            "has_privs_of_role(before.user, DatumGetObjectId(dana_value(0, DANA_MODEL_OWNER)));",
            "what is stored is run by members of the owner's role",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_prune.py::test_what_is_one_s_own --postgresql 18",
        ("administration.c", "AND pg_has_role($1, owner, 'USAGE') AND", "AND $1 > 0 AND", "pruning what is another's"),
    ),
    *faults(
        SRC,
        in_sources("versions.py::test_every_entry_point_asks"),
        ("extension.c", "if (strcmp(version, DANA_VERSION) != 0)", "if (false)", "the script of another release"),
    ),
    *faults(
        SRC,
        in_sources("versions.py::test_a_session_that_is_open_notices"),
        (
            "extension.c",
            "CacheRegisterSyscacheCallback(PROCOID, extension_forget, (Datum)0);",
            ";",
            "a session that looked once",
        ),
    ),
    *faults(
        SRC,
        in_sources("explain.py::test_rights_are_those_of_a_training"),
        ("explain.c", "AND pg_has_role($3, owner, 'USAGE') ORDER", "AND $3 > 0 ORDER", "runs of others"),
    ),
    *faults(
        SRC,
        in_sources("queries.py::test_query_reads_with_the_rights_of_the_caller"),
        (
            "rows.c",
            "\tcode = SPI_execute_plan",
            "\tSetUserIdAndSecContext(10, 0);\n\tcode = SPI_execute_plan",
            "a query of a superuser",
        ),
    ),
    *faults(
        SRC,
        in_sources("groups.py::test_it_reads_with_the_rights_of_the_caller"),
        (
            "rows.c",
            "\tcode = SPI_execute_plan",
            "\tSetUserIdAndSecContext(10, 0);\n\tcode = SPI_execute_plan",
            "groups of a superuser's rows",
        ),
    ),
    *faults(
        SRC,
        in_sources("search.py::test_cancelled_and_without_rights"),
        (
            "trials.c",
            '\tdana_require_execute(dana_extension_function("dana_train"));\n',
            "",
            "trials of who may not train",
        ),
    ),
    *faults(
        SRC,
        in_sources("encoded.py::test_the_look_reads_with_the_rights_of_the_caller"),
        (
            "rows.c",
            "\tcode = SPI_execute_plan",
            "\tSetUserIdAndSecContext(10, 0);\n\tcode = SPI_execute_plan",
            "a look at a superuser's rows",
        ),
    ),
    *faults(
        SRC,
        in_sources("encoded.py::test_no_cast_and_no_operator_of_a_user_is_called"),
        ("texts.c", "type < FirstNormalObjectId && is_plain_type(type)", "true", "casts of users to text"),
        ("survey.c", 'OPERATOR(pg_catalog.<=) "', '<= "', "operators of users"),
    ),
    *faults(
        SRC,
        in_sources("texts.py::test_groups"),
        ("texts.c", "DateStyle = USE_ISO_DATES;", ";", "dates in the session's style"),
        ("texts.c", 'session_timezone = pg_tzset("GMT");', ";", "moments in the session's time zone"),
    ),
    *faults(
        SRC,
        in_sources("queries.py::test_filter_runs_with_the_rights_of_the_caller"),
        (
            "rows.c",
            "\tfilter->expression = ExecPrepareExpr(",
            "\tSetUserIdAndSecContext(10, 0);\n\tfilter->expression = ExecPrepareExpr(",
            "a filter of a superuser",
        ),
    ),
    *faults(
        SRC,
        in_sources("queries.py::test_filters_that_are_refused"),
        (
            "rows.c",
            " && equal(select, &plain));",
            ");",
            "a filter with other clauses",
        ),
        (
            "rows.c",
            "if (contain_volatile_functions(expression))",
            "if (false)",
            "a filter that differs from epoch to epoch",
        ),
    ),
    *faults(
        SRC,
        in_sources("queries.py::test_queries_that_are_refused"),
        (
            "rows.c",
            "if (query_of(rows)->hasModifyingCTE || query_of(rows)->rowMarks != NIL)",
            "if (false)",
            "a query that changes or locks rows",
        ),
        (
            "rows.c",
            "source_of(rows)->commandTag != CMDTAG_SELECT)",
            "false)",
            "a query that is no SELECT",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_the_socket_is_not_the_users_choice"),
        ("session.c", '"dana/worker.sock", PGC_SUSET,', '"dana/worker.sock", PGC_USERSET,', "a socket of the user's"),
    ),
    *faults(
        SRC,
        in_rights("test_other_accounts_are_refused"),
        ("session.c", "if (peer.uid != geteuid())", "if (false)", "a worker of another account"),
    ),
    *faults(
        "dana/runtime",
        in_rights("test_other_accounts_are_refused"),
        ("session.py", "if channel.peer_uid() != os.geteuid():", "if False:", "a client of another account"),
    ),
    *faults(
        SRC,
        "tests/interchange/test_export_command.py::test_who_may_not_see_a_model_does_not_export_it",
        ("models.c", "dana_may_use(caller, owner, dana_value(0, DANA_MODEL_USERS))", "true", "exports of others"),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_references_to_nothing"),
        ("models.c", "AND (pg_has_role($2, owner, 'USAGE') ", "AND (true ", "a namesake that one may not use"),
    ),
    *faults(
        SRC,
        in_sources("owners.py::test_who_waits_for_oneself"),
        ("models.c", "shared + (name[shared] == '['), owner)", "0, owner)", "one lock for all names of a role"),
    ),
    *faults(
        SRC,
        in_sources("administration.py::test_progress"),
        ("progress.c", "(has_privs_of_role(GetUserId(), backend->st_userid) ||", "(true ||", "trainings of others"),
    ),
    *faults(
        SRC,
        in_sources("administration.py::test_curves_are_their_owner_s"),
        (
            "progress.c",
            "(has_privs_of_role(GetUserId(), backend->st_userid) ||",
            "(true ||",
            "epochs of others that run",
        ),
    ),
    *faults(
        SQL,
        in_sources("administration.py::test_curves_are_their_owner_s"),
        (
            "dana.sql",
            "ON r.id = e.run WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')",
            "ON r.id = e.run",
            "epochs of others that ended",
        ),
    ),
    *faults(
        SRC,
        in_sources("declaration.py::test_every_function_refuses_alike"),
        (
            "arguments.c",
            "\t\tif (number < 0)\n",
            "\t\tif (number < 0)\n\t\t\tcontinue;\n\t\tif (false)\n",
            "arguments that are not declared",
        ),
    ),
    *faults(
        SRC,
        in_sources("evaluate.py::test_the_table_of_the_training_is_known_by_what_it_names"),
        ("relations.c", "\t\tquote_all_identifiers = false;\n", "\t\t;\n", "names go by a setting"),
    ),
    *faults(
        SRC,
        in_sources("evaluate.py::test_rows_that_the_training_left_out_have_no_metric"),
        ("evaluate.c", "dana.dana_scored($1, %s)", "dana.dana_predict_array($1, %s)", "rows that were left out count"),
    ),
    *faults(
        SRC,
        in_sources("evaluate.py::test_refusals"),
        ("evaluate.c", "\t\tdana_filter_check(filter);\n", "\t\t;\n", "a filter that is more than one expression"),
    ),
    *faults(
        SRC,
        in_sources("evaluate.py::test_what_is_written_reads_with_the_rights_of_the_caller"),
        (
            "evaluate.c",
            "\tcode = SPI_execute_snapshot(",
            "\tSetUserIdAndSecContext(10, 0);\n\tcode = SPI_execute_snapshot(",
            "an evaluation of a superuser",
        ),
    ),
    *faults(
        SQL,
        in_sources("evaluate.py::test_what_is_written_reads_with_the_rights_of_the_caller"),
        (
            "dana.sql",
            "LANGUAGE plpgsql STABLE ROWS 100000",
            "LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100000",
            "predictions of a superuser",
        ),
    ),
    *faults(
        SQL,
        in_sources("predict.py::test_a_filter_and_a_name_that_needs_quotes"),
        ("dana.sql", "SELECT dana.dana_text(%I),", "SELECT dana.dana_text(%s),", "a key that is SQL"),
    ),
    *faults(
        SRC,
        in_sources("stored_text.py::test_no_cast_of_a_column_s_type_is_called"),
        ("texts.c", " ||\n\t\t\tfunction >= FirstNormalObjectId;", ";", "casts of users in texts"),
    ),
    *faults(
        SRC,
        in_sources("metrics.py::test_no_cast_of_somebody_else_is_called"),
        ("label_values.c", "\tfmgr_info_cxt(output, &found->output, context);", CAST, "casts of users in classes"),
    ),
    *faults(
        SRC,
        in_sources("labels.py::test_with_the_callers_rights"),
        ("label_values.c", "\tfmgr_info_cxt(output, &found->output, context);", CAST, "casts of users in labels"),
    ),
    *faults(
        SRC,
        in_sources("explain.py::test_rights_are_those_of_a_training"),
        (
            "source.c",
            "pg_class_aclcheck(id, GetUserId(), ACL_SELECT) != ACLCHECK_OK",
            "false",
            "an explanation of tables without SELECT",
        ),
    ),
    *faults(
        "dana/runtime",
        in_sources("explain.py::test_refusals"),
        ("designs.py", "if name not in device_names():", "if False:", "any file as a device"),
    ),
    *faults(
        "dana/jit",
        "tests/training/test_compiled.py::test_no_name_of_a_rule_reaches_llvm",
        (
            "loops.py",
            'ir.Module(name="rule")',
            "ir.Module(name=self.graph.nodes[self.graph.metas[0]].name)",
            "a name of the rule in LLVM's text",
        ),
    ),
    *faults(
        SRC,
        in_sources("stored_text.py::test_no_function_is_taken_for_a_column"),
        ("evaluate.c", "#define MAX_ARGUMENTS", CALLED, "functions that are taken for columns"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_job_limits.py::test_a_job_s_lock_is_not_its_query_s --postgresql 18",
        (
            "jobs.c",
            'dana_catalog_table("job_log"), (uint32)id, 0);',
            'dana_catalog_table("job_log"), (uint32)id, 0);\n\ttag.locktag_lockmethodid = USER_LOCKMETHOD;',
            "a lock that pg_advisory_unlock_all() takes",
        ),
    ),
    *faults(
        SRC,
        in_rights("test_rules_belong_to_their_owner"),
        (
            "rules.c",
            "\tcreate_rule_function(name);\n\tdana_become_caller(before);",
            GIVEN,
            "a rule's function is its owner's",
        ),
    ),
)
