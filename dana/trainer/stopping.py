"""The loop over epochs: when a training stops, and which model is kept.

A training ends after its number of epochs, when the convergence test of the rule holds, or when its loss no longer
improves. If the table is one batch and the rule has a convergence test, that test alone decides unless a patience is
given: conjugate gradients stay on a plateau for many passes. The loop is independent of the machine and of the source
of the pages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dana.trainer.calibration import calibrated
from dana.trainer.contract import (
    Constant,
    EpochReport,
    HeldOut,
    Json,
    Level,
    Notice,
    Notify,
    Parameter,
    Sink,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
)
from dana.trainer.data.clusters import start_centres
from dana.trainer.designs import rule_of
from dana.trainer.messages.notices import (
    diverged_error,
    risen_notice,
    skipped_notice,
    unfinished_notice,
    unsolved_notice,
)
from dana.trainer.messages.page_errors import nulls_error
from dana.trainer.summary import WEAK, least_squares, newton, penalty_of, summarise, with_summary
from dana.trainer.warm import CONJUGATE, SOLVERS, remembered

PATIENCE = 30
"""Default number of epochs without improvement. With momentum the loss of a small table oscillates and that of a large
table rises before it decreases: both for up to 30 epochs with the shipped rules."""

TOLERANCE = 1e-3
"""Relative change of the loss that is not an improvement. With a tenth of it a noisy loss would never settle."""

MARGIN = 0.01
"""Relative excess over the best loss up to which a later model is kept. The training loss is measured while the models
change, so its minimum may come long before they settle. A loss on held-out rows is exact: its minimum counts."""

RISEN = 2.0
"""Multiple of the kept loss above which a later loss is not an oscillation: the steps were too long."""
SWING = 0.1
"""Allowed rise as a fraction of the total decrease, for losses near 0, where RISEN would be too strict."""

UNFINISHED = 0.01
"""Decrease in the last tenth of the epochs that is reported, relative to the loss of a constant; twice that relative to
the loss itself."""
SETTLING = 50
"""Number of epochs from which a rule is expected to converge; with fewer its author did not intend that."""
LEFT = 0.1
"""Loss relative to that of a constant below which there is little left to learn."""

SLOW = 20
"""Epochs of conjugate gradients after which Newton's method is faster: columns depend on each other, or separate rows.
A step costs as much as four epochs at 54 columns, and about eight steps suffice."""

SUMMED = 1e-6
"""Relative rounding error of a sum of losses in binary32."""

WORSE = 1.1
"""Multiple of the loss of a constant above which a loss on held-out rows, possibly few, is not due to chance."""


@dataclass(slots=True, kw_only=True)
class Stopping:
    """Decides from the losses when a training is over.

    Attributes
    ----------
    patience
        Epochs without an improvement by more than `tolerance` after which the training is over. It is also over when
        all losses of half as many epochs differ by less than `tolerance`. 0: never.
    tolerance
        Relative to the loss.
    """

    patience: int = PATIENCE
    tolerance: float = TOLERANCE
    best: float = math.inf
    over: bool = False
    _mark: float = math.inf
    _waited: int = 0
    _recent: list[float] = field(default_factory=list)

    def better(self, loss: float, margin: float) -> bool:
        """Record the loss of an epoch; return whether the model of this epoch is to be kept."""
        known = math.isfinite(self.best)
        # abs: a loss may be negative, as a logarithm of a likelihood
        keep = not known or loss <= self.best + margin * abs(self.best)
        self.best = min(self.best, loss)
        # unlike `best`, the mark moves only beyond the tolerance: many tiny improvements must not restart the wait
        if not math.isfinite(self._mark) or loss < self._mark - self.tolerance * abs(self._mark):
            self._mark, self._waited = loss, 0
        else:
            self._waited += 1
        half = (self.patience + 1) // 2
        self._recent = [*self._recent, loss][-half - 1 :]
        moved = max(self._recent) - min(self._recent)
        # with patience 0, half is 0 and a single loss counts as settled, so the patience is tested first below
        settled = len(self._recent) > half and moved <= self.tolerance * abs(loss)
        self.over = self.patience > 0 and (settled or self._waited >= self.patience)
        return keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a training.

    Attributes
    ----------
    result
        The kept model.
    kept
        Report of the epoch of that model.
    reports
        Reports of all epochs.
    converged
        Whether the training ended because the rule converged or its loss no longer improved.
    pages
        Pages fed, over all epochs.
    """

    result: TrainResult
    kept: EpochReport
    reports: Sequence[EpochReport]
    converged: bool
    pages: int

    @property
    def cycles(self) -> int | None:
        """Over all epochs; None for the interpreter."""
        cycles = [one.cycles for one in self.reports if one.cycles is not None]
        return sum(cycles) if len(cycles) == len(self.reports) else None


