"""What the rounding of columns to binary32 does to a solved model.

Rounding adds an error to each column. It draws a coefficient towards 0 by its variance relative to what the other
columns leave of the column's own, and it adds to the model's errors the rounding times the coefficient. Both may be
large for columns that differ little from each other, although the rounding is small against each column's deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Training
from dana.trainer.data.likelihood import Basis, Doubles, Family, LikelihoodObserver, Sum
from dana.trainer.equations import ROUNDED, Solved, roundings, solved

MATTERS = 1e-3
"""Change of a coefficient in standard errors, or relative change of one of these, from which columns are centred."""

REPORTED = 0.1
"""The same, from which it is reported if centres do not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """The rounding of the columns of a training, and of its label, as they are and as they would be less their mean.

    Attributes
    ----------
    training
        Raises `OutOfLine` if columns are to be centred.
    inexact
        `Training.rounded`.
    at, basis
        The curvature, and the columns that it is of.
    """

    training: Training
    inexact: NDArray[np.bool_]
    at: LikelihoodObserver
    basis: Basis

    def check_kept(self, full: Solved) -> None:
        """Centre columns if the rounding makes one seem to depend on others."""
        if not (full.dropped or full.alike):
            return
        now, centred = self._columns()
        lost = solved(self.at.matrix, self.at.gradient, self.basis, noise=centred)
        if (lost.kept, lost.alike) != (full.kept, full.alike):
            self.training.centre(np.append(self._gains(now, centred), False))

    def check(self, family: Family, full: Solved, weights: Doubles, variance: float) -> list[int]:
        """Centre columns if that makes estimates more accurate.

        Parameters
        ----------
        full, weights
            The last step, and the weights after it.
        variance
            Of the errors of a row with the weight 1.

        Returns
        -------
        list[int]
            Features with a rounding that is to be reported.
        """
        columns, of_label = self._columns(), (0.0, 0.0)
        if family is Family.NORMAL and self.inexact[-1]:
            of_label = self._label()
        now, centred = (self._change(full, weights, variance, *noise) for noise in zip(columns, of_label, strict=True))
        if now > MATTERS and centred < now / 2:
            self.training.centre(np.append(self._gains(*columns), of_label[0] > 4 * of_label[1]))
        own = weights[1:] ** 2 * columns[0][1:]
        return np.flatnonzero(own > own.max(initial=0) / 10).tolist() if now > REPORTED else []

    def _columns(self) -> tuple[Doubles, Doubles]:
        used = np.resize(np.append(False, self.inexact[:-1]), len(self.at.matrix))
        now, centred = roundings(self.at.matrix, self.basis)
        return now * used, centred * used

    def _label(self) -> tuple[float, float]:
        sums, middle = self.at.sums, self.at.middle
        squares = sums[Sum.SQUARES] + 2 * middle * sums[Sum.LABELS] + sums[Sum.WEIGHT] * middle**2
        spread = sums[Sum.SQUARES] - sums[Sum.LABELS] ** 2 / sums[Sum.WEIGHT]
        return ROUNDED * float(squares), ROUNDED * max(float(spread), 0)

    def _gains(self, now: Doubles, centred: Doubles) -> NDArray[np.bool_]:
        """Return whether centring a feature makes its rounding half as large."""
        return np.asarray((now > 4 * centred).reshape(-1, len(self.basis.centre) + 1)[:, 1:].any(axis=0))

    def _change(self, full: Solved, weights: Doubles, variance: float, noise: Doubles, of_label: float) -> float:
        added = weights[full.kept] * noise[full.kept]
        errors = np.sqrt(np.maximum(np.diag(full.inverse), 0) * variance)
        moved = np.divide(np.abs(full.inverse @ added), errors, out=np.zeros_like(errors), where=errors > 0)
        total = float(weights[full.kept] @ added) + of_label
        rows = float(self.at.sums[Sum.WEIGHT])
        return max(float(moved.max(initial=0)), sqrt(1 + total / (rows * variance)) - 1 if variance > 0 else 0)
