"""Trainings in the background: when they begin, how they end, and who may see and end them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session
from tests.postgres.jobs import LONG, processes, seen, start, until_no_process, until_running, wait

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> Iterator[str]:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) g")
    yield "t"
    session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'dana job%'")
    until_no_process(session)
    session.execute("TRUNCATE dana.job_log")


def test_it_trains_and_tells(session: Session, table: str, rule: Callable[..., str]) -> None:
    name = rule(column="id", epochs=2)
    job = start(session, name, model="m", epochs=3)
    assert wait(session, job) == "done"
    found = seen(session, job)
    run = session.execute("SELECT id, epochs, tuples FROM dana.run WHERE model = 'm' AND owner = 'postgres'::regrole")
    assert run.fetchone() == (found["result"][0]["run"], 3, 1000)
    assert (found["result"][0]["model"], found["result"][0]["version"]) == ("m", 1)
    assert (found["function"], found["owner"], found["pid"], found["sqlstate"]) == (
        "dana_train",
        "postgres",
        None,
        None,
    )
    assert found["arguments"] == {"rule": name, "source": "t", "model": "m", "epochs": 3}
    assert found["created"] <= found["started"] <= found["ended"]
    assert wait(session, job, 0) == "done"
    assert session.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (False,)
    until_no_process(session)


def test_it_begins_when_the_transaction_commits(session: Session, table: str, rule: Callable[..., str]) -> None:
    name = rule()
    with session.transaction():
        session.execute("CREATE TABLE fresh AS TABLE t")
        job = start(session, name, "fresh")
        assert seen(session, job)["state"] == "queued"
        with (
            pytest.raises(errors.ObjectNotInPrerequisiteState, match="when this transaction commits"),
            session.transaction(),
        ):
            wait(session, job)
        time.sleep(0.2)
        assert seen(session, job)["state"] == "queued"
    assert wait(session, job) == "done"
    for end in ("ROLLBACK", "ROLLBACK TO s; COMMIT"):
        session.execute("BEGIN; SAVEPOINT s")
        job = start(session, name)
        assert processes(session) == 0, "a transaction takes none before its end"
        for statement in end.split(";"):
            session.execute(statement)
        with pytest.raises(errors.UndefinedObject, match=f"job {job} does not exist"):
            wait(session, job)
        until_no_process(session)
    session.execute("BEGIN")
    start(session, name)
    with pytest.raises(errors.FeatureNotSupported, match="cannot PREPARE a transaction that has started jobs"):
        session.execute("PREPARE TRANSACTION 'p'")
    session.execute("BEGIN; SAVEPOINT s")
    start(session, name)
    for statement in ("ROLLBACK TO s", "PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'"):
        session.execute(statement)
    session.execute(
        f"""DO $$ BEGIN PERFORM dana_start('dana_train', '{{"rule": "{name}", "source": "t"}}'); COMMIT; END $$"""
    )
    row = session.execute("SELECT max(id) FROM dana.job").fetchone()
    assert row is not None
    assert wait(session, row[0]) == "done"
    assert session.execute("SELECT count(*) FROM dana.run").fetchone() == (2,)


def test_settings_of_the_role_that_only_a_new_session_accepts(
    cluster: Cluster, session: Session, table: str, rule: Callable[..., str]
) -> None:
    """A tablespace that is gone is a NOTICE at the connection; SET would be an error."""
    session.execute("CREATE ROLE ann LOGIN SUPERUSER; ALTER ROLE ann SET temp_tablespaces = 'gone'")
    try:
        with cluster.connect("ann") as ann:
            assert wait(ann, start(ann, rule(), "test.t")) == "done"
            if ann.info.server_version >= 170000:  # it ends a process, which could not record why
                session.execute("ALTER ROLE ann SET transaction_timeout = '300ms'")
                job = start(ann, rule(**LONG), "test.t")
                assert (wait(ann, job), seen(ann, job)["sqlstate"]) == ("cancelled", "57014")
    finally:
        session.execute("DROP OWNED BY ann; DROP ROLE ann")


def test_it_outlives_its_session(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    name = rule(rows=True)
    with cluster.connect(options="-c search_path=test,public") as other:
        other.execute("SET DateStyle = 'German'")
        job = start(other, name, None, query="SELECT id FROM t WHERE '1.2.2024'::date = make_date(2024, 2, 1)")
    assert wait(session, job) == "done"
    assert seen(session, job)["result"][0]["tuples"] == 1000


def test_a_role_that_was_set_has_the_session_s_settings(
    cluster: Cluster, session: Session, table: str, rule: Callable[..., str]
) -> None:
    """The job's process connects as that role, and has its settings first: those of the session come over them."""
    name = rule(rows=True)
    session.execute("CREATE ROLE ann LOGIN; CREATE ROLE team LOGIN; GRANT team TO ann")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO team; GRANT SELECT ON t TO team")
        session.execute("GRANT EXECUTE ON FUNCTION dana_start, dana_train, dana_drop_model TO team")
        session.execute("ALTER ROLE ann SET search_path = test, public; ALTER ROLE ann SET IntervalStyle = 'iso_8601'")
        session.execute("ALTER ROLE team SET search_path = nowhere; ALTER ROLE team SET DateStyle = 'German'")
        with cluster.connect("ann") as ann:
            ann.execute("SET ROLE team")
            # what a new process would have, not this session
            session.execute("ALTER ROLE ALL SET bytea_output = 'escape'; ALTER DATABASE postgres SET DateStyle = 'SQL'")
            session.execute("ALTER DATABASE postgres SET extra_float_digits = -3")
            names = ("IntervalStyle", "DateStyle", "search_path", "bytea_output", "extra_float_digits")
            here = ", ".join(f"current_setting('{one}')" for one in names)
            row = ann.execute(f"SELECT {here}").fetchone()
            assert row is not None
            there = " AND ".join(f"current_setting('{one}') = '{value}'" for one, value in zip(names, row, strict=True))
            job = start(ann, name, None, query=f"SELECT id FROM t WHERE {there}")
            assert wait(ann, job) == "done", seen(ann, job)
            assert seen(ann, job)["result"][0]["tuples"] == 1000
            assert wait(ann, start(ann, rule())) == "done"
            ann.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS m")
    finally:
        session.execute("ALTER ROLE ALL RESET bytea_output; ALTER DATABASE postgres RESET DateStyle")
        session.execute("ALTER DATABASE postgres RESET extra_float_digits")
        session.execute("DROP OWNED BY ann, team; DROP ROLE ann, team")


