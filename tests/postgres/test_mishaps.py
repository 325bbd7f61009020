"""Trainers that fail, workers that are not there, transactions that end: one SQL error, and the next training works.

The stand-in's trainer (`tests.postgres.worker_main`) does what no real one can be made to do at will.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
ROWS = 200 * 226
"""Rows of the table: 200 pages, three times the ring."""


@pytest.mark.parametrize(
    ("bad", "error", "message", "stays"),
    [
        ({"on_open": "refuse"}, errors.UndefinedColumn, '(?s)column "q" does not exist.*Use "a"', True),
        ({"on_open": "fail"}, errors.InternalError_, "(?s)failed: ZeroDivisionError: one over nothing.*log", True),
        ({"on_epoch": "fail"}, errors.InternalError_, "the worker failed: ZeroDivisionError", True),
        ({"on_open": "allocate"}, errors.OutOfMemory, "(?s)needs more memory than.*--memory-limit", True),
        ({"fail_at": 100}, errors.DataCorrupted, "the sink failed with 7 at page 100", True),
        ({"fail_at": 200}, errors.DataCorrupted, "the sink failed with 7 at page 200", True),
        ({"fail_at": 130, "epochs": 9}, errors.DataCorrupted, "the sink failed with 7 at page 130", True),
        ({"on_open": "abort"}, errors.ConnectionFailure, "closed the connection", False),
        ({"on_page": "abort"}, errors.ConnectionFailure, "dana worker", False),
        ({"on_epoch": "abort"}, errors.ConnectionFailure, "closed the connection", False),
    ],
)
def test_failing_trainers(
    cluster: Cluster,
    session: Session,
    rule: Callable[..., str],
    bad: dict[str, Any],
    error: type[psycopg.Error],
    message: str,
    stays: bool,
) -> None:
    """`stays`: the worker's session answers the next request, too."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    good, failing = rule(), rule(**bad)
    answered_by = cluster.sessions()
    for _ in range(2):
        with pytest.raises(error, match=message):
            session.execute("SELECT * FROM dana_train(%s, 't')", (failing,))
        assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (good,)).fetchone() == (ROWS,)
    assert (cluster.sessions() == answered_by) == stays


def test_no_worker(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    cluster.stop_worker()
    for path, message in (
        (str(cluster.worker_socket), "could not reach the dana worker"),
        ("", "dana.socket_path is not set"),
        ("/" + "x" * 200, "longer than 107 bytes"),
        (str(cluster.folder / "data" / "PG_VERSION"), "could not reach the dana worker"),
    ):
        session.execute(f"SET dana.socket_path = '{path}'")
        with pytest.raises(psycopg.Error) as raised:
            session.execute("SELECT * FROM dana_train(%s, 't')", (name,))
        assert message in str(raised.value.diag.message_primary)
        assert raised.value.diag.message_hint
    session.execute("RESET dana.socket_path")
    cluster.start_worker()
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)


