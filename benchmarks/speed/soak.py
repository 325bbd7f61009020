"""Many sessions that train at once, for minutes, during writes, VACUUM and DDL; every model checked.

In: an embedded server. Out: a `Report`: how much was trained, what was wrong, what leaked. Each training runs in a
transaction whose snapshot SQL reads too; the interpreter trains on SQL's rows, and its model must be the stored one,
bit for bit. It runs no machine itself and reads no page.

``python -m benchmarks.speed.soak --minutes 10``; exit code 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from psycopg import errors

from benchmarks.speed.leaks import Watch, descriptors, rings
from dana.server.embedded import EmbeddedServer
from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Session = psycopg.Connection[Any]

SESSIONS = 8
TIMED_OUT = 0.05
"""Part of the trainings that a statement_timeout of milliseconds may hit."""

RULE = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
soak = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
grad = soak.merge((p - y) * x, 256, "+")
soak.setModel(w - 0.1 * grad / 256)
soak.setLoss((p - y) * (p - y))
soak.setPrediction(p)
"""
"""Not linear in its rows: their order, and each of them, shows in the model."""

TABLES = """
DROP SCHEMA IF EXISTS soak CASCADE;
CREATE SCHEMA soak;
CREATE SEQUENCE soak.ids;
CREATE TABLE soak.pages (id int DEFAULT nextval('soak.ids'), x1 real, x2 real, x3 real, x4 real, y real)
    WITH (fillfactor = 80);
CREATE TABLE soak.toasted (id int DEFAULT nextval('soak.ids'), x real[], y real);
ALTER TABLE soak.toasted ALTER x SET STORAGE EXTERNAL;
CREATE TABLE soak.parts (id int DEFAULT nextval('soak.ids'), x1 real, x2 double precision, y real)
    PARTITION BY HASH (id);
CREATE TABLE soak.part0 PARTITION OF soak.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE soak.part1 PARTITION OF soak.parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE soak.types (id int DEFAULT nextval('soak.ids'), x1 numeric, x2 date, y boolean);
"""

ROWS: dict[str, str] = {
    "pages": "x1, x2, x3, x4, y) SELECT sin(i + {0}), cos(i), NULLIF(i % 97, 3) / 97.0, random(), i % 2",
    "toasted": "x, y) SELECT ARRAY(SELECT sin(i * k + {0})::real FROM generate_series(1, 600) k), i % 2",
    "parts": "x1, x2, y) SELECT sin(i + {0}), random(), i % 2",
    "types": "x1, x2, y) SELECT (i % 13) / 7.0, date '2000-01-01' + (i + {0}) % 9, i % 2 = 0",
}
"""What is inserted into each table, for i of a series."""

DROP_OTHER: str = """
SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE name = 'soak other') AS m
"""

