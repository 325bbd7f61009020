"""The summary of a solved model: standard errors, p-values, dependent columns, separation.

Only a model at the maximum of a likelihood has one, so a rule that minimises its loss without a penalty. A pass over
the rows gives gradient and curvature in binary64, from which a step of Newton's method removes what binary32 and the
rule's convergence test left. Prediction and loss decide, not the rule's name: the normal likelihood belongs to a
weighted sum, the binomial to its sigmoid, Poisson's to its exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, isfinite, isqrt, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.weights import weighted
from dana.errors import UsageError
from dana.predictor.affine import Link, Scores, scores
from dana.predictor.centres import centres_of
from dana.predictor.program import Program, decode_predictor
from dana.trainer.contract import Notify, Parameter, Sink, Training, TrainRequest, TrainResult
from dana.trainer.data.coefficients import MOST, with_bases
from dana.trainer.data.likelihood import Basis, Doubles, Family, Floats, LikelihoodObserver, Sum
from dana.trainer.data.survey import categories_of
from dana.trainer.designs import rule_of
from dana.trainer.distributions import critical, two_sided
from dana.trainer.equations import CLOSE, HIDDEN, ROUNDED, Solved, solved, whole
from dana.trainer.losses import is_multiple, loss_graph, losses_at
from dana.trainer.messages.summary_notices import (
    UNSETTLED,
    alike_notice,
    close_notice,
    dropped_notice,
    hidden_notice,
    rounded_notice,
    separated_notice,
    unfound_notice,
)
from dana.trainer.rounding import Rounding
from dsl import RuleError
from dsl.hdfg.graph import BindError
from dsl.hdfg.ops import Op
from dsl.semantics.program import reachable

MAX_COLUMNS = 100
"""Columns beyond which the curvature, which grows with their square, costs more than the training of many rows."""

MAX_WIDTH = 600
"""The same of few rows: the solution of the equations, which grows with the cube, costs seconds."""

MAX_PRODUCTS = 1e10
"""Rows times columns squared up to which rows are few: a pass takes some seconds."""

WEAK = 1.001e-6
"""Largest penalty that counts as none: it keeps the coefficients of separated rows finite; the last step removes it."""

SETTLED = 1e-9
"""Squared distance for each row below which the maximum of the likelihood is near."""

PRECISE = 1e-4
"""Movement of a score by the last step, up to which the curvature before it has four digits of a standard error: of a
rare class, or a rare category, a step moves scores far although its length for each row is small."""

ARRIVED = 1e-5
"""Newton's method ends when twice a step's gain in the loss of all rows falls below this: the next step would gain
about its square."""

STEPS = 12
"""Steps of Newton's method at most; each squares the distance, unless the rows are separated."""

MAX_WEIGHTS = 300
"""Weights of all classes but the first, with intercepts, beyond which Newton's method does not follow."""

APART = 5e-9
"""Mean square of what a dropped column has of its own, relative to its largest value, that is more than rounding."""

ALIKE = 0.1
"""Share of its variance that the others leave to a column, below which columns are close: a variance inflation factor
of 10, the customary limit."""

WORSE = 0.02
"""Part of the label's variance that a penalty may hide without a report, where columns are close."""

BARELY_APART = 1e-5
"""As `ALIKE`: below this, `huber` and `quantile` often stop before they find an effect of the difference of columns,
measured on 400 and 3,000 rows with differences of 0.1 to 0.00001 deviations."""

MOVES = 0.1
"""Movement of a score by a step from the optimum, above which there is no optimum: the rows are separated."""

ROUNDING = 1e-14
"""Mean squared error relative to the mean square of the labels, at the level of their rounding to binary32."""

OFF_CENTRE = 10.0
"""Mean in deviations of a column above which binary64 needs columns to be centred first."""

FAMILIES = {
    Link.NONE: Family.NORMAL,
    Link.LOGIT: Family.BINOMIAL,
    Link.EXP: Family.POISSON,
    Link.LARGEST: Family.MULTINOMIAL,
}


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


