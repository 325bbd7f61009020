"""Matrices of which some entries are known: as dense rows, and factored by alternating least squares in NumPy.

In: a split of triples (row, column, value). Out: tables, values of the entries held out. Scikit-learn has no
factorisation of a matrix with holes, so the textbook's method stands in for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.data import Floats, Split
from benchmarks.accuracy.metrics import Metas, Numbers
from dana.trainer.arrays import Trained

SWEEPS = 20


def extents(data: Split) -> Mapping[str, float]:
    """Rows m and columns n of the matrix."""
    both = np.concatenate([data.features, data.test_features])
    return {"m": float(both[:, 0].max() + 1), "n": float(both[:, 1].max() + 1)}


def dense(data: Split) -> dict[str, Floats]:
    """A table of the matrix's rows: number, values; 0 where the value is held out."""
    values, known = _matrix(data)
    columns = {f"x{k + 1}": np.where(known[:, k], values[:, k], 0).astype(np.float32) for k in range(values.shape[1])}
    return {"i": np.arange(len(values), dtype=np.float32), **columns}


def factored(trained: Trained, data: Split) -> Numbers:
    """Entries held out, by the models U and V."""
    i, j = data.test_features.astype(int).T
    return np.asarray(np.sum(trained.models["U"][i] * trained.models["V"].T[j], axis=1))


def alternating(data: Split, metas: Metas) -> Numbers:
    """Entries held out, by alternating least squares with the rule's rank and penalty."""
    values, known = _matrix(data)
    mean = float(values[known].mean())
    rank, penalty = int(metas["k"]), metas["penalty"]
    random = np.random.default_rng(0)
    left, right = (random.normal(0, 0.1, (count, rank)) for count in values.shape)
    for _ in range(SWEEPS):
        _solve(left, right, values - mean, known, penalty)
        _solve(right, left, values.T - mean, known.T, penalty)
    i, j = data.test_features.astype(int).T
    return np.asarray(mean + np.sum(left[i] * right[j], axis=1))


def _solve(
    factors: NDArray[np.float64],
    others: NDArray[np.float64],
    values: NDArray[np.float64],
    known: NDArray[np.bool_],
    penalty: float,
) -> None:
    for row in range(len(factors)):
        found = others[known[row]]
        normal = found.T @ found + penalty * max(1, len(found)) * np.eye(found.shape[1])
        factors[row] = np.linalg.solve(normal, found.T @ values[row, known[row]])


def _matrix(data: Split) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    shape = extents(data)
    values = np.zeros((int(shape["m"]), int(shape["n"])))
    known = np.zeros(values.shape, dtype=bool)
    i, j = data.features.astype(int).T
    values[i, j], known[i, j] = data.label, True
    return values, known
