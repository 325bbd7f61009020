"""Counterparts of the rules of pairs and of categories: what a user would write in numba, as many passes as the rule.

In: a split, the rule's metas and extents. Out: predictions for the rows held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.accuracy.data import Floats, Split
from benchmarks.accuracy.metrics import Metas, Numbers
from benchmarks.peers import factors
from benchmarks.peers.learners import Learner

Build = Callable[[Numbers, Floats, Metas], Learner]


def occurred(data: Split) -> dict[str, Floats]:
    """A table of the training pairs that occurred."""
    return {name: values[data.label == 1] for name, values in data.columns().items() if name != "y"}


def pairs(data: Split) -> Mapping[str, float]:
    """Users m and items n."""
    both = np.concatenate([data.features, data.test_features]).max(axis=0) + 1
    return {"m": float(both[0]), "n": float(both[1])}


def words(data: Split) -> Mapping[str, float]:
    """Words n of both columns."""
    both = np.concatenate([data.features, data.test_features])
    return {"n": float(both.max() + 1)}


def categories(data: Split) -> Mapping[str, float]:
    """Columns f, and n categories of the one that has most; columns of numbers are behind those of categories."""
    both = np.concatenate([data.features, data.test_features])
    f = CATEGORIES[data.name] if data.name in CATEGORIES else int(both.shape[1])
    return {"f": float(f), "n": float(both[:, :f].max() + 1)}


CATEGORIES = {"clicks": 4, "movielens 100k, liked, with numbers": 5}
"""Of data in which numbers follow: how many columns are categories."""


def learnt(build: Build, passes: int, *, of_pairs: bool = False) -> Callable[[Split, Metas], Numbers]:
    """Predictions of what `build` gives after so many passes."""

    def reference(data: Split, metas: Metas) -> Numbers:
        rows, label = data.features, data.label
        if of_pairs:
            rows = rows[label == 1]
        learner = build(rows, label, metas)
        for _ in range(passes):
            learner.train()
        return learner.score(data.test_features)

    return reference


def _numbers(rows: Numbers) -> Numbers:
    return rows.astype(np.int64)


def stars(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `lrmf`."""
    return factors.factors(_numbers(rows), label, int(metas["m"]), int(metas["n"]))


def ranking(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `bpr`."""
    return factors.ranking(_numbers(rows), int(metas["m"]), int(metas["n"]))


def embedding(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `word2vec`."""
    return factors.words(_numbers(rows), int(metas["n"]))


def machine(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `fm`."""
    return factors.machine(_numbers(rows), label, int(metas["n"]))


def attention(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `autoint`."""
    return factors.attention(_numbers(rows), label, int(metas["n"]))


def recommender(rows: Numbers, label: Floats, metas: Metas) -> Learner:
    """As rule `dlrm`."""
    f = int(metas["f"])
    x = rows[:, f:].astype(np.float64)
    mean, scale = x.mean(axis=0), 1 / np.maximum(x.std(axis=0), 1e-30)
    learner = factors.recommender(
        _numbers(rows[:, :f]), ((x - mean) * scale).astype(np.float32), label, int(metas["n"])
    )

    def score(rows: Numbers) -> Numbers:
        return learner.score(np.concatenate([rows[:, :f], (rows[:, f:] - mean) * scale], axis=1))

    return Learner(learner.train, score)
