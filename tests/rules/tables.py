"""Small tables for every rule of the library, as columns of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    x, score = rows(count, features)
    if rule in ("logistic", "linear_svm"):
        label = (score > 0).astype(np.float64)
    elif rule == "poisson":
        label = np.random.default_rng(4).poisson(np.exp(score / score.std())).astype(np.float64)
    else:
        label = score
    columns = {f"x{k + 1}": x[:, k] for k in range(features)} | {"y": label}
    return {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}
