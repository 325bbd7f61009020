"""Where conjugate gradients are slow or go astray: Newton's method and least squares, in binary64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from dana.predictor.affine import Link
from dana.trainer.contract import Parameter
from dana.trainer.data.likelihood import Basis, Doubles, Family, LikelihoodObserver, Sum
from dana.trainer.equations import Solved, solved
from dana.trainer.messages.summary_notices import unfound_notice
from dana.trainer.passes import MAX_WEIGHTS, Passes, in_basis

SETTLED = 1e-9
"""Squared distance for each row below which the maximum of the likelihood is near."""

ARRIVED = 1e-5
"""Newton's method ends when twice a step's gain in the loss of all rows falls below this: the next step would gain
about its square."""

STEPS = 12
"""Steps of Newton's method at most; each squares the distance, unless the rows are separated."""

ALIKE = 0.1
"""Share of its variance that the others leave to a column, below which columns are close: a variance inflation factor
of 10, the customary limit."""

WORSE = 0.02
"""Part of the label's variance that a penalty may hide without a report, where columns are close."""

BARELY_APART = 1e-5
"""As `ALIKE`: below this, `huber` and `quantile` often stop before they find an effect of the difference of columns,
measured on 400 and 3,000 rows with differences of 0.1 to 0.00001 deviations."""


def newton(passes: Passes) -> Sequence[Parameter] | None:
    """Return models that Newton's method brings towards the minimum of a rule's loss; None if it cannot.

    A penalty is assumed to be that of the shipped rules. The rule continues from these models, so that its own test
    decides whether they are the minimum of its loss.
    """
    penalty, family = passes.penalty, passes.family
    if not isfinite(penalty) or passes.request.class_weight is not None:
        return None
    if family is Family.MULTINOMIAL:
        return newton_of_classes(passes, penalty)
    return None if family is None else _newton_of_sum(passes, family, penalty)


def least_squares(passes: Passes) -> Sequence[Parameter] | None:
    """Return models from which a rule without a likelihood should begin again; None if there is no need.

    Conjugate gradients in binary32 hardly move along the difference of columns that nearly equal each other, which a
    rule's own test takes for the minimum: `huber` and `quantile` have no passes of Newton's method that would show it.
    A warning says so if outliers may be why least squares do not show it either.
    """
    if passes.found.link is not Link.NONE or passes.family is not None:
        return None
    mapped, found = passes.model.weights(passes.found), found_least_squares(passes)
    if mapped is None or found is None:
        return None
    # outliers may be why least squares explain little: they find no more then
    if found.weakest < BARELY_APART and found.least < 0.5:
        passes.notify(unfound_notice())
    if not found.leave_less:
        return None
    passes.set_weights(mapped, found.basis, found.weights)
    return passes.model.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastSquares:
    """Least squares of columns that are close to each other.

    Attributes
    ----------
    basis, weights
        The columns, and their coefficients with the intercept.
    weakest
        See `Solved.weakest`.
    r2, least
        Shares of the label's variance that the models and the least squares explain.
    """

    basis: Basis
    weights: Doubles
    weakest: float
    r2: float
    least: float

    @property
    def explain_more(self) -> bool:
        """Whether they explain more of the label than a penalty's usual price."""
        return self.least - self.r2 > WORSE

    @property
    def leave_less(self) -> bool:
        """Whether they leave less unexplained; an effect may be a small part of a label that is mostly explained."""
        return 1 - self.least < (1 - WORSE) * (1 - self.r2)


def _newton_of_sum(passes: Passes, family: Family, penalty: float) -> Sequence[Parameter] | None:
    """See `newton`."""
    mapped, count = passes.model.weights(passes.found), passes.found.coefficients.shape[1]
    if mapped is None or not passes.is_narrow(count):
        return None
    basis, (_, _, each) = passes.own_basis(count), mapped
    weights = in_basis(passes.found, basis)
    # for a row: half of the penalty times the square of the rule's own weight
    ratio = np.divide(basis.scale, each, out=np.zeros(count), where=each != 0)
    penalties = np.append(0, penalty * ratio**2)
    best, least, step = weights, inf, np.zeros(count + 1)
    for _ in range(STEPS):
        at = passes.measured(family, basis, weights, float(passes.found.intercepts[0]))
        square = float(at.sums[Sum.WEIGHT]) * penalties
        loss = float(at.sums[Sum.LOSS]) * (0.5 if family is Family.NORMAL else 1)
        value = loss + float(square @ weights**2) / 2
        if not (np.isfinite(at.matrix).all() and np.isfinite(at.gradient).all() and value <= least):
            # the step was too long: half of it
            step /= 2
            weights = best + step
            continue
        full = solved(at.matrix + np.diag(square), at.gradient + square * weights, basis)
        best, least, step = weights, value, full.step
        weights = best + step
        if family is Family.NORMAL or full.squared <= max(ARRIVED, SETTLED * float(at.sums[Sum.WEIGHT])):
            passes.set_weights(mapped, basis, weights)
            return passes.model.parameters
    # after a restart conjugate gradients gain little, and the rule's test would take that for the end
    return None


