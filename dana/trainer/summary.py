"""The summary of a solved model: standard errors, p-values, dependent columns, separation.

Only a model at the maximum of a likelihood has one, so a rule that minimises its loss without a penalty. A pass over
the rows gives gradient and curvature in binary64, from which a step of Newton's method removes what binary32 and the
rule's convergence test left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isqrt, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.predictor.affine import Link, Scores
from dana.predictor.centres import centres_of
from dana.trainer.contract import Parameter, TrainResult
from dana.trainer.data.coefficients import with_bases
from dana.trainer.data.likelihood import Basis, Doubles, Family, LikelihoodObserver, Sum
from dana.trainer.data.survey import categories_of
from dana.trainer.distributions import critical, two_sided
from dana.trainer.equations import CLOSE, HIDDEN, ROUNDED, Solved, solved, whole
from dana.trainer.likelihoods import WEAK
from dana.trainer.messages.summary_notices import (
    UNSETTLED,
    alike_notice,
    close_notice,
    dropped_notice,
    hidden_notice,
    rounded_notice,
    separated_notice,
)
from dana.trainer.newton import SETTLED, STEPS, found_least_squares, newton_of_classes, set_classes, steps_of_classes
from dana.trainer.passes import MAX_COLUMNS, MAX_PRODUCTS, MAX_WEIGHTS, MAX_WIDTH, Passes, in_basis
from dana.trainer.rounding import Rounding

PRECISE = 1e-4
"""Movement of a score by the last step, up to which the curvature before it has four digits of a standard error: of a
rare class, or a rare category, a step moves scores far although its length for each row is small."""

APART = 5e-9
"""Mean square of what a dropped column has of its own, relative to its largest value, that is more than rounding."""

MOVES = 0.1
"""Movement of a score by a step from the optimum, above which there is no optimum: the rows are separated."""

ROUNDING = 1e-14
"""Mean squared error relative to the mean square of the labels, at the level of their rounding to binary32."""

OFF_CENTRE = 10.0
"""Mean in deviations of a column above which binary64 needs columns to be centred first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is added to the result of a training.

    Attributes
    ----------
    parameters
        The models, after the last step.
    metadata
        The member ``summary`` of the metadata.
    inference
        Members of ``coefficients`` of the metadata, empty without standard errors.
    """

    parameters: Sequence[Parameter]
    metadata: dict[str, Any]
    inference: dict[str, Any] = field(default_factory=dict)


def summarise(passes: Passes) -> Summary | None:
    """Return the summary of a solved model; None if its prediction is not a function of one weighted sum or of classes.

    Dependent columns, and rows that are separated, are reported.
    """
    several, family, metadata = passes.found.link is Link.LARGEST, passes.family, passes.result.metadata
    if not several and family is None:
        return None
    if passes.penalty > WEAK:
        if family is Family.NORMAL:
            _compare_with_least_squares(passes)
        reason = "a penalty keeps the model from the maximum of its likelihood"
        return Summary(parameters=passes.result.parameters, metadata={"no_errors": reason})
    if several:
        classes = (passes.training.design.get("classes") or {}).get("count")
        return _of_classes(passes, passes.found, family, metadata) if classes else None
    return None if family is None else _of_sum(passes, family, passes.found, metadata)


def with_summary(result: TrainResult, summary: Summary) -> TrainResult:
    """Add a summary to the metadata of a result."""
    coefficients = result.metadata["coefficients"]
    if summary.inference:
        inference = dict(summary.inference)
        at_centres = inference.pop("at_centres")
        coefficients = with_bases({**coefficients, **inference}, centres_of(result.metadata), at_centres)
    return replace(result, metadata={**result.metadata, "summary": summary.metadata, "coefficients": coefficients})


def _compare_with_least_squares(passes: Passes) -> None:
    """Report that a penalty hides an effect of the difference of columns that are close to each other."""
    if (found := found_least_squares(passes)) is not None and found.explain_more:
        passes.notify(hidden_notice(found.r2, found.least))


def _of_classes(passes: Passes, found: Scores, family: Family | None, metadata: Any) -> Summary:
    """Return whether the scores of classes separate them; remove the penalty, if there are not too many weights."""
    count = found.coefficients.shape[1]
    weights = np.column_stack([found.intercepts, found.coefficients])
    basis = Basis(centre=np.zeros(count), scale=np.ones(count))
    at = passes.measured(Family.CLASSES, basis, weights)
    separated = bool(at.sums[Sum.ROWS] > 0 and at.sums[Sum.MISPLACED] == 0)
    columns = [str(one) for one in (metadata.get("coefficients") or {}).get("terms", ())]
    if family is Family.MULTINOMIAL and not separated:
        separated = _without_penalty(passes, columns, passes.penalty)
    if separated:
        alone = _alone(passes, basis, len(weights)) if columns else np.zeros(0, bool)
        names = [columns[int(alone.argmax())]] if alone.any() else []
        passes.notify(separated_notice(names, passes.request))
    reason = "the coefficients of several classes are defined up to a common constant"
    return Summary(parameters=passes.model.parameters, metadata={"separated": separated, "no_errors": reason})


def _without_penalty(passes: Passes, columns: list[str], penalty: float) -> bool:
    """Go to the maximum of the likelihood of several classes; return whether there is none, but with a penalty."""
    arrived = None if passes.request.class_weight is not None else steps_of_classes(passes, 0)
    if arrived is None:
        _notify_close(passes, columns)
        return False
    basis, weights, full, at, settled = arrived
    directions = full.step.reshape(-1, len(basis.centre) + 1).copy()
    # the intercept of a class without rows has no maximum either
    directions[:, 0] = 0
    if passes.measured(Family.MOVES, basis, directions).moved[: len(directions)].max() > MOVES:
        newton_of_classes(passes, penalty)
        return True
    if settled or at.sums[Sum.LOSS] < _loss_of_classes(passes, basis):
        set_classes(passes, basis, weights)
    if not settled:
        passes.notify(UNSETTLED)
    _notify_alike(passes, [one for one in full.alike if one[0] <= len(columns)], at, basis, columns)
    return False


def _loss_of_classes(passes: Passes, basis: Basis) -> float:
    weights = passes.found.coefficients / basis.scale
    all_weights = np.column_stack([passes.found.intercepts + passes.found.coefficients @ basis.centre, weights])
    return float(passes.measured(Family.MULTINOMIAL, basis, all_weights).sums[Sum.LOSS])


def _of_sum(passes: Passes, family: Family, found: Scores, metadata: Any) -> Summary | None:
    """Return the summary of a prediction that is a function of one sum."""
    count = found.coefficients.shape[1]
    columns = [str(one) for one in (metadata.get("coefficients") or {}).get("terms", ())]
    reason = "with class_weight the loss is no likelihood" if passes.request.class_weight is not None else None
    if not passes.is_narrow(count) or len(columns) != count:
        reason = f"{count} columns are too many for {passes.rows:,} rows"
    if reason is not None:
        if family is not Family.NORMAL:
            _notify_close(passes, columns)
        return _bare(passes, family, found, reason, metadata)
    mapped = passes.model.weights(found)
    if mapped is None:
        return None
    basis, middle = passes.own_basis(count), float(found.intercepts[0])
    weights, centred, settled, steps = in_basis(found, basis), False, False, 0
    best, least, step = weights, inf, np.zeros(count + 1)
    # categories keep their weights: those of one that no row had are then the mean of the others
    encoded = categories_of(passes.request)
    without: list[int] = []
    for _ in range(2 * STEPS):
        at = passes.measured(family, basis, weights, middle)
        finite = np.isfinite(at.matrix).all() and np.isfinite(at.gradient).all() and at.matrix[0, 0] > 0
        loss = float(at.sums[Sum.LOSS])
        if steps and family is not Family.NORMAL and not (finite and loss <= least + 1e-12 * abs(least)):
            # the step was too long: half of it
            step = step / 2
            weights = best + step
            continue
        if not finite:
            return _without(passes, "a score is not finite")
        if not centred and (moved_basis := _centred(at, basis)) is not None:
            coefficients = weights[1:] * basis.scale
            weights = np.append(weights[0] + coefficients @ (moved_basis.centre - basis.centre), coefficients)
            weights[1:] /= moved_basis.scale
            basis, centred = moved_basis, True
            continue
        full, rows = solved(at.matrix, at.gradient, basis, without), float(at.sums[Sum.WEIGHT])
        rounding = Rounding(training=passes.training, inexact=passes.training.rounded, at=at, basis=basis)
        rounding.check_kept(full)
        if family is Family.BINOMIAL and at.sums[Sum.MISPLACED] == 0:
            return _separated(passes, full, at, basis, columns)
        # without one column's separation, which a pass shows, eight steps or so would go towards no maximum
        far = family is Family.BINOMIAL and steps == 0 and _movement(full, at) > MOVES
        if far and (alone := _alone(passes, basis, 2)).any():
            return _separated(passes, full, at, basis, columns, alone)
        dropped = [k for k in full.dropped if k and columns[k - 1] not in encoded]
        if weights[dropped].any():
            # the curvature without a column may be one that would keep it: it remains dropped
            without = dropped
            weights[full.kept] += full.inverse @ (whole(at.matrix)[np.ix_(full.kept, dropped)] @ weights[dropped])
            weights[dropped] = 0
            steps, least = 0, inf
            continue
        if min(at.sums[Sum.ROWS], rows) <= len(full.kept):
            return _without(passes, "there are no more rows than coefficients")
        variance = 1.0
        if family is Family.NORMAL:
            variance = max(at.sums[Sum.LOSS] - full.squared, 0) / (rows - len(full.kept))
            labels = at.sums[Sum.SQUARES] + 2 * middle * at.sums[Sum.LABELS] + rows * middle**2
            if variance <= ROUNDING * labels / rows:
                return _without(passes, "the model leaves no error but rounding")
        best, least, step = weights, loss, full.step
        weights, steps = best + step, steps + 1
        # the curvature of columns that nearly depend on each other has few digits: a second step corrects the first
        exact = family is Family.NORMAL and (full.weakest > CLOSE or steps > 1)
        settled = settled or exact or full.squared <= SETTLED * rows * variance
        if settled and (exact or not PRECISE < _movement(full, at) <= MOVES):
            break
    if family is not Family.NORMAL:
        if _has_no_maximum(passes, at, full, basis):
            return _separated(passes, full, at, basis, columns)
        if not settled:
            passes.notify(UNSETTLED)
            return _without(passes, f"the maximum of the likelihood was not found in {2 * STEPS} steps")
    rounded = rounding.check(family, full, weights, variance)
    passes.set_weights(mapped, basis, weights)
    _notify_alike(passes, full.alike, at, basis, columns)
    if rounded and not full.alike:
        passes.notify(rounded_notice([columns[k] for k in rounded]))
    # a single value in all rows is reported by the survey
    if dependent := [columns[k - 1] for k in dropped if _varies(at, basis)[k - 1]]:
        passes.notify(dropped_notice(dependent))
    return _summary(passes, family, at, full, basis, weights, variance)


def _bare(passes: Passes, family: Family, found: Scores, reason: str, metadata: Any) -> Summary:
    """Return a summary without standard errors, which reports two classes that are separated."""
    separated = False
    if family is Family.BINOMIAL:
        # as scores of two classes: that of the first is 0
        each = (found.coefficients, found.intercepts)
        coefficients, intercepts = (np.concatenate([np.zeros_like(one), one]) for one in each)
        both = Scores(link=found.link, coefficients=coefficients, intercepts=intercepts)
        separated = bool(_of_classes(passes, both, None, metadata).metadata["separated"])
    return _without(passes, reason, separated=separated)


def _has_no_maximum(passes: Passes, at: LikelihoodObserver, full: Solved, basis: Basis) -> bool:
    """Return whether the last step moves a score by more than `MOVES`, or a dropped column has rows of its own.

    A column that the others explain only in the rows with curvature left separates the other rows.
    """
    most = _movement(full, at)
    dependent = [k for k in full.dropped if at.moved[k] > 0]
    if most <= MOVES and not dependent:
        return False
    matrix, directions = whole(at.matrix), [full.step]
    for k in dependent:
        direction = np.zeros(len(full.step))
        direction[k], direction[full.kept] = 1, -full.inverse @ matrix[full.kept, k]
        directions.append(direction)
    moved = passes.measured(Family.MOVES, basis, np.array(directions))
    rest = moved.squares[1:] / at.sums[Sum.ROWS]
    return bool(moved.moved[0] > MOVES or (rest > APART * at.moved[dependent] ** 2).any())


def _separated(
    passes: Passes,
    full: Solved,
    at: LikelihoodObserver,
    basis: Basis,
    columns: list[str],
    alone: NDArray[np.bool_] | None = None,
) -> Summary:
    moves = (np.abs(full.step) * at.moved[: len(full.step)])[1:]
    alone = _alone(passes, basis, 2) if alone is None else alone
    if alone.any():
        # of several, the one with the most rows apart: a category of few is far from the mean in deviations
        names = [columns[int(np.where(alone, at.moved[1 : len(full.step)], inf).argmin())]]
    else:
        names = [columns[k] for k in np.flatnonzero(moves > moves.max() / 100)]
    passes.notify(separated_notice(names, passes.request))
    return _without(passes, "the rows are separated: the likelihood has no maximum", separated=True)


def _alone(passes: Passes, basis: Basis, labels: int) -> NDArray[np.bool_]:
    """Return whether a column separates the rows by itself: the values of each label are apart, or share an end."""
    bounds = passes.measured(Family.BOUNDS, basis, np.zeros((labels, len(basis.centre) + 1))).matrix
    # without labels of no row
    bounds = bounds[np.isfinite(bounds[:, 0])].reshape(-1, 2, len(basis.centre) + 1)[:, :, 1:]
    order = (bounds[:, 0] - bounds[:, 1]).argsort(axis=0, kind="stable")
    largest, smallest = (np.take_along_axis(bounds[:, k], order, axis=0) for k in (0, 1))
    # of rows with one label, none does
    apart = (-smallest[1:] - largest[:-1]).min(axis=0) if len(bounds) > 1 else np.full(len(basis.centre), -1.0)
    varies = largest.max(axis=0) > -smallest.max(axis=0)
    return np.asarray(apart > 0 if (apart > 0).any() else (apart == 0) & varies)


def _without(passes: Passes, reason: str, *, separated: bool = False) -> Summary:
    return Summary(parameters=passes.model.parameters, metadata={"separated": separated, "no_errors": reason})


def _notify_alike(
    passes: Passes, pairs: list[tuple[int, int]], at: LikelihoodObserver, basis: Basis, columns: list[str]
) -> None:
    """Report columns that differ by little more than their rounding to binary32."""
    scale = np.append(1, basis.scale)
    directions = np.zeros((len(pairs), len(scale)))
    for place, (k, j) in enumerate(pairs):
        directions[place, [k, j]] = 1 / scale[k], -1 / scale[j]
    pairs_left = [(columns[k - 1], columns[j - 1]) for k, j in pairs if k and j]
    if len(pairs_left) < len(pairs) or not pairs:
        return
    squares = passes.measured(Family.MOVES, basis, directions).squares / at.sums[Sum.WEIGHT]
    mean = (basis.centre[[k - 1 for k, _ in pairs]]) ** 2
    widths = 1 / basis.scale[[k - 1 for k, _ in pairs]] ** 2
    # equal columns have no difference, and those in other units differ by more
    rounding = 2 * ROUNDED * (mean + widths)
    hidden = (squares > rounding / 100) & (squares < np.maximum(HIDDEN * rounding, CLOSE * CLOSE * widths))
    for (later, before), mine in zip(pairs_left, hidden, strict=True):
        if mine:
            passes.notify(alike_notice(before, later))


def _notify_close(passes: Passes, columns: list[str]) -> None:
    """Report columns that depend on each other so much that the penalty decides their coefficients."""
    count = len(columns)
    if not 0 < count <= MAX_WEIGHTS or count != passes.found.coefficients.shape[1]:
        return
    basis = passes.own_basis(count)
    full = solved(passes.measured(Family.NORMAL, basis, np.zeros(count + 1)).matrix, np.zeros(count + 1), basis)
    if full.weakest < CLOSE:
        few = min(MAX_WIDTH, isqrt(int(MAX_PRODUCTS / passes.rows)))
        passes.notify(close_notice(max(MAX_COLUMNS, few), MAX_WEIGHTS))


def _summary(
    passes: Passes,
    family: Family,
    at: LikelihoodObserver,
    full: Solved,
    basis: Basis,
    weights: Doubles,
    variance: float,
) -> Summary:
    """Return the summary at the maximum, where the basis has these weights."""
    rows, total = float(at.sums[Sum.WEIGHT]), len(full.kept)
    freedom = rows - total
    weights, matrix = weights.copy(), whole(at.matrix)
    weights[full.kept] += full.inverse @ (matrix[np.ix_(full.kept, full.dropped)] @ weights[full.dropped])
    weights[full.dropped] = 0
    # from the basis to the columns' units
    change, centres = np.eye(len(weights)), passes.request.centres
    change[0, 1:] = -(basis.centre + centres.of_features(len(weights) - 1)) * basis.scale
    change[1:, 1:] = np.diag(basis.scale)
    coefficients = change @ weights
    coefficients[0] += centres.label
    half = change[:, full.kept]
    errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", half, full.inverse, half) * variance, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = coefficients / errors
    known = [k in full.kept for k in range(len(weights))]
    p_values = [two_sided(abs(one), freedom if family is Family.NORMAL else None) for one in statistics]
    loss = float(at.sums[Sum.LOSS]) - full.squared * (1 if family is Family.NORMAL else 0.5)
    metadata: dict[str, Any] = {"separated": False, "rows": rows, "coefficients": total}
    spread = float(at.sums[Sum.SQUARES] - at.sums[Sum.LABELS] ** 2 / rows)
    middle = at.middle + float(at.sums[Sum.LABELS]) / rows
    if family is Family.NORMAL:
        r2 = 1 - loss / spread if spread > 0 else None
        likelihood = -rows / 2 * (log(2 * pi * loss / rows) + 1)
        metadata |= {
            "family": "normal",
            "r2": r2,
            "adjusted_r2": None if r2 is None else 1 - (1 - r2) * (rows - 1) / freedom,
            "residual_error": sqrt(variance),
        }
    elif family is Family.BINOMIAL:
        likelihood = -loss
        null = 2 * rows * -sum(one * log(one) for one in (middle, 1 - middle) if one > 0)
        metadata |= {"family": "binomial", "deviance": 2 * loss, "null_deviance": null}
    else:
        likelihood = -loss
        best = float(at.sums[Sum.LOGARITHMS] - rows * middle - at.sums[Sum.GAMMAS])
        null = 2 * float(at.sums[Sum.LOGARITHMS] - rows * middle * log(middle)) if middle > 0 else 0.0
        metadata |= {"family": "poisson", "deviance": 2 * (best - likelihood), "null_deviance": null}
    metadata |= {
        "log_likelihood": likelihood,
        "aic": 2 * total - 2 * likelihood,
        "freedom": freedom,
        "dropped": [k - 1 for k in full.dropped if k],
    }

    def listed(values: Sequence[float]) -> list[float | None]:
        each = zip(values, known, strict=True)
        return [float(value) if mine and isfinite(value) else None for value, mine in each]

    inference: dict[str, Any] = {
        "intercepts": [float(coefficients[0])],
        "at_centres": [float(weights[0] - coefficients[1:] @ basis.centre)],
        "values": [coefficients[1:].tolist()],
        "errors": [listed(errors.tolist())],
        "p_values": [listed(p_values)],
        "critical": critical(freedom if family is Family.NORMAL else None),
    }
    return Summary(parameters=passes.model.parameters, metadata=metadata, inference=inference)


def _movement(full: Solved, at: LikelihoodObserver) -> float:
    """Return the most that a step moves the score of a row."""
    return float(np.abs(full.step) @ at.moved[: len(full.step)])


def _centred(at: LikelihoodObserver, basis: Basis) -> Basis | None:
    """Return a basis of centred columns if one is far from its centre, where binary64 would lose its digits."""
    mean, square = (at.matrix[1:, 0], np.diag(at.matrix)[1:]) / at.matrix[0, 0]
    variance = square - mean**2
    if not ((mean**2 > OFF_CENTRE**2 * np.maximum(variance, 0)) & (square > 0)).any():
        return None
    scale = np.where(variance > 1e-12 * square, 1 / np.sqrt(np.maximum(variance, 1e-300)), 1)
    return Basis(centre=basis.centre + mean / basis.scale, scale=basis.scale * scale)


def _varies(at: LikelihoodObserver, basis: Basis) -> NDArray[np.bool_]:
    """Return which columns have more than a single value, shape [features]."""
    mean, square = (at.matrix[1:, 0], np.diag(at.matrix)[1:]) / at.matrix[0, 0]
    varies: NDArray[np.bool_] = square - mean**2 > 1e-12 * square + 1e-20 * (basis.centre * basis.scale) ** 2
    return varies