def test_a_killed_worker_comes_back(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    """A call waits for what restarts it, and a cancel ends the wait; nobody waits where nobody listened."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    train = f"SELECT tuples FROM dana_train('{rule()}', 't')"
    session.execute(train)
    cluster.kill_worker()
    session.execute("SET statement_timeout = '500ms'")
    with pytest.raises(errors.QueryCanceled):
        session.execute(train)
    session.execute("SET statement_timeout = 0")
    later = threading.Timer(1.0, cluster.ensure_worker)
    later.start()
    assert session.execute(train).fetchone() == (1,)
    later.join()


def test_full_queue_of_a_stopped_worker(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    """connect(2) itself would block here, and ignore the timeout."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    with cluster.connect() as fresh:
        os.kill(cluster.worker_pid, signal.SIGSTOP)
        waiting = [cluster.connecting_client() for _ in range(100)]
        try:
            fresh.execute("SET statement_timeout = '300ms'")
            with pytest.raises(errors.QueryCanceled):
                fresh.execute("SELECT * FROM dana_train(%s, 'test.t')", (name,))
        finally:
            os.kill(cluster.worker_pid, signal.SIGCONT)
            for client in waiting:
                client.close()
        fresh.execute("SET statement_timeout = 0")
        assert fresh.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone() == (1,)


def test_idle_sessions_end_and_come_back(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    cluster.stop_worker()
    cluster.start_worker(idle_seconds=0.2)
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    for _ in range(2):
        cluster.until_sessions(0)
        assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)
    cluster.stop_worker()


def test_rolled_back(session: Session, rule: Callable[..., str]) -> None:
    """A model is a row of the caller's transaction."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name, bad = rule(), rule(on_open="refuse")
    train, fail = f"SELECT dana_train('{name}', 't', 'm')", f"SELECT dana_train('{bad}', 't', 'm')"
    for statement in ("BEGIN", train, "ROLLBACK"):
        session.execute(statement)
    assert session.execute("SELECT FROM dana.model").rowcount == 0
    for statement in ("BEGIN", train, "SAVEPOINT s", train, "ROLLBACK TO s", train, "SAVEPOINT s", "COMMIT"):
        session.execute(statement)
    assert session.execute("SELECT version FROM dana.model ORDER BY 1").fetchall() == [(1,), (2,)]
    session.execute("BEGIN")
    with pytest.raises(errors.UndefinedColumn):
        session.execute(fail)
    with pytest.raises(errors.InFailedSqlTransaction):
        session.execute(train)
    session.execute("ROLLBACK")
    session.execute(
        f"DO $$ BEGIN BEGIN PERFORM dana_train('{bad}', 't', 'm'); EXCEPTION WHEN undefined_column THEN"
        f" PERFORM dana_train('{name}', 't', 'm'); END; END $$"
    )
    assert session.execute("SELECT max(version) FROM dana.model").fetchone() == (3,)


def test_prepared_transaction(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    for statement in ("BEGIN", f"SELECT dana_train('{name}', 't', 'm')", "PREPARE TRANSACTION 'p'"):
        session.execute(statement)
    assert session.execute("SELECT FROM dana.model").rowcount == 0
    session.execute("COMMIT PREPARED 'p'")
    assert session.execute("SELECT FROM dana.model").rowcount == 1


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_sessions_at_once(cluster: Cluster, session: Session, rule: Callable[..., str], level: str) -> None:
    """Trainings under one name, begun before any of them ended, get a version each."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 5000) g")
    name = rule(delay_us=2000)
    begun = threading.Barrier(4)
    failures: list[str] = []

    def train() -> None:
        with cluster.connect() as own:
            own.execute(f"BEGIN ISOLATION LEVEL {level}")
            own.execute("SELECT count(*) FROM dana.model")  # takes the snapshot
            begun.wait()
            try:
                own.execute("SELECT * FROM dana_train(%s, 'test.t', 'm')", (name,))
                own.execute("COMMIT")
            except psycopg.Error as error:
                failures.append(str(error))

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert session.execute("SELECT version FROM dana.model ORDER BY 1").fetchall() == [(1,), (2,), (3,), (4,)]


def test_two_trainings_in_one_statement(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    rows = session.execute(f"SELECT (dana_train('{rule()}', 't')).version FROM generate_series(1, 3)").fetchall()
    assert sorted({row[0] for row in rows}) == [1, 2, 3]


def test_extension_made_anew_in_one_session(session: Session, rule: Callable[..., str]) -> None:
    """Kept plans and the connection survive the extension's tables."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    session.execute("SELECT * FROM dana_train(%s, 't')", (rule(),))
    session.execute("DROP EXTENSION dana CASCADE")
    session.execute("CREATE EXTENSION dana SCHEMA test")
    try:
        assert session.execute("SELECT version FROM test.dana_train(%s, 't')", (rule(),)).fetchone() == (1,)
        row = session.execute("SELECT name FROM dana.rule").fetchone()
        assert row is not None
        assert session.execute(f"SELECT version FROM dana.{row[0]}('t')").fetchone() == (2,)
    finally:
        session.execute("DROP EXTENSION dana CASCADE")
        session.execute("CREATE EXTENSION dana SCHEMA public")


def test_rule_too_long_for_a_request(session: Session) -> None:
    with pytest.raises(errors.ProgramLimitExceeded, match="more than 67108864"):
        session.execute("SELECT dana_create_udf('r', repeat(' ', 70000000))")
    session.execute("SELECT dana_create_udf('r', '{}' || repeat(' ', 5000000))")
