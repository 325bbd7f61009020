"""Many trainings in one statement compared with as many statements; and the extra cost of a job."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, main, paired_medians
from dana.client.connection import Connection, connect
from dana.language.rulefile import load
from dana.server.places import PAPER
from dana.session.tables import create_table

GROUPS = 1000
ROWS = 100
"""Of a group."""
ALONE = 50
"""Trainings of one group, to be compared with all."""
GRID = [0.001 * 1.1**k for k in range(40)]
UDF = "bench_logistic"
FEATURES = ["x1", "x2", "x3", "x4"]


def run() -> list[Figure]:
    """Measure."""
    with connect() as db:
        db.session.execute("SET client_min_messages = warning")
        db.create_rule(UDF, load(PAPER / "logistic.py"))
        _tables(db)
        try:
            return [_groups(db), _search(db), _background(db)]
        finally:
            db.session.execute(
                "SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE rule = %s) m", (UDF,)
            )
            db.session.execute(
                "DELETE FROM dana.job_log WHERE arguments ->> 'source' = 'bench_group' AND arguments ->> 'rule' = %s",
                (UDF,),
            )
            db.session.execute("DROP TABLE bench_groups, bench_group")


def _tables(db: Connection) -> None:
    random = np.random.default_rng(10)
    columns = {name: random.standard_normal(GROUPS * ROWS).astype(np.float32) for name in FEATURES}
    columns["g"] = random.permutation(GROUPS * ROWS).astype(np.float32) % GROUPS
    columns["y"] = np.arange(GROUPS * ROWS).astype(np.float32) % 2
    create_table(db.session, "bench_groups", columns)
    create_table(db.session, "bench_group", {name: values[:ROWS] for name, values in columns.items()})
    db.session.execute("VACUUM (FREEZE, ANALYZE) bench_groups, bench_group")


def _groups(db: Connection) -> Figure:
    def grouped() -> None:
        assert (
            len(db.train_groups(UDF, "bench_groups", group_by=["g"], features=FEATURES, label="y", epochs=3)) == GROUPS
        )

    def alone() -> None:
        for _ in range(ALONE):
            db.train(UDF, query="SELECT * FROM bench_group", features=FEATURES, label="y", epochs=3)

    many, few = paired_medians(grouped, alone, repeats=3, warm_up=1)
    expected = few / ALONE * GROUPS
    return Figure(
        what=f"{GROUPS} groups of {ROWS} rows, 3 epochs",
        measured=f"{many:.2f} s",
        reference=f"as many dana_train: {expected:.2f} s",
        ratio=many / expected,
        target=1.0,
    )


def _search(db: Connection) -> Figure:
    options = {"features": FEATURES, "label": "y"}

    def searched() -> None:
        db.search(UDF, "bench_group", grid={"lr": GRID}, test_size=0.3, **options)  # type: ignore[arg-type]

    def by_hand() -> None:
        for rate in GRID:
            db.train(UDF, "bench_group", hyper={"lr": rate}, test_size=0.3, features=FEATURES, label="y")
            db.evaluate(UDF)

    one, many = paired_medians(searched, by_hand, repeats=5, warm_up=1)
    return Figure(
        what=f"search of {len(GRID)} points",
        measured=f"{1e3 * one:.0f} ms",
        reference=f"as many dana_train and dana_evaluate: {1e3 * many:.0f} ms",
        ratio=one / many,
        target=1.0,
    )


def _background(db: Connection) -> Figure:
    def background() -> None:
        job = db.start("train", UDF, "bench_group", features=FEATURES, label="y")
        assert db.wait(job).state == "done"

    def fresh() -> None:
        with connect(db.session.info.dsn) as other:
            other.train(UDF, "bench_group", features=FEATURES, label="y")

    away, direct = paired_medians(background, fresh, repeats=15, warm_up=2)
    return Figure(
        what=f"{ROWS} rows in the background, with waiting",
        measured=f"{1e3 * away:.1f} ms",
        reference=f"a new session and dana_train in it: {1e3 * direct:.1f} ms",
        ratio=away / direct,
        target=2.0,
    )


if __name__ == "__main__":
    main(run)
