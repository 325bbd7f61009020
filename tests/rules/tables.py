"""Small tables for every rule of the library, as columns of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WITHOUT_LABEL = ("kmeans", "pca", "lrmf_dense", "bpr", "word2vec")
EXTENTS = {
    "softmax": {"k": 3},
    "mlp": {"k": 3, "h": 4},
    "kmeans": {"k": 3},
    "pca": {"k": 2},
    "lrmf": {"m": 12, "n": 9, "k": 3},
    "lrmf_dense": {"m": 150, "k": 3},
    "bpr": {"m": 12, "n": 9, "k": 3},
    "word2vec": {"n": 12, "k": 4, "negatives": 2},
    "fm": {"n": 9, "k": 3},
    "dlrm": {"f": 2, "n": 9, "k": 2, "h": 3},
    "autoint": {"n": 9, "k": 2},
}
"""What a caller says of classes, centres …: no column decides them."""
WIDE = {
    "softmax": {"k": 17},
    "mlp": {"k": 3, "h": 33},
    "kmeans": {"k": 17},
    "pca": {"k": 17},
    "lrmf": {"m": 12, "n": 9, "k": 33},
    "lrmf_dense": {"m": 150, "k": 17},
    "bpr": {"m": 12, "n": 9, "k": 33},
    "word2vec": {"n": 12, "k": 33, "negatives": 3},
    "fm": {"n": 9, "k": 17},
    "dlrm": {"f": 2, "n": 9, "k": 17, "h": 33},
    "autoint": {"n": 9, "k": 17},
}
"""The same, of more than a vector of the processor holds."""

Table = dict[str, NDArray[np.float32]]


def rows(count: int, features: int, seed: int = 3) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Correlated features on unlike scales, and a score that they explain."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, features)) @ random.standard_normal((features, features))
    x *= 10.0 ** random.integers(-1, 2, features)
    score = x @ (random.standard_normal(features) / x.std(axis=0)) + 0.3 * random.standard_normal(count)
    return x, score


def table(rule: str, count: int = 150, features: int = 5) -> Table:
    """Columns x1 … xn and a label y that suits the rule."""
    if rule in ("lrmf", "bpr", "word2vec"):
        ratings = _ratings(count)
        return {name: values for name, values in ratings.items() if name != "y" or rule == "lrmf"}
    if rule in ("fm", "dlrm", "autoint"):
        return _categories(rule, count)
    x, score = rows(count, features)
    if rule in ("logistic", "linear_svm"):
        label = (score > 0).astype(np.float64)
    elif rule in ("softmax", "mlp"):
        label = np.digitize(score, np.quantile(score, (0.3, 0.6))).astype(np.float64)
    elif rule == "poisson":
        label = np.random.default_rng(4).poisson(np.exp(score / score.std())).astype(np.float64)
    else:
        label = score
    if rule == "lrmf_dense":
        x = np.where(np.abs(x) < x.std(axis=0) / 2, 0, x / x.std(axis=0))  # 0: missing
    columns = {f"x{k + 1}": x[:, k] for k in range(features)}
    if rule not in WITHOUT_LABEL:
        columns["y"] = label
    if rule == "lrmf_dense":
        columns = {"i": np.random.default_rng(6).permutation(count), **columns}
    return {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}


def _ratings(count: int) -> Table:
    """Triples of a 12 × 9 matrix of rank 3, rows and columns coming again and again."""
    random = np.random.default_rng(8)
    i, j = random.integers(0, 12, count), random.integers(0, 9, count)
    value = 3 + np.sum(random.standard_normal((12, 3))[i] * random.standard_normal((9, 3))[j], axis=1)
    return {name: np.asarray(values, dtype=np.float32) for name, values in (("i", i), ("j", j), ("y", value))}


def _categories(rule: str, count: int) -> Table:
    """Two columns of at most nine categories, some of them unknown, and a label of both; for `dlrm` numbers between."""
    random = np.random.default_rng(9)
    c = np.stack([random.integers(-1, 9, count), random.integers(0, 5, count)], axis=1)
    label = random.standard_normal(9)[c[:, 0]] * (c[:, 0] >= 0) + random.standard_normal(5)[c[:, 1]]
    columns = {"c1": c[:, 0], "c2": c[:, 1]}
    if rule == "dlrm":
        columns |= {"x1": random.standard_normal(count), "x2": 10 * random.standard_normal(count)}
    columns["y"] = label if rule == "fm" else label > np.median(label)
    return {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}
