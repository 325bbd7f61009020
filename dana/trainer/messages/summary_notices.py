"""What a summary reports of the columns of a model."""

from __future__ import annotations

from collections.abc import Sequence

from dana.trainer.contract import Level, Notice, TrainRequest
from dana.trainer.messages.page_errors import ARRAYS

NAMED = 5
"""Columns that a message names at most."""


def separated_notice(columns: Sequence[str], request: TrainRequest) -> Notice:
    """Return the warning of separated rows.

    Parameters
    ----------
    columns
        Those that separate the rows together; none: not known.
    """
    which = f"column {columns[0]} separates" if len(columns) == 1 else "a combination of columns separates"
    if 1 < len(columns) <= NAMED:
        which = f"a combination of columns {', '.join(columns)} separates"
    stronger = 'hyper={"penalty": 0.01}' if request.relation.name == ARRAYS else "hyper => '{\"penalty\": 0.01}'"
    return Notice(
        level=Level.WARNING,
        message=f"{which} rows by their label: the better the model fits, the larger its coefficients, without end",
        hint="Probabilities near 0 and 1, and the coefficients, depend on the penalty only. A column may be known only "
        f"after the label; remove it, or use a stronger penalty, as in {stronger}.",
    )


def dropped_notice(columns: Sequence[str]) -> Notice:
    """Return the notice of columns that depend on those before them."""
    several = len(columns) > 1
    depend = f"columns {', '.join(columns)} depend" if several else f"column {columns[0]} depends"
    return Notice(
        level=Level.NOTICE,
        message=f"{depend} on the columns before: no coefficient of {'their' if several else 'its'} own",
        hint="dana_coefficients() shows the coefficients of the model without such columns. If a small difference of "
        "columns matters, as closed - opened may, train on it as a column of its own.",
    )


def alike_notice(before: str, later: str) -> Notice:
    """Return the warning of two columns with a difference that binary32 hides."""
    return Notice(
        level=Level.WARNING,
        message=f"columns {before} and {later} differ by little more than their rounding to binary32: an effect of "
        "their difference is lost",
        hint=f"If the difference matters, train on {later} - {before} as a column of its own, instead of one of both.",
    )


def rounded_notice(columns: Sequence[str]) -> Notice:
    """Return the warning of columns with a rounding that changes estimates by a tenth of their standard errors."""
    several = len(columns) > 1
    names = ", ".join(columns[:NAMED]) + (", …" if len(columns) > NAMED else "")
    return Notice(
        level=Level.WARNING,
        message=f"{'columns' if several else 'column'} {names} {'are' if several else 'is'} rounded to binary32, and "
        "coefficients depend on the digits that are lost: their standard errors are wrong by a tenth or more",
        hint="If a small difference of columns matters, train on it as a column of its own. Columns far from 0 are "
        "centred before they are rounded, unless standardize is false or the training starts from a model.",
    )


def close_notice(columns: int, weights: int) -> Notice:
    """Return the warning of a penalty that decides a coefficient.

    Parameters
    ----------
    columns, weights
        The most from which the penalty is removed: columns of one sum, weights of several classes.
    """
    return Notice(
        level=Level.WARNING,
        message="a column nearly depends on the others: the penalty decides its coefficient, and an effect of a small "
        "difference of columns is lost",
        hint="Train on the difference as a column of its own, or on fewer columns: the penalty is removed up to "
        f"{columns} columns, and of several classes up to {weights} weights.",
    )


def unfound_notice() -> Notice:
    """Return the warning of a minimum that binary32 may not show."""
    return Notice(
        level=Level.WARNING,
        message="a column nearly depends on the others: an effect of a small difference of columns may be missing",
        hint="Train on the difference as a column of its own, or on fewer columns.",
    )


def hidden_notice(r2: float, least: float) -> Notice:
    """Return the warning of a penalty that hides an effect.

    Parameters
    ----------
    r2, least
        Explained part of the label's variance: of the model, and of least squares, adjusted for the number of columns.
    """
    return Notice(
        level=Level.WARNING,
        message=f"the penalty hides an effect of the difference of close columns: R² of the model is {r2:.4g}, of "
        f"least squares {least:.4g}",
        hint="Train on the difference as a column of its own, decrease the penalty, or train rule linear.",
    )


UNSETTLED = Notice(
    level=Level.WARNING,
    message="the maximum of the likelihood was not found: the penalty, or where the training ended, decides the "
    "coefficients",
    hint="Columns may nearly depend on each other, or have values far from all others: remove them, or use their "
    "difference or logarithm.",
)
