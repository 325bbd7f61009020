"""Settings that bound trainings: what happens to the one that wants more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.pg.cluster import Cluster
from tests.pg.conftest import Session

errors = psycopg.errors
Rule = Callable[..., str]


@pytest.fixture
def one_at_a_time(session: Session) -> Iterator[None]:
    """At most one training in the server."""
    session.execute("LOAD 'dana'")  # before 16 only a loaded library's settings can be set
    session.execute("ALTER SYSTEM SET dana.max_runs = 1")
    session.execute("SELECT pg_reload_conf()")
    yield
    session.execute("ALTER SYSTEM RESET dana.max_runs")
    session.execute("SELECT pg_reload_conf()")


def wait_for_phase(session: Session, phase: str) -> None:
    deadline = time.monotonic() + 30
    while session.execute("SELECT FROM dana.progress WHERE phase = %s", (phase,)).rowcount == 0:
        assert time.monotonic() < deadline, f"no training is {phase}"
        time.sleep(0.01)


def test_the_next_training_waits(cluster: Cluster, session: Session, rule: Rule, one_at_a_time: None) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    held, good = rule(on_epoch="hang"), rule()
    done: list[object] = []

    def run(name: str, own: Session) -> None:
        try:
            done.append(own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone())
        except psycopg.Error as error:
            done.append(error)

    with cluster.connect() as first, cluster.connect() as second, cluster.connect() as third:
        assert first.execute("SHOW dana.max_runs").fetchone() == ("1",)
        threads = [threading.Thread(target=run, args=(held, first)), threading.Thread(target=run, args=(good, second))]
        threads[0].start()
        wait_for_phase(session, "training")
        threads[1].start()
        wait_for_phase(session, "waiting")
        assert session.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount == 1
        third.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            third.execute("SELECT dana_train(%s, 'test.t')", (good,))
        third.execute("RESET lock_timeout; SET statement_timeout = '50ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            third.execute("SELECT dana_train(%s, 'test.t')", (good,))
        assert done == []
        session.execute("SELECT pg_cancel_backend(%s)", (first.info.backend_pid,))
        for thread in threads:
            thread.join()
        assert isinstance(done[0], errors.QueryCanceled)
        assert done[1] == (1,)
        two = "SELECT (SELECT tuples FROM dana_train(%s, 'test.t')) + (SELECT tuples FROM dana_train(%s, 'test.t'))"
        third.execute("RESET statement_timeout")
        assert third.execute(two, (good, good)).fetchone() == (2,), "the place is given back with the training's end"
    assert session.execute("SELECT FROM pg_locks WHERE locktype = 'object'").rowcount == 0


def test_time(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    good = rule()
    session.execute("SET dana.training_timeout = '300ms'")
    for held in (rule(on_open="hang"), rule(on_epoch="hang")):
        for statement in (
            f"SELECT dana_train('{held}', 't')",
            f"DO $$ BEGIN PERFORM dana_train('{held}', 't'); EXCEPTION WHEN query_canceled THEN RAISE; END $$",
        ):
            with pytest.raises(errors.QueryCanceled, match=r"due to dana\.training_timeout") as raised:
                session.execute(statement)
            assert raised.value.diag.message_hint
    with pytest.raises(errors.QueryCanceled, match="training_timeout"):
        session.execute("SELECT dana_train(%s, query => 'SELECT pg_sleep(60)::text::real AS id')", (rule(rows=True),))
    session.execute("SET dana.training_timeout = '2s'")
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (good,)).fetchone() == (1,)
    session.execute("SELECT pg_sleep(2.1)")  # the clock of a training that ended says nothing


def test_a_users_cancel_is_a_users_cancel(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    session.execute("SET dana.training_timeout = '60s'; SET statement_timeout = '300ms'")
    with pytest.raises(errors.QueryCanceled, match="statement timeout"):
        session.execute("SELECT dana_train(%s, 't')", (rule(on_epoch="hang"),))


def test_memory(session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    greedy = rule(allocate_mb=600)
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (greedy,)).fetchone() == (1,)
    session.execute("SET dana.max_memory = '500MB'")
    with pytest.raises(errors.OutOfMemory) as raised:
        session.execute("SELECT dana_train(%s, 't')", (greedy,))
    assert "dana.max_memory" in (raised.value.diag.message_hint or "")
    session.execute("SET dana.max_memory = '64MB'")
    with pytest.raises(errors.OutOfMemory, match=r"dana\.max_memory of 64 MB is less than the \d+ MB that a session"):
        session.execute("SELECT dana_train(%s, 't')", (greedy,))
    session.execute("RESET dana.max_memory")
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (greedy,)).fetchone() == (1,)


def test_sessions_of_the_worker(cluster: Cluster, session: Session, rule: Rule) -> None:
    """One more than there may be takes the place of one that idles, whose backend notices nothing."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    held, good = rule(on_epoch="hang"), rule()
    train = "SELECT tuples FROM dana_train(%s, 'test.t')"
    cluster.stop_worker()
    cluster.start_worker(max_sessions=2)
    try:
        with cluster.connect() as first, cluster.connect() as second, cluster.connect() as third:
            for own in (first, second, third, first, second, third):
                assert own.execute(train, (good,)).fetchone() == (1,)
            threads = [threading.Thread(target=lambda own=own: suppressed(own, train, held)) for own in (first, second)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 30
            while session.execute("SELECT FROM dana.progress WHERE phase = 'training'").rowcount < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with pytest.raises(errors.TooManyConnections, match="too many sessions for the worker") as raised:
                third.execute(train, (good,))
            assert "--max-sessions" in (raised.value.diag.message_hint or "")
            for own in (first, second):
                session.execute("SELECT pg_cancel_backend(%s)", (own.info.backend_pid,))
            for thread in threads:
                thread.join()
            cluster.until_sessions(0)
            assert third.execute(train, (good,)).fetchone() == (1,)
    finally:
        cluster.stop_worker()
        cluster.start_worker()


def suppressed(session: Session, statement: str, rule: str) -> None:
    with suppress(errors.QueryCanceled):
        session.execute(statement, (rule,))


def test_limits_are_not_the_users(cluster: Cluster, session: Session) -> None:
    session.execute("CREATE ROLE limited LOGIN")
    try:
        with cluster.connect("limited") as user:
            user.execute("SELECT dana_holdout(1, 0.5)")  # loads the library
            for setting in ("max_runs", "training_timeout", "max_memory", "max_epochs", "ring_pages", "socket_path"):
                with pytest.raises((errors.InsufficientPrivilege, errors.CantChangeRuntimeParam)):
                    user.execute(f"SET dana.{setting} = 0")
    finally:
        session.execute("DROP ROLE limited")
