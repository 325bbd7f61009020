"""Tables as people have them, columns as they come: each rule with its defaults against a scaled pipeline with its own.

In: a rule's name. Out: comparisons. The tables are made here, with fixed seeds, or carried by scikit-learn: columns of
10⁻⁶ and of 10⁹, heavy tails, a constant and a repeated column, one class in ten thousand rows, sixty rows. Neither side
knows anything about them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.data import CARRIED, Raw, Split, carried, cut
from benchmarks.accuracy.metrics import ACCURACY, AUC, DEVIANCE, PINBALL_SHARE, R2, Metas, Metric, Numbers
from benchmarks.accuracy.tasks import Task, classes

Doubles = NDArray[np.float64]


def _generator() -> np.random.Generator:
    return np.random.default_rng(3)


def _logits(random: np.random.Generator, score: Doubles) -> Doubles:
    """Classes that a logistic model of the score would draw."""
    return (random.random(len(score)) < 1 / (1 + np.exp(-score))).astype(np.float64)


def _customers(rows: int) -> Raw:
    """Age, income, visits, days since the first: who leaves."""
    random = _generator()
    age, income = random.integers(18, 80, rows), random.lognormal(10.5, 0.6, rows)
    visits, days = random.poisson(4, rows), random.exponential(900, rows)
    score = 0.05 * (age - 45) - 1.2 * (np.log(income) - 10.5) - 0.5 * (visits - 4) - 0.001 * (days - 900) - 0.4
    return np.stack([age, income, visits, days], axis=1).astype(np.float64), _logits(random, score)


def _repeated(raw: Raw) -> Raw:
    """With a constant column and one that is there twice."""
    features, label = raw
    return np.column_stack([features, np.full(len(label), 7.0), features[:, 0]]), label


def _scales(*, classes: bool) -> Raw:
    """Columns of 10⁻⁶ and of 10⁹, some far from 0; numbers of millions to predict."""
    random = _generator()
    plain = random.standard_normal((3000, 6))
    score = plain @ np.array([2, -1, 1.5, 0, 0.5, -2])
    label = _logits(random, score) if classes else 1e6 * (score + random.standard_normal(3000) + 30)
    return plain * [1e-6, 1e9, 1, 1e3, 1e-3, 1e5] + [0, 3e9, 5, -2e4, 0.01, 0], label


def _tails(*, classes: bool) -> Raw:
    """Columns whose variance hardly is one."""
    random = _generator()
    plain = random.standard_t(2.1, (4000, 5))
    score = plain @ np.array([0.3, 1, -1, 0.5, 0])
    label = _logits(random, score) if classes else score + random.standard_normal(4000)
    return plain * [1, 50, 1000, 1, 1e-3], label


def _rare() -> Raw:
    """One row in ten thousand is of class 1."""
    random = _generator()
    features = random.standard_normal((150_000, 5)) * [10, 1000, 1, 5, 0.1] + [50, 5e4, 0, 0, 1]
    score = 0.15 * (features[:, 0] - 50) + 1.5 * features[:, 2] + random.gumbel(size=150_000)
    label = np.zeros(150_000)
    label[np.argsort(-score)[:15]] = 1
    return features, label


def _incomes(rows: int) -> Raw:
    """Age and income predict spending."""
    random = _generator()
    age, income = random.integers(18, 80, rows), random.lognormal(10.5, 0.5, rows)
    spent = 20_000 + 350 * age + 0.4 * income + 5000 * random.standard_normal(rows)
    return np.stack([age, income], axis=1).astype(np.float64), spent


def _claims() -> Raw:
    """Age and income: how many claims."""
    random = np.random.default_rng(4)
    features = _incomes(4000)[0]
    expected = np.exp(0.5 + 0.02 * (features[:, 0] - 45) + 0.3 * (np.log(features[:, 1]) - 10.5))
    return features, random.poisson(expected).astype(np.float64)


TWO_CLASSES: dict[str, Callable[[], Raw]] = {
    "breast_cancer": CARRIED["breast_cancer"],
    "customers": partial(_customers, 4000),
    "repeated columns": lambda: _repeated(_customers(1500)),
    "many scales": partial(_scales, classes=True),
    "heavy tails": partial(_tails, classes=True),
    "1 in 10,000": _rare,
    "60 rows": partial(_customers, 60),
}
CLASSES = {name: CARRIED[name] for name in ("wine", "iris", "digits")} | {
    name: TWO_CLASSES[name] for name in ("customers", "many scales", "heavy tails", "60 rows", "repeated columns")
}
NUMBERS: dict[str, Callable[[], Raw]] = {
    "diabetes": carried("load_diabetes", scaled=False),
    "incomes": partial(_incomes, 3000),
    "repeated columns": lambda: _repeated(_incomes(1000)),
    "many scales": partial(_scales, classes=False),
    "heavy tails": partial(_tails, classes=False),
    "60 rows": partial(_incomes, 60),
}
COUNTS: dict[str, Callable[[], Raw]] = {"claims": _claims}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTask:
    """A rule, the estimator behind a scaler, how both are judged, and the tables.

    Attributes
    ----------
    make
        The estimator, from scikit-learn's modules and the rule's metas.
    score
        Name of the estimator's method whose result is judged.
    """

    make: Callable[[Any, Metas], Any]
    metric: Metric
    data: dict[str, Callable[[], Raw]]
    score: str = "predict"

    def task(self) -> Task:
        """As the comparison takes it."""

        def reference(data: Split, metas: Metas) -> Numbers:
            import sklearn.linear_model
            import sklearn.neural_network
            import sklearn.pipeline
            import sklearn.preprocessing
            import sklearn.svm

            scaler = sklearn.preprocessing.StandardScaler()
            fitted = sklearn.pipeline.make_pipeline(scaler, self.make(sklearn, metas)).fit(data.features, data.label)
            return np.asarray(getattr(fitted, self.score)(data.test_features))

        return Task(
            counterpart="scaled pipeline",
            reference=reference,
            metric=self.metric,
            data=tuple(self.data),
            extents=classes if self.metric is ACCURACY else lambda data: {},
        )


RAW_TASKS: dict[str, RawTask] = {
    "linear": RawTask(make=lambda sk, metas: sk.linear_model.LinearRegression(), metric=R2, data=NUMBERS),
    "ridge": RawTask(make=lambda sk, metas: sk.linear_model.Ridge(), metric=R2, data=NUMBERS),
    "lasso": RawTask(make=lambda sk, metas: sk.linear_model.Lasso(), metric=R2, data=NUMBERS),
    "elastic_net": RawTask(
        make=lambda sk, metas: sk.linear_model.ElasticNet(alpha=metas["penalty"]), metric=R2, data=NUMBERS
    ),
    "huber": RawTask(make=lambda sk, metas: sk.linear_model.HuberRegressor(), metric=R2, data=NUMBERS),
    "quantile": RawTask(
        make=lambda sk, metas: sk.linear_model.QuantileRegressor(alpha=0), metric=PINBALL_SHARE, data=NUMBERS
    ),
    "poisson": RawTask(make=lambda sk, metas: sk.linear_model.PoissonRegressor(), metric=DEVIANCE, data=COUNTS),
    "logistic": RawTask(
        make=lambda sk, metas: sk.linear_model.LogisticRegression(max_iter=1000),
        metric=AUC,
        data=TWO_CLASSES,
        score="decision_function",
    ),
    "linear_svm": RawTask(
        make=lambda sk, metas: sk.svm.LinearSVC(), metric=AUC, data=TWO_CLASSES, score="decision_function"
    ),
    "softmax": RawTask(
        make=lambda sk, metas: sk.linear_model.LogisticRegression(max_iter=1000), metric=ACCURACY, data=CLASSES
    ),
    "mlp": RawTask(
        make=lambda sk, metas: sk.neural_network.MLPClassifier(max_iter=1000, random_state=0),
        metric=ACCURACY,
        data=CLASSES,
    ),
}
"""By the name of the rule: those that learn a label."""


def raw_split(rule: str, data: str) -> Split:
    """One of a rule's tables, cut; classes in the same shares on both sides."""
    task = RAW_TASKS[rule]
    return replace(cut(f"{data}, raw", task.data[data](), by_label=task.metric in (AUC, ACCURACY)), raw=True)
