"""What visibility costs: pages streamed to a training, all-visible, hinted and freshly loaded, compared with a copy.

In the backend's processor time, less what the statement takes on ten rows, with a ring that holds the whole table, so
that neither side waits. The reference is this process copying as many pages into memory of that size, without checks or
messages. A freshly loaded table is made for each measurement, because the first reader writes the hint bits.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import psycopg

from benchmarks.measure import Figure, main, processor_clock, seconds
from dana.client.connection import connect
from dana.language.rulefile import load
from dana.server.places import PAPER

ROWS, COLUMNS = 400_000, 10
RING_PAGES, PAGE_SIZE = 4096, 8192
TABLE, FEW = "bench_visibility", "bench_visibility_few"
UDF = "bench_logistic"
REPEATS = 5
TARGETS = {"all-visible": 2.0, "hinted": 5.0, "freshly loaded": 10.0}


def make(db: psycopg.Connection[Any]) -> None:
    """A table that has not been read since it was loaded."""
    columns = ", ".join(f"sin(i * {k})::real AS x{k}" for k in range(1, COLUMNS + 1))
    db.execute(f"DROP TABLE IF EXISTS {TABLE}")
    db.execute(f"CREATE TABLE {TABLE} WITH (autovacuum_enabled = off) AS SELECT * FROM bench_visibility_rows LIMIT 0")
    if db.execute("SELECT FROM bench_visibility_rows LIMIT 1").rowcount == 0:
        db.execute(
            f"INSERT INTO bench_visibility_rows SELECT {columns}, (i % 2)::real FROM generate_series(1, {ROWS}) i"
        )
    db.execute(f"INSERT INTO {TABLE} SELECT * FROM bench_visibility_rows")


def copying(pages: int) -> float:
    """Processor seconds for copying so many pages."""
    source = np.ones((pages, PAGE_SIZE), np.uint8)
    ring = np.ones((pages, PAGE_SIZE), np.uint8)

    return seconds(lambda: np.copyto(ring, source), clock=time.process_time)


def run() -> list[Figure]:
    """Measure."""
    times: dict[str, list[float]] = {state: [] for state in TARGETS}
    bare: list[float] = []
    statement: list[float] = []
    pages = 0
    with connect() as db:
        session = db.session
        session.execute("SET max_parallel_workers_per_gather = 0")
        session.execute(f"SET dana.ring_pages = {RING_PAGES}")
        columns = ", ".join(f"x{k} real" for k in range(1, COLUMNS + 1))
        session.execute(f"CREATE TABLE IF NOT EXISTS bench_visibility_rows ({columns}, y real)")
        db.create_rule(UDF, load(PAPER / "logistic.py"))
        backend = session.info.backend_pid

        def train(table: str = TABLE) -> float:
            return seconds(
                lambda: db.train(UDF, table, model=UDF, label="y", epochs=1, machine="sim"),
                clock=processor_clock(backend),
            )

        make(session)
        session.execute(f"DROP TABLE IF EXISTS {FEW}")
        session.execute(f"CREATE TABLE {FEW} AS SELECT * FROM {TABLE} LIMIT 10")
        train(FEW)
        for _ in range(REPEATS):
            statement.append(train(FEW))
            make(session)
            times["freshly loaded"].append(train())
            session.execute(f"SELECT count(*) FROM {TABLE}")
            times["hinted"].append(train())
            session.execute(f"VACUUM (FREEZE) {TABLE}")
            times["all-visible"].append(train())
            pages = session.execute(f"SELECT pg_relation_size('{TABLE}')").fetchall()[0][0] // PAGE_SIZE
            bare.append(copying(pages))
        session.execute(f"DROP TABLE {TABLE}, {FEW}, bench_visibility_rows")
    copied = statistics.median(bare)
    found = {state: statistics.median(taken) - statistics.median(statement) for state, taken in times.items()}
    return [
        Figure(
            what=f"{pages:,} pages of {ROWS // pages} rows, {state}",
            measured=f"{1e9 * found[state] / pages:.0f} ns of the backend's processor time per page",
            reference=f"copying: {1e9 * copied / pages:.0f} ns",
            ratio=found[state] / copied,
            target=target,
        )
        for state, target in TARGETS.items()
    ]


if __name__ == "__main__":
    main(run)
