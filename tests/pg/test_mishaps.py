"""Every way a training can end badly, at every moment: one SQL error, nothing leaked, the next training works."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pg.cluster import Cluster
from tests.pg.conftest import Session

errors = psycopg.errors
ROWS = 200 * 226
"""Rows of the table: 200 pages, three times the ring."""

PATIENCE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in a request's life at which it can be held.

    Attributes
    ----------
    rule
        The rule that holds it there.
    epochs
        Epochs to train.
    checks
        Whether the request is dana_create_udf, not dana_train.
    settle
        Seconds from the backend's first wait to that point.
    """

    rule: dict[str, Any]
    epochs: int = 1
    checks: bool = False
    settle: float = 0.0


MOMENTS = {
    "check": Moment(rule={"on_check": "hang"}, checks=True),
    "open": Moment(rule={"on_open": "hang"}),
    "first stream": Moment(rule={"delay_us": 20_000}),
    "stream of rows": Moment(rule={"delay_us": 20_000, "rows": True}),
    "second stream": Moment(rule={"delay_us": 5000}, epochs=2, settle=1.2),
    "replay": Moment(rule={"delay_us": 100}, epochs=10_000, settle=0.3),
    "end of epoch": Moment(rule={"on_epoch": "hang"}),
}


@dataclass(slots=True, kw_only=True)
class Request:
    """A request under way in a session of its own."""

    cluster: Cluster
    session: Session
    pid: int
    thread: threading.Thread | None = None
    error: psycopg.Error | None = None
    seconds: float = 0.0

    def start(self, moment: Moment, name: str) -> None:
        def run() -> None:
            started = time.monotonic()
            try:
                if moment.checks:
                    self.session.execute("SELECT dana_create_udf('held', %s)", (json.dumps(moment.rule),))
                else:
                    self.session.execute("SELECT * FROM dana_train(%s, 'test.t', epochs => %s)", (name, moment.epochs))
            except psycopg.Error as error:
                self.error = error
            self.seconds = time.monotonic() - started

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def until_waiting(self, observer: Session, settle: float) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            row = observer.execute(
                "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", (self.pid,)
            ).fetchone()
            if row == ("Extension",) and self.cluster.sessions():  # it waits for a new session to start, too
                break
            assert time.monotonic() < deadline, "the request never waited for the worker"
            time.sleep(0.005)
        time.sleep(settle)

    def finish(self) -> psycopg.Error:
        assert self.thread is not None
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the statement did not end"
        assert self.error is not None, "the statement succeeded"
        return self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What is done to a held request.

    Attributes
    ----------
    act
        Does it.
    error
        What the statement ends with.
    session_survives
        Whether the SQL session can go on.
    settings
        Settings of the session.
    """

    act: Callable[[Request, Session], None]
    error: type[psycopg.Error]
    session_survives: bool = True
    settings: dict[str, str] = field(default_factory=dict)


def _cancel(request: Request, observer: Session) -> None:
    observer.execute("SELECT pg_cancel_backend(%s)", (request.pid,))


def _terminate(request: Request, observer: Session) -> None:
    observer.execute("SELECT pg_terminate_backend(%s)", (request.pid,))


def _signal_session(number: signal.Signals) -> Callable[[Request, Session], None]:
    def act(request: Request, _: Session) -> None:
        for pid in request.cluster.sessions():
            os.kill(pid, number)

    return act


def _stop_then_cancel(request: Request, observer: Session) -> None:
    _signal_session(signal.SIGSTOP)(request, observer)
    time.sleep(0.1)
    _cancel(request, observer)
    request.finish()
    _signal_session(signal.SIGCONT)(request, observer)


def _end_worker(number: signal.Signals) -> Callable[[Request, Session], None]:
    def act(request: Request, _: Session) -> None:
        request.cluster.stop_worker(number)

    return act


DEEDS = {
    "cancel": Deed(act=_cancel, error=errors.QueryCanceled),
    "timeout": Deed(
        act=lambda request, observer: None, error=errors.QueryCanceled, settings={"statement_timeout": "1700ms"}
    ),
    "terminate": Deed(act=_terminate, error=psycopg.OperationalError, session_survives=False),
    "kill the worker's session": Deed(act=_signal_session(signal.SIGKILL), error=errors.ConnectionFailure),
    "stop the worker's session, cancel": Deed(act=_stop_then_cancel, error=errors.QueryCanceled),
    "kill the worker": Deed(act=_end_worker(signal.SIGKILL), error=errors.ConnectionFailure),
    "end the worker": Deed(act=_end_worker(signal.SIGTERM), error=errors.ConnectionFailure),
}


def descriptors(pid: int) -> list[str]:
    """Sockets and memory files that a backend has open; needs the backend's account or root."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(entry)
            if target.startswith("socket:") or "memfd" in target:
                found.append(target)
    return found


