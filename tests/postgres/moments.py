"""The moments of a training at which a fault may come, what holds a training there, and one under observation.

In: a `tests.postgres.workshop.Workshop`. Out: trainings that are known to be at a moment: dana.progress, pg_locks and
pg_stat_activity say so to another session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.postgres.workshop import GATE, PATIENCE, Session, Workshop, until

errors = psycopg.errors


@contextmanager
def stopped_listener(workshop: Workshop) -> Iterator[None]:
    """The worker takes no connection."""
    listener = workshop.pid
    os.kill(listener, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(listener, signal.SIGCONT)


@contextmanager
def one_run(workshop: Workshop) -> Iterator[None]:
    """The one place of dana.max_runs is taken, by a training that waits in its query until this ends."""
    came_to: list[object] = []
    with workshop.connect() as setter, workshop.connect() as holder:
        workshop.cluster.configure(setter, "dana.max_runs = 1")

        def run() -> None:
            try:
                call = QUERY_AT_LOCK.replace("'m'", "'held'")
                came_to.append(holder.execute(f"SELECT tuples FROM {call}").fetchone())
            except psycopg.Error as error:
                came_to.append(error)

        thread = threading.Thread(target=run)
        with gate_closed(workshop):
            thread.start()
            until(lambda: at(setter, holder.info.backend_pid, "locked AND phase = 'streaming'"), "it does not wait")
            worker = workshop.pid
            yield
        thread.join(PATIENCE)
        workshop.cluster.configure(setter)
    lived = workshop._process is not None and workshop.pid == worker
    assert came_to == [(20000,)] if lived else isinstance(came_to[0], errors.ConnectionFailure), came_to


@contextmanager
def gate_closed(workshop: Workshop) -> Iterator[None]:
    """Queries wait at the gate."""
    with workshop.connect() as session:
        session.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        yield


@contextmanager
def model_locked(workshop: Workshop) -> Iterator[None]:
    """dana.model can be read and not written."""
    with workshop.connect() as session:
        session.execute("BEGIN; LOCK TABLE dana.model IN SHARE MODE")
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in a training's life that lasts.

    Attributes
    ----------
    call
        The training.
    reached
        When it is there: an SQL condition on the columns of dana.progress, ``locked`` (it waits for a lock) and
        ``worker`` (it waits for the worker).
    lasts
        A condition that then stays true for longer than any fault takes.
    prepare
        What holds it there, where the work alone does not.
    about
        Seconds from the call to the moment, roughly.
    session
        Whether a session of the worker is at work.
    """

    call: str
    reached: str
    lasts: str
    prepare: Callable[[Workshop], AbstractContextManager[None]] = lambda workshop: nullcontext()
    about: float = 0.3
    session: bool = True


LOGISTIC = "dana_train('logistic', 'faults.narrow', 'm', '{a,b}', epochs => 2)"
COMPILING = "dana_train('softmax', 'faults.wide', 'm', hyper => '{\"k\": 1000}')"
FIRST_STREAM = "dana_train('mlp', 'faults.wide', 'm', epochs => 1, shuffle => false, hyper => '{\"h\": 300}')"
SECOND_STREAM = "dana_train('softmax', 'faults.wide', 'm', epochs => 1000, patience => 0)"
CACHED_PAGES = "dana_train('lrmf', 'faults.ratings', 'm', epochs => 100000, patience => 0)"
SLOW_QUERY = """dana_train('linear', model => 'm', epochs => 2,
    query => 'SELECT a, b, y FROM faults.narrow, LATERAL pg_sleep(CASE WHEN id > 1000 THEN 0.01 ELSE 0 END)')"""
QUERY_AT_LOCK = """dana_train('linear', model => 'm', epochs => 2,
    query => 'SELECT a, b, y FROM faults.narrow WHERE faults.gate(id)')"""
SLOW_FILTER = "dana_train('linear', 'faults.narrow', 'm', '{a,b}', epochs => 2, filter => 'faults.slow(id)')"

LABELS_AT_LOCK = """dana_train('logistic', model => 'm', features => '{a,b}', epochs => 2,
    query => 'SELECT a, b, y FROM faults.narrow WHERE faults.gate(id)')"""
CATEGORIES_AT_LOCK = """dana_train('linear', model => 'm', epochs => 2,
    query => 'SELECT a, b::text < $$0$$ AS low, id % 3 || $$$$ AS kind, y FROM faults.narrow WHERE faults.gate(id)')"""