SIZES = {"pages": 3000, "toasted": 200, "parts": 2000, "types": 1500}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way to train: the arguments of dana_train, and a query for the rows that it must see."""

    call: str
    rows: str


KINDS = (
    Kind(
        call="source => 'soak.pages', features => '{x1,x2,x3,x4}'",
        rows="SELECT ARRAY[x1, x2, x3, x4], y FROM soak.pages",
    ),
    Kind(
        call="source => 'soak.pages', features => '{x1,x2,x3,x4}', filter => 'id % 3 <> 0'",
        rows="SELECT ARRAY[x1, x2, x3, x4], y FROM soak.pages WHERE id % 3 <> 0",
    ),
    Kind(
        call="query => 'SELECT x1, x4, y FROM soak.pages WHERE y IS NOT NULL ORDER BY id'",
        rows="SELECT ARRAY[x1, x4], y FROM soak.pages ORDER BY id",
    ),
    Kind(call="source => 'soak.toasted', features => '{x}'", rows="SELECT x, y FROM soak.toasted"),
    Kind(call="source => 'soak.parts', features => '{x1,x2}'", rows="SELECT ARRAY[x1, x2::real], y FROM soak.parts"),
    Kind(
        call="source => 'soak.types', features => '{x1,x2}', preprocess => '{\"x2\": {\"encode\": \"none\"}}'",
        rows="SELECT ARRAY[x1::float8::real, (x2 - date '2000-01-01')::real], y::int::real FROM soak.types",
    ),
)


@dataclass(slots=True, kw_only=True)
class Report:
    """What a soak did and found.

    Attributes
    ----------
    seconds
        How long it trained.
    done
        Counts by name: trainings, timeouts, writes, vacuums, DDL statements.
    at_once
        Most trainings that ran at one moment.
    wrong
        What should not have been: models that differ, errors, leaks; empty where all is well.
    """

    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    wrong: list[str] = field(default_factory=list)


def expected(rows: list[tuple[list[float | None], float | None]], epochs: int) -> bytes:
    """The interpreter's model for SQL's rows."""
    complete = [(x, y) for x, y in rows if y is not None and None not in x]
    x = np.array([row[0] for row in complete], np.float32)
    y = np.array([row[1] for row in complete], np.float32)
    graph = compile_rule(RULE, filename="soak").hdfg.bind({"n": x.shape[1]})
    return Interpreter(graph, numerics).train({"x": x, "y": y}, epochs=epochs).models["w"].tobytes()


class Soak:
    """One soak on one server."""

    def __init__(self, server: EmbeddedServer, seconds: float, seed: int) -> None:
        self._server = server
        self._seconds = seconds
        self._seed = seed
        self._report = Report()
        self._stored: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._rounds = threading.Barrier(SESSIONS, action=self._look_at_the_clock)
        self._ends = 0.0

    def run(self) -> Report:
        """Train until the time is over, then look for what is lost or leaked."""
        with self._session() as db:
            db.execute("SET client_min_messages = warning")
            db.execute(TABLES)
            for table, count in SIZES.items():
                insert(db, table, count, 0)
            db.execute("SELECT dana_create_udf('soak', %s)", (RULE,))
            db.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE rule = 'soak') m")
        watch = Watch(self._server)
        started = time.monotonic()
        self._ends = started + self._seconds
        trainers = [self._thread(self._train, number) for number in range(SESSIONS)]
        others = [self._thread(self._write, number) for number in range(2)]
        others += [self._thread(work, 0) for work in (self._vacuum, self._define, self._observe)]
        for thread in trainers + others:
            thread.join()
        self._report.seconds = time.monotonic() - started
        self._compare_with_the_table()
        self._report.wrong += watch.leaks()
        return self._report

    def _look_at_the_clock(self) -> None:
        if time.monotonic() > self._ends:
            self._over.set()

    def _thread(self, work: Callable[[Session, random.Random], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                with self._session() as db:
                    db.execute("SET synchronize_seqscans = off; SET max_parallel_workers_per_gather = 0")
                    work(db, random.Random(f"{self._seed} {work.__name__} {number}"))
            except threading.BrokenBarrierError:
                pass
            except Exception as error:
                self._wrong(f"{work.__name__} {number}: {type(error).__name__}: {error}")
                self._over.set()
                self._rounds.abort()

        thread = threading.Thread(target=run, name=f"{work.__name__} {number}")
        thread.start()
        return thread

    def _session(self) -> Session:
        return psycopg.connect(self._server.dsn, autocommit=True)

    def _count(self, what: str) -> None:
        with self._lock:
            self._report.done[what] += 1

    def _wrong(self, what: str) -> None:
        with self._lock:
            self._report.wrong.append(what)

    def _train(self, db: Session, choose: random.Random) -> None:
        """Rounds of one training each, all sessions at once; checks each model."""
        backend = db.info.backend_pid
        own = f"soak {backend}"
        held = descriptors(backend)
        db.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
        while True:
            self._rounds.wait()
            if self._over.is_set():
                break
            kind, epochs = choose.choice(KINDS), choose.randint(1, 4)
            name = choose.choice((own, own, "soak together"))
            impatient = choose.random() < TIMED_OUT
            arguments = f"model => '{name}', label => 'y', epochs => {epochs}, shuffle => false, {kind.call}"
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            try:
                if impatient:
                    db.execute(f"SET LOCAL statement_timeout = {choose.randint(1, 40)}")
                call = f"SELECT version FROM dana_train('soak', {arguments})"
                row = db.execute(call).fetchone()
                db.execute("SET LOCAL statement_timeout = 0")
            except errors.QueryCanceled:
                db.execute("ROLLBACK")
                self._count("timeouts")
                if not impatient:
                    self._wrong("a training was cancelled without a timeout")
                continue
            assert row is not None
            rows = db.execute(kind.rows, binary=True).fetchall()
            found = db.execute(
                "SELECT weights FROM dana.model WHERE name = %s AND version = %s", (name, row[0])
            ).fetchone()
            assert found is not None
            if choose.random() < 0.1:
                db.execute("ROLLBACK")
                self._count("rollbacks")
            else:
                db.execute("COMMIT")
                with self._lock:
                    self._stored[name, row[0]] = np.array(found[0], np.float32).tobytes()
            self._count("trainings")
            if np.array(found[0], np.float32).tobytes() != expected(rows, epochs):
                self._wrong(f"{kind.call}, {epochs} epochs: not the interpreter's model on {len(rows)} rows")
        if rings(backend) > 1 or descriptors(backend) > held + 1:
            self._wrong(
                f"a backend has {rings(backend)} rings and {descriptors(backend) - held} connections, not one each"
            )

    def _write(self, db: Session, choose: random.Random) -> None:
        while not self._over.is_set():
            table = choose.choice(list(SIZES))
            count = choose.randint(1, SIZES[table] // 20)
            what = choose.randrange(4)
            db.execute("BEGIN")
            # one writer at a table: two that meet the same rows in different orders deadlock, which is between them
            db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (table,))
            if what == 0:
                db.execute(f"UPDATE soak.{table} SET y = y WHERE id % {choose.randint(7, 40)} = 1")
            elif what == 1:
                db.execute(f"DELETE FROM soak.{table} WHERE id % {choose.randint(20, 90)} = 1")
            else:  # as many as there were
                db.execute(
                    f"DELETE FROM soak.{table} WHERE id IN (SELECT id FROM soak.{table} ORDER BY id LIMIT {count})"
                )
                insert(db, table, count, choose.randrange(1000))
            db.execute("ROLLBACK" if choose.random() < 0.2 else "COMMIT")
            self._count("writes")
            self._refill(db, table)

    def _refill(self, db: Session, table: str) -> None:
        row = db.execute(f"SELECT count(*) FROM soak.{table}").fetchone()
        assert row is not None
        if row[0] < SIZES[table]:
            insert(db, table, SIZES[table] - row[0], 7)

    def _vacuum(self, db: Session, choose: random.Random) -> None:
        while not self._over.is_set():
            option = choose.choice(("", "", "(FREEZE)", "(ANALYZE)"))
            db.execute(f"VACUUM {option} soak.{choose.choice(list(SIZES))}")
            self._count("vacuums")
            self._over.wait(0.05)

    def _define(self, db: Session, choose: random.Random) -> None:
        """DDL, of which the tables' own waits for the trainings and they for it."""
        db.execute("SET client_min_messages = warning")
        for number in itertools.count():
            table = choose.choice(list(SIZES))
            statements = {
                "add": f"ALTER TABLE soak.{table} ADD COLUMN IF NOT EXISTS more real DEFAULT {number}",
                "drop": f"ALTER TABLE soak.{table} DROP COLUMN IF EXISTS more",
                "rewrite": f"VACUUM FULL soak.{table}",
                "index": f"CREATE INDEX IF NOT EXISTS one ON soak.{table} (id)",
                "no index": "DROP INDEX IF EXISTS soak.one",
                "rule": f"SELECT dana_create_udf('soak{number % 3}', $${RULE}$$)",
                "new table": "DROP TABLE IF EXISTS soak.other; CREATE TABLE soak.other AS SELECT * FROM soak.pages",
                "train there": "SELECT dana_train('soak', 'soak.pages', 'soak other', '{x1}', 'y', 1)",
                "drop model": DROP_OTHER,
            }
            what = choose.choice(list(statements))
            db.execute(statements[what])
            self._count("DDL")
            if self._over.wait(0.6):
                break
        db.execute("SELECT dana_drop_rule(name) FROM dana.rule WHERE name ~ '^soak[0-9]$'")
        db.execute(DROP_OTHER)

    def _observe(self, db: Session, choose: random.Random) -> None:
        while not self._over.wait(0.02):
            row = db.execute("SELECT count(*) FROM dana.progress").fetchone()
            assert row is not None
            self._report.at_once = max(self._report.at_once, row[0])

    def _compare_with_the_table(self) -> None:
        """No committed model is lost or torn, and there is no other."""
        with self._session() as db:
            found = {
                (name, version): np.array(weights, np.float32).tobytes()
                for name, version, weights in db.execute(
                    "SELECT name, version, weights FROM dana.model WHERE rule = 'soak'"
                )
            }
            for name in {name for name, _ in found}:
                db.execute("SELECT dana_drop_model(%s)", (name,))
            db.execute("SELECT dana_drop_rule('soak')")
        lost = sum(key not in found for key in self._stored)
        torn = sum(found.get(key, weights) != weights for key, weights in self._stored.items())
        made_up = sum(key not in self._stored for key in found)
        if lost or torn or made_up:
            self._wrong(f"{lost} committed models are lost, {torn} torn, {made_up} there without a commit")


def insert(db: Session, table: str, count: int, seed: int) -> None:
    """Insert so many rows into one of the tables."""
    statement = f"INSERT INTO soak.{table} ({ROWS[table]} FROM generate_series(1, {count}) i"
    db.execute(statement.format(seed))


def soak(server: EmbeddedServer, seconds: float, seed: int = 1) -> Report:
    """Train for so long in `SESSIONS` sessions."""
    return Soak(server, seconds, seed).run()


def main() -> int:
    """Soak an embedded server and print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to train (10)")
    parser.add_argument("--major", type=int, default=18, help="PostgreSQL's major version, 16 or 18 (18)")
    parser.add_argument("--seed", type=int, default=1, help="of all choices (1)")
    options = parser.parse_args()
    report = soak(EmbeddedServer.start(major=options.major), 60 * options.minutes, options.seed)
    print(f"{report.seconds:.0f} s, {SESSIONS} sessions, at most {report.at_once} trainings at one moment")
    print(", ".join(f"{count} {what}" for what, count in report.done.most_common()))
    print("\n".join(report.wrong) or "every model is the interpreter's; none lost, none torn, nothing leaked")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