def summarise(
    training: Training,
    request: TrainRequest,
    result: TrainResult,
    *,
    rows: int,
    feed: Callable[[Sink], int],
    notify: Notify,
) -> Summary | None:
    """Return the summary of a solved model; None if its prediction is not a function of one weighted sum or of classes.

    Parameters
    ----------
    result
        The result of the training, with its parameters.
    rows
        Rows trained on.
    feed
        Feeds all pages to a sink.
    notify
        Receives the names of dependent columns, and a warning if the rows are separated.
    """
    passes = _opened(training, request, result, rows=rows, feed=feed, notify=notify)
    if passes is None:
        return None
    several = passes.found.link is Link.LARGEST
    family = _family_of(passes.found, request, result)
    if not several and family is None:
        return None
    if penalty_of(request, result.metadata["hyper"]) > WEAK:
        if family is Family.NORMAL:
            passes.compare_with_least_squares()
        reason = "a penalty keeps the model from the maximum of its likelihood"
        return Summary(parameters=result.parameters, metadata={"no_errors": reason})
    if several:
        classes = (training.design.get("classes") or {}).get("count")
        return passes.of_classes(passes.found, family, result.metadata) if classes else None
    return None if family is None else passes.of_sum(family, passes.found, result.metadata)


def newton(
    training: Training, request: TrainRequest, result: TrainResult, *, rows: int, feed: Callable[[Sink], int]
) -> Sequence[Parameter] | None:
    """Return models that Newton's method brings towards the minimum of a rule's loss; None if it cannot.

    A penalty is assumed to be that of the shipped rules. The rule continues from these models, so that its own test
    decides whether they are the minimum of its loss.

    Parameters
    ----------
    result
        The result of the training so far.
    rows
        Rows trained on.
    feed
        Feeds all pages to a sink.
    """
    passes = _opened(training, request, result, rows=rows, feed=feed, notify=lambda notice: None)
    penalty = penalty_of(request, result.metadata["hyper"])
    if passes is None or not isfinite(penalty) or request.class_weight is not None:
        return None
    family = _family_of(passes.found, request, result)
    if family is Family.MULTINOMIAL:
        return passes.newton_of_classes(penalty)
    return None if family is None else passes.newton(family, penalty)


def least_squares(
    training: Training,
    request: TrainRequest,
    result: TrainResult,
    *,
    rows: int,
    feed: Callable[[Sink], int],
    notify: Notify,
) -> Sequence[Parameter] | None:
    """Return models from which a rule without a likelihood should begin again; None if there is no need.

    Conjugate gradients in binary32 hardly move along the difference of columns that nearly equal each other, which a
    rule's own test takes for the minimum: `huber` and `quantile` have no passes of Newton's method that would show it.

    Parameters
    ----------
    result
        The result of the training so far.
    rows
        Rows trained on.
    feed
        Feeds all pages to a sink.
    notify
        Receives a warning if least squares show nothing though columns nearly equal each other.
    """
    passes = _opened(training, request, result, rows=rows, feed=feed, notify=notify)
    if passes is None or passes.found.link is not Link.NONE or _family_of(passes.found, request, result) is not None:
        return None
    return passes.least_squares()


def _opened(
    training: Training,
    request: TrainRequest,
    result: TrainResult,
    *,
    rows: int,
    feed: Callable[[Sink], int],
    notify: Notify,
) -> _Passes | None:
    """Return what makes passes over the rows of a training; None if its prediction is no function of sums."""
    layout = training.layout
    if result.predictor is None or layout.label < 0 or sum(one.values.size for one in result.parameters) > MOST:
        return None
    try:
        model = _Model(program=decode_predictor(result.predictor), parameters=list(result.parameters))
        found = model.scores()
    except UsageError:
        return None
    if found is None or found.coefficients.shape[1] != len(layout.features):
        return None

    def measured(family: Family, basis: Basis, weights: Doubles, middle: float = 0.0) -> LikelihoodObserver:
        observer = LikelihoodObserver(family=family, layout=layout, basis=basis, weights=weights, middle=middle)
        feed(training.look(observer))
        training.end_look()
        return observer

    return _Passes(
        training=training, measured=measured, model=model, found=found, request=request, rows=rows, notify=notify
    )