MOMENTS = {
    "looking at labels": Moment(
        call=LABELS_AT_LOCK,
        reached="phase = 'looking' AND locked",
        lasts="phase = 'looking' AND locked",
        prepare=gate_closed,
        session=False,
    ),
    "looking at categories": Moment(
        call=CATEGORIES_AT_LOCK,
        reached="phase = 'looking' AND locked",
        lasts="phase = 'looking' AND locked",
        prepare=gate_closed,
        session=False,
    ),
    "waiting for dana.max_runs": Moment(
        call=LOGISTIC,
        reached="phase = 'waiting'",
        lasts="phase = 'waiting'",
        prepare=one_run,
        session=False,
    ),
    "connecting": Moment(
        call=LOGISTIC,
        reached="phase = 'compiling' AND worker",
        lasts="phase = 'compiling' AND worker",
        prepare=stopped_listener,
        session=False,
    ),
    "compiling": Moment(
        call=COMPILING, reached="phase = 'compiling' AND worker", lasts="phase = 'compiling' AND worker"
    ),
    "first stream": Moment(
        call=FIRST_STREAM,
        reached="phase = 'streaming' AND epoch = 0 AND page > 0 AND page < pages / 3",
        lasts="phase = 'streaming' AND epoch = 0 AND page > 0",
        about=0.5,
    ),
    "rows of a query": Moment(
        call=SLOW_QUERY,
        reached="phase = 'streaming' AND epoch = 0 AND page > 1 AND pages IS NULL",
        lasts="phase = 'streaming' AND epoch = 0 AND page > 1",
        about=0.6,
    ),
    "a lock in the query": Moment(
        call=QUERY_AT_LOCK,
        reached="phase = 'streaming' AND locked AND page > 0",
        lasts="phase = 'streaming' AND locked",
        prepare=gate_closed,
    ),
    "rows of a filter": Moment(
        call=SLOW_FILTER,
        reached="phase = 'streaming' AND epoch = 0 AND page > 0",
        lasts="phase = 'streaming' AND epoch = 0 AND page > 0",
        about=0.6,
    ),
    "second stream": Moment(
        call=SECOND_STREAM,
        reached="phase = 'streaming' AND epoch > 0 AND page > 0",
        lasts="phase IN ('streaming', 'training') AND epoch > 0",
        about=1.0,
    ),
    "kept pages": Moment(
        call=CACHED_PAGES,
        reached="phase = 'training' AND epoch > 1 AND page = pages",
        lasts="phase = 'training' AND epoch > 1",
        about=0.6,
    ),
    "storing": Moment(
        call=LOGISTIC,
        reached="phase = 'storing' AND locked",
        lasts="phase = 'storing' AND locked",
        prepare=model_locked,
    ),
}

AT = """
    SELECT FROM (
        SELECT p.phase, p.epoch, p.page, p.pages, a.wait_event_type = 'Extension' AS worker,
            EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = p.pid AND NOT l.granted) AS locked
        FROM dana.progress AS p JOIN pg_stat_activity AS a USING (pid) WHERE p.pid = {}) AS training
    WHERE {}
"""


def at(observer: Session, pid: int, condition: str) -> bool:
    """Whether the training of a backend is where the condition says."""
    return observer.execute(AT.format(pid, condition)).rowcount == 1


CLIENT = """
import psycopg, sys
session = psycopg.connect(sys.argv[1], autocommit=True)
session.execute(sys.argv[2])
print(session.info.backend_pid, flush=True)
session.execute(sys.argv[3])
"""


class Attempt:
    """A training in a session of its own, under observation.

    Parameters
    ----------
    settings
        Of its session.
    process
        Whether its client is a process of its own.
    """

    def __init__(
        self, workshop: Workshop, observer: Session, moment: Moment, settings: str = "", process: bool = False
    ) -> None:
        self.workshop = workshop
        self.observer = observer
        self.moment = moment
        self.error: psycopg.Error | None = None
        self.client: subprocess.Popen[str] | None = None
        call = f"SELECT {moment.call}"
        if process:
            words = [workshop.cluster.dsn(), f"SET dana.socket_path = '{workshop.socket}'", call]
            self.client = subprocess.Popen(
                [sys.executable, "-c", CLIENT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert self.client.stdout is not None
            self.pid = int(self.client.stdout.readline())
            return
        self.session = workshop.connect()
        self.pid = self.session.info.backend_pid
        self.session.execute(f"LOAD 'dana'; {settings}")
        self.descriptors = len(descriptors(self.pid))
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call: str) -> None:
        try:
            self.session.execute(call)
        except psycopg.Error as error:
            self.error = error

    @property
    def over(self) -> bool:
        """Whether the statement has ended."""
        if self.client is not None:
            return self.observer.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (self.pid,)).rowcount == 0
        return not self._thread.is_alive()

    def until_reached(self) -> bool:
        """Wait for the moment; whether it came before the statement's end."""
        deadline = time.monotonic() + PATIENCE
        while not self.at(self.moment.reached) or (self.moment.session and not self.workshop.sessions()):
            if self.over:
                return False
            assert time.monotonic() < deadline, f"the moment does not come: {self.observer.execute(PLACES).fetchall()}"
            time.sleep(0.005)  # each look costs the processor that the training is to have
        return True

    def at(self, condition: str) -> bool:
        return at(self.observer, self.pid, condition)

    def assert_there(self) -> None:
        """The training is still where it was, or ends there: to let go of what it waited for takes it a moment."""
        until(lambda: self.at(self.moment.lasts) or not self.at("true"), "the moment is over")

    def wait(self, seconds: float = PATIENCE) -> None:
        """Wait for the statement's end."""
        deadline = time.monotonic() + seconds
        while not self.over and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        if self.client is not None:
            assert self.client.stdout is not None
            self.client.kill()
            self.client.wait()
            self.client.stdout.close()
        else:
            self.session.close()


PLACES = "SELECT phase, epoch, page, pages FROM dana.progress"


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
