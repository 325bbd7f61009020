"""Defences of `docs/security.md` taken out, each with the test that the document names: the worker, and the tools."""

from __future__ import annotations

from benchmarks.faults.fault import faults

WORKER = (
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_greetings_that_are_refused",
        ("protocol.py", "if length > most:", "if False:", "messages of any length"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_a_message_that_has_no_end",
        (
            "session.py",
            "if isinstance(error, FrameError):",
            "if False:",
            "a message without an end, and what follows it",
        ),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_ring.py -k 'lie or lies'",
        ("ring.py", "& _SEALS != _SEALS", "& _SEALS < 0", "memory that changes size"),
        ("ring.py", "or self.slots < LEAST_SLOTS or not fits", "or self.slots < LEAST_SLOTS", "a header that lies"),
        ("native/ring.c", "if (head - tail > self->slots)", "if (0)", "indices beyond the ring"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_one_session_takes_no_other_down",
        ("worker.py", "child = os.fork()", "child = 0", "sessions in the listening process"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_a_runaway_allocation_is_an_error",
        (
            "worker.py",
            "    resource.setrlimit(resource.RLIMIT_DATA, (options.memory_limit, options.memory_limit))\n",
            "",
            "memory of a session without limit",
        ),
        ("worker.py", "OOM_SCORE = 500", "OOM_SCORE = 0", "sessions that the kernel spares as it does PostgreSQL"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_all_sessions_together_have_a_limit",
        (
            "sessions.py",
            "if self._members and now >= self._next_watch:",
            "if False:",
            "memory of all sessions without limit",
        ),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_limits_are_finite_by_default",
        ("worker.py", "machine_bytes() * 3 // 4", "1 << 62", "a limit of all sessions that no machine reaches"),
    ),
    *faults(
        "pg_extension",
        "tests/worker/test_worker.py::test_limits_are_finite_by_default",
        ("dana-worker.service", "OOMPolicy=continue\n", "", "all sessions end with the one that the kernel ends"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_sessions_have_a_number",
        ("sessions.py", "if len(present) < self._max_sessions:", "if True:", "sessions without number"),
    ),
    *faults(
        "hwgen",
        "tests/training/test_kept_designs.py::test_designs_on_disk_have_a_byte_limit tests/hwgen/test_cache.py",
        ("cache.py", "if total <= self.limit:", "if True:", "caches without limit"),
    ),
    *faults(
        "dana/runtime",
        "tests/training/test_training.py::test_a_question_leaves_nothing_on_disk",
        ("explain.py", "designs.get(training, write=False)", "designs.get(training)", "questions that fill the disk"),
    ),
    *faults(
        "dana/runtime",
        "tests/worker/test_worker.py::test_what_a_session_started_ends_with_it",
        ("sessions.py", "os.killpg(member.pid, signal.SIGKILL)", "pass", "what a session started outlives it"),
    ),
    *faults(
        "hwgen",
        "tests/training/test_builds.py::test_a_build_that_is_cut_short_leaves_nothing",
        (
            "cache.py",
            "if _is(descriptor, folder, lock):\n                                _remove(folder, lock)\n",
            "pass\n",
            "half-made files are never swept",
        ),
    ),
    *faults(
        "hwgen",
        "tests/hwgen/test_cache.py tests/hwgen/test_folders.py tests/worker/test_shared_caches.py",
        ("folders.py", "if found.st_uid != os.geteuid():", "if False:", "code of another account"),
        ("folders.py", "    if others_may_write(found):\n", "    if False:\n", "folders that all may write"),
        ("folders.py", "if strict and last:", "if False:", "folders that are links"),
        ("folders.py", "if others_may_write(folder) if strict else", "if False if strict else", "links of others"),
        ("folders.py", "if found.st_uid not in trusted:", "if False:", "folders in those of others"),
        ("folders.py", "if shared and not (stat.S_ISREG", "if False and not (stat.S_ISREG", "files of others"),
        ("cache.py", "if NAME.fullmatch(entry.name) and", "if", "names that no cache made"),
    ),
)

SRC = "pg_extension/src"
LIMITS = "tests/postgres/test_limits.py --postgresql 18 -k"

SESSIONS = (
    *faults(
        "dana/runtime",
        f"{LIMITS} test_memory",
        (
            "session.py",
            "with memory_at_most(request.max_memory, fresh=fresh, classes",
            "with memory_at_most(0, fresh=fresh, classes",
            "dana.max_memory",
        ),
    ),
    *faults(
        SRC,
        f"{LIMITS} 'backends or not_the_users'",
        (
            "bounds.c",
            "if (bounds_is_listed(KNOWN_BACKENDS, backend) && !bounds_is_listed(allowed_backends, backend))",
            "if (0)",
            "dana.backends",
        ),
        ("bounds.c", "100000, 1, 10000000, PGC_SUSET", "100000, 1, 10000000, PGC_USERSET", "a limit that a user lifts"),
    ),
    *faults(
        SRC,
        f"{LIMITS} 'test_a_training_inside_a_training'",
        ("bounds.c", "if (training)\n\t\tereport", "if (0)\n\t\tereport", "a training inside a training"),
    ),
    *faults(
        SRC,
        f"{LIMITS} 'test_the_next_training_waits'",
        ("turns.c", "(max_runs == 0 && worker_sessions() == 0)", "1", "dana.max_runs"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_request_queue.py",
        ("turns.c", "free > 1 ||", "free > 0 ||", "a role that takes all places"),
        ("turns.c", "	if (fewer != 0)\n		return fewer < 0;\n", "", "a role that keeps others out"),
        ("turns.c", "(uint32)(due / 1000)", "0", "a long training that waits for ever"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_json_arguments.py",
        ("json.c", "if (++depth > MAX_DEPTH)", "if (++depth < 0)", "JSON that the worker cannot read"),
    ),
    *faults(
        SRC,
        f"{LIMITS} 'test_time and not groups and not function'",
        ("bounds.c", "if (training_timeout == 0)", "if (1)", "dana.training_timeout"),
    ),
    *faults(
        SRC,
        f"{LIMITS} test_time_that_a_function",
        ("bounds.c", "\t\tProcDiePending = true;", "\t\t;", "who catches each cancel keeps the session"),
        (
            "bounds.c",
            "enable_timeout_after(timer, AGAIN_MS); /* enable_timeout_every() exists from 15 on */",
            "",
            "who catches one cancel is not cancelled again",
        ),
    ),
    *faults(
        SRC,
        "tests/sql/test_queries.py -k 'test_limit_of_epochs and pg18'",
        (
            "training.c",
            "(training->epochs < 1 || training->epochs > dana_max_epochs)",
            "training->epochs < 1",
            "dana.max_epochs of an argument",
        ),
    ),
    *faults(
        "dana/runtime",
        "tests/sql/test_queries.py -k 'test_limit_of_epochs and pg18'",
        ("epochs.py", "_check_epochs(training.epochs, request.max_epochs)", "pass", "dana.max_epochs of a rule"),
    ),
    *faults(
        SRC,
        "tests/sql/test_locks.py -k 'pg18 and dana_train and warm_start_from'",
        (
            "extension.c",
            "ErrorData *error = dana_attempt(read, state, false);",
            "ErrorData *error = dana_attempt(read, state, true);",
            "locks of the extension's tables last as long as the training",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_job_limits.py --postgresql 18 -k 'test_limits_of_jobs or commit_at_once'",
        ("jobs.c", "if (most != 0 && running + started > most)", "if (0)", "dana.max_jobs"),
        (
            "jobs.c",
            'jobs_running(started->job.owner), ours, started->most, "dana.max_jobs_per_role"',
            'jobs_running(started->job.owner), ours, 0, "dana.max_jobs_per_role"',
            "dana.max_jobs_per_role",
        ),
        (
            "jobs.c",
            "(void)LockAcquire(&tag, ExclusiveLock, false, false);\n\tjobs_check_limits();",
            "(void)LockAcquire(&tag, ShareLock, false, false);\n\tjobs_check_limits();",
            "limits checked by several transactions at once",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_jobs.py --postgresql 18 -k test_it_begins_when_the_transaction_commits",
        (
            "jobs.c",
            "\tjobs_check_limits(); /* checked here to report it early, and again at commit */",
            "\tjobs_register();\n\tpending = NIL;",
            "background workers are taken before the commit",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_surroundings.py --postgresql 18 -k test_other_protocols",
        ("channel.c", "if (length > DANA_MAX_MESSAGE)", "if (0)", "answers of any length"),
        ("channel.c", "\tif (reply.type != type)\n", "\tif (0)\n", "answers of any type"),
    ),
    *faults(
        "pg_extension",
        "tests/postgres/test_rights.py --postgresql 18 -k test_a_superuser_installs_it",
        (
            "dana.control.in",
            "superuser = true",
            "superuser = true\ntrusted = true",
            "whoever owns a database installs it",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_faults.py --postgresql 18 -k 'test_faults and compiling and cancel and not SIGSTOP'",
        (
            "channel.c",
            "\t\tResetLatch(MyLatch);\n\t\tCHECK_FOR_INTERRUPTS();\n",
            "\t\tResetLatch(MyLatch);\n",
            "cancels that come while the worker works",
        ),
    ),
    *faults(
        SRC,
        f"{LIMITS} test_a_client_that_is_gone",
        (
            "bounds.c",
            "if (MyProcPort != NULL && client_connection_check_interval == 0)",
            "if (0)",
            "nobody looks whether the client is there",
        ),
    ),
)

CONTENT = (
    *faults(
        "dsl/syntax",
        "tests/dsl/test_text_limits.py::test_text_is_not_executed",
        (
            "parser.py",
            "    tokens = list(grammar().lex(source.text))\n",
            "    exec(source.text.partition('\\nimport')[0])\n    tokens = list(grammar().lex(source.text))\n",
            "a rule's text is executed",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_corruption.py --postgresql 18 -k test_line_pointers",
        (
            "tuples.c",
            "if (offset < ((PageHeader)page)->pd_lower || length < SizeofHeapTupleHeader ||"
            " offset + length > BLCKSZ ||\n\t\toffset != MAXALIGN(offset))",
            "if (0)",
            "line pointers to anywhere",
        ),
    ),
    *faults(
        "dana/compiler/strider",
        "tests/compiler/test_strider_program.py -k 'contradiction or reference_reader'",
        (
            "pages.py",
            "        asm.branch(Opcode.BLT, T.SPECIAL, T.END, Fault.LINE_POINTER.name)\n",
            "",
            "tuples that end behind the page",
        ),
    ),
    *faults(
        "dana/simulator/native",
        "tests/simulator/test_access.py -k 'wild or may_end_with_the_page'",
        ("strider.c", "if ((uint64_t)a + in->b > page_size)", "if (0)", "reading beyond the page"),
        (
            "unpack.c",
            "if ((int64_t)address + column->bytes > sim->machine.page_size)",
            "if (0)",
            "columns beyond the page",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_corruption.py --postgresql 18 -k 'filter or array'",
        (
            "tuples.c",
            "if (header->t_hoff != expected || expected > tuple->t_len)",
            "if (0)",
            "headers beyond the tuple",
        ),
        (
            "source.c",
            "damage = dana_tuple_damage(shape, &tuple);",
            "damage = NULL;",
            "tuples that a filter reads unchecked",
        ),
        (
            "schema.c",
            "\tif (damage != NULL)\n\t\tdana_page_corrupt(",
            "\tif (0)\n\t\tdana_page_corrupt(",
            "tuples that are looked at unchecked",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_corruption.py --postgresql 18 -k test_no_look_leaves_a_tuple",
        ("tuples.c", "\t\tif (size == 0)", "\t\tif (0)", "columns beyond the tuple"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_predict_plans.py --postgresql 18 -k test_a_list_that_somebody_wrote",
        (
            "encode.c",
            "if (!encoder_read(list[i], &encoders[i]))",
            "if (!encoder_read(list[i], &encoders[i]) && 0)",
            "lists that somebody wrote are believed",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_predictor.py -k test_bounds_that_would_overflow",
        (
            "predictor.c",
            "if (i->operand[k].stride[axis] > DANA_PREDICTOR_FLOATS || extents[axis] > DANA_PREDICTOR_FLOATS)",
            "if (0)",
            "strides whose products overflow",
        ),
    ),
    *faults(
        SRC,
        "tests/postgres/test_predictor.py -k under_the_sanitizers",
        ("predictor.c", "\t\tif (last >= end)", "\t\tif (0)", "operands outside memory"),
    ),
    *faults(
        SRC,
        "tests/sql/test_names.py -k 'names_that and pg18'",
        (
            "rules.c",
            '$1, $2)", quote_literal_cstr(name));',
            '$1, $2)", psprintf("\'%s\'", name));',
            "a rule's name is SQL",
        ),
        (
            "groups.c",
            "quote_literal_cstr(grouping->key[i])",
            "psprintf(\"'%s'\", grouping->key[i])",
            "a group's key is SQL",
        ),
    ),
    *faults(
        "dana/runtime",
        "tests/sql/test_dana_explain.py -k 'test_refusals and pg18'",
        ("designs.py", "if name not in device_names():", "if False:", "devices by any name"),
    ),
)

TOOLS = (
    *faults(
        "dana/server",
        "tests/server/test_account.py -k 'settings_are_written or through_a_link or nothing_else_is_read'"
        " --postgresql 18",
        (
            "account.py",
            "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
            "os.O_RDONLY | os.O_NONBLOCK",
            "links are followed",
        ),
        (
            "account.py",
            '            cwd="/",\n            env={"PATH": "/usr/bin:/bin"},\n            check=False,\n'
            "            **self.identity(),\n",
            '            cwd="/",\n            env={"PATH": "/usr/bin:/bin"},\n            check=False,\n',
            "root changes files there as root",
        ),
        (
            "account.py",
            "if not stat.S_ISREG(found.st_mode) or found.st_uid != self.uid:",
            "if False:",
            "pipes are read",
        ),
    ),
    *faults(
        "dana",
        "tests/client/test_terminal.py",
        ("printable.py", "    if text.isprintable():", "    if True:", "names steer the terminal"),
        ("client/progress.py", "what = printable(what)", "pass", "names in progress lines steer the terminal"),
    ),
    *faults(
        "dana/session",
        "tests/client/test_terminal.py",
        ("terminal.py", "Text(printable(text))", "Text(text)", "names in tables steer the terminal"),
    ),
    *faults(
        "dana/client",
        "tests/client/test_client.py::test_the_session_s_settings_are_left_alone",
        (
            "progress.py",
            "set_config('dana.notices', %s, true)\"",
            "set_config('dana.notices', %s, false)\"",
            "dana.notices is the session's",
        ),
    ),
    *faults(
        "dana/client",
        "tests/client/test_python_analyst.py::test_wrong_calls_are_said_and_leave_nothing",
        (
            "predictions.py",
            "session.execute(statement.encode(), (model,)).fetchall()",
            "session.execute((statement % f\"'{model}'\").encode()).fetchall()",
            "filters with statements of their own",
        ),
        (
            "predictions.py",
            'sql.SQL("{}, ").format(sql.Identifier(checked_name("column", name)))',
            'sql.SQL("{}, ").format(sql.SQL(name))',
            "columns' names are SQL",
        ),
    ),
    *faults(
        "dana/session",
        "tests/sql/test_callers.py -k 'test_the_client_calls and pg18'",
        (
            "calls.py",
            "        for name, kind in zip(names, types, strict=True)\n    ]",
            "        for name, kind in zip(names, types, strict=True)\n        if name in values\n    ]",
            "calls with some of the arguments",
        ),
        (
            "calls.py",
            'sql.SQL("{} => {}::{}").format(sql.Identifier(name), sql.Placeholder(name), sql.SQL(kind))',
            'sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name))',
            "calls with the types of the driver",
        ),
    ),
    *faults(
        "dana/report",
        "tests/sql/test_operators.py -k 'test_tools_of_the_command_line and pg18'",
        (
            "stored.py",
            "m.owner::oid OPERATOR(pg_catalog.=) c.oid AS own",
            "m.owner = c.oid AS own",
            "a report's operator of somebody else",
        ),
    ),
    *faults(
        "dana/cli",
        "tests/sql/test_operators.py -k 'test_tools_of_the_command_line and pg18'",
        ("top.py", "ntile(%s::integer)", "ntile(%s)", "dana top's function of somebody else"),
    ),
    *faults(
        "dana/report",
        "tests/report/test_report.py::test_a_reader_runs_nothing_that_the_trainer_named",
        (
            "history.py",
            '    design, text = found["design"], found.pop("text")\n',
            '    design, text = found["design"], found.pop("text")\n'
            "    session.execute(f\"SELECT * FROM {found['source']}\".encode())\n",
            "a report reads the source",
        ),
    ),
    *faults(
        "dana/report",
        "tests/report/test_report_analyst.py::test_only_the_owner_s_page_is_made_of_rows",
        ("scores.py", "    if not model.own:\n", "    if False:\n", "a report evaluates models of others"),
    ),
    *faults(
        SRC,
        "tests/report/test_report_analyst.py::test_only_the_owner_s_page_is_made_of_rows",
        ("evaluate.c", "if (!given && !model->own)", "if (0)", "dana_evaluate reads sources of others"),
    ),
)

DEFENCES = (*WORKER, *SESSIONS, *CONTENT, *TOOLS)