def _family_of(found: Scores, request: TrainRequest, result: TrainResult) -> Family | None:
    """Return the likelihood that a rule maximises; None: it has none, or its prediction is not the likelihood's."""
    family = FAMILIES.get(found.link)
    metas = tuple(result.metadata["hyper"].items())
    return family if family is not None and family is likelihood_of(request.text, request.rule, metas) else None


def with_summary(result: TrainResult, summary: Summary) -> TrainResult:
    """Add a summary to the metadata of a result."""
    coefficients = result.metadata["coefficients"]
    if summary.inference:
        inference = dict(summary.inference)
        at_centres = inference.pop("at_centres")
        coefficients = with_bases({**coefficients, **inference}, centres_of(result.metadata), at_centres)
    return replace(result, metadata={**result.metadata, "summary": summary.metadata, "coefficients": coefficients})


def penalty_of(request: TrainRequest, metas: Mapping[str, float]) -> float:
    """Return the largest meta that the rule minimises in addition to its loss; infinity for other additions."""
    checked = rule_of(request.text, request.rule).checked
    minimised = [one.value for one in checked.gradients]
    if checked.loss is None or all(one is checked.loss for one in minimised):
        return 0
    added = reachable(minimised) - reachable([checked.loss])
    return max((abs(metas[str(one.name)]) for one in added if one.op is Op.META), default=inf)


@lru_cache(maxsize=64)  # trainings of groups ask again and again
def likelihood_of(text: str, rule: str, metas: tuple[tuple[str, float], ...]) -> Family | None:
    """Return the distribution with a log likelihood proportional to the negative of a rule's loss; None: there is none.

    The loss is a function of a score and the label: it is compared with each likelihood on a few of both.
    """
    graph = weighted(rule_of(text, rule).hdfg, column=False, classes=False)
    given = dict(graph.extents)
    try:
        loss = loss_graph(graph.bind({name: 2 for name in graph.dims if name not in given}))
    except (BindError, RuleError):
        return None
    if loss is None or loss.loss is None:
        return None
    if shape := loss.concrete_shape(loss.inputs[0]):
        several = np.sin(np.arange(5 * shape[0])).reshape(5, -1)
        classes = np.repeat(np.arange(shape[0], dtype=np.float64)[:, None], len(several), axis=1)
        expected = np.log(np.exp(several).sum(axis=1)) - several.T
        return Family.MULTINOMIAL if is_multiple(losses_at(loss, dict(metas), several, classes), expected) else None
    score = np.array([-1.5, -0.5, 0.25, 1, 2])
    for family, highest in ((Family.NORMAL, 3.0), (Family.BINOMIAL, 1.0), (Family.POISSON, 3.0)):
        scores, labels = np.meshgrid(score, np.array([0.0, 1.0, highest]))
        expected = (
            (scores - labels) ** 2
            if family is Family.NORMAL
            else np.log1p(np.exp(scores)) - labels * scores
            if family is Family.BINOMIAL
            else np.exp(scores) - labels * scores
        )
        if is_multiple(losses_at(loss, dict(metas), scores, labels), expected):
            return family
    return None


