"""What is compared with what: for each rule its counterpart, the metric, and the data that it is meant for.

In: a rule's default metas. Out: fitted estimators' predictions, centres or components. A counterpart gets the penalty
that the rule has, in its own unit, and otherwise scikit-learn's defaults. It must not train a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.accuracy import embeddings, matrices
from benchmarks.accuracy.data import Floats, Split
from benchmarks.accuracy.metrics import (
    ABSOLUTE,
    ACCURACY,
    AUC,
    DEVIANCE,
    INERTIA,
    PINBALL,
    R2,
    ROOT,
    VARIANCE,
    Metas,
    Metric,
    Numbers,
)
from dana.trainer.arrays import Trained

Extents = Mapping[str, float]


def predictions(trained: Trained, data: Split) -> Numbers:
    """The rule's predictions for the rows held out; the class where they are of each."""
    found = trained.predict(data.columns(test=True))
    return found if found.ndim == 1 else np.argmax(found, axis=1)


def above(bound: float) -> Callable[[Trained, Split], Numbers]:
    """Class 1 where the prediction is above a bound."""
    return lambda trained, data: predictions(trained, data) > bound


def model(name: str) -> Callable[[Trained, Split], Numbers]:
    """One of the rule's models."""
    return lambda trained, data: trained.models[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A rule and what it is compared with.

    Attributes
    ----------
    counterpart
        Name of the reference, for people.
    reference
        Fits it on a split's training rows, with the rule's metas and extents, and returns what the metric judges.
    metric
        The judge of both.
    data
        Names of data that the rule is meant for.
    found
        What the metric judges of a trained rule.
    columns
        The table that the rule trains on.
    extents
        What a caller has to say of the data: how many classes, centres, components.
    """

    counterpart: str
    reference: Callable[[Split, Metas], Numbers]
    metric: Metric
    data: tuple[str, ...]
    found: Callable[[Trained, Split], Numbers] = predictions
    columns: Callable[[Split], dict[str, Floats]] = Split.columns
    extents: Callable[[Split], Extents] = lambda data: {}

    def truth(self, data: Split) -> Numbers:
        """What the metric holds against it: labels, or rows for what describes rows."""
        return data.test_features if self.metric in (INERTIA, VARIANCE) else data.test_label


Make = Callable[[Any, Metas, int], Any]


def _fitted(make: Make) -> Callable[[Split, Metas], Any]:
    """A fitted estimator: `make` builds it from scikit-learn's modules, the metas and the number of rows."""

    def fit(data: Split, metas: Metas) -> Any:
        import sklearn.cluster
        import sklearn.decomposition
        import sklearn.linear_model
        import sklearn.neural_network
        import sklearn.svm

        estimator = make(sklearn, metas, len(data.label))
        return estimator.fit(data.features.astype(np.float64), data.label.astype(np.float64))

    return fit


def _estimates(make: Make) -> Callable[[Split, Metas], Numbers]:
    fit = _fitted(make)
    return lambda data, metas: np.asarray(fit(data, metas).predict(data.test_features.astype(np.float64)))


def _attribute(make: Make, name: str) -> Callable[[Split, Metas], Numbers]:
    fit = _fitted(make)
    return lambda data, metas: np.asarray(getattr(fit(data, metas), name))


def classes(data: Split) -> Extents:
    """As many as the labels number."""
    return {"k": float(data.label.max() + 1)}


NUMBERS = ("diabetes", "california", "blog")
TWO_CLASSES = ("breast_cancer", "even digits", "a9a", "covertype")
CLASSES = ("iris", "wine", "digits", "ujiindoorloc")
MANY_ROWS = "covertype, 7 classes"
HOLES = ("pixels of digits", "cells of breast_cancer", "signals of ujiindoorloc")
ROWS = ("iris", "wine", "breast_cancer", "digits", "california", "ujiindoorloc")

TASKS: dict[str, Task] = {
    "linear": Task(
        counterpart="LinearRegression",
        reference=_estimates(lambda sk, metas, rows: sk.linear_model.LinearRegression()),
        metric=R2,
        data=NUMBERS,
    ),
    "ridge": Task(
        counterpart="Ridge",
        reference=_estimates(lambda sk, metas, rows: sk.linear_model.Ridge(alpha=rows * metas["penalty"])),
        metric=R2,
        data=NUMBERS,
    ),
    "lasso": Task(
        counterpart="Lasso",
        reference=_estimates(lambda sk, metas, rows: sk.linear_model.Lasso(alpha=metas["penalty"])),
        metric=R2,
        data=NUMBERS,
    ),
    "elastic_net": Task(
        counterpart="ElasticNet",
        reference=_estimates(
            lambda sk, metas, rows: sk.linear_model.ElasticNet(alpha=metas["penalty"], l1_ratio=metas["l1_ratio"])
        ),
        metric=R2,
        data=NUMBERS,
    ),
    "huber": Task(
        counterpart="HuberRegressor",
        reference=_estimates(
            lambda sk, metas, rows: sk.linear_model.HuberRegressor(epsilon=metas["epsilon"], max_iter=1000)
        ),
        metric=ABSOLUTE,
        data=NUMBERS,
    ),
    "quantile": Task(
        counterpart="QuantileRegressor",
        reference=_estimates(lambda sk, metas, rows: sk.linear_model.QuantileRegressor(quantile=metas["q"], alpha=0)),
        metric=PINBALL,
        data=("diabetes", "california"),  # a linear program of 42,000 rows takes scikit-learn too long
    ),
    "poisson": Task(
        counterpart="PoissonRegressor",
        reference=_estimates(
            lambda sk, metas, rows: sk.linear_model.PoissonRegressor(alpha=metas["penalty"], max_iter=1000)
        ),
        metric=DEVIANCE,
        data=NUMBERS,
    ),
    "logistic": Task(
        counterpart="LogisticRegression",
        reference=_estimates(
            lambda sk, metas, rows: sk.linear_model.LogisticRegression(C=1 / (rows * metas["penalty"]), max_iter=1000)
        ),
        metric=ACCURACY,
        data=TWO_CLASSES,
        found=above(0.5),
    ),
    "linear_svm": Task(
        counterpart="LinearSVC",
        reference=_estimates(
            lambda sk, metas, rows: sk.svm.LinearSVC(C=0.5 / (rows * metas["penalty"]), max_iter=10_000, dual=False)
        ),
        metric=ACCURACY,
        data=TWO_CLASSES,
        found=above(0),
    ),
    "softmax": Task(
        counterpart="LogisticRegression",
        reference=_estimates(
            lambda sk, metas, rows: sk.linear_model.LogisticRegression(C=1 / (rows * metas["penalty"]), max_iter=1000)
        ),
        metric=ACCURACY,
        data=(*CLASSES, MANY_ROWS),
        extents=classes,
    ),
    "mlp": Task(
        counterpart="MLPClassifier",
        reference=_estimates(
            lambda sk, metas, rows: sk.neural_network.MLPClassifier((32,), max_iter=1000, random_state=0)
        ),
        metric=ACCURACY,
        data=CLASSES,  # scikit-learn's perceptron takes an hour for Covertype
        extents=classes,
    ),
    "kmeans": Task(
        counterpart="KMeans",
        reference=_attribute(
            lambda sk, metas, rows: sk.cluster.KMeans(int(metas["k"]), n_init=10, random_state=0), "cluster_centers_"
        ),
        metric=INERTIA,
        data=("iris", "wine", "breast_cancer", "digits"),
        extents=classes,
        found=model("C"),
    ),
    "pca": Task(
        counterpart="PCA",
        reference=_attribute(lambda sk, metas, rows: sk.decomposition.PCA(int(metas["k"])), "components_"),
        metric=VARIANCE,
        data=ROWS,
        found=model("W"),
    ),
    "lrmf": Task(
        counterpart="alternating LS, NumPy",
        reference=matrices.alternating,
        metric=ROOT,
        data=(*HOLES, "movielens", "movielens 100k"),
        extents=matrices.extents,
    ),
    "lrmf_dense": Task(
        counterpart="alternating LS, NumPy",
        reference=matrices.alternating,
        metric=ROOT,
        data=HOLES,  # dense rows of MovieLens would have 3,952 columns, more than a table can
        found=matrices.factored,
        columns=matrices.dense,
        extents=lambda data: {"m": matrices.extents(data)["m"]},
    ),
    "bpr": Task(
        counterpart="SGD, numba",
        reference=embeddings.learnt(embeddings.ranking, 60, of_pairs=True),
        metric=AUC,
        data=("purchases", "movielens 100k, rated"),
        columns=embeddings.occurred,
        extents=embeddings.pairs,
    ),
    "word2vec": Task(
        counterpart="SGD, numba",
        reference=embeddings.learnt(embeddings.embedding, 10, of_pairs=True),
        metric=AUC,
        data=("neighbours", "movielens 100k, next"),
        columns=embeddings.occurred,
        extents=embeddings.words,
    ),
    "fm": Task(
        counterpart="SGD, numba",
        reference=embeddings.learnt(embeddings.machine, 30),
        metric=ROOT,
        data=("grades", "movielens 100k, categories"),
        extents=embeddings.categories,
    ),
    "dlrm": Task(
        counterpart="SGD, numba",
        reference=embeddings.learnt(embeddings.recommender, 10),
        metric=AUC,
        data=("clicks", "movielens 100k, liked, with numbers"),
        extents=embeddings.categories,
    ),
    "autoint": Task(
        counterpart="SGD, numba",
        reference=embeddings.learnt(embeddings.attention, 10),
        metric=AUC,
        data=("clicks by category", "movielens 100k, liked"),
        extents=embeddings.categories,
    ),
}
"""By the rule's name in `dana.rules`."""
