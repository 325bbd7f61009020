"""Faults at every moment of a training: one SQL error, nothing left behind, and the next training is the same.

The worker, the rules and the tables are real (`tests.postgres.workshop`). Another session reads in dana.progress,
pg_locks and pg_stat_activity at which moment a training is, before the fault and after it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.moments import (
    FIRST_STREAM,
    LOGISTIC,
    MOMENTS,
    Attempt,
    Moment,
    at,
    descriptors,
    gate_closed,
    maps,
)
from tests.postgres.workshop import PATIENCE, Session, Workshop, open_workshop, until

errors = psycopg.errors


@pytest.fixture(scope="module")
def workshop(shared_cluster: Cluster) -> Iterator[Workshop]:
    with open_workshop(shared_cluster) as made:
        yield made


def cancel(attempt: Attempt) -> None:
    attempt.observer.execute("SELECT pg_cancel_backend(%s)", (attempt.pid,))


def terminate(attempt: Attempt) -> None:
    attempt.observer.execute("SELECT pg_terminate_backend(%s)", (attempt.pid,))


def kill_client(attempt: Attempt) -> None:
    assert attempt.client is not None
    attempt.client.kill()


def signal_session(attempt: Attempt, number: signal.Signals) -> None:
    for pid in attempt.workshop.sessions():
        os.kill(pid, number)


def stop_session(attempt: Attempt) -> None:
    signal_session(attempt, signal.SIGSTOP)
    time.sleep(0.05)
    cancel(attempt)
    attempt.wait()
    signal_session(attempt, signal.SIGCONT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a training.

    Attributes
    ----------
    act
        Does it. None: it happens by itself, by ``setting``.
    error
        What the statement ends with.
    message
        Part of its text.
    elsewhere
        What it ends with at other moments; None: it does not end, and succeeds when what holds it is gone.
    moments
        At which moments it can happen.
    setting
        A setting that makes it happen after a time.
    survives
        Whether the SQL session does.
    """

    act: Callable[[Attempt], object] | None = None
    error: type[psycopg.Error]
    message: str = ""
    elsewhere: dict[str, type[psycopg.Error] | None] = field(default_factory=dict)
    moments: tuple[str, ...] = tuple(MOMENTS)
    setting: str = ""
    survives: bool = True


OF_EACH_KIND = ("compiling", "first stream", "rows of a query", "kept pages")
"""What a session of the worker can be at: work of its own, pages, rows, pages that it kept."""
LOST_WORKER: dict[str, type[psycopg.Error] | None] = {
    # when its turn comes
    "looking at labels": errors.SqlclientUnableToEstablishSqlconnection,
    "looking at categories": errors.SqlclientUnableToEstablishSqlconnection,
    "waiting for dana.max_runs": errors.SqlclientUnableToEstablishSqlconnection,
    "storing": None,  # the worker has done its part
}

FAULTS = {
    "cancel": Fault(act=cancel, error=errors.QueryCanceled, message="due to user request"),
    "statement_timeout": Fault(
        error=errors.QueryCanceled,
        message="due to statement timeout",
        setting="statement_timeout",
        # it signals itself what a cancel signals it, at every moment: at a lock, at the worker, among rows
        moments=("looking at labels", "compiling", "rows of a query"),
    ),
    "training_timeout": Fault(
        error=errors.QueryCanceled,
        message="due to dana.training_timeout",
        setting="dana.training_timeout",
        # as above; beside them, where the clock stands still, and after the work
        moments=("looking at labels", "waiting for dana.max_runs", "compiling", "rows of a query", "storing"),
        elsewhere={"waiting for dana.max_runs": None},  # a training that has not begun takes no time
    ),
    "lock_timeout": Fault(
        error=errors.LockNotAvailable,
        message="due to lock timeout",
        setting="lock_timeout",
        moments=("looking at labels", "waiting for dana.max_runs", "storing"),
    ),
    "terminate": Fault(act=terminate, error=errors.AdminShutdown, survives=False),
    "kill -9 of the client": Fault(
        act=kill_client,
        error=psycopg.OperationalError,
        survives=False,
        # the session finds out by a clock of its own, and then terminates itself
        moments=("looking at labels", *OF_EACH_KIND, "storing"),
    ),
    "kill -9 of the worker's session": Fault(
        act=lambda attempt: signal_session(attempt, signal.SIGKILL),
        error=errors.ConnectionFailure,
        elsewhere=LOST_WORKER,
        moments=(*OF_EACH_KIND, "storing"),  # "kill -9 of the worker" ends it at every moment
    ),
    "SIGSTOP of the worker's session, cancel": Fault(
        act=stop_session, error=errors.QueryCanceled, moments=OF_EACH_KIND
    ),
    "kill -9 of the worker": Fault(
        act=lambda attempt: attempt.workshop.stop(signal.SIGKILL),
        error=errors.ConnectionFailure,
        elsewhere=LOST_WORKER,
    ),
    "SIGTERM of the worker": Fault(
        act=lambda attempt: attempt.workshop.stop(signal.SIGTERM),
        error=errors.ConnectionFailure,
        elsewhere=LOST_WORKER,
        moments=("connecting", *OF_EACH_KIND, "storing"),
    ),
}