@dataclass(slots=True, kw_only=True)
class _Model:
    """A program with its parameters: one holds the weights, another the intercept."""

    program: Program
    parameters: list[Parameter]

    def scores(self, changed: dict[str, Floats] | None = None) -> Scores | None:
        """Return the sums, with other values for some parameters."""
        values = [(changed or {}).get(one.name, one.values) for one in self.parameters]
        return scores(self.program, np.concatenate([one.reshape(-1) for one in values]).astype(np.float32), MOST)

    def weights(self, at: Scores) -> tuple[str, str, Doubles] | None:
        """Return the names of weights and intercepts, and the coefficient of a column for a weight of 1.

        Parameters
        ----------
        at
            The sums of the parameters; each has weights and an intercept.
        """
        sums = len(at.intercepts)
        shape = at.coefficients.shape if sums > 1 else at.coefficients.shape[1:]
        single = [one for one in self.parameters if one.values.shape == ((sums,) if sums > 1 else ())]
        for one in self.parameters:
            if one.values.shape != shape:
                continue
            ones = self.scores({one.name: np.ones_like(one.values)})
            if ones is None or not np.isfinite(ones.coefficients).all():
                continue
            if not np.allclose(ones.coefficients * one.values, at.coefficients, rtol=1e-9, atol=0):
                continue
            for other in single:
                # with weights of 1: sums without columns are no sums to `scores`
                zero = {one.name: np.ones_like(one.values), other.name: np.float32(0) * other.values}
                less, more = self.scores(zero), self.scores({**zero, other.name: zero[other.name] + np.float32(1)})
                if less is None or more is None or (less.coefficients != more.coefficients).any():
                    continue
                if np.allclose(more.intercepts - less.intercepts, 1, rtol=0, atol=1e-6):
                    return one.name, other.name, ones.coefficients if sums > 1 else ones.coefficients[0]
        return None

    def set(self, name: str, values: Floats) -> None:
        """Replace a parameter."""
        self.parameters = [replace(one, values=values) if one.name == name else one for one in self.parameters]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeastSquares:
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
        return self.least - self.r2 > WORSE


