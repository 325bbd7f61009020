"""Every shipped rule compared with code that a user would write: ns a row of one core, in turn, some passes each time.

The simulator unpacks heap pages, standardises and adds the loss up; its epochs are a training's later ones, whose
cycles are known from the first. The references (`benchmarks.peers`) get finished arrays of binary32, standardised
before the clock starts. The ratio is to the fastest of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.measure import Figure, interleaved_medians, main
from benchmarks.peers import scikit
from benchmarks.peers.factors import factors
from benchmarks.peers.learners import (
    ERROR_OF,
    Learner,
    components,
    dense_factors,
    linear,
    means,
    perceptron,
    softmax,
)
from benchmarks.speed.simulator import feed
from benchmarks.speed.workload import array_table, column_table, compiled_rule, float_column, pages_of, with_code
from dana.storage.schema import TableSchema

THRESHOLDS = {"lasso": 1e-5, "elastic_net": 1e-5}
"""What a step takes off each weight."""
PASSES = 5
"""Of each in its turn, as a training has several: for its first millisecond, after other code, a pass with vectors of
512 bits takes 1.4 times as long (an AMD EPYC of the fourth generation)."""


def run() -> list[Figure]:
    """Measure."""
    random = np.random.default_rng(0)
    x = random.standard_normal((40_000, 54)).astype(np.float32)
    classes = (x[:, 0] > 0).astype(np.float32)
    targets = {"logistic": classes, "linear_svm": classes, "poisson": random.poisson(2.0, len(x)).astype(np.float32)}
    found = []
    for rule, options in scikit.SGD.items():
        y = targets.get(rule, x[:, 0] + x[:, 1])
        others = {"numba": linear(x, y, ERROR_OF[rule], threshold=THRESHOLDS.get(rule, 0.0))}
        if options is not None:
            others["scikit-learn"] = scikit.sgd(x, y, rule)
        rows = [(*row, float(label)) for row, label in zip(x, y, strict=True)]
        found.append(_beside(f"{rule}, 54 columns", rule, column_table(54), rows, others))
    images = random.standard_normal((4000, 784)).astype(np.float32)
    digits = random.integers(0, 10, len(images)).astype(np.float32)
    pictures = list(zip(images, digits, strict=True))
    unlabelled = [(*row, 0.0) for row in x]
    ratings = np.stack([random.integers(0, 1000, 200_000) for _ in range(2)], axis=1)
    stars = random.standard_normal(len(ratings)).astype(np.float32)
    triples = TableSchema(relation="bench", attributes=tuple(float_column(name) for name in ("i", "j", "y")))
    people = random.integers(0, 1000, 4000)
    whole = random.standard_normal((len(people), 100)).astype(np.float32) * (random.random((len(people), 100)) < 0.5)
    wide = TableSchema(relation="bench", attributes=(float_column("i"), array_table(100).attributes[0]))
    return [
        *found,
        _beside(
            "softmax, 784 to 10", "softmax", array_table(784), pictures, {"NumPy": softmax(images, digits)}, target=0.6
        ),
        _beside(
            "mlp, 784-32-10, Adam", "mlp", array_table(784), pictures,
            {"NumPy": perceptron(images, digits), "scikit-learn": scikit.network(images, digits)}, target=0.6,
        ),
        _beside(
            "kmeans, 8 x 54", "kmeans", column_table(54), unlabelled,
            {"numba": means(x, 8), "scikit-learn": scikit.centres(x, 8)}, label=None,
        ),
        _beside(
            "pca, 2 of 54", "pca", column_table(54), unlabelled,
            {"NumPy": components(x, 2), "scikit-learn": scikit.components(x, 2)}, label=None,
        ),
        _beside(
            "lrmf, rank 10, 1,000 x 1,000", "lrmf", triples,
            [(*map(float, pair), float(y)) for pair, y in zip(ratings, stars, strict=True)],
            {"numba": factors(ratings, stars, 1000, 1000)},
        ),
        _beside(
            "lrmf_dense, rank 10, 1,000 x 100", "lrmf_dense", wide, list(zip(map(float, people), whole, strict=True)),
            {"numba": dense_factors(people, whole.astype(np.float32))}, label=None,
        ),
    ]  # fmt: skip


def _beside(
    name: str,
    rule: str,
    schema: TableSchema,
    rows: list[tuple[object, ...]],
    others: Mapping[str, Learner],
    *,
    target: float = 1.0,
    label: str | None = "y",
) -> Figure:
    heap = pages_of(schema, rows)
    request, design = compiled_rule(rule, schema, pages=len(heap), label=label)
    machine = with_code(request, design)

    def epoch() -> None:
        machine.begin_epoch()
        feed(machine.sink_again, heap)
        if machine.end_epoch().tuples != len(rows) or machine.differs:
            raise RuntimeError("the simulator stopped, or its code is wrong")

    try:
        # each works on one core: what others do on this machine does not count
        turns = [_several(train) for train in (epoch, *(other.train for other in others.values()))]
        ours, *theirs = interleaved_medians(turns, repeats=9, clock=time.thread_time)
    finally:
        machine.close()
    in_all = PASSES * len(rows)
    nanoseconds = {name: seconds / in_all * 1e9 for name, seconds in zip(others, theirs, strict=True)}
    return Figure(
        what=name,
        measured=f"{ours / in_all * 1e9:.0f} ns a row",
        reference=", ".join(f"{name} {one:.0f}" for name, one in nanoseconds.items()),
        ratio=ours / min(theirs),
        target=target,
    )


def _several(train: Callable[[], object]) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(PASSES):
            train()

    return turn


if __name__ == "__main__":
    main(run)
