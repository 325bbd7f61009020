"""What ``dana_train`` costs on a table of ten rows with a compiled rule, compared with an empty statement."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, main, paired_medians
from dana.client.connection import connect
from dana.language.rulefile import load
from dana.server.places import PAPER
from dana.session.tables import create_table

TABLE = "bench_ten_rows"
UDF = "bench_logistic"


def run() -> list[Figure]:
    """Measure."""
    random = np.random.default_rng(10)
    columns = {f"x{index}": random.standard_normal(10).astype(np.float32) for index in range(1, 5)}
    columns["y"] = np.arange(10).astype(np.float32) % 2
    with connect() as db:
        create_table(db.session, TABLE, columns)
        db.session.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
        db.create_rule(UDF, load(PAPER / "logistic.py"))

        def train() -> None:
            db.train(UDF, TABLE, model=UDF, label="y", epochs=1, machine="sim")

        def utility() -> None:
            db.session.execute("CREATE TEMPORARY TABLE IF NOT EXISTS bench_nothing (i int)")

        trained, empty = paired_medians(train, utility, repeats=51, warm_up=5)
    return [
        Figure(
            what="dana_train on ten rows, compiled before",
            measured=f"{1e3 * trained:.2f} ms",
            reference=f"absolute; a utility statement: {1e3 * empty:.2f} ms",
            ratio=1e3 * trained,
            target=5.0,
        )
    ]


if __name__ == "__main__":
    main(run)
