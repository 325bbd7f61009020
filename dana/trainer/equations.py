"""Normal equations of columns that may depend on each other: a step of Newton's method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from dana.trainer.data.likelihood import Basis, Doubles

DEPENDENT = 1e-11
"""Share of a column's variance that the columns before it leave unexplained, below which it depends on them. At a
tenth of it the weights, in binary32, round predictions by a twentieth of the label's deviation."""

EXACT = 2.0**-49
"""Rounding of a sum over rows in binary64, relative to it."""

CLOSE = 1e-4
"""The same share, below which a penalty of `WEAK` decides a coefficient."""

ROUNDED = (2**-23) ** 2 / 12
"""Variance of a number's rounding to binary32, relative to its square; at most."""

NOISE = 4.0
"""Variance in roundings, up to which a column depends on others: the roundings of these may add up."""

HIDDEN = 400.0
"""Variance of a difference of columns in roundings, up to which they change the difference by a twentieth or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Curvature of the columns that are kept.

    Attributes
    ----------
    kept, dropped
        Elements of the basis; 0 is the intercept.
    inverse
        Of the curvature of those kept.
    step
        To the maximum, of all elements: 0 where dropped.
    squared
        Squared length of the step in standard errors, for a variance of 1.
    weakest
        Smallest share of its variance that the columns before leave to a column that is kept.
    alike
        Elements with little more of their own than rounding, each with the element that explains it by itself.
    """

    kept: list[int]
    dropped: list[int]
    inverse: Doubles
    step: Doubles
    squared: float
    weakest: float
    alike: list[tuple[int, int]]


def roundings(matrix: Doubles, basis: Basis) -> tuple[Doubles, Doubles]:
    """Return squares of the roundings of columns to binary32, summed as in a curvature; second: of centred columns.

    Parameters
    ----------
    matrix, basis
        As of `solved`.
    """
    first, mixed, centred = _moments(matrix, basis)
    diagonal = np.diag(matrix)
    offsets = np.resize(np.append(0, basis.centre * basis.scale), len(matrix))
    noise, least = ROUNDED * (diagonal + 2 * offsets * mixed + offsets**2 * first), ROUNDED * np.maximum(centred, 0)
    noise[:: len(basis.centre) + 1] = 0
    return noise, least


def _moments(matrix: Doubles, basis: Basis) -> tuple[Doubles, Doubles, Doubles]:
    """Return the sums of the weights, of the columns, and of the squares of their distances from the mean."""
    full, size = whole(matrix), len(matrix)
    intercepts = np.arange(size) // (len(basis.centre) + 1) * (len(basis.centre) + 1)
    first, mixed = np.diag(full)[intercepts], full[intercepts, np.arange(size)]
    return first, mixed, np.diag(full) - np.divide(mixed**2, first, out=np.zeros(size), where=first > 0)


def solved(
    matrix: Doubles, gradient: Doubles, basis: Basis, without: Sequence[int] = (), noise: Doubles | None = None
) -> Solved:
    """Solve for the step of Newton's method; a column that depends on those before it is dropped, as R does.

    Parameters
    ----------
    matrix, gradient
        Of the intercept and the columns of the basis, for one sum or for each of several.
    without
        Elements that are dropped in any case.
    noise
        Squares of the roundings of columns; None: those of the columns as they are.
    """
    full = whole(matrix)
    size = len(full)
    diagonal = np.diag(full)
    if noise is None:
        noise, _ = roundings(matrix, basis)
    widths = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    scaled = full / widths[:, None] / widths
    # the distances from the mean decide, not those from 0
    _, _, centred = _moments(matrix, basis)
    factor = np.zeros((size, size))
    kept: list[int] = []
    alike: list[tuple[int, int]] = []
    weakest = 1.0
    for k in range(size):
        rest = scaled[k, k]
        for place, j in enumerate(kept):
            factor[k, place] = (scaled[k, j] - factor[k, :place] @ factor[j, :place]) / factor[j, place]
        rest -= float(factor[k, : len(kept)] @ factor[k, : len(kept)])
        inner, least = k % (len(basis.centre) + 1) > 0 and diagonal[k] > 0, 0.0
        if inner:
            own = max(centred[k], 0) / diagonal[k]
            least = DEPENDENT * own
            if kept and rest < CLOSE * own and own > 1e-13:
                share = np.linalg.solve(factor[np.ix_(kept, range(len(kept)))].T, factor[k, : len(kept)])
                # the roundings of many parts, as of a hundred categories, add up to more than `DEPENDENT`
                least = max(least, EXACT * (1 + float(np.abs(share).sum())) ** 2)
                share *= widths[k] / widths[kept]
                rounding = (noise[k] + share**2 @ noise[kept]) / diagonal[k]
                least = max(least, NOISE * rounding)
                parts = share**2 * centred[kept]
                most = int(parts.argmax())
                if rest < max(HIDDEN * rounding, DEPENDENT * own) and parts[most] > 0.99 * parts.sum() > 0:
                    alike.append((k, kept[most]))
        if k not in without and diagonal[k] > 0 and rest > least and (not inner or own > 1e-13):
            factor[k, len(kept)] = sqrt(rest)
            kept.append(k)
            weakest = min(weakest, rest / own) if inner else weakest
        else:
            factor[k] = 0
    lower = factor[np.ix_(kept, range(len(kept)))]
    inverse_factor = np.linalg.inv(lower) / widths[kept] if kept else lower
    inverse = inverse_factor.T @ inverse_factor
    step = np.zeros(size)
    step[kept] = -inverse @ gradient[kept]
    dropped = [k for k in range(size) if k not in kept]
    return Solved(
        kept=kept,
        dropped=dropped,
        inverse=inverse,
        step=step,
        squared=float(-(step[kept] @ gradient[kept])),
        weakest=weakest,
        alike=alike,
    )


def whole(lower: Doubles) -> Doubles:
    """Return a symmetric matrix from its lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T
