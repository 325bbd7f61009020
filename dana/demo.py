"""The demonstration: two tables, one rule, three ways to compute it.

In: a client's connection. Out: a `Comparison` for each table, and SQL lines that can be pasted. Everything it shows is
measured while it runs; it must not print.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dana.client import Connection, TrainResult
from dana.datasets import Dataset, breast_cancer, covertype
from dana.errors import SetupError
from dana.rulefile import load
from dana.server.places import PAPER
from dana.tables import create_table

RULE = "logistic"
SEED = 7
LARGE_ROWS = 250_000
"""Rows of the synthetic table, of which four fifths are trained on."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One table to train on.

    Attributes
    ----------
    table
        Name of the training table; the test rows are in ``<table>_test``.
    data
        All rows.
    test_share
        Share of the rows that is held out.
    epochs
        Passes over the training table.
    backends
        What to train with, in order.
    """

    table: str
    data: Dataset
    test_share: float
    epochs: int
    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One task's outcome.

    Attributes
    ----------
    task
        What was trained.
    results
        What ``dana_train`` returned, by backend.
    epoch_seconds
        Time of the epochs alone, by backend; the first statement on a new design also compiles it.
    accuracy
        Share of the test rows that ``dana_predict`` puts into the right class, by backend.
    reference_accuracy, reference_seconds
        Scikit-learn's logistic regression on the same rows: its share, and the time of its fit.
    identical
        Whether all backends gave the same model, bit for bit; None where there is only one.
    count_seconds
        Time of ``SELECT count(*)`` on the training table.
    """

    task: Task
    results: dict[str, TrainResult]
    epoch_seconds: dict[str, float]
    accuracy: dict[str, float]
    reference_accuracy: float
    reference_seconds: float
    identical: bool | None
    count_seconds: float


def tasks() -> list[Task]:
    """Breast cancer on the simulator and on the hardware; a table of Covertype's shape on the simulator."""
    return [
        Task(table="cancer", data=breast_cancer(), test_share=0.2, epochs=30, backends=("sim", "rtl")),
        Task(table="forest", data=covertype(synthetic_rows=LARGE_ROWS), test_share=0.2, epochs=10, backends=("sim",)),
    ]


def run(db: Connection, tasks: Sequence[Task], progress: Progress) -> list[Comparison]:
    """Register the rule, load and train every task."""
    progress(f"registering the rule {RULE}")
    db.create_rule(RULE, load(PAPER / f"{RULE}.py"))
    return [_compare(db, task, progress) for task in tasks]


def _compare(db: Connection, task: Task, progress: Progress) -> Comparison:
    train, test = task.data.split(test_share=task.test_share, seed=SEED)
    progress(f"loading {task.table}: {len(train.label):,} × {train.features.shape[1]}, {task.data.name}")
    for name, rows in ((task.table, train), (f"{task.table}_test", test)):
        create_table(db.session, name, rows.columns())
        db.session.execute(f"VACUUM (ANALYZE) {name}")
    results, epoch_seconds, accuracy, weights = {}, {}, {}, []
    for backend in task.backends:
        progress(f"training {task.table} on backend {backend}")
        model = model_name(task.table, backend)
        results[backend] = db.train(
            RULE,
            task.table,
            model=model,
            features=train.feature_names,
            label="y",
            epochs=task.epochs,
            backend=backend,
        )
        epoch_seconds[backend] = _number(db, "SELECT sum(seconds) FROM dana.epoch WHERE run = %s", results[backend].run)
        accuracy[backend] = _accuracy(db, model, f"{task.table}_test", train.feature_names)
        weights.append(db.parameters(model))
    progress(f"training scikit-learn on the rows of {task.table}")
    reference_accuracy, reference_seconds = _reference(train, test)
    return Comparison(
        task=task,
        results=results,
        epoch_seconds=epoch_seconds,
        accuracy=accuracy,
        reference_accuracy=reference_accuracy,
        reference_seconds=reference_seconds,
        identical=all(_same_bits(weights[0], other) for other in weights[1:]) if len(weights) > 1 else None,
        count_seconds=_count_seconds(db, task.table),
    )


def model_name(table: str, backend: str) -> str:
    """Name of the model that the demonstration trains."""
    return f"{table}_{backend}"


def _accuracy(db: Connection, model: str, table: str, features: list[str]) -> float:
    predicted = f"dana_predict(%s, {', '.join(features)})"
    return _number(db, f"SELECT avg((({predicted} > 0.5) = (y > 0.5))::int) FROM {table}", model)


def _number(db: Connection, query: str, argument: object) -> float:
    row = db.session.execute(query.encode(), (argument,)).fetchone()
    return float("nan") if row is None else float(row[0])


def _same_bits(one: dict[str, NDArray[np.float32]], other: dict[str, NDArray[np.float32]]) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def _reference(train: Dataset, test: Dataset) -> tuple[float, float]:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise SetupError("the comparison needs scikit-learn; run: pip install scikit-learn") from None
    start = time.perf_counter()
    fitted = LogisticRegression(max_iter=1000).fit(train.features, train.label)
    elapsed = time.perf_counter() - start
    return float(fitted.score(test.features, test.label)), elapsed


def _count_seconds(db: Connection, table: str) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        db.session.execute(f"SELECT count(*) FROM {table}").fetchone()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def lines_to_paste(task: Task) -> list[str]:
    """Three statements for ``dana psql`` on what the demonstration left behind."""
    features = ", ".join(task.data.feature_names)
    model = model_name(task.table, "sim")
    return [
        f"SELECT * FROM dana_train('{RULE}', '{task.table}', 'mine', label => 'y', epochs => 50);",
        f"SELECT y, dana_predict('{model}', {features}) FROM {task.table}_test LIMIT 5;",
        "SELECT epoch, loss, cycles FROM dana.epoch WHERE run = (SELECT max(id) FROM dana.run) ORDER BY epoch;",
    ]