CASES = [(fault, moment) for moment in MOMENTS for fault in FAULTS if moment in FAULTS[fault].moments]


@pytest.mark.parametrize(("fault", "moment"), CASES, ids=[f"{moment}-{fault}" for fault, moment in CASES])
def test_faults(workshop: Workshop, fault: str, moment: str) -> None:
    held, happens = MOMENTS[moment], FAULTS[fault]
    expected = happens.elsewhere.get(moment, happens.error)
    workshop.ensure()
    worker_log, server_log = len(workshop.log), len(workshop.cluster.log)
    with workshop.connect() as observer:
        with ExitStack() as at_last:
            with held.prepare(workshop):
                attempt = inflict(workshop, observer, held, happens, lasting=expected is None)
                at_last.callback(attempt.close)
            attempt.wait()
            assert attempt.over, "the statement did not end"
            workshop.ensure()
            stored = observer.execute("SELECT name FROM dana.model UNION ALL SELECT model FROM dana.run").fetchall()
            assert stored.count(("m",)) == (2 if expected is None else 0)
            if happens.survives:
                assert_outcome(attempt, expected, happens.message)
                assert_clean(observer, attempt, connected=expected is None or moment == "storing")
                observer.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")
                assert_trains(workshop, attempt.session)
                assert (len(descriptors(attempt.pid)), maps(attempt.pid)) == (attempt.descriptors + 1, 1)
        observer.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")
        if not happens.survives:
            with workshop.connect() as another:
                assert_trains(workshop, another)
        until(lambda: not workshop.sessions(), "a session of the worker is left")
        until(lambda: not workshop.processes(), "a process of the worker is left")
        assert observer.execute("SELECT FROM dana.dana_progress()").rowcount == 0
        assert observer.execute("SELECT FROM dana.dana_live_epochs()").rowcount == 0
    assert "Traceback" not in workshop.log[worker_log:], workshop.log[worker_log:]
    said = workshop.cluster.log[server_log:]
    assert not re.search(r"PANIC|was terminated by signal|leak|TRAP|still referenced", said), said


def inflict(workshop: Workshop, observer: Session, held: Moment, happens: Fault, *, lasting: bool) -> Attempt:
    """Begin a training and have the fault happen at the moment; with ``lasting`` it does not end the training."""
    if happens.act is not None:
        attempt = Attempt(workshop, observer, held, process=happens.act is kill_client)
        assert attempt.until_reached(), attempt.error
        happens.act(attempt)
        attempt.assert_there()
        if "locked" not in held.reached or not happens.survives:
            attempt.wait()
        elif lasting:
            time.sleep(0.1)
            assert attempt.at(held.lasts)
        return attempt
    seconds = 2.0 if lasting else held.about  # lasting: what comes after the moment must end within
    while True:  # until the time is over at the moment, and not before it
        attempt = Attempt(workshop, observer, held, settings=f"SET {happens.setting} = {int(1000 * seconds)}")
        reached = attempt.until_reached()
        there = reached
        if lasting:
            time.sleep(1.5 * seconds)
            assert attempt.at(held.lasts)
            return attempt
        while reached and not attempt.over:
            there = attempt.at(held.lasts) or (there and not attempt.at("true"))
            time.sleep(0.005)
        if there:
            return attempt
        attempt.close()
        seconds *= 2
        assert seconds < PATIENCE, attempt.error


