"""Epochs of logistic regression through SQL, as ratios to ``SELECT count(*)`` on the same table.

The table has Covertype's 581,012 rows of 54 float4 features and a float4 label, warm and all-visible. One epoch, of the
paper's rule and of the shipped one, in heap order; each of those after the first, which read pages that the worker
kept; and the first of these, which keeps them, compared with one that does not. On each PostgreSQL that an embedded
server has.
"""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Figure, interleaved_medians, main, paired_medians
from benchmarks.speed.workload import SHIPPED
from dana.client.connection import Connection, connect
from dana.demo.datasets import COVERTYPE_SHAPE, covertype
from dana.language.rulefile import load
from dana.server.embedded import EmbeddedServer
from dana.server.installation import MAJORS
from dana.server.places import PAPER
from dana.session.tables import create_table

TABLE = "bench_covertype"
UDF = "bench_logistic"
SHIPPED_UDF = "bench_shipped"
SHAPE = f"{COVERTYPE_SHAPE[0]:,} × {COVERTYPE_SHAPE[1]}"
KEPT, MORE = 3, 9
"""Epochs of trainings that keep pages; the difference is of later epochs alone."""


def prepare(db: Connection) -> str:
    """Load the table where it is not there with these rows; return the data's name."""
    data = covertype()
    create_table(db.session, TABLE, data.columns())
    # hint bits and the visibility map are as after a load that ended some time ago
    db.session.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
    db.create_rule(UDF, load(PAPER / "logistic.py"))
    db.create_rule(SHIPPED_UDF, load(SHIPPED / "logistic.py"))
    return data.name


def run() -> list[Figure]:
    """Measure."""
    return [figure for major in MAJORS for figure in _measured(major)]


def _measured(major: int) -> list[Figure]:
    with connect(EmbeddedServer.start(major=major).dsn) as db:
        data = prepare(db)

        def train(epochs: int, rule: str = UDF) -> None:
            db.train(rule, TABLE, model=rule, label="y", epochs=epochs, patience=0, machine="sim", shuffle=False)

        def count() -> None:
            db.session.execute(f"SELECT count(*) FROM {TABLE}").fetchone()

        def figure(what: str, taken: float, reference: str, other: float, target: float) -> Figure:
            return Figure(
                what=f"PostgreSQL {major}: {what} in SQL, {data}, {SHAPE}",
                measured=f"{1e3 * taken:.1f} ms",
                reference=f"{reference}: {1e3 * other:.1f} ms",
                ratio=taken / other,
                target=target,
            )

        figures = []
        for workers in (0, 2):
            db.session.execute(f"SET max_parallel_workers_per_gather = {workers}")
            trained, counted = paired_medians(partial(train, 1), count)
            target = 1.0 if workers == 0 else 2.0
            figures.append(figure("one epoch", trained, f"count(*), {workers} parallel workers", counted, target))
        db.session.execute("SET max_parallel_workers_per_gather = 0")
        once, shipped, few, many, counted = interleaved_medians(
            (partial(train, 1), partial(train, 1, SHIPPED_UDF), partial(train, KEPT), partial(train, MORE), count)
        )
    later = (many - few) / (MORE - KEPT)
    return [
        *figures,
        figure("one epoch of the shipped rule", shipped, "one of the paper's", once, 1.2),
        figure("a later epoch", later, "count(*)", counted, 0.6),
        figure("an epoch that keeps its pages", few - (KEPT - 1) * later, "one that does not", once, 1.2),
    ]


if __name__ == "__main__":
    main(run)