def check_stopping(request: TrainRequest) -> None:
    """Raise TrainingError if the patience or tolerance of a request is invalid."""
    for name, value in (("patience", request.patience), ("tolerance", request.tolerance)):
        # written so that a NaN, for which each comparison is false, is an error
        if value is not None and not 0 <= value < math.inf:
            raise TrainingError(f'argument "{name}" must be at least 0, not {value:g}')


def run(
    training: Training,
    request: TrainRequest,
    *,
    feed: Callable[[Sink], int],
    notify: Notify,
    report_epoch: Callable[[int, EpochReport, float], None] = lambda epoch, report, seconds: None,
    held_out: HeldOut | None = None,
) -> Outcome:
    """Run the epochs of a training.

    Parameters
    ----------
    feed
        Feeds all pages to a sink and returns their number.
    report_epoch
        Called after each epoch with its number, its report and its duration in seconds.
    held_out
        Held-out rows: they measure the loss of the kept model, or choose it (`TrainRequest.validates`).
    """
    validates = held_out is not None and request.validates
    solves = training.whole_table and training.tests_convergence and not validates
    conjugate = solves and CONJUGATE in rule_of(request.text, request.rule).checked.optimizers
    stopping = Stopping(
        patience=(0 if solves else PATIENCE) if request.patience is None else request.patience,
        tolerance=TOLERANCE if request.tolerance is None else request.tolerance,
    )
    pages = 0
    # read once: the property begins the pass
    survey = training.survey
    # the survey writes the start values that the first epoch reads
    if survey is not None:
        feed(survey)
        training.end_survey()
    for start in training.clustered:
        training.adopt([start_centres(training, request, start, feed=feed)])
    fresh = {one.name: one for one in training.parameters()} if solves else {}
    stepped = unpenalised = False
    reports: list[EpochReport] = []
    best: tuple[int, Sequence[Parameter]] | None = None
    first: tuple[int, Sequence[Parameter]] | None = None
    left: Sequence[Parameter] = ()
    for epoch in range(1, training.epochs + 1):
        started = time.perf_counter()
        # `sink` is read anew: it begins the epoch
        pages += feed(training.sink)
        report = training.end_epoch()
        # before the epoch is reported: a model with a NaN is never one to keep
        if report.loss is not None and not math.isfinite(report.loss):
            raise diverged_error(f"the loss of epoch {epoch} is {report.loss}", request, training.not_finite)
        if request.nulls == "error" and report.skipped:
            raise nulls_error(request.relation, report.skipped)
        if held_out is not None:
            # reuse the arrays of the previous epoch, unless they hold the best model
            left = training.parameters(() if best is not None and left is best[1] else left)
            report = replace(report, validation_loss=held_out.loss(left))
        if epoch == 1 and validates and report.loss is not None and report.validation_loss is None:
            notify(NONE_LEFT_OUT)
        if epoch == 1 and report.skipped and training.stream is None:  # for frames the backend reports it, by column
            notify(skipped_notice(request, report))
        validated = report.validation_loss if validates else None
        reports.append(report)
        report_epoch(epoch, report, time.perf_counter() - started)
        # rows that are to judge the kept model must not choose it
        loss, margin = (report.loss, MARGIN) if validated is None else (validated, 0.0)
        # patience 0 also means that no epoch is better than another: the last model is kept
        if loss is not None and stopping.patience and stopping.better(loss, margin):
            # reuse the arrays of the previous best: a large model must not exist three times
            best = epoch, left if validates else training.parameters(() if best is None else best[1])
        if report.converged and first is None and conjugate and request.epochs is None:
            now = training.finish(training.parameters())
            moved = least_squares(training, request, now, rows=report.tuples, feed=feed, notify=notify)
            if moved is not None:
                first = epoch, now.parameters
                # the rest, such as the size of the errors, is that of models that lack an effect
                training.adopt([fresh[a.name] if a is b else a for a, b in zip(moved, now.parameters, strict=True)])
                continue
        if report.converged or stopping.over or (stepped and epoch == 2 * SLOW and unpenalised):
            break
        if conjugate and epoch == SLOW and request.epochs is None:
            now = training.finish(training.parameters())
            moved = newton(training, request, now, rows=report.tuples, feed=feed)
            stepped = moved is not None
            # the summary then steps to the maximum, in binary64: more passes in binary32 bring it no nearer
            unpenalised = penalty_of(request, now.metadata["hyper"]) <= WEAK
            # the directions of conjugate gradients led elsewhere
            training.adopt([fresh[one.name] if remembered(one.name, fresh) else one for one in moved or ()])
    in_vain = first is not None and best is None and not (report.loss or 0) <= (reports[first[0] - 1].loss or 0)
    if in_vain and first is not None:
        best, report = first, reports[first[0] - 1]
    epoch, parameters = best or (epoch, training.parameters())
    # before the extra pass below, which takes a step and counts cycles
    result, kept = training.finish(parameters), reports[epoch - 1]
    summary = None
    if solves and (report.converged or (request.epochs is None and not stopping.over)):
        summary = summarise(training, request, result, rows=kept.tuples, feed=feed, notify=notify)
    if summary is not None:
        result = with_summary(training.finish(summary.parameters), summary)
        if held_out is not None:
            kept = replace(kept, validation_loss=held_out.loss(result.parameters))
    if training.whole_table and kept.loss is not None:
        # an epoch computes the loss before its step: one more epoch measures that of the kept models
        # the machine holds the models of the last epoch
        if epoch < len(reports) or summary is not None:
            training.adopt(result.parameters)
        feed(training.sink)
        # not added to the reports: it is no epoch of the training
        kept = replace(kept, loss=training.end_epoch().loss)
    elif (sink := training.judge(result.parameters)) is not None:
        feed(sink)
        kept = replace(kept, loss=training.end_judging())
    if kept.loss is not None and not math.isfinite(kept.loss):
        raise diverged_error(f"the loss of the model is {kept.loss}", request, training.not_finite)
    if request.calibrate is not None:
        result = calibrated(request, result, held_out, notify)
    constant = training.constant(result.parameters)
    risen = None if in_vain else _risen(reports, epoch)
    # a last step that arrives at the maximum of the likelihood ends what the epochs did not
    solved = report.converged or (summary is not None and bool(summary.inference))
    ended = solved or stopping.over
    if len(reports) == 1 and not ended and SOLVERS.intersection(result.metadata["optimizers"]):
        notify(ONLY_A_DIRECTION)
    elif solves and not ended and request.epochs is None and not (summary and summary.metadata.get("separated")):
        notify(unsolved_notice(request, len(reports)))
    elif risen:
        losses_of = [reports[k - 1].loss for k in (epoch, risen)]
        heap_order = training.order is None and not training.whole_table
        notify(risen_notice(request, (epoch, risen), losses_of, heap_order=heap_order))
    elif (
        request.epochs is None
        and stopping.patience
        and not ended
        and (fell := _still_falls(reports, None if constant is None else constant.loss, validates=validates))
    ):
        notify(unfinished_notice(request, len(reports), *fell))
    if kept.loss and len(reports) > 1 and (zero := _all_zero(result.metadata)) is not None:
        notify(zero)
    elif constant is not None and kept.loss is not None:
        columns = len(training.layout.features)
        least = max(_small(constant), constant.chance * by_chance(columns) / kept.tuples)
        if kept.loss >= constant.loss - max(least, SUMMED * abs(constant.loss)):
            notify(_no_better(kept.loss, constant, columns, solved=solves and solved))
        elif kept.validation_loss is not None and kept.validation_loss > WORSE * constant.loss:
            notify(_worse_elsewhere(kept.validation_loss, constant.loss))
    if validates and kept.validation_loss is not None and stopping.patience:
        notify(_validated(epoch, len(reports), kept.validation_loss))
    return Outcome(
        result=replace(
            result,
            metadata={
                **result.metadata,
                "epoch": epoch,
                "ended": _ended(solved, stopping),
                **({"newton": SLOW} if stepped else {}),
            },
        ),
        kept=kept,
        reports=reports,
        # a loss that rises exhausts the patience, too, and has not converged
        converged=ended and not risen,
        pages=pages,
    )


