"""Arrays of 2,000 floats that lie out of line, read into frames by a training, beside PostgreSQL's own detoasting.

In bytes of floats per second of the backend's processor time, which is what bounds a stream on a free machine, with a
ring that holds all of them, so that nobody waits. The reference asks for the last element of each array: PostgreSQL
puts the array together and does nothing else.
"""

from __future__ import annotations

import psycopg

from bench.measure import Figure, main, paired_medians, processor_clock
from dana.client import connect
from dana.rulefile import load
from dana.server.places import PAPER

FLOATS, ROWS = 2000, 8000
TABLE = "bench_toasted"
UDF = "bench_logistic"


def prepare(db: psycopg.Connection[object]) -> None:
    """Make a table of random arrays where there is none."""
    if db.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone() != (None,):
        return
    db.execute(f"CREATE TABLE {TABLE} (x real[], y real)")
    db.execute(f"ALTER TABLE {TABLE} ALTER x SET STORAGE EXTERNAL")
    db.execute(
        f"INSERT INTO {TABLE} SELECT ARRAY(SELECT (random() + 0 * g)::real FROM generate_series(1, {FLOATS})), g % 2"
        f" FROM generate_series(1, {ROWS}) g"
    )
    db.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")


def run() -> list[Figure]:
    """Measure."""
    with connect() as db:
        db.create_udf(UDF, load(PAPER / "logistic.py"))
        db.session.execute("SET max_parallel_workers_per_gather = 0; SET dana.ring_pages = 8192")
        prepare(db.session)

        def train() -> None:
            db.train(UDF, TABLE, model=UDF, label="y", epochs=1, backend="sim")

        def detoast() -> None:
            db.session.execute(f"SELECT sum(x[{FLOATS}]) FROM {TABLE}").fetchone()

        trained, detoasted = paired_medians(train, detoast, clock=processor_clock(db.session.info.backend_pid))
    gigabytes = 4e-9 * FLOATS * ROWS
    return [
        Figure(
            what=f"frames of arrays of {FLOATS:,} floats out of line",
            measured=f"{gigabytes / trained:.2f} GB/s of the backend's processor time",
            reference=f"PostgreSQL's detoasting: {gigabytes / detoasted:.2f} GB/s",
            ratio=gigabytes / trained,
            target=2.0,
            at_most=False,
        )
    ]


if __name__ == "__main__":
    main(run)
