"""A worker as users run it, beside a cluster's stand-in; rules, and tables on which each moment of a training lasts.

In: a running cluster. Out: sessions that use this worker, whose processes a test may stop and kill. The moments are
looked for in dana.progress and pg_locks, never guessed from the time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres.cluster import CHECKOUT, Cluster, alive, children

Session = psycopg.Connection[Any]

PATIENCE = 30.0
CACHE_LIMIT = "16MB"
"""The worker keeps the ratings' pages (9 MB) between epochs, and not those of the wide table (32 MB)."""

RULES = ("linear", "logistic", "softmax", "mlp", "lrmf")

GATE = 4711
"""Key of the advisory lock at which a query waits in the middle of a table."""

TABLES = f"""
CREATE SCHEMA faults;
CREATE TABLE faults.narrow AS
    SELECT i AS id, sin(i)::real AS a, cos(i)::real AS b, (i % 2)::real AS y FROM generate_series(1, 20000) AS i;
CREATE TABLE faults.ratings AS
    SELECT i * 7919 % 1000 AS i, i * 1047 % 1000 AS j, (i % 5)::real AS y FROM generate_series(1, 200000) AS i;
CREATE TABLE faults.wide (x real[], y real);
ALTER TABLE faults.wide ALTER x SET STORAGE PLAIN;
INSERT INTO faults.wide SELECT ARRAY(SELECT sin(i * k) FROM generate_series(1, 400) AS k), i % 10
    FROM generate_series(1, 1000) AS i;
INSERT INTO faults.wide SELECT x, y FROM faults.wide, generate_series(1, 15);
CREATE FUNCTION faults.gate(id int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF id = 15000 THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF;
    RETURN true;
END $$;
CREATE FUNCTION faults.slow(id int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF id > 12000 THEN PERFORM pg_sleep(0.01); END IF;
    RETURN true;
END $$;
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@dataclass(slots=True, kw_only=True)
class Workshop:
    """The worker, beside a cluster.

    Attributes
    ----------
    reference
        The interpreter's weights of `trainings`: pages and rows are the same ones in the same order.
    options
        Of the worker, from its next start on.
    """

    cluster: Cluster
    reference: bytes = b""
    options: tuple[str, ...] = ("--cache-limit", CACHE_LIMIT)
    _process: subprocess.Popen[bytes] | None = None
    _environment: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.cluster.folder / "real.sock"

    @property
    def log(self) -> str:
        """What the worker said so far."""
        return (self.cluster.folder / "real.log").read_text(errors="replace")

    @property
    def cache(self) -> Path:
        return self.cluster.folder / "cache"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the worker, as the supervisor does."""
        account, python = self.cluster.account, self.cluster.python
        if not self.cache.exists():
            account.make_inside(self.cache)
        home = {"HOME": str(self.cache), "XDG_CACHE_HOME": str(self.cache)}
        command = [str(python.executable), "-m", "dana.cli", "worker", "--socket", str(self.socket)]
        with open(self.cluster.folder / "real.log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # moments are reached because trainings take their time
                env={**os.environ, **python.environment, **home, "DANA_COMPILED": "never"},
                **account.identity(),
            )
        until(self.socket.exists, "the worker does not listen")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the worker; nothing that it started outlives it."""
        if self._process is None:
            return
        sessions = self.sessions()
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(20)
        self._process = None
        self.socket.unlink(missing_ok=True)
        until(lambda: not any(alive(pid) for pid in sessions), "a session outlives the worker")

    def ensure(self) -> None:
        """Start the worker where a test ended it."""
        if self._process is None:
            self.start()

    def sessions(self) -> list[int]:
        """Process ids of the worker's sessions."""
        return [] if self._process is None else children(self.pid)

    def processes(self) -> list[int]:
        """What works in the worker's cache: compilers, say."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.cache):
                    found.append(int(process.name))
        return found

    def connect(self, user: str = "postgres") -> Session:
        """A session in autocommit mode that uses this worker."""
        session = self.cluster.connect(user)
        session.execute(f"SET dana.socket_path = '{self.socket}'")
        return session

    def trainings(self, machine: str = "sim") -> Iterator[str]:
        """Calls of one training, on the table's pages and on the rows of a query."""
        yield f"dana_train('logistic', 'faults.narrow', 'checked', '{{a,b}}', epochs => 2, machine => '{machine}')"
        rows = "SELECT a, b, y FROM faults.narrow"
        yield f"dana_train('logistic', query => '{rows}', model => 'checked', epochs => 2, machine => '{machine}')"

    def weights(self, session: Session, call: str) -> bytes:
        """Train, and take the model away again."""
        session.execute(f"SELECT {call}")
        row = session.execute("SELECT array_send(weights) FROM dana.model WHERE name = 'checked'").fetchone()
        session.execute("SELECT dana_drop_model('checked'); TRUNCATE dana.run, dana.epoch")
        assert row is not None
        return bytes(row[0])


@contextmanager
def open_workshop(cluster: Cluster) -> Iterator[Workshop]:
    """A worker with rules and tables in schema faults; the interpreter has trained."""
    workshop = Workshop(cluster=cluster)
    workshop.start()
    try:
        with workshop.connect() as session:
            session.execute(TABLES)
            for name in RULES:
                text = (CHECKOUT / "dana" / "rules" / f"{name}.py").read_text()
                session.execute("SELECT dana_create_udf(%s, %s)", (name, text))
            workshop.reference = workshop.weights(session, next(workshop.trainings("interp")))
        yield workshop
    finally:
        workshop.stop()
        with cluster.connect() as session:
            session.execute("SELECT dana_drop_rule(name) FROM dana.rule")
            session.execute("DROP SCHEMA IF EXISTS faults CASCADE")