def test_what_ended_since_the_snapshot_is_not_lost(
    cluster: Cluster, session: Session, table: str, rule: Callable[..., str]
) -> None:
    job = start(session, rule(**LONG))
    until_running(session, job)
    with cluster.connect() as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert seen(other, job)["state"] == "running"
        session.execute("SELECT dana_cancel(%s)", (job,))
        assert wait(session, job) == "cancelled"
        until_no_process(session)
        found = seen(other, job)
        assert (found["state"], found["pid"], found["ended"]) == ("running", None, None), "as the snapshot has it"
        assert wait(other, job) == "cancelled"
        lost = start(session, rule(**LONG))
    with cluster.connect() as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        process = until_running(session, lost)
        assert seen(other, lost)["state"] == "running"
        session.execute("SELECT pg_terminate_backend(%s)", (process,))
        assert wait(session, lost) == "lost"
        assert seen(other, lost)["state"] == "lost"


def test_waiting_has_an_end(session: Session, table: str, rule: Callable[..., str]) -> None:
    job = start(session, rule(**LONG))
    until_running(session, job)
    started = time.monotonic()
    assert [wait(session, job, timeout) for timeout in (0, 0.05, 0.3)] == ["running"] * 3
    queued = start(session, rule(**LONG))
    assert wait(session, queued, 1) == "running", "as it is then, not as it was"
    assert 0.3 < time.monotonic() - started < 20
    session.execute("SET lock_timeout = 10")
    session.execute("SET statement_timeout = 200")
    with pytest.raises(errors.QueryCanceled):
        wait(session, job, None)
    session.execute("RESET ALL")
    session.execute("SET search_path = test, public")
    for bad in (-1, float("nan")):
        with pytest.raises(errors.InvalidParameterValue, match="seconds from 0"):
            wait(session, job, bad)
    assert session.execute("SELECT dana_wait(NULL)").fetchone() == (None,)
    with pytest.raises(errors.UndefinedObject, match="job 0 does not exist"):
        wait(session, 0)


def test_cancelled(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    job = start(session, rule(**LONG))
    until_running(session, job)
    assert session.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (True,)
    assert wait(session, job) == "cancelled"
    found = seen(session, job)
    assert (found["sqlstate"], found["result"], found["pid"]) == ("57014", None, None)
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)
    with pytest.raises(errors.UndefinedObject, match="job 0 does not exist"):
        session.execute("SELECT dana_cancel(0)")
    with session.transaction():  # before it began
        job = start(session, rule())
        assert session.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (True,)
        assert seen(session, job)["state"] == "cancelled"
    assert processes(session) == 0
    assert wait(session, job) == "cancelled"
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)


