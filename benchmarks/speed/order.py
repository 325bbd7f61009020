"""Rows in a pseudo-random order: what it costs, and how a training converges in it.

Cost, through SQL: one epoch and 50 of a stochastic rule, as ratios to heap order, on 581,012 rows of 54 and of 3
columns, within the worker's memory for pages and beyond it.

Convergence, on arrays with sorted or clustered rows: the mean loss over the table after 1, 5 and 10 epochs, in
heap order, in the order of a training, in a new permutation for each epoch, and in CorgiPile's (Xu et al., SIGMOD
2022), which permutes pages, then the rows of each buffer of a tenth of the pages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks import stochastic
from benchmarks.measure import Figure, main, paired_medians
from dana.client.connection import Connection, connect
from dana.demo.datasets import COVERTYPE_SHAPE, covertype
from dana.server.embedded import EmbeddedServer
from dana.session.tables import create_table
from dana.trainer.arrays import train

TABLE, UDF = "bench_order", "bench_order_logistic"
WIDTHS = (COVERTYPE_SHAPE[1], 3)
BEYOND = "240MB"
"""dana.max_memory with which half is less than the pages of 54 columns (149 MB)."""

ROWS, FEATURES, PAGE, BUFFER = 20_000, 4, 250, 0.1
EPOCHS = (1, 5, 10)

Order = Callable[[int], NDArray[np.intp]]


def run() -> list[Figure]:
    """Measure."""
    return [*_costs(), *_convergence()]


def _costs() -> list[Figure]:
    figures = []
    data = covertype()
    with connect(EmbeddedServer.start().dsn) as db:
        db.create_rule(UDF, stochastic.text("logistic"))
        for width in WIDTHS:
            columns = data.columns()
            create_table(db.session, TABLE, {name: columns[name] for name in [*list(columns)[:width], "y"]})
            db.session.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
            for limit in (None, BEYOND)[: 2 if width == WIDTHS[0] else 1]:
                db.session.execute("RESET dana.max_memory" if limit is None else f"SET dana.max_memory = '{limit}'")
                for epochs, most, repeats in ((1, 1.3, 11), (50, 1.05, 3)):
                    ours, heap = paired_medians(
                        partial(_train, db, epochs, True),
                        partial(_train, db, epochs, False),
                        repeats=repeats,
                        warm_up=1,
                    )
                    figures.append(
                        Figure(
                            what=f"{epochs} epochs, {COVERTYPE_SHAPE[0]:,} × {width}"
                            + (f", dana.max_memory = {limit}" if limit else ""),
                            measured=f"{1e3 * ours:.0f} ms",
                            reference=f"heap order: {1e3 * heap:.0f} ms",
                            ratio=ours / heap,
                            target=most,
                        )
                    )
            db.session.execute("RESET dana.max_memory")
    return figures


def _train(db: Connection, epochs: int, shuffle: bool) -> None:
    db.train(UDF, TABLE, model=UDF, label="y", epochs=epochs, patience=0, shuffle=shuffle)


def _convergence() -> list[Figure]:
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, FEATURES))
    y = x @ random.normal(size=FEATURES) + 0.5 * random.normal(size=ROWS)
    clusters = np.repeat(np.arange(ROWS // 1000), 1000)
    shifts = random.normal(size=(ROWS // 1000, FEATURES))[clusters]
    tables = {
        "rows in random order": (x, y),
        "rows sorted by the label": (x[np.argsort(y)], np.sort(y)),
        "rows sorted by a feature": (x[np.argsort(x[:, 0])], y[np.argsort(x[:, 0])]),
        "clusters of 1,000 rows": (x + 3 * shifts, y + 3 * shifts @ random.normal(size=FEATURES)),
    }
    figures = []
    for name, (features, label) in tables.items():
        columns = {f"x{k}": features[:, k].astype(np.float32) for k in range(FEATURES)}
        columns["y"] = label.astype(np.float32)
        orders: dict[str, Order] = {
            "heap order": lambda epoch: np.arange(ROWS),
            "a new permutation for each epoch": lambda epoch: np.random.default_rng(epoch).permutation(ROWS),
            "CorgiPile, a buffer of 10 %": _corgipile,
        }
        ours = _losses(columns, None)
        for other, order in orders.items():
            theirs = _losses(columns, order)
            for epochs, one, two in zip(EPOCHS, ours, theirs, strict=True):
                figures.append(
                    Figure(
                        what=f"loss after {epochs} epochs, {name}",
                        measured=f"{one:.4g}",
                        reference=f"{other}: {two:.4g}",
                        ratio=one / two,
                        target=1.05,
                    )
                )
    return figures


def _corgipile(epoch: int) -> NDArray[np.intp]:
    random = np.random.default_rng(epoch)
    pages = random.permutation(ROWS // PAGE)[:, None] * PAGE + np.arange(PAGE)
    buffers = np.array_split(pages, round(1 / BUFFER))
    return np.concatenate([random.permutation(one.reshape(-1)) for one in buffers])


def _losses(columns: dict[str, NDArray[np.float32]], order: Order | None) -> list[float]:
    """Mean squared errors over the table after some epochs; None: the order of a training."""
    models, found = None, []
    for epoch in range(1, max(EPOCHS) + 1):
        rows = columns if order is None else {name: values[order(epoch)] for name, values in columns.items()}
        done = train(
            stochastic.text("linear"), rows, label="y", epochs=1, patience=0, shuffle=order is None, models=models
        )
        models = done.models
        if epoch in EPOCHS:
            errors = done.predict(columns) - columns["y"]
            found.append(float(np.mean(errors.astype(np.float64) ** 2)))
    return found


if __name__ == "__main__":
    main(run)
