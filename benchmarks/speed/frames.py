"""Arrays of 2,000 floats that lie out of line, read into frames by a training, compared with PostgreSQL's detoasting;
and arrays of 20,000 floats, which are sent in parts.

In bytes of floats per second of the backend's processor time, which is what bounds a stream on a free machine, with a
ring that holds all of them, so that neither side waits. The reference asks for the last element of each array:
PostgreSQL puts the array together and does nothing else.
"""

from __future__ import annotations

import psycopg

from benchmarks.measure import Figure, main, paired_medians, processor_clock
from dana.client.connection import Connection, connect
from dana.language.rulefile import load
from dana.server.places import PAPER

SHAPES = ((2000, 8000), (20_000, 800))
"""Floats of an array, rows."""
TABLE = "bench_toasted"
UDF = "bench_logistic"


def prepare(db: psycopg.Connection[object], floats: int, rows: int) -> str:
    """Make a table of random arrays where there is none; its name."""
    table = f"{TABLE}_{floats}"
    if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,):
        return table
    db.execute(f"CREATE TABLE {table} (x real[], y real)")
    db.execute(f"ALTER TABLE {table} ALTER x SET STORAGE EXTERNAL")
    db.execute(
        f"INSERT INTO {table} SELECT ARRAY(SELECT (random() + 0 * g)::real FROM generate_series(1, {floats})), g % 2"
        f" FROM generate_series(1, {rows}) g"
    )
    db.execute(f"VACUUM (FREEZE, ANALYZE) {table}")
    return table


def run() -> list[Figure]:
    """Measure."""
    with connect() as db:
        db.create_rule(UDF, load(PAPER / "logistic.py"))
        db.session.execute("SET max_parallel_workers_per_gather = 0; SET dana.ring_pages = 8192")
        return [_measure(db, floats, rows) for floats, rows in SHAPES]


def _measure(db: Connection, floats: int, rows: int) -> Figure:
    table = prepare(db.session, floats, rows)

    def train() -> None:
        db.train(UDF, table, model=UDF, label="y", epochs=1, machine="sim")

    def detoast() -> None:
        db.session.execute(f"SELECT sum(x[{floats}]) FROM {table}").fetchone()

    trained, detoasted = paired_medians(train, detoast, clock=processor_clock(db.session.info.backend_pid))
    gigabytes = 4e-9 * floats * rows
    return Figure(
        what=f"frames of arrays of {floats:,} floats out of line",
        measured=f"{gigabytes / trained:.2f} GB/s of the backend's processor time",
        reference=f"PostgreSQL's detoasting: {gigabytes / detoasted:.2f} GB/s",
        ratio=gigabytes / trained,
        target=2.0,
        at_most=False,
    )


if __name__ == "__main__":
    main(run)