@dataclass(slots=True, kw_only=True)
class _Passes:
    """The passes of a summary."""

    training: Training
    measured: Callable[..., LikelihoodObserver]
    model: _Model
    found: Scores
    request: TrainRequest
    rows: int
    notify: Notify

    def _is_narrow(self, count: int) -> bool:
        """Return whether so many columns are few enough for passes in binary64."""
        return count <= MAX_COLUMNS or (count <= MAX_WIDTH and self.rows * count**2 <= MAX_PRODUCTS)

    def of_classes(self, found: Scores, family: Family | None, metadata: Any) -> Summary:
        """Return whether the scores of classes separate them; remove the penalty, if there are not too many weights."""
        count = found.coefficients.shape[1]
        weights = np.column_stack([found.intercepts, found.coefficients])
        basis = Basis(centre=np.zeros(count), scale=np.ones(count))
        at = self.measured(Family.CLASSES, basis, weights)
        separated = bool(at.sums[Sum.ROWS] > 0 and at.sums[Sum.MISPLACED] == 0)
        columns = [str(one) for one in (metadata.get("coefficients") or {}).get("terms", ())]
        if family is Family.MULTINOMIAL and not separated:
            separated = self._without_penalty(columns, penalty_of(self.request, metadata["hyper"]))
        if separated:
            alone = self._alone(basis, len(weights)) if columns else np.zeros(0, bool)
            names = [columns[int(alone.argmax())]] if alone.any() else []
            self.notify(separated_notice(names, self.request))
        reason = "the coefficients of several classes are defined up to a common constant"
        return Summary(parameters=self.model.parameters, metadata={"separated": separated, "no_errors": reason})

    def _without_penalty(self, columns: list[str], penalty: float) -> bool:
        """Go to the maximum of the likelihood of several classes; return whether there is none, but with a penalty."""
        arrived = None if self.request.class_weight is not None else self._steps_of_classes(0)
        if arrived is None:
            self._notify_close(columns)
            return False
        basis, weights, full, at, settled = arrived
        directions = full.step.reshape(-1, len(basis.centre) + 1).copy()
        # the intercept of a class without rows has no maximum either
        directions[:, 0] = 0
        if self.measured(Family.MOVES, basis, directions).moved[: len(directions)].max() > MOVES:
            self.newton_of_classes(penalty)
            return True
        if settled or at.sums[Sum.LOSS] < self._loss_of_classes(basis):
            self._set_classes(basis, weights)
        if not settled:
            self.notify(UNSETTLED)
        self._notify_alike([one for one in full.alike if one[0] <= len(columns)], at, basis, columns)
        return False

    def newton_of_classes(self, penalty: float) -> Sequence[Parameter] | None:
        """Go to the minimum of the loss of several classes and the penalty; None if it is not found."""
        arrived = self._steps_of_classes(penalty)
        if arrived is None or not arrived[-1]:
            return None
        self._set_classes(*arrived[:2])
        return self.model.parameters

    def _loss_of_classes(self, basis: Basis) -> float:
        weights = self.found.coefficients / basis.scale
        all_weights = np.column_stack([self.found.intercepts + self.found.coefficients @ basis.centre, weights])
        return float(self.measured(Family.MULTINOMIAL, basis, all_weights).sums[Sum.LOSS])

    def _steps_of_classes(self, penalty: float) -> tuple[Basis, Doubles, Solved, LikelihoodObserver, bool] | None:
        """Return where steps of Newton's method lead, the last of them, and whether they arrive.

        The weights of all classes count from those of the first: only differences decide.
        """
        mapped, (classes, count) = self.model.weights(self.found), self.found.coefficients.shape
        size = count + 1
        if mapped is None or (classes - 1) * size > MAX_WEIGHTS:
            return None
        basis, (_, _, each) = self._own_basis(count), mapped
        coefficients = self.found.coefficients
        weights = np.column_stack([self.found.intercepts + coefficients @ basis.centre, coefficients / basis.scale])
        weights -= weights[0]
        ratio = np.divide(basis.scale, each[0], out=np.zeros(count), where=each[0] != 0)
        # of weights that add up to 0 over the classes
        square = np.kron(np.eye(classes - 1) - 1 / classes, np.diag(np.append(0, penalty * ratio**2)))
        best, least, step = weights, inf, np.zeros((classes - 1, size))
        found = None
        for _ in range(2 * STEPS):
            at = self.measured(Family.MULTINOMIAL, basis, weights)
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

    def _set_classes(self, basis: Basis, weights: Doubles) -> None:
        """Set the weights of all classes; those of a column, and the intercepts, add up to 0."""
        mapped = self.model.weights(self.found)
        assert mapped is not None
        name, intercept, each = mapped
        weights = weights - weights.mean(axis=0)
        coefficients = weights[:, 1:] * basis.scale
        new = np.divide(coefficients, each, out=np.zeros(each.shape), where=each != 0).astype(np.float32)
        self.model.set(name, new)
        at, rounded = self.model.scores(), new.astype(np.float64) * each
        assert at is not None
        missing = weights[:, 0] - (at.intercepts + rounded @ basis.centre)
        own = next(one.values for one in self.model.parameters if one.name == intercept)
        self.model.set(intercept, (own.astype(np.float64) + missing).astype(np.float32))

    def of_sum(self, family: Family, found: Scores, metadata: Any) -> Summary | None:
        """Return the summary of a prediction that is a function of one sum."""
        count = found.coefficients.shape[1]
        columns = [str(one) for one in (metadata.get("coefficients") or {}).get("terms", ())]
        reason = "with class_weight the loss is no likelihood" if self.request.class_weight is not None else None
        if not self._is_narrow(count) or len(columns) != count:
            reason = f"{count} columns are too many for {self.rows:,} rows"
        if reason is not None:
            if family is not Family.NORMAL:
                self._notify_close(columns)
            return self._bare(family, found, reason, metadata)
        mapped = self.model.weights(found)
        if mapped is None:
            return None
        basis, middle = self._own_basis(count), float(found.intercepts[0])
        weights, centred, settled, steps = _in_basis(found, basis), False, False, 0
        best, least, step = weights, inf, np.zeros(count + 1)
        # categories keep their weights: those of one that no row had are then the mean of the others
        encoded = categories_of(self.request)
        without: list[int] = []
        for _ in range(2 * STEPS):
            at = self.measured(family, basis, weights, middle)
            finite = np.isfinite(at.matrix).all() and np.isfinite(at.gradient).all() and at.matrix[0, 0] > 0
            loss = float(at.sums[Sum.LOSS])
            if steps and family is not Family.NORMAL and not (finite and loss <= least + 1e-12 * abs(least)):
                # the step was too long: half of it
                step = step / 2
                weights = best + step
                continue
            if not finite:
                return self._without("a score is not finite")
            if not centred and (moved_basis := _centred(at, basis)) is not None:
                coefficients = weights[1:] * basis.scale
                weights = np.append(weights[0] + coefficients @ (moved_basis.centre - basis.centre), coefficients)
                weights[1:] /= moved_basis.scale
                basis, centred = moved_basis, True
                continue
            full, rows = solved(at.matrix, at.gradient, basis, without), float(at.sums[Sum.WEIGHT])
            rounding = Rounding(training=self.training, inexact=self.training.rounded, at=at, basis=basis)
            rounding.check_kept(full)
            if family is Family.BINOMIAL and at.sums[Sum.MISPLACED] == 0:
                return self._separated(full, at, basis, columns)
            # without one column's separation, which a pass shows, eight steps or so would go towards no maximum
            far = family is Family.BINOMIAL and steps == 0 and _movement(full, at) > MOVES
            if far and (alone := self._alone(basis, 2)).any():
                return self._separated(full, at, basis, columns, alone)
            dropped = [k for k in full.dropped if k and columns[k - 1] not in encoded]
            if weights[dropped].any():
                # the curvature without a column may be one that would keep it: it remains dropped
                without = dropped
                weights[full.kept] += full.inverse @ (whole(at.matrix)[np.ix_(full.kept, dropped)] @ weights[dropped])
                weights[dropped] = 0
                steps, least = 0, inf
                continue
            if min(at.sums[Sum.ROWS], rows) <= len(full.kept):
                return self._without("there are no more rows than coefficients")
            variance = 1.0
            if family is Family.NORMAL:
                variance = max(at.sums[Sum.LOSS] - full.squared, 0) / (rows - len(full.kept))
                labels = at.sums[Sum.SQUARES] + 2 * middle * at.sums[Sum.LABELS] + rows * middle**2
                if variance <= ROUNDING * labels / rows:
                    return self._without("the model leaves no error but rounding")
            best, least, step = weights, loss, full.step
            weights, steps = best + step, steps + 1
            # the curvature of columns that nearly depend on each other has few digits: a second step corrects the first
            exact = family is Family.NORMAL and (full.weakest > CLOSE or steps > 1)
            settled = settled or exact or full.squared <= SETTLED * rows * variance
            if settled and (exact or not PRECISE < _movement(full, at) <= MOVES):
                break
        if family is not Family.NORMAL:
            if self._has_no_maximum(at, full, basis):
                return self._separated(full, at, basis, columns)
            if not settled:
                self.notify(UNSETTLED)
                return self._without(f"the maximum of the likelihood was not found in {2 * STEPS} steps")
        rounded = rounding.check(family, full, weights, variance)
        self._set(mapped, basis, weights)
        self._notify_alike(full.alike, at, basis, columns)
        if rounded and not full.alike:
            self.notify(rounded_notice([columns[k] for k in rounded]))
        # a single value in all rows is reported by the survey
        if dependent := [columns[k - 1] for k in dropped if _varies(at, basis)[k - 1]]:
            self.notify(dropped_notice(dependent))
        return self._summary(family, at, full, basis, weights, variance)

    def newton(self, family: Family, penalty: float) -> Sequence[Parameter] | None:
        """See `newton`."""
        mapped, count = self.model.weights(self.found), self.found.coefficients.shape[1]
        if mapped is None or not self._is_narrow(count):
            return None
        basis, (_, _, each) = self._own_basis(count), mapped
        weights = _in_basis(self.found, basis)
        # for a row: half of the penalty times the square of the rule's own weight
        ratio = np.divide(basis.scale, each, out=np.zeros(count), where=each != 0)
        penalties = np.append(0, penalty * ratio**2)
        best, least, step = weights, inf, np.zeros(count + 1)
        for _ in range(STEPS):
            at = self.measured(family, basis, weights, float(self.found.intercepts[0]))
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
                self._set(mapped, basis, weights)
                return self.model.parameters
        # after a restart conjugate gradients gain little, and the rule's test would take that for the end
        return None

    def compare_with_least_squares(self) -> None:
        """Report that a penalty hides an effect of the difference of columns that are close to each other."""
        if (found := self._least_squares()) is not None and found.explain_more:
            self.notify(hidden_notice(found.r2, found.least))

    def least_squares(self) -> Sequence[Parameter] | None:
        """Go to least squares, if columns that are close to each other have an effect that the models lack."""
        mapped, found = self.model.weights(self.found), self._least_squares()
        if mapped is None or found is None:
            return None
        # outliers may be why least squares explain little: they find no more then
        if found.weakest < BARELY_APART and found.least < 0.5:
            self.notify(unfound_notice())
        if not found.explain_more:
            return None
        self._set(mapped, found.basis, found.weights)
        return self.model.parameters

    def _least_squares(self) -> _LeastSquares | None:
        """Return the least squares; None if no columns are close to each other."""
        count = self.found.coefficients.shape[1]
        if not self._is_narrow(count) or self.request.class_weight is not None:
            return None
        basis, middle = self._own_basis(count), float(self.found.intercepts[0])
        weights = _in_basis(self.found, basis)
        at = self.measured(Family.NORMAL, basis, weights, middle)
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
        return _LeastSquares(basis=basis, weights=weights + full.step, weakest=full.weakest, r2=r2, least=least)

    def _own_basis(self, count: int) -> Basis:
        """Return the columns as the rule scales them."""
        basis = Basis(centre=np.zeros(count), scale=np.ones(count))
        for name in (".mean", ".scale"):
            own = [one.values for one in self.model.parameters if one.name.endswith(name)]
            if len(own) == 1 and own[0].shape == (count,):
                basis = replace(basis, **{"centre" if name == ".mean" else "scale": own[0].astype(np.float64)})
        return replace(basis, scale=np.where(basis.scale > 0, basis.scale, 1))

    def _bare(self, family: Family, found: Scores, reason: str, metadata: Any) -> Summary:
        """Return a summary without standard errors, which reports two classes that are separated."""
        separated = False
        if family is Family.BINOMIAL:
            # as scores of two classes: that of the first is 0
            each = (found.coefficients, found.intercepts)
            coefficients, intercepts = (np.concatenate([np.zeros_like(one), one]) for one in each)
            both = Scores(link=found.link, coefficients=coefficients, intercepts=intercepts)
            separated = bool(self.of_classes(both, None, metadata).metadata["separated"])
        return self._without(reason, separated=separated)

    def _has_no_maximum(self, at: LikelihoodObserver, full: Solved, basis: Basis) -> bool:
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
        moved = self.measured(Family.MOVES, basis, np.array(directions))
        rest = moved.squares[1:] / at.sums[Sum.ROWS]
        return bool(moved.moved[0] > MOVES or (rest > APART * at.moved[dependent] ** 2).any())

    def _separated(
        self,
        full: Solved,
        at: LikelihoodObserver,
        basis: Basis,
        columns: list[str],
        alone: NDArray[np.bool_] | None = None,
    ) -> Summary:
        moves = (np.abs(full.step) * at.moved[: len(full.step)])[1:]
        alone = self._alone(basis, 2) if alone is None else alone
        if alone.any():
            # of several, the one with the most rows apart: a category of few is far from the mean in deviations
            names = [columns[int(np.where(alone, at.moved[1 : len(full.step)], inf).argmin())]]
        else:
            names = [columns[k] for k in np.flatnonzero(moves > moves.max() / 100)]
        self.notify(separated_notice(names, self.request))
        return self._without("the rows are separated: the likelihood has no maximum", separated=True)

    def _alone(self, basis: Basis, labels: int) -> NDArray[np.bool_]:
        """Return whether a column separates the rows by itself: the values of each label are apart, or share an end."""
        bounds = self.measured(Family.BOUNDS, basis, np.zeros((labels, len(basis.centre) + 1))).matrix
        # without labels of no row
        bounds = bounds[np.isfinite(bounds[:, 0])].reshape(-1, 2, len(basis.centre) + 1)[:, :, 1:]
        order = (bounds[:, 0] - bounds[:, 1]).argsort(axis=0, kind="stable")
        largest, smallest = (np.take_along_axis(bounds[:, k], order, axis=0) for k in (0, 1))
        # of rows with one label, none does
        apart = (-smallest[1:] - largest[:-1]).min(axis=0) if len(bounds) > 1 else np.full(len(basis.centre), -1.0)
        varies = largest.max(axis=0) > -smallest.max(axis=0)
        return np.asarray(apart > 0 if (apart > 0).any() else (apart == 0) & varies)

    def _without(self, reason: str, *, separated: bool = False) -> Summary:
        return Summary(parameters=self.model.parameters, metadata={"separated": separated, "no_errors": reason})

    def _set(self, mapped: tuple[str, str, Doubles], basis: Basis, weights: Doubles) -> None:
        """Set the parameters to new weights of the basis; the intercept makes up for the rounding of the others."""
        name, intercept, each = mapped
        coefficients = weights[1:] * basis.scale
        old = next(one.values for one in self.model.parameters if one.name == name)
        new = np.divide(coefficients, each, out=old.astype(np.float64), where=each != 0)
        self.model.set(name, new.astype(np.float32))
        at, rounded = self.model.scores(), new.astype(np.float32).astype(np.float64) * each
        assert at is not None
        # at the centre of the columns
        missing = weights[0] - (at.intercepts[0] + rounded @ basis.centre)
        own = next(one.values for one in self.model.parameters if one.name == intercept)
        self.model.set(intercept, np.asarray(np.float64(own) + missing, np.float32))

    def _notify_alike(
        self, pairs: list[tuple[int, int]], at: LikelihoodObserver, basis: Basis, columns: list[str]
    ) -> None:
        """Report columns that differ by little more than their rounding to binary32."""
        scale = np.append(1, basis.scale)
        directions = np.zeros((len(pairs), len(scale)))
        for place, (k, j) in enumerate(pairs):
            directions[place, [k, j]] = 1 / scale[k], -1 / scale[j]
        pairs_left = [(columns[k - 1], columns[j - 1]) for k, j in pairs if k and j]
        if len(pairs_left) < len(pairs) or not pairs:
            return
        squares = self.measured(Family.MOVES, basis, directions).squares / at.sums[Sum.WEIGHT]
        mean = (basis.centre[[k - 1 for k, _ in pairs]]) ** 2
        widths = 1 / basis.scale[[k - 1 for k, _ in pairs]] ** 2
        # equal columns have no difference, and those in other units differ by more
        rounding = 2 * ROUNDED * (mean + widths)
        hidden = (squares > rounding / 100) & (squares < np.maximum(HIDDEN * rounding, CLOSE * CLOSE * widths))
        for (later, before), mine in zip(pairs_left, hidden, strict=True):
            if mine:
                self.notify(alike_notice(before, later))

    def _notify_close(self, columns: list[str]) -> None:
        """Report columns that depend on each other so much that the penalty decides their coefficients."""
        count = len(columns)
        if not 0 < count <= MAX_WEIGHTS or count != self.found.coefficients.shape[1]:
            return
        basis = self._own_basis(count)
        full = solved(self.measured(Family.NORMAL, basis, np.zeros(count + 1)).matrix, np.zeros(count + 1), basis)
        if full.weakest < CLOSE:
            few = min(MAX_WIDTH, isqrt(int(MAX_PRODUCTS / self.rows)))
            self.notify(close_notice(max(MAX_COLUMNS, few), MAX_WEIGHTS))

    def _summary(
        self, family: Family, at: LikelihoodObserver, full: Solved, basis: Basis, weights: Doubles, variance: float
    ) -> Summary:
        """Return the summary at the maximum, where the basis has these weights."""
        rows, total = float(at.sums[Sum.WEIGHT]), len(full.kept)
        freedom = rows - total
        weights, matrix = weights.copy(), whole(at.matrix)
        weights[full.kept] += full.inverse @ (matrix[np.ix_(full.kept, full.dropped)] @ weights[full.dropped])
        weights[full.dropped] = 0
        # from the basis to the columns' units
        change, centres = np.eye(len(weights)), self.request.centres
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
        return Summary(parameters=self.model.parameters, metadata=metadata, inference=inference)


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


def _in_basis(found: Scores, basis: Basis) -> Doubles:
    """Return intercept and weights of the basis, shape [features + 1]."""
    coefficients = found.coefficients[0]
    return np.concatenate([found.intercepts + coefficients @ basis.centre, coefficients / basis.scale])
