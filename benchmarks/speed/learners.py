"""Every shipped rule compared with code that a user would write: ns a row of one core, in turn, some passes each time.

The simulator unpacks heap pages, standardises and adds the loss up; its epochs are a training's later ones, whose
cycles are known from the first. The references (`benchmarks.peers`) get finished arrays of binary32, standardised
before the clock starts. The ratio is to the fastest of these. A pass of NumPy or numba finds what the rule's finds:
where that is solved by conjugate or proximal gradients, the gradient and its change along a direction. A pass of
scikit-learn does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, interleaved_medians, main
from benchmarks.peers import scikit
from benchmarks.peers.factors import factors
from benchmarks.peers.learners import (
    ERROR_OF,
    Learner,
    components,
    conjugate,
    conjugate_softmax,
    dense_factors,
    linear,
    means,
    perceptron,
)
from benchmarks.speed.simulator import feed
from benchmarks.speed.workload import SHIPPED, compiled_rule, with_code
from dana.storage.columns import column_pages, column_schema

PASSES = 5
"""Of each in its turn, as a training has several: for its first millisecond, after other code, a pass with vectors of
512 bits takes 1.4 times as long (an AMD EPYC of the fourth generation)."""


def run() -> list[Figure]:
    """Measure."""
    random = np.random.default_rng(0)
    x = random.standard_normal((40_000, 54)).astype(np.float32)
    features = {f"x{k + 1}": column for k, column in enumerate(x.T)}
    classes = (x[:, 0] > 0).astype(np.float32)
    targets = {"logistic": classes, "linear_svm": classes, "poisson": random.poisson(2.0, len(x)).astype(np.float32)}
    found = []
    for rule, options in scikit.SGD.items():
        y = targets.get(rule, x[:, 0] + x[:, 1])
        others = {"numba": (linear if rule == "linear_svm" else conjugate)(x, y, ERROR_OF[rule])}
        if options is not None:
            others["scikit-learn"] = scikit.sgd(x, y, rule)
        found.append(compared(f"{rule}, 54 columns", rule, {**features, "y": y}, others, passes=PASSES))
    images = random.standard_normal((4000, 784)).astype(np.float32)
    digits = random.integers(0, 10, len(images)).astype(np.float32)
    ratings = np.stack([random.integers(0, 1000, 200_000) for _ in range(2)], axis=1)
    stars = random.standard_normal(len(ratings)).astype(np.float32)
    people = random.integers(0, 1000, 4000)
    whole = random.standard_normal((len(people), 100)).astype(np.float32) * (random.random((len(people), 100)) < 0.5)
    return [
        *found,
        compared(
            "softmax, 784 to 10", "softmax", {"x": images, "y": digits}, {"NumPy": conjugate_softmax(images, digits)},
            target=0.6, passes=PASSES,
        ),
        compared(
            "mlp, 784-32-10, Adam", "mlp", {"x": images, "y": digits},
            {"NumPy": perceptron(images, digits), "scikit-learn": scikit.network(images, digits)},
            target=0.6, passes=PASSES,
        ),
        compared(
            "kmeans, 8 x 54", "kmeans", features, {"numba": means(x, 8), "scikit-learn": scikit.centres(x, 8)},
            passes=PASSES,
        ),
        compared(
            "pca, 2 of 54", "pca", features, {"NumPy": components(x, 2), "scikit-learn": scikit.components(x, 2)},
            passes=PASSES,
        ),
        compared(
            "lrmf, rank 10, 1,000 x 1,000", "lrmf", {"i": ratings[:, 0], "j": ratings[:, 1], "y": stars},
            {"numba": factors(ratings, stars, 1000, 1000)}, passes=PASSES,
        ),
        compared(
            "lrmf_dense, rank 10, 1,000 x 100", "lrmf_dense", {"i": people, "x": whole},
            {"numba": dense_factors(people, whole.astype(np.float32))}, passes=PASSES,
        ),
    ]  # fmt: skip


def compared(
    what: str,
    rule: str,
    columns: Mapping[str, NDArray[np.generic]],
    others: Mapping[str, Learner],
    *,
    target: float = 1.0,
    passes: int = 1,
    first: bool = False,
    hyper: Mapping[str, int] = MappingProxyType({}),
    repeats: int = 9,
    folder: Path = SHIPPED,
    numbers: int = 1,
) -> Figure:
    """Epochs of a rule, and passes of others over the same rows: each on one core, so that other load does not count.

    Parameters
    ----------
    columns
        Of the table, of shape (rows,) or (rows, n); the label, where there is one, is ``y``.
    passes
        Of each in its turn.
    first
        Whether epochs are first ones, in which cycles are counted.
    numbers
        Of a row, which times and cycles are divided by.
    """
    columns = {name: np.asarray(values, np.float32) for name, values in columns.items()}
    schema, heap, rows = column_schema(columns, "bench"), column_pages(columns), len(next(iter(columns.values())))
    label = "y" if "y" in columns else None
    request, design = compiled_rule(rule, schema, pages=len(heap), label=label, hyper=hyper, folder=folder)
    machine = with_code(request, design)
    cycles = 0

    def epoch() -> None:
        nonlocal cycles
        machine.begin_epoch()
        if first:
            feed(machine.sink, heap)
        else:
            feed(machine.sink_again, heap, at_once=len(heap))
        found = machine.end_epoch()
        if found.tuples != rows or machine.differs:
            raise RuntimeError("the simulator stopped, or its code is wrong")
        cycles = found.cycles

    def several(train: Callable[[], object]) -> Callable[[], None]:
        def turn() -> None:
            for _ in range(passes):
                train()

        return turn

    try:
        turns = [several(train) for train in (epoch, *(other.train for other in others.values()))]
        ours, *theirs = interleaved_medians(turns, repeats=repeats, clock=time.thread_time)
    finally:
        machine.close()
    each, what_each = passes * rows * numbers, "row" if numbers == 1 else "number"
    nanoseconds = {name: seconds / each * 1e9 for name, seconds in zip(others, theirs, strict=True)}
    return Figure(
        what=what,
        measured=f"{ours / each * 1e9:.3g} ns a {what_each}, {passes * cycles / each:.3g} cycles",
        reference=", ".join(f"{name} {one:.3g}" for name, one in nanoseconds.items()),
        ratio=ours / min(theirs),
        target=target,
    )


if __name__ == "__main__":
    main(run)