def assert_outcome(attempt: Attempt, expected: type[psycopg.Error] | None, message: str) -> None:
    if expected is None:
        assert attempt.error is None, attempt.error
        return
    assert isinstance(attempt.error, expected), attempt.error
    if expected is errors.QueryCanceled:
        assert message in str(attempt.error)


def assert_clean(observer: Session, attempt: Attempt, *, connected: bool) -> None:
    """Connection and ring are gone, unless the worker had answered; no lock is held."""
    pid = attempt.pid
    assert (len(descriptors(pid)), maps(pid)) == (attempt.descriptors + connected, connected)
    assert observer.execute("SELECT FROM pg_locks WHERE pid = %s", (pid,)).rowcount == 0
    attempt.session.execute("SET statement_timeout = 0; SET lock_timeout = 0; SET dana.training_timeout = 0")


def assert_trains(workshop: Workshop, session: Session) -> None:
    for call in workshop.trainings():
        assert workshop.weights(session, call) == workshop.reference


@pytest.mark.parametrize("moment", ["looking at labels", "compiling", "kept pages", "storing"])
def test_killed_backend(workshop: Workshop, moment: str) -> None:
    """The server restarts as after any crash of a backend; the worker lets go of the session."""
    held = MOMENTS[moment]
    workshop.ensure()
    with suppress(psycopg.OperationalError), workshop.connect() as observer, held.prepare(workshop):
        attempt = Attempt(workshop, observer, held)
        assert attempt.until_reached(), attempt.error
        os.kill(attempt.pid, signal.SIGKILL)
        attempt.wait()
        assert isinstance(attempt.error, psycopg.OperationalError)
        workshop.cluster.until_restarted(observer)
    until(lambda: not workshop.sessions(), "a session of the worker is left")
    with workshop.connect() as session:
        assert session.execute("SELECT FROM dana.model UNION ALL SELECT FROM dana.run").rowcount == 0
        assert_trains(workshop, session)
    workshop.cluster.until_sessions(0)


@contextmanager
def small_disk(workshop: Workshop) -> Iterator[None]:
    """A tablespace `small` on a disk of 1 MB."""
    disk = workshop.cluster.folder / "small"
    disk.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        os.chown(disk, workshop.cluster.account.uid, workshop.cluster.account.gid)
        disk.chmod(0o700)
        with workshop.cluster.connect() as session:
            session.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            try:
                yield
            finally:
                session.execute("ALTER TABLE dana.model SET TABLESPACE pg_default")
                session.execute("CHECKPOINT")
                session.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