def _ended(solved: bool, stopping: Stopping) -> str:
    """Return the reason why a training ended: the rule's test, the loss, or the number of epochs."""
    return "converged" if solved else "loss no longer improved" if stopping.over else "epochs"


def _risen(reports: Sequence[EpochReport], kept: int) -> int:
    """Return the epoch after the kept one with the highest loss if the loss rose considerably; otherwise 0."""
    losses = [one.loss for one in reports if one.loss is not None]
    if len(losses) < len(reports) or kept == len(reports):
        return 0
    loss, highest = losses[kept - 1], max(losses[kept:])
    # for losses near 0 the multiple alone would report every oscillation
    far = max((RISEN - 1) * abs(loss), SWING * (max(losses[:kept]) - loss))
    return losses.index(highest, kept) + 1 if highest > loss + far else 0


def _still_falls(
    reports: Sequence[EpochReport], constant: float | None, *, validates: bool = False
) -> tuple[int, float, float] | None:
    """Return the number of last epochs and the losses before and after them if the loss still decreased noticeably."""
    losses = [one.loss if one.validation_loss is None or not validates else one.validation_loss for one in reports]
    known = [one for one in losses if one is not None]
    last = len(known) // 10
    # SETTLING losses at least also keep `last` above 0: known[:-0] is empty
    if len(known) < max(SETTLING, len(reports)):
        return None
    # minima: a single loss is noisy
    before, now = min(known[:-last]), min(known)
    scale = max(abs(known[0]), abs(now)) if constant is None else constant
    fell = before - now > UNFINISHED * max(scale, 2 * abs(now))
    return (last, before, now) if fell and abs(now) > LEFT * scale else None