def maps(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:dana-ring")


def registered(cluster: Cluster, **fields: Any) -> str:
    """Register a rule from a session that ends at once, so that no session of the worker stays."""
    name = f"rule{time.monotonic_ns()}"
    with cluster.connect() as session:
        session.execute("SELECT dana_create_udf(%s, %s)", (name, json.dumps(fields)))
    return name


def backend_pid(session: Session) -> int:
    return session.info.backend_pid


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("deed", DEEDS)
def test_faults(cluster: Cluster, session: Session, deed: str, moment: str) -> None:
    held, fault = MOMENTS[moment], DEEDS[deed]
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    good = registered(cluster)
    name = good if held.checks else registered(cluster, **held.rule)
    cluster.until_sessions(0)
    with cluster.connect() as victim:
        for setting, value in fault.settings.items():
            victim.execute(f"SET {setting} = '{value}'")
        request = Request(cluster=cluster, session=victim, pid=backend_pid(victim))
        before = len(descriptors(request.pid))
        request.start(held, name)
        request.until_waiting(session, held.settle)
        fault.act(request, session)
        error = request.finish()
        assert isinstance(error, fault.error), error
        assert session.execute("SELECT FROM dana.model").rowcount == 0
        cluster.ensure_worker()
        cluster.until_sessions(0)
        if fault.session_survives:
            assert (len(descriptors(request.pid)), maps(request.pid)) == (before, 0), "connection and ring are gone"
            locks = session.execute("SELECT FROM pg_locks WHERE pid = %s", (request.pid,))
            assert locks.rowcount == 0
            victim.execute("SET statement_timeout = 0")
            assert victim.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (good,)).fetchone() == (ROWS,)
            assert (len(descriptors(request.pid)), maps(request.pid)) == (before + 1, 1), "one connection, one ring"
    cluster.until_sessions(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request that the trainer or the process fails.

    Attributes
    ----------
    rule
        The rule that makes it fail.
    error, message, hint
        What the caller gets.
    stays
        Whether the worker's session answers the next request too.
    """

    rule: dict[str, Any]
    error: type[psycopg.Error]
    message: str
    hint: str = ""
    stays: bool = True


FAILURES = {
    "refused": Failure(
        rule={"on_open": "refuse"}, error=errors.UndefinedColumn, message='column "q" does not exist', hint='Use "a".'
    ),
    "our bug": Failure(
        rule={"on_open": "fail"},
        error=errors.InternalError_,
        message="the worker failed: ZeroDivisionError: one over nothing",
        hint="log",
    ),
    "our bug later": Failure(
        rule={"on_epoch": "fail"}, error=errors.InternalError_, message="the worker failed: ZeroDivisionError"
    ),
    "memory": Failure(
        rule={"on_open": "allocate"}, error=errors.OutOfMemory, message="ran out of memory", hint="--memory-limit"
    ),
    "a page": Failure(rule={"fail_at": 100}, error=errors.DataCorrupted, message="the sink failed with 7 at page 100"),
    "the last page": Failure(
        rule={"fail_at": 200}, error=errors.DataCorrupted, message="the sink failed with 7 at page 200"
    ),
    "a page of a kept epoch": Failure(
        rule={"fail_at": 130, "epochs": 9}, error=errors.DataCorrupted, message="the sink failed with 7 at page 130"
    ),
    "crash at first": Failure(
        rule={"on_open": "abort"}, error=errors.ConnectionFailure, message="closed the connection", stays=False
    ),
    "crash at a page": Failure(
        rule={"on_page": "abort"}, error=errors.ConnectionFailure, message="dana worker", stays=False
    ),
    "crash at the end": Failure(
        rule={"on_epoch": "abort"}, error=errors.ConnectionFailure, message="closed the connection", stays=False
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failing_trainers(cluster: Cluster, session: Session, rule: Callable[..., str], case: str) -> None:
    failure = FAILURES[case]
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    good, bad = rule(), rule(**failure.rule)
    answered_by = cluster.sessions()
    for _ in range(2):
        with pytest.raises(failure.error) as raised:
            session.execute("SELECT * FROM dana_train(%s, 't')", (bad,))
        assert failure.message in str(raised.value.diag.message_primary)
        assert failure.hint in (raised.value.diag.message_hint or "")
        assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (good,)).fetchone() == (ROWS,)
    assert (cluster.sessions() == answered_by) == failure.stays


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


def test_killed_backend(shared_cluster: Cluster) -> None:
    """The server restarts as after any crash of a backend; the worker lets go of the session."""
    cluster = shared_cluster
    cluster.ensure_worker()
    name = registered(cluster, delay_us=20_000)
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("CREATE TABLE test.t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    with suppress(psycopg.OperationalError), cluster.connect() as observer, cluster.connect() as victim:
        request = Request(cluster=cluster, session=victim, pid=backend_pid(victim))
        request.start(Moment(rule={}), name)
        request.until_waiting(observer, 0.1)
        os.kill(request.pid, signal.SIGKILL)
        assert isinstance(request.finish(), psycopg.OperationalError)
        cluster.until_restarted(observer)
    cluster.until_sessions(0)
    with cluster.connect() as session:
        session.execute("SELECT dana_create_udf('r', '{}')")
        assert session.execute("SELECT tuples FROM dana_train('r', 'test.t')").fetchone() == (ROWS,)
        session.execute("DROP SCHEMA test CASCADE")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule")
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch")


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
    with pytest.raises(errors.ProgramLimitExceeded, match="more than the"):
        session.execute("SELECT dana_create_udf('r', repeat(' ', 70000000))")
    session.execute("SELECT dana_create_udf('r', '{}' || repeat(' ', 5000000))")