DISK_FULL = {
    "storing": (
        "ALTER TABLE dana.model SET TABLESPACE small",
        "dana_train('lrmf', 'faults.ratings', 'm', epochs => 1, hyper => '{\"m\": 25000, \"n\": 25000}')",
    ),
    "rows of a query": (
        "SET temp_tablespaces = small; SET work_mem = '64kB'",
        "dana_train('lrmf', query => 'SELECT * FROM faults.ratings ORDER BY y, i, j', model => 'm', epochs => 1)",
    ),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
@pytest.mark.parametrize("moment", DISK_FULL)
def test_full_disk(workshop: Workshop, moment: str) -> None:
    setting, call = DISK_FULL[moment]
    workshop.ensure()
    with workshop.connect() as session:
        with small_disk(workshop):
            session.execute(setting)
            with pytest.raises(errors.DiskFull):
                session.execute(f"SELECT {call}")
            session.execute("RESET temp_tablespaces")
        assert session.execute("SELECT FROM dana.model UNION ALL SELECT FROM dana.run").rowcount == 0
        assert_trains(workshop, session)


def one(session: Session, query: str) -> Any:
    row = session.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_memory(workshop: Workshop) -> None:
    """Too little is refused with the least that works, and that is enough; twice, for then the session has grown."""
    workshop.ensure()
    with workshop.connect() as session:
        for _ in range(2):
            session.execute("SET dana.max_memory = '64MB'")
            with pytest.raises(
                errors.OutOfMemory, match=r"dana\.max_memory of 64 MB is less than the \d+ MB"
            ) as raised:
                session.execute(f"SELECT {LOGISTIC}")
            assert raised.value.diag.message_hint == "Raise dana.max_memory."
            (least,) = re.findall(r"less than the (\d+) MB", str(raised.value))
            session.execute(f"SET dana.max_memory = '{least}MB'")
            assert_trains(workshop, session)
            with pytest.raises(errors.OutOfMemory, match=r"needs more memory than the \d+ MB of dana\.max_memory"):
                session.execute(f"SELECT {FIRST_STREAM}")
            session.execute("RESET dana.max_memory")
            assert_trains(workshop, session)


def test_a_training_inside_a_training(workshop: Workshop) -> None:
    """It is refused; the one around it keeps its place, its progress and its curve, and comes to the same model."""
    workshop.ensure()
    with workshop.connect() as observer, workshop.connect() as session:
        workshop.cluster.configure(observer, "dana.max_runs = 1")
        observer.execute(
            f"""
            CREATE FUNCTION faults.nested(id int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                IF id = 5000 THEN PERFORM {LOGISTIC}; END IF;
                RETURN faults.gate(id);
            EXCEPTION WHEN object_in_use THEN
                RETURN true;
            END $$
            """
        )
        rows = "SELECT a, b, y FROM faults.narrow WHERE faults.nested(id)"
        call = "dana_train('linear', query => '{}', model => 'checked', epochs => 2)"  # no label that somebody looks at
        reference = workshop.weights(session, call.format("SELECT a, b, y FROM faults.narrow"))
        trained: list[bytes] = []
        thread = threading.Thread(target=lambda: trained.append(workshop.weights(session, call.format(rows))))
        pid = session.info.backend_pid
        with gate_closed(workshop):  # after the row that trains
            thread.start()
            until(lambda: at(observer, pid, "phase = 'streaming' AND locked AND page > 0 AND epoch = 0"), "no gate")
            places = "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND pid = %s AND granted"
            assert observer.execute(places, (pid,)).fetchone() == (1,)
        thread.join(PATIENCE)
        assert trained == [reference]
        assert observer.execute(places, (pid,)).fetchone() == (0,)
        for what in ("dana.progress", "dana.dana_live_epochs()"):
            assert one(observer, f"SELECT count(*) FROM {what}") == 0
        observer.execute("DROP FUNCTION faults.nested")
        workshop.cluster.configure(observer)


def test_a_deadlock_with_the_queue(workshop: Workshop) -> None:
    """The training that runs waits for a lock of the session that waits for it to end."""
    workshop.ensure()
    with workshop.connect() as observer, workshop.connect() as first, workshop.connect() as second:
        workshop.cluster.configure(observer, "dana.max_runs = 1")
        observer.execute(
            """
            CREATE TABLE faults.locked AS SELECT 1 AS id;
            CREATE FUNCTION faults.reads_locked(id int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                IF id = 5000 THEN PERFORM count(*) FROM faults.locked; END IF;
                RETURN true;
            END $$
            """
        )
        # a longer lock_timeout does not put off the look for deadlocks
        second.execute("SET statement_timeout = '60s'; SET lock_timeout = '1h'; BEGIN; LOCK TABLE faults.locked")
        rows = "SELECT a, b, y FROM faults.narrow WHERE faults.reads_locked(id)"
        came_to: list[object] = []

        def run() -> None:
            call = f"SELECT tuples FROM dana_train('linear', query => '{rows}', epochs => 1)"
            came_to.append(first.execute(call).fetchone())

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: at(observer, first.info.backend_pid, "locked"), "it does not wait for the table")
        with pytest.raises(errors.DeadlockDetected):
            second.execute(f"SELECT {LOGISTIC}")
        second.execute("ROLLBACK")
        thread.join(PATIENCE)
        assert came_to == [(20000,)]
        observer.execute("DROP FUNCTION faults.reads_locked; DROP TABLE faults.locked")
        workshop.cluster.configure(observer)