ONLY_A_DIRECTION = Notice(
    level=Level.WARNING,
    message="the model is still where it started: the first epoch of a rule that solves only finds a direction",
    hint="Train for 2 epochs or more; without epochs the training ends when the rule has converged.",
)

NONE_LEFT_OUT = Notice(
    level=Level.WARNING,
    message="no row for validation is usable: the loss of the training rows chooses the epoch",
    hint="Rows with a NULL in a column in use and rows of weight 0 do not count. Increase validation_size.",
)


def _validated(epoch: int, epochs: int, loss: float) -> Notice:
    return Notice(
        level=Level.NOTICE,
        message=f"epoch {epoch} of {epochs} is kept: its loss on the rows for validation is the lowest, {loss:.6g}",
        hint="These rows chose the epoch and do not show how good the model is: evaluate on others, as with test_size.",
    )


def _worse_elsewhere(loss: float, constant: float) -> Notice:
    return Notice(
        level=Level.WARNING,
        message="on the held-out rows the model is worse than a constant prediction: its loss is "
        f"{loss:.6g}, the loss of a constant on the training rows is {constant:.6g}",
        hint="The model overfits. Train for fewer epochs, with a stronger penalty, or on more rows.",
    )


def by_chance(columns: int) -> float:
    """Return what random columns explain at most, in 19 of 20 tables, in multiples of `Constant.chance`.

    The squared error that they explain has a chi-squared distribution; two deviations above its mean are close to its
    95 % quantile.
    """
    return columns + 2 * math.sqrt(2 * columns)


def _small(constant: Constant) -> float:
    """Return a part of the loss that is not worth a model."""
    # of a rare class a column saves many times the mean loss
    return TOLERANCE * min(constant.chance, abs(constant.loss))


def _all_zero(metadata: Json) -> Notice | None:
    """Return a warning if a penalty has set all coefficients of columns to 0."""
    penalty, found = metadata["hyper"].get("penalty", 0), metadata["coefficients"]
    if not penalty or found is None or any(value != 0 for values in found["values"] for value in values):
        return None
    return Notice(
        level=Level.WARNING,
        message="all coefficients are 0: the model predicts the same number for every row",
        hint=f"penalty is {penalty:g}; for numbers it is in the unit of the label. Decrease it, as in "
        f'{{"penalty": {penalty / 100:g}}}; of columns that are unrelated to the label the coefficients are 0, too.',
    )


def _no_better(loss: float, constant: Constant, columns: int, *, solved: bool) -> Notice:
    random = "1 column of random numbers explains" if columns == 1 else f"{columns} columns of random numbers explain"
    chance = f", and {random} as much" if loss < constant.loss - _small(constant) else ""
    return Notice(
        level=Level.WARNING,
        message=f"the model is no better than a constant prediction: its loss is {loss:.6g}, that of a constant "
        f"{constant.loss:.6g}{chance}",
        hint="The features may be unrelated to the label"
        + (
            ", or related to it in a way that is no weighted sum."
            if solved
            else "; otherwise train for more epochs or change the learning rate."
        ),
    )
