"""Calls in the background: how many, within which limits, and what they cannot take from themselves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session
from tests.postgres.jobs import LONG, seen, start, start_when_free, until_no_process, wait

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> Iterator[str]:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) g")
    yield "t"
    session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'dana job%'")
    until_no_process(session)
    session.execute("TRUNCATE dana.job_log")


@pytest.fixture
def any_number_of_jobs(cluster: Cluster, session: Session) -> Iterator[None]:
    """No limit but max_worker_processes."""
    cluster.configure(session, "dana.max_jobs = 0", "dana.max_jobs_per_role = 0")
    yield
    cluster.configure(session)


def test_no_worker_is_free(session: Session, table: str, rule: Callable[..., str], any_number_of_jobs: None) -> None:
    name = rule(**LONG)
    given = Jsonb({"rule": name, "source": "t"})
    with pytest.raises(errors.ConfigurationLimitExceeded) as raised:
        session.execute("SELECT count(dana_start('dana_train', %s)) FROM generate_series(1, 50)", (given,))
    assert "max_worker_processes" in str(raised.value.diag.message_hint)
    until_no_process(session)
    jobs = [start_when_free(session, name) for _ in range(4)]  # the server gives its slots back one by one
    with pytest.raises(errors.ConfigurationLimitExceeded):
        jobs.extend(start(session, name) for _ in range(50))
    assert session.execute("SELECT count(*) FROM dana.job WHERE pid IS NOT NULL").fetchone() == (len(jobs),)
    assert session.execute("SELECT bool_and(dana_cancel(id)) FROM dana.job").fetchone() == (True,)
    assert {wait(session, job) for job in jobs} == {"cancelled"}
    until_no_process(session)
    done = [start_when_free(session, rule()) for _ in range(3)]
    assert {wait(session, job) for job in done} == {"done"}


def test_limits_of_jobs(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    name, rows = rule(**LONG), rule(rows=True)
    session.execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; GRANT USAGE ON SCHEMA test TO PUBLIC")
    session.execute("GRANT EXECUTE ON FUNCTION dana_start, dana_train TO ann, bob; GRANT SELECT ON t TO ann, bob")
    session.execute("CREATE DATABASE elsewhere")
    cluster.configure(session, "dana.max_jobs = 3", "dana.max_jobs_per_role = 2")
    try:
        with cluster.connect("ann") as ann, cluster.connect("ann") as again, cluster.connect("bob") as bob:
            ann.execute("SELECT dana_holdout(1, 0.5)")  # loads the library
            with pytest.raises(errors.InsufficientPrivilege):
                ann.execute("SET dana.max_jobs_per_role = 0")
            with pytest.raises(errors.CantChangeRuntimeParam):
                ann.execute("SET dana.max_jobs = 0")
            ann.execute("BEGIN")
            for _ in range(3):  # what was rolled back does not count
                ann.execute("SAVEPOINT s")
                start(ann, name, "test.t")
                ann.execute("ROLLBACK TO s")
            start(ann, name, "test.t")
            start(ann, name, "test.t")
            ann.execute("SAVEPOINT s")
            with pytest.raises(errors.ConfigurationLimitExceeded, match='too many jobs for role "ann"') as raised:
                start(ann, name, "test.t")
            assert "0 are running, this transaction starts 3" in str(raised.value.diag.message_detail)
            assert "dana.max_jobs_per_role" in str(raised.value.diag.message_hint)
            ann.execute("ROLLBACK TO s")
            again.execute("BEGIN")
            refused = start(again, name, "test.t")  # nobody's yet
            ann.execute("COMMIT")
            with pytest.raises(errors.ConfigurationLimitExceeded, match="too many jobs for role"):
                again.execute("COMMIT")
            with pytest.raises(errors.UndefinedObject):
                wait(again, refused)
            with pytest.raises(errors.ConfigurationLimitExceeded, match="too many jobs for role"):
                start(ann, rows, None, query="SELECT 1 AS id")
            with cluster.connect(dbname="elsewhere") as other:
                other.execute("CREATE EXTENSION dana")
                other.execute("SELECT dana_create_udf('r', %s)", (json.dumps(LONG),))
                other.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) g")
                job = start(other, "r")
                with pytest.raises(errors.ConfigurationLimitExceeded, match=r"^too many jobs\n") as raised:
                    start(bob, name, "test.t")
                assert "3 are running" in str(raised.value.diag.message_detail), "those of another database, too"
                other.execute("SELECT dana_cancel(%s)", (job,))
                assert wait(other, job) == "cancelled"
            # as a role that it may become, a login has no jobs more
            session.execute("GRANT bob TO ann")
            ann.execute("SET ROLE bob")
            with pytest.raises(errors.ConfigurationLimitExceeded, match='too many jobs for role "bob"'):
                start(ann, name, "test.t")
            job = start(bob, name, "test.t")  # at once: what has ended does not count
            bob.execute("SELECT dana_cancel(%s)", (job,))
            assert wait(bob, job) == "cancelled"
    finally:
        cluster.configure(session)
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'dana job%'")
        until_no_process(session)
        session.execute("DROP OWNED BY ann, bob; DROP ROLE ann, bob")
        session.execute("DROP DATABASE elsewhere")


WAITS = [("BgworkerStartup",), ("BgWorkerStartup",), ("object",)]
"""For a process that begins, by its names on 14 to 18; for the lock under which it is asked for."""


def test_limits_hold_for_transactions_that_commit_at_once(
    cluster: Cluster, session: Session, table: str, rule: Callable[..., str]
) -> None:
    """No job has begun when the second one looks: the postmaster, which is to start the first, is stopped."""
    name = rule(**LONG)
    cluster.configure(session, "dana.max_jobs = 1")
    state = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    refused: list[psycopg.Error] = []

    def commit(own: Session) -> None:
        try:
            own.execute("COMMIT")
        except psycopg.Error as error:
            refused.append(error)

    with cluster.connect() as first, cluster.connect() as second:
        for own in (first, second):
            own.execute("BEGIN")
            start(own, name, "test.t")
        threads = [threading.Thread(target=commit, args=(own,)) for own in (first, second)]
        os.kill(cluster.server_pid, signal.SIGSTOP)
        try:
            for thread, own in zip(threads, (first, second), strict=True):
                thread.start()
                deadline = time.monotonic() + 30
                while session.execute(state, (own.info.backend_pid,)).fetchone() not in WAITS:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
        finally:
            os.kill(cluster.server_pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
    cluster.configure(session)
    assert [type(error) for error in refused] == [errors.ConfigurationLimitExceeded]
    assert session.execute("SELECT dana_cancel(id) FROM dana.job").fetchall() == [(True,)]


def test_a_job_s_lock_is_not_its_query_s(session: Session, table: str, rule: Callable[..., str]) -> None:
    session.execute(
        "CREATE FUNCTION unlock(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_unlock_all();"
        " BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END; RETURN x; END $$"
    )
    job = start(session, rule(rows=True, **LONG), None, query="SELECT unlock(id) AS id FROM t")
    while seen(session, job)["state"] == "queued":
        time.sleep(0.01)
    time.sleep(0.3)
    assert seen(session, job)["state"] == "running"
    assert seen(session, job)["pid"] is not None
    assert wait(session, job, 0.1) == "running"
    assert session.execute("SELECT dana_cancel(%s)", (job,)).fetchone() == (True,)
    assert wait(session, job) == "cancelled"


@pytest.mark.parametrize(
    ("deed", "sqlstate"),
    [
        ("INSERT INTO test.child VALUES (0)", "23503"),  # found at the end of the transaction, or in it
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1 / (id - id) FROM test.t", "22012"),  # at its end alone
    ],
)
def test_errors_of_the_commit_are_kept(
    session: Session, table: str, rule: Callable[..., str], deed: str, sqlstate: str
) -> None:
    session.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    session.execute("CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    session.execute(
        "CREATE FUNCTION act(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
        f" IF x = 1 THEN EXECUTE '{deed}'; END IF; RETURN x; END $$"
    )
    job = start(session, rule(rows=True), None, query="SELECT act(id) AS id FROM t")
    assert wait(session, job) == "failed"
    assert seen(session, job)["sqlstate"] == sqlstate
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)
    assert session.execute("SELECT count(*) FROM child").fetchone() == (0,)


def test_limits_go_with_a_job(cluster: Cluster, session: Session, table: str, rule: Callable[..., str]) -> None:
    """The stricter of the session's and of the role's that the job's process connects as."""
    long, short = rule(**LONG), rule()
    session.execute("CREATE ROLE ann LOGIN; CREATE ROLE team LOGIN; GRANT team TO ann")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO team; GRANT SELECT ON t TO team")
        session.execute("GRANT EXECUTE ON FUNCTION dana_start, dana_train TO team")
        for strict, lax in (("ann", "team"), ("team", "ann")):
            session.execute(f"ALTER ROLE {strict} SET dana.training_timeout = '300ms'")
            session.execute(f"ALTER ROLE {lax} SET dana.training_timeout = 0")  # no limit; max_epochs always is one
            session.execute(f"ALTER ROLE {strict} SET dana.max_epochs = 20000")
            session.execute(
                f"ALTER ROLE {strict} SET dana.machines = 'sim'; ALTER ROLE {lax} SET dana.machines = 'rtl, sim'"
            )
            with cluster.connect("ann") as ann:
                ann.execute("SET ROLE team")
                job = start(ann, long, "test.t")
                assert wait(ann, job) == "cancelled", strict
                assert "dana.training_timeout" in seen(ann, job)["message"]
                try:  # the session's own limit is looked at now, the role's where the job runs
                    job = start(ann, short, "test.t", epochs=20001)
                    assert (wait(ann, job), seen(ann, job)["sqlstate"], strict) == ("failed", "22023", "team")
                except errors.InvalidParameterValue:
                    assert strict == "ann"
                job = start(ann, short, "test.t", machine="rtl")
                assert (wait(ann, job), seen(ann, job)["sqlstate"]) == ("failed", "42501"), strict
                assert wait(ann, start(ann, short, "test.t", epochs=20)) == "done"
            session.execute("ALTER ROLE ann RESET ALL; ALTER ROLE team RESET ALL")
    finally:
        session.execute("DROP OWNED BY ann, team; DROP ROLE ann, team")
