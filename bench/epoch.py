"""One epoch of logistic regression through SQL, as a ratio to ``SELECT count(*)`` on the same table.

The table has Covertype's 581,012 rows of 54 float4 features and a float4 label, warm and all-visible.
"""

from __future__ import annotations

from bench.measure import Figure, main, paired_medians
from dana.client.connection import Connection, connect
from dana.demo.datasets import COVERTYPE_SHAPE, covertype
from dana.rulefile import load
from dana.server.places import PAPER
from dana.session.tables import create_table

TABLE = "bench_covertype"
UDF = "bench_logistic"


def prepare(db: Connection) -> str:
    """Load the table where it is not there with these rows; return the data's name."""
    data = covertype()
    create_table(db.session, TABLE, data.columns())
    # hint bits and the visibility map are as after a load that ended some time ago
    db.session.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
    db.create_rule(UDF, load(PAPER / "logistic.py"))
    return data.name


def run() -> list[Figure]:
    """Measure."""
    with connect() as db:
        data = prepare(db)

        def train() -> None:
            db.train(UDF, TABLE, model=UDF, label="y", epochs=1, backend="sim")

        def count() -> None:
            db.session.execute(f"SELECT count(*) FROM {TABLE}").fetchone()

        figures = []
        for workers in (0, 2):
            db.session.execute(f"SET max_parallel_workers_per_gather = {workers}")
            trained, counted = paired_medians(train, count)
            figures.append(
                Figure(
                    what=f"one epoch in SQL, {data}, {COVERTYPE_SHAPE[0]:,} × {COVERTYPE_SHAPE[1]}",
                    measured=f"{1e3 * trained:.1f} ms",
                    reference=f"count(*), {workers} parallel workers: {1e3 * counted:.1f} ms",
                    ratio=trained / counted,
                    target=1.0 if workers == 0 else 2.0,
                    at_most=True,
                )
            )
    return figures


if __name__ == "__main__":
    main(run)