@pytest.mark.parametrize(
    ("rules", "arguments", "sqlstate", "message"),
    [
        ({"on_open": "refuse"}, {}, "42703", 'column "q" does not exist'),
        ({"on_page": "abort"}, {}, "08006", "the dana worker closed the connection"),
        ({"rows": True}, {"source": None, "query": "SELECT 1 / 0 AS id"}, "22012", "division by zero"),
        ({}, {"model": "a@b"}, "42602", "cannot be a model's name"),
    ],
)
def test_errors_are_kept(
    session: Session,
    table: str,
    rule: Callable[..., str],
    rules: dict[str, Any],
    arguments: dict[str, Any],
    sqlstate: str,
    message: str,
) -> None:
    job = start(session, rule(**rules), **arguments)
    assert wait(session, job) == "failed"
    found = seen(session, job)
    assert (found["sqlstate"], found["result"]) == (sqlstate, None)
    assert message in found["message"]


def test_a_process_that_ends_without_a_word(session: Session, table: str, rule: Callable[..., str]) -> None:
    job = start(session, rule(**LONG))
    session.execute("SELECT pg_terminate_backend(%s)", (until_running(session, job),))
    assert wait(session, job) == "lost"
    found = seen(session, job)
    assert (found["state"], found["pid"]) == ("lost", None)
    assert "without a word" in found["message"]
    assert "log" in found["hint"]
    assert session.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (False,)
    assert wait(session, start(session, rule())) == "done"


@pytest.mark.parametrize("state", ["failed", "cancelled", "lost"])
def test_nothing_is_tried_again(session: Session, table: str, rule: Callable[..., str], state: str) -> None:
    """Neither what failed, nor what was cancelled, nor what ended without a word."""
    session.execute("CREATE SEQUENCE tries")
    session.execute(
        "CREATE FUNCTION attempt(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries');"
        f" IF {state == 'failed'} THEN RAISE division_by_zero; END IF; PERFORM pg_sleep(60); RETURN x; END $$"
    )
    job = start(session, rule(rows=True), None, query="SELECT attempt(id) AS id FROM t")
    if state != "failed":
        end = "cancel" if state == "cancelled" else "terminate"
        session.execute(f"SELECT pg_{end}_backend(%s)", (until_running(session, job),))
    assert wait(session, job) == state
    sqlstate = {"failed": "22012", "cancelled": "57014", "lost": None}[state]
    time.sleep(1.5)  # PostgreSQL starts a worker again after a second at the earliest
    until_no_process(session)
    assert (seen(session, job)["state"], seen(session, job)["sqlstate"]) == (state, sqlstate)
    assert session.execute("SELECT last_value FROM tries").fetchone() == (1,)


def test_a_crash_loses_jobs(shared_cluster: Cluster) -> None:
    """kill -9 of a job's process restarts the server, as of any backend."""
    cluster = shared_cluster
    cluster.ensure_worker()
    with cluster.connect() as session:
        session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) g")
        session.execute("""SELECT dana_create_udf('r', '{"delay_us": 20000, "epochs": 10000}')""")
        job = start(session, "r")
        with suppress(psycopg.OperationalError):
            os.kill(until_running(session, job), signal.SIGKILL)
            wait(session, job)
        cluster.until_restarted(session)
    with cluster.connect() as session:
        assert (seen(session, job)["state"], wait(session, job)) == ("lost", "lost")
        assert wait(session, start(session, "r", epochs=1)) == "done"
        session.execute("DROP TABLE t")
        session.execute("SELECT dana_drop_rule('r')")
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch, dana.job_log CASCADE")