def newton_of_classes(passes: Passes, penalty: float) -> Sequence[Parameter] | None:
    """Go to the minimum of the loss of several classes and the penalty; None if it is not found."""
    arrived = steps_of_classes(passes, penalty)
    if arrived is None or not arrived[-1]:
        return None
    set_classes(passes, *arrived[:2])
    return passes.model.parameters


def steps_of_classes(passes: Passes, penalty: float) -> tuple[Basis, Doubles, Solved, LikelihoodObserver, bool] | None:
    """Return where steps of Newton's method lead, the last of them, and whether they arrive.

    The weights of all classes count from those of the first: only differences decide.
    """
    mapped, (classes, count) = passes.model.weights(passes.found), passes.found.coefficients.shape
    size = count + 1
    if mapped is None or (classes - 1) * size > MAX_WEIGHTS:
        return None
    basis, (_, _, each) = passes.own_basis(count), mapped
    coefficients = passes.found.coefficients
    weights = np.column_stack([passes.found.intercepts + coefficients @ basis.centre, coefficients / basis.scale])
    weights -= weights[0]
    ratio = np.divide(basis.scale, each[0], out=np.zeros(count), where=each[0] != 0)
    # of weights that add up to 0 over the classes
    square = np.kron(np.eye(classes - 1) - 1 / classes, np.diag(np.append(0, penalty * ratio**2)))
    best, least, step = weights, inf, np.zeros((classes - 1, size))
    found = None
    for _ in range(2 * STEPS):
        at = passes.measured(Family.MULTINOMIAL, basis, weights)
        rows, free = float(at.sums[Sum.WEIGHT]), weights[1:].reshape(-1)
        value = float(at.sums[Sum.LOSS]) + rows * float(free @ square @ free) / 2
        if not (np.isfinite(at.matrix).all() and np.isfinite(at.gradient).all() and value <= least * (1 + 1e-12)):
            if found is None:
                return None
            # the step was too long: half of it
            step = step / 2
            weights = best + np.vstack([np.zeros(size), step])
            continue
        full = solved(at.matrix + rows * square, at.gradient + rows * square @ free, basis)
        best, least, step = weights, value, full.step.reshape(-1, size)
        weights = best + np.vstack([np.zeros(size), step])
        found = full, at
        if full.squared <= SETTLED * rows:
            return basis, weights, full, at, True
    return None if found is None else (basis, best, *found, False)


def set_classes(passes: Passes, basis: Basis, weights: Doubles) -> None:
    """Set the weights of all classes; those of a column, and the intercepts, add up to 0."""
    mapped = passes.model.weights(passes.found)
    assert mapped is not None
    name, intercept, each = mapped
    weights = weights - weights.mean(axis=0)
    coefficients = weights[:, 1:] * basis.scale
    new = np.divide(coefficients, each, out=np.zeros(each.shape), where=each != 0).astype(np.float32)
    passes.model.set(name, new)
    at, rounded = passes.model.scores(), new.astype(np.float64) * each
    assert at is not None
    missing = weights[:, 0] - (at.intercepts + rounded @ basis.centre)
    own = next(one.values for one in passes.model.parameters if one.name == intercept)
    passes.model.set(intercept, (own.astype(np.float64) + missing).astype(np.float32))


def found_least_squares(passes: Passes) -> LeastSquares | None:
    """Return the least squares; None if no columns are close to each other."""
    count = passes.found.coefficients.shape[1]
    if not passes.is_narrow(count) or passes.request.class_weight is not None:
        return None
    basis, middle = passes.own_basis(count), float(passes.found.intercepts[0])
    weights = in_basis(passes.found, basis)
    at = passes.measured(Family.NORMAL, basis, weights, middle)
    rows, loss = float(at.sums[Sum.WEIGHT]), float(at.sums[Sum.LOSS])
    spread = float(at.sums[Sum.SQUARES] - at.sums[Sum.LABELS] ** 2 / rows)
    if not (np.isfinite(at.matrix).all() and np.isfinite(at.gradient).all() and spread > 0):
        return None
    full = solved(at.matrix, at.gradient, basis)
    freedom = rows - len(full.kept)
    if full.weakest >= ALIKE or freedom < 1:
        return None
    # about the mean of the errors, which a quantile's is not
    r2 = 1 - (loss - float(at.gradient[0]) ** 2 / rows) / spread
    # adjusted, because random columns explain something, too
    least = 1 - (loss - full.squared) / spread * (rows - 1) / freedom
    return LeastSquares(basis=basis, weights=weights + full.step, weakest=full.weakest, r2=r2, least=least)
