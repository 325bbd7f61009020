"""How a model is judged on rows that it has not seen: scores, of which more is better, and losses.

In: labels and predictions, or rows and what was learnt of them. Out: one number, in binary64. It must not train.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Metas = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is compared.

    Attributes
    ----------
    name
        For people.
    more_is_better
        Whether a score, rather than a loss.
    measure
        Of what is true and what was found, with the rule's metas. For predictions: labels, predictions. For centres and
        components: rows, the matrix that was learnt.
    """

    name: str
    more_is_better: bool
    measure: Callable[[Numbers, Numbers, Metas], float]

    def ratio(self, ours: float, theirs: float) -> float:
        """Ours over theirs, turned so that more is better; 1 where they are equal."""
        over, under = (ours, theirs) if self.more_is_better else (theirs, ours)
        return 1.0 if over == under else over / under


def r2(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Share of the label's variance that is explained."""
    return float(1 - np.sum((label - predicted) ** 2, dtype=np.float64) / np.sum((label - label.mean()) ** 2))


def absolute(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(label - predicted), dtype=np.float64))


def root_of_squares(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Root mean square error."""
    return float(np.sqrt(np.mean((label - predicted) ** 2, dtype=np.float64)))


def pinball(label: Numbers, predicted: Numbers, metas: Metas) -> float:
    """Loss of quantile regression."""
    error = label - predicted
    return float(np.mean(np.maximum(metas["q"] * error, (metas["q"] - 1) * error), dtype=np.float64))


def deviance(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Share of Poisson's deviance that is explained."""
    from sklearn.metrics import d2_tweedie_score

    return float(d2_tweedie_score(label, predicted, power=1))


def pinball_share(label: Numbers, predicted: Numbers, metas: Metas) -> float:
    """Share of the pinball loss of a constant that is explained."""
    constant = np.full_like(label, np.quantile(label, metas["q"]))
    return 1 - pinball(label, predicted, metas) / pinball(label, constant, metas)


def auc(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(label, predicted))


def accuracy(label: Numbers, predicted: Numbers, _: Metas) -> float:
    """Share of the rows in the right class."""
    return float(np.mean(label == predicted))


def inertia(rows: Numbers, centres: Numbers, _: Metas) -> float:
    """Mean squared distance to the nearest centre."""
    squares = np.sum(rows.astype(np.float64) ** 2, axis=1)[:, None] + np.sum(centres.astype(np.float64) ** 2, axis=1)
    return float(np.mean(np.min(squares - 2 * rows.astype(np.float64) @ centres.T.astype(np.float64), axis=1)))


def variance(rows: Numbers, components: Numbers, _: Metas) -> float:
    """Share of the rows' squares that lies in the space that the components span."""
    basis = np.linalg.qr(components.T.astype(np.float64))[0]
    return float(np.sum((rows @ basis) ** 2) / np.sum(rows.astype(np.float64) ** 2))


R2 = Metric(name="R²", more_is_better=True, measure=r2)
ABSOLUTE = Metric(name="mean absolute error", more_is_better=False, measure=absolute)
ROOT = Metric(name="root mean square error", more_is_better=False, measure=root_of_squares)
PINBALL = Metric(name="pinball loss", more_is_better=False, measure=pinball)
DEVIANCE = Metric(name="deviance explained", more_is_better=True, measure=deviance)
PINBALL_SHARE = Metric(name="pinball loss explained", more_is_better=True, measure=pinball_share)
AUC = Metric(name="AUC", more_is_better=True, measure=auc)
ACCURACY = Metric(name="accuracy", more_is_better=True, measure=accuracy)
INERTIA = Metric(name="squared distance to centres", more_is_better=False, measure=inertia)
VARIANCE = Metric(name="variance explained", more_is_better=True, measure=variance)
