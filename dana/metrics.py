"""The members of what `dana_evaluate` returns: their names, what they apply to, and which direction is better.

`python -m dana.generated` writes the rows of `dana.metric`, the names in C and the types in `dana.records` from it. In:
nothing. It must not import the client or numpy: the table is read where neither is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Of(StrEnum):
    """The predictions that a metric applies to."""

    NUMBERS = "numbers"
    CLASSES = "classes"
    TWO_CLASSES = "two classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric that is one number.

    Attributes
    ----------
    name
        The member's name; that of scikit-learn's function, without ``_score`` and ``mean_``.
    title
        For display.
    of
        The predictions that it applies to.
    less
        Whether less is better.
    meaning
        For `dana.metric`.
    averaged
        For more than two classes it is the mean over the classes.
    """

    name: str
    title: str
    of: Of
    less: bool
    meaning: str
    averaged: bool = False


METRICS = (
    Metric(
        name="accuracy",
        title="accuracy",
        of=Of.CLASSES,
        less=False,
        meaning="share of the rows with the predicted class",
    ),
    Metric(
        name="auc",
        title="AUC",
        of=Of.TWO_CLASSES,
        less=False,
        meaning="area under the ROC curve: share of the pairs of a positive and a negative row in the right order",
    ),
    Metric(
        name="average_precision",
        title="average precision",
        of=Of.TWO_CLASSES,
        less=False,
        meaning="area under the curve of precision and recall (PR-AUC)",
    ),
    Metric(
        name="precision",
        title="precision",
        of=Of.CLASSES,
        less=False,
        meaning="share of the rows of a predicted class that are of it",
        averaged=True,
    ),
    Metric(
        name="recall",
        title="recall",
        of=Of.CLASSES,
        less=False,
        meaning="share of the rows of a class that are predicted as it",
        averaged=True,
    ),
    Metric(
        name="f1", title="F1", of=Of.CLASSES, less=False, meaning="harmonic mean of precision and recall", averaged=True
    ),
    Metric(
        name="log_loss",
        title="log loss",
        of=Of.CLASSES,
        less=True,
        meaning="mean of the negative logarithm of the probability of a row's class",
    ),
    Metric(
        name="brier",
        title="Brier score",
        of=Of.CLASSES,
        less=True,
        meaning="mean squared error of the probabilities; for more than two classes, summed over them",
    ),
    Metric(
        name="r2",
        title="R²",
        of=Of.NUMBERS,
        less=False,
        meaning="share of the variance of the labels that is explained",
    ),
    Metric(name="rmse", title="RMSE", of=Of.NUMBERS, less=True, meaning="root of the mean squared error"),
    Metric(name="mae", title="mean absolute error", of=Of.NUMBERS, less=True, meaning="mean of the absolute error"),
    Metric(
        name="poisson_deviance",
        title="Poisson deviance",
        of=Of.NUMBERS,
        less=True,
        meaning="mean deviance of counts from predictions above 0; of rules with the loss of Poisson regression",
    ),
    Metric(
        name="gamma_deviance",
        title="gamma deviance",
        of=Of.NUMBERS,
        less=True,
        meaning="mean deviance of labels above 0 from predictions above 0; of rules with the loss of gamma regression",
    ),
    Metric(
        name="pinball_loss",
        title="pinball loss",
        of=Of.NUMBERS,
        less=True,
        meaning="mean loss of a quantile; of rules with the loss of quantile regression",
    ),
)
"""In the order in which they are shown."""

BY_NAME = {one.name: one for one in METRICS}

COUNTS = {
    "not_finite": "rows with a NaN or an infinity in a feature, the label or the prediction",
    "other_labels": "rows with a label that is not a class of the model",
    "not_predicted": "rows with a NULL prediction",
    "unseen_categories": "rows with a category that the training did not have",
}
"""Numbers of rows; all but the last are in no metric."""

TABLES = {
    "calibration": "rows, mean probability and share of positive rows, by tenths of the probability",
    "classes": "metrics of each class",
    "confusion": "rows by label and predicted class",
    "outputs": "metrics of each of several numbers",
}
"""Members that are arrays or objects."""

FACTS = ("model", "version", "part", "rows")
"""The remaining members, except ``positive``; first in a display."""


def ordered(names: Iterable[str]) -> list[str]:
    """Names of members in the order in which they are shown: facts, metrics, others, tables."""
    first, last = [*FACTS, *BY_NAME], list(TABLES)
    place = {name: k for k, name in enumerate(first)} | {name: len(first) + 1 + k for k, name in enumerate(last)}
    return sorted(names, key=lambda name: place.get(name, len(first)))


def header() -> str:
    """The names, for C."""
    names = (*BY_NAME, *COUNTS, *TABLES)
    first = "/* Members of metrics, from dana/metrics.py. Written by python -m dana.generated. */\n#pragma once\n\n"
    return first + "".join(f'#define METRIC_{name.upper()} "{name}"\n' for name in names)


def rows() -> str:
    """The rows of `dana.metric`."""
    table = [(one.name, str(one.of), "less" if one.less else "greater", one.meaning) for one in METRICS]
    others = [(name, None, None, meaning) for name, meaning in {**COUNTS, **TABLES}.items()]
    return ",\n".join(f"\t({', '.join(map(_quoted, row))})" for row in (*table, *others)) + ";\n"


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def types() -> str:
    """The members of a type for `dana.records`."""
    return "".join(f"    {name}: float | None\n" for name in BY_NAME)