def test_jobs_belong_to_their_owner(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    name, rows = rule(**LONG), rule(rows=True)
    session.execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE deputy LOGIN; GRANT ann TO deputy")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO PUBLIC; GRANT SELECT ON t TO ann")
        with cluster.connect("ann") as ann, cluster.connect("bob") as bob, cluster.connect("deputy") as deputy:
            with pytest.raises(errors.InsufficientPrivilege, match="dana_start"):
                start(ann, name, "test.t")
            session.execute("GRANT EXECUTE ON FUNCTION dana_start, dana_train, dana_drop_model TO ann, bob")
            job = start(ann, name, "test.t")
            until_running(ann, job)
            assert seen(ann, job)["owner"] == "ann"
            assert bob.execute("SELECT FROM dana.job").rowcount == 0
            for call in ("dana_wait(%s, 0)", "dana_cancel(%s)"):
                with pytest.raises(errors.UndefinedObject, match=f"job {job} does not exist"):
                    bob.execute(f"SELECT {call}", (job,))
            for statement in ("SELECT FROM dana.job_log", "UPDATE dana.job SET state = 'done'", "DELETE FROM dana.job"):
                with pytest.raises((errors.InsufficientPrivilege, errors.ObjectNotInPrerequisiteState)):
                    ann.execute(statement)
            assert wait(deputy, job, 0) == "running"
            assert deputy.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (True,)
            assert wait(ann, job) == "cancelled"
            session.execute("SET ROLE bob")
            for who in (bob, session):  # a superuser's session that has become bob's, too
                with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table"):
                    start(who, name, "test.t")
            escaped = start(bob, rows, None, query="SELECT set_config('role', 'postgres', false)::int AS id")
            assert wait(bob, escaped) == "failed"
            assert 'permission denied to set role "postgres"' in seen(bob, escaped)["message"]
    finally:
        session.execute("RESET ROLE; DROP OWNED BY ann, bob, deputy; DROP ROLE ann, bob, deputy")


def test_roles_that_may_not_log_in(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    name = rule()
    session.execute("CREATE ROLE team")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO team; GRANT SELECT ON t TO team")
        session.execute("GRANT EXECUTE ON FUNCTION dana_start, dana_train, dana_drop_model TO team")
        session.execute("SET ROLE team")
        if cluster.major < 17:
            with pytest.raises(errors.InsufficientPrivilege, match="not permitted to log in"):
                start(session, name)
        else:
            assert wait(session, start(session, name)) == "done"
            assert session.execute("SELECT owner FROM dana.model").fetchone() == ("team",)
            session.execute("SELECT dana_drop_model(%s)", (name,))
    finally:
        session.execute("RESET ROLE")
        session.execute("DROP OWNED BY team; DROP ROLE team")


def test_other_functions_in_the_background(session: Session, table: str, rule: Callable[..., str]) -> None:
    name = rule(rows=True)
    row = session.execute(
        "SELECT dana_start('dana_train_groups', jsonb_build_object("
        "'rule', %s::text, 'training', jsonb_build_object('query', %s::text), 'group_by', ARRAY['g']))",
        (name, "SELECT id, id % 3 AS g FROM t"),
    ).fetchone()
    assert row is not None
    assert wait(session, row[0]) == "done"
    assert [one["model"] for one in seen(session, row[0])["result"]] == [f"{name}[{g}]" for g in range(3)]
    for function, arguments, error in (
        ("pg_sleep", "{}", errors.InvalidParameterValue),
        ("dana_prune", '{"keep": 0}', errors.InvalidParameterValue),
        ("dana_train", '{"q": 1}', errors.InvalidParameterValue),
        ("dana_train", "[]", errors.InvalidParameterValue),
        ("dana_train", "{}", errors.NullValueNotAllowed),
        ("dana_train", '{"source": "t"}', errors.NullValueNotAllowed),
    ):
        with pytest.raises(error):
            session.execute("SELECT dana_start(%s, %s)", (function, arguments))
    assert session.execute("SELECT count(*) FROM dana.job").fetchone() == (1,)


def test_the_right_to_the_function_is_checked(session: Session, table: str, rule: Callable[..., str]) -> None:
    """When the job is started, and when it begins."""
    name = rule(rows=True)
    session.execute(
        "CREATE ROLE ann LOGIN; GRANT EXECUTE ON FUNCTION dana_start TO ann; GRANT USAGE ON SCHEMA test TO ann"
    )
    try:
        session.execute("SET ROLE ann")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function dana_train"):
            start(session, name, None, query="SELECT 1 AS id")
        with session.transaction():
            session.execute("RESET ROLE; GRANT EXECUTE ON FUNCTION dana_train TO ann; SET ROLE ann")
            job = start(session, name, None, query="SELECT 1 AS id")
            session.execute("RESET ROLE; REVOKE EXECUTE ON FUNCTION dana_train FROM ann")
        assert (wait(session, job), seen(session, job)["sqlstate"]) == ("failed", "42501")
    finally:
        session.execute("RESET ROLE; DROP OWNED BY ann; DROP ROLE ann")
