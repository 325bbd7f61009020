"""``dana_predict`` over a million rows in a plain SELECT, as a ratio to a sum over the same columns.

Two forms: the columns as arguments, and the whole row. `dana_predict_table`, which also gives each row a key as text
and keeps all of them, has a bound of its own. The reference adds the columns of a row: ``SELECT sum(x1 + … + xn)``.
All run in one process, without parallel workers, on a warm and all-visible table.
"""

from __future__ import annotations

import numpy as np
from psycopg import sql

from benchmarks.measure import Figure, main, paired_medians
from dana.client.connection import Connection, connect
from dana.language.rulefile import load
from dana.server.places import PAPER
from dana.session.tables import create_table

ROWS = 1_000_000
WIDTHS = (10, 54)
UDF = "bench_logistic"
FORMS = {
    "columns": ("SELECT sum(dana_predict({name}, {listed})) FROM {table}", 3.0),
    "a row": ("SELECT sum(dana_predict({name}, r.*)) FROM {table} AS r", 3.0),
    "dana_predict_table": ("SELECT sum(prediction) FROM dana_predict_table({name}, {place})", 6.0),
}
"""Statement, and the most that it may take of the reference's time."""


def prepare(db: Connection, width: int) -> tuple[sql.Identifier, sql.Composed, sql.Composed]:
    """Make the table and the model; return table, columns as a list and as a sum."""
    name = f"bench_predict_{width}"
    found = db.session.execute("SELECT to_regclass(%s)", (name,)).fetchone()
    if found is None or found[0] is None:
        random = np.random.default_rng(width)
        columns = {f"x{index + 1}": random.standard_normal(ROWS).astype(np.float32) for index in range(width)}
        create_table(db.session, name, columns | {"y": (columns["x1"] > 0).astype(np.float32)})
    db.session.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(sql.Identifier(name)))
    db.train(UDF, name, model=name, label="y", epochs=1, machine="sim")
    names = [sql.Identifier(f"x{index + 1}") for index in range(width)]
    return sql.Identifier(name), sql.SQL(", ").join(names), sql.SQL(" + ").join(names)


def run() -> list[Figure]:
    """Measure."""
    figures = []
    with connect() as db:
        db.create_rule(UDF, load(PAPER / "logistic.py"))
        db.session.execute("SET max_parallel_workers_per_gather = 0")
        for width in WIDTHS:
            table, listed, added = prepare(db, width)
            name = sql.Literal(f"bench_predict_{width}")
            add = sql.SQL("SELECT sum({}) FROM {}").format(added, table)
            for form, (text, target) in FORMS.items():
                place = sql.Literal(f"bench_predict_{width}")
                predict = sql.SQL(text).format(name=name, listed=listed, table=table, place=place)
                predicted, summed = paired_medians(
                    lambda query=predict: db.session.execute(query).fetchone(),  # type: ignore[misc]
                    lambda query=add: db.session.execute(query).fetchone(),  # type: ignore[misc]
                    repeats=5,
                    warm_up=1,
                )
                figures.append(
                    Figure(
                        what=f"predictions for {ROWS:,} rows of {width} columns, {form}",
                        measured=f"{1e3 * predicted:.0f} ms",
                        reference=f"sum of the columns: {1e3 * summed:.0f} ms",
                        ratio=predicted / summed,
                        target=target,
                    )
                )
    return figures


if __name__ == "__main__":
    main(run)
