"""Sparse rows of the shapes of a9a and w8a: ns a number, next to scikit-learn on the same rows; cycles of the machine.

A row is an array of features' numbers and one of values (docs/recipes.md, "Sparse rows"). scikit-learn gets a finished
matrix in CSR; a pass of either of one core, in turn. SGDClassifier steps with each row, SAGA keeps a gradient of each,
the rule takes batches of 16. Features are drawn by a power law, for real ones are; so cycles have waits in them.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier

from benchmarks.measure import Figure, main
from benchmarks.peers.learners import Learner
from benchmarks.speed.learners import compared

RULE = """import dana
n = dana.dim()
w, b = dana.table([n]), dana.model()
c, x, y = dana.input([{k}], categories=n), dana.input([{k}]), dana.output(classes=2)
sparse = dana.algo(w, b, c, x, y)
p = dana.sigmoid(dana.sigma(w[c] * x) + b)
sparse.setLoss(-(y * dana.log(p) + (1 - y) * dana.log(1 - p)))
sparse.minimize(dana.optimizers.sgd, rate=0.05, batch=16)
sparse.setPrediction(p)
"""
ROWS = 20_000
SHAPES = {"a9a": (123, 14), "w8a": (300, 12), "rcv1": (47_236, 74)}
"""Features, and those of a row; of w8a and rcv1 on average."""
ASKED = {False: 1.2, True: 2.0}
"""Most time, as a multiple of the fastest reference's: in later epochs, and in first ones, which count cycles."""


def run() -> list[Figure]:
    """Measure."""
    return [figure for name, (n, k) in SHAPES.items() for figure in _of_shape(name, n, k)]


def _of_shape(name: str, n: int, k: int) -> list[Figure]:
    c, y = drawn(n, k)
    x = np.ones(c.shape, np.float32)
    ours = {"c": c.astype(np.float32), "x": x, "y": y}
    others = _others(c, x, y, n)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sparse.py").write_text(RULE.format(k=k), encoding="utf-8")
        return [
            compared(
                f"{name}: {k} of {n:,} features, {'first' if first else 'later'} epochs", "sparse", ours, others,
                target=ASKED[first], first=first, hyper={"n": n}, folder=Path(folder), numbers=k,
            )
            for first in (False, True)
        ]  # fmt: skip


def drawn(n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Each row's features, ascending, and its class."""
    random = np.random.default_rng(0)
    weights = 1 / (1 + np.arange(n)) ** 0.7
    # the k largest of keys with exponents: drawn without putting back
    keys = np.log(random.random((ROWS, n))) / weights if n < 1000 else None
    if keys is None:
        found = np.sort(random.choice(n, (ROWS, k), p=weights / weights.sum()), axis=1)
    else:
        found = np.sort(np.argpartition(keys, -k, axis=1)[:, -k:], axis=1)
    return found, (random.random(ROWS) < 0.3).astype(np.float32)


def _others(c: NDArray[np.int64], x: NDArray[np.float32], y: NDArray[np.float32], n: int) -> dict[str, Learner]:
    rows, k = c.shape
    matrix = csr_matrix((x.ravel().astype(np.float64), c.ravel(), np.arange(0, rows * k + 1, k)), shape=(rows, n))
    sgd = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.05, shuffle=False)
    saga = LogisticRegression(solver="saga", C=np.inf, max_iter=1, warm_start=True)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            saga.fit(matrix, y)

    return {
        "SGDClassifier": Learner(lambda: sgd.partial_fit(matrix, y, classes=[0, 1]), sgd.decision_function),
        "SAGA": Learner(fit, saga.decision_function),
    }


if __name__ == "__main__":
    main(run)
