"""What is compared with what: for each rule its counterpart, the metric, and the data that it is meant for.

In: a rule's default metas. Out: fitted estimators' predictions and scores. A counterpart gets the penalty that the
rule has, in its own unit, and otherwise scikit-learn's defaults. It must not train a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.accuracy.data import Split

Metas = Mapping[str, float]
Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How predictions are judged.

    Attributes
    ----------
    name
        For people.
    more_is_better
        Whether a score, rather than a loss.
    measure
        Of labels and predictions.
    """

    name: str
    more_is_better: bool
    measure: Callable[[Numbers, Numbers, Metas], float]

    def ratio(self, ours: float, theirs: float) -> float:
        """Ours over theirs, turned so that more is better; 1 where both are perfect."""
        over, under = (ours, theirs) if self.more_is_better else (theirs, ours)
        return 1.0 if over == under else over / under


def _r2(label: Numbers, predicted: Numbers, _: Metas) -> float:
    return float(1 - np.sum((label - predicted) ** 2, dtype=np.float64) / np.sum((label - label.mean()) ** 2))


def _pinball(label: Numbers, predicted: Numbers, metas: Metas) -> float:
    error = label - predicted
    return float(np.mean(np.maximum(metas["q"] * error, (metas["q"] - 1) * error), dtype=np.float64))


def _deviance_explained(label: Numbers, predicted: Numbers, _: Metas) -> float:
    from sklearn.metrics import d2_tweedie_score

    return float(d2_tweedie_score(label, predicted, power=1))


R2 = Metric(name="R²", more_is_better=True, measure=_r2)
ABSOLUTE = Metric(
    name="mean absolute error",
    more_is_better=False,
    measure=lambda label, predicted, _: float(np.mean(np.abs(label - predicted), dtype=np.float64)),
)
PINBALL = Metric(name="pinball loss", more_is_better=False, measure=_pinball)
DEVIANCE = Metric(name="deviance explained", more_is_better=True, measure=_deviance_explained)
ACCURACY = Metric(
    name="accuracy", more_is_better=True, measure=lambda label, predicted, _: float(np.mean(label == predicted))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A rule and what it is compared with.

    Attributes
    ----------
    counterpart
        Name of the reference, for people.
    reference
        Fits it on a split's training rows, with the rule's metas, and returns its predictions for the test rows.
    metric
        The judge of both.
    data
        Names of data that the rule is meant for.
    decide
        What a prediction of the rule means, in the labels' terms.
    """

    counterpart: str
    reference: Callable[[Split, Metas], Numbers]
    metric: Metric
    data: tuple[str, ...]
    decide: Callable[[Numbers], Numbers] = lambda predicted: predicted


def _fitted(make: Callable[[Any, Metas, int], Any]) -> Callable[[Split, Metas], Numbers]:
    """A reference from scikit-learn: `make` builds an estimator from its modules, the metas and the number of rows."""

    def reference(data: Split, metas: Metas) -> Numbers:
        import sklearn.linear_model
        import sklearn.neural_network
        import sklearn.svm

        estimator = make(sklearn, metas, len(data.label))
        estimator.fit(data.features.astype(np.float64), data.label.astype(np.float64))
        return np.asarray(estimator.predict(data.test_features.astype(np.float64)))

    return reference


NUMBERS = ("diabetes", "california", "blog")
TWO_CLASSES = ("breast_cancer", "even digits", "a9a", "covertype")
CLASSES = ("iris", "wine", "digits", "ujiindoorloc", "covertype, 7 classes")

TASKS: dict[str, Task] = {
    "linear": Task(
        counterpart="LinearRegression",
        reference=_fitted(lambda sk, metas, rows: sk.linear_model.LinearRegression()),
        metric=R2,
        data=NUMBERS,
    ),
    "ridge": Task(
        counterpart="Ridge",
        reference=_fitted(lambda sk, metas, rows: sk.linear_model.Ridge(alpha=rows * metas["penalty"])),
        metric=R2,
        data=NUMBERS,
    ),
    "lasso": Task(
        counterpart="Lasso",
        reference=_fitted(lambda sk, metas, rows: sk.linear_model.Lasso(alpha=metas["penalty"])),
        metric=R2,
        data=NUMBERS,
    ),
    "elastic_net": Task(
        counterpart="ElasticNet",
        reference=_fitted(
            lambda sk, metas, rows: sk.linear_model.ElasticNet(alpha=metas["penalty"], l1_ratio=metas["l1_ratio"])
        ),
        metric=R2,
        data=NUMBERS,
    ),
    "huber": Task(
        counterpart="HuberRegressor",
        reference=_fitted(
            lambda sk, metas, rows: sk.linear_model.HuberRegressor(epsilon=metas["epsilon"], max_iter=1000)
        ),
        metric=ABSOLUTE,
        data=NUMBERS,
    ),
    "quantile": Task(
        counterpart="QuantileRegressor",
        reference=_fitted(lambda sk, metas, rows: sk.linear_model.QuantileRegressor(quantile=metas["q"], alpha=0)),
        metric=PINBALL,
        data=("diabetes", "california"),  # a linear program of 42,000 rows takes scikit-learn too long
    ),
    "poisson": Task(
        counterpart="PoissonRegressor",
        reference=_fitted(
            lambda sk, metas, rows: sk.linear_model.PoissonRegressor(alpha=metas["penalty"], max_iter=1000)
        ),
        metric=DEVIANCE,
        data=NUMBERS,
    ),
    "logistic": Task(
        counterpart="LogisticRegression",
        reference=_fitted(
            lambda sk, metas, rows: sk.linear_model.LogisticRegression(C=1 / (rows * metas["penalty"]), max_iter=1000)
        ),
        metric=ACCURACY,
        data=TWO_CLASSES,
        decide=lambda predicted: predicted > 0.5,
    ),
    "linear_svm": Task(
        counterpart="LinearSVC",
        reference=_fitted(
            lambda sk, metas, rows: sk.svm.LinearSVC(C=0.5 / (rows * metas["penalty"]), max_iter=10_000, dual=False)
        ),
        metric=ACCURACY,
        data=TWO_CLASSES,
        decide=lambda predicted: predicted > 0,
    ),
}
"""By the rule's name in `dana.rules`."""
