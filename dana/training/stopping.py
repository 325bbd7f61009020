"""The loop over epochs, whatever trains and wherever its pages come from: when to stop, and which model is kept.

In: a training, and somebody who feeds a sink with all its pages. Out: the result and what led to it. It knows neither
rings nor messages. A training ends with its epochs, by the rule's own test, or when its loss no longer improves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dana.training.contract import (
    EpochReport,
    HeldOut,
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
from dana.training.messages.notices import diverged_error, risen_notice, skipped_notice, unfinished_notice
from dana.training.messages.page_errors import nulls_error

PATIENCE = 30
"""Epochs without improvement, by default. Momentum makes the loss of a small table swing, and that of a large one rise
a little before it falls for good: both for up to 30 epochs with the shipped rules."""

TOLERANCE = 1e-3
"""Of the loss: what is no improvement, over half the patience. A tenth of it would never let a noisy loss settle."""

MARGIN = 0.01
"""A training's loss is measured while the models change, and may be lowest long before they settle: the last model is
kept unless its loss is worse than the best by this much. A loss on other rows is the model's: the lowest counts."""

RISEN = 2.0
"""Times the kept epoch's loss from which a later one's is no swing of momentum, and tells that steps were too long."""
SWING = 0.1
"""Of what the loss has fallen by: what a loss near 0 may rise by, whatever that is of itself."""

UNFINISHED = 0.01
"""Of a constant's loss, by which a loss still fell in the last tenth of a rule's own epochs; twice that of itself."""
SETTLING = 50
"""Epochs of a rule that are meant to be enough; of fewer its author thought otherwise."""
LEFT = 0.1
"""Of a constant's loss: of less than that there is little left to learn, however long that takes."""

WORSE = 1.1
"""Times a constant's loss on the rows trained on is more than chance on rows left out, of which there may be few."""


@dataclass(slots=True, kw_only=True)
class Stopping:
    """Looks at the losses, epoch by epoch.

    Attributes
    ----------
    patience
        Epochs without an improvement by more than `tolerance`, of the loss, after which it is over; and if all losses
        of half as many epochs lie within it, too. 0: never.
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
        """Take an epoch's loss; whether the model that it left is the one to keep."""
        known = math.isfinite(self.best)
        keep = not known or loss <= self.best + margin * abs(self.best)
        self.best = min(self.best, loss)
        if not math.isfinite(self._mark) or loss < self._mark - self.tolerance * abs(self._mark):
            self._mark, self._waited = loss, 0
        else:
            self._waited += 1
        half = (self.patience + 1) // 2
        self._recent = [*self._recent, loss][-half - 1 :]
        moved = max(self._recent) - min(self._recent)
        settled = len(self._recent) > half and moved <= self.tolerance * abs(loss)
        self.over = self.patience > 0 and (settled or self._waited >= self.patience)
        return keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a training came to.

    Attributes
    ----------
    result
        The kept model.
    kept
        The epoch's report that left it.
    reports
        Every epoch's.
    converged
        Whether the rule's test ended it, or its loss no longer improved.
    pages
        Fed, over all epochs.
    """

    result: TrainResult
    kept: EpochReport
    reports: Sequence[EpochReport]
    converged: bool
    pages: int

    @property
    def cycles(self) -> int | None:
        """Over all epochs; None where the backend has no machine."""
        cycles = [one.cycles for one in self.reports if one.cycles is not None]
        return sum(cycles) if len(cycles) == len(self.reports) else None


def check_stopping(request: TrainRequest) -> None:
    """Raise TrainingError where a request's patience or tolerance is none."""
    for name, value in (("patience", request.patience), ("tolerance", request.tolerance)):
        if value is not None and not 0 <= value < math.inf:
            raise TrainingError(f'argument "{name}" must be at least 0, not {value:g}')


def run(
    training: Training,
    request: TrainRequest,
    *,
    feed: Callable[[Sink], int],
    notify: Notify,
    tell: Callable[[int, EpochReport, float], None] = lambda epoch, report, seconds: None,
    held_out: HeldOut | None = None,
) -> Outcome:
    """Train until the end.

    Parameters
    ----------
    feed
        Gives all pages to a sink, and says how many they are.
    tell
        Is told of each epoch: its number, its report, its seconds.
    held_out
        Rows to judge models by.
    """
    stopping = Stopping(
        patience=PATIENCE if request.patience is None else request.patience,
        tolerance=TOLERANCE if request.tolerance is None else request.tolerance,
    )
    pages = 0
    survey = training.survey
    if survey is not None:
        feed(survey)
        training.end_survey()
    reports: list[EpochReport] = []
    best: tuple[int, Sequence[Parameter]] | None = None
    left: Sequence[Parameter] = ()
    for epoch in range(1, training.epochs + 1):
        started = time.perf_counter()
        pages += feed(training.sink)
        report = training.end_epoch()
        if report.loss is not None and not math.isfinite(report.loss):
            raise diverged_error(f"the loss of epoch {epoch} is {report.loss}", request, training.not_finite)
        if request.nulls == "error" and report.skipped:
            raise nulls_error(request.relation, report.skipped)
        if held_out is not None:
            # in the place of the epoch's before it, unless that is the best
            left = training.parameters(() if best is not None and left is best[1] else left)
            report = replace(report, test_loss=held_out.loss(left))
        if epoch == 1 and held_out is not None and report.loss is not None and report.test_loss is None:
            notify(NONE_LEFT_OUT)
        if epoch == 1 and report.skipped and training.stream is None:  # of frames the backend says more
            notify(skipped_notice(request, report))
        reports.append(report)
        tell(epoch, report, time.perf_counter() - started)
        loss, margin = (report.loss, MARGIN) if report.test_loss is None else (report.test_loss, 0.0)
        if loss is not None and stopping.patience and stopping.better(loss, margin):
            # in the place of the best before it: there are never three of a large model
            best = epoch, training.parameters(() if best is None else best[1]) if held_out is None else left
        if report.converged or stopping.over:
            break
    epoch, parameters = best or (epoch, training.parameters())
    result, kept = training.finish(parameters), reports[epoch - 1]
    constant = training.constant_loss
    risen = _risen(reports, epoch)
    ended = report.converged or stopping.over
    if risen:
        notify(risen_notice(request, (epoch, risen), [reports[k - 1].loss for k in (epoch, risen)]))
    elif request.epochs is None and stopping.patience and not ended and (fell := _still_falls(reports, constant)):
        notify(unfinished_notice(request, len(reports), *fell))
    if constant is not None:
        # rows left out may choose an early epoch, whose loss is mostly that of the start values: the lowest counts
        losses = [one.loss for one in (reports if kept.test_loss is not None else [kept]) if one.loss is not None]
        if losses and min(losses) >= constant * (1 - TOLERANCE):
            # of rows in order the loss is one of the models on the way, which are as bad as that order, and it was told
            if not training.in_order:
                notify(_no_better(min(losses), constant))
        elif kept.test_loss is not None and kept.test_loss > WORSE * constant:
            notify(_worse_elsewhere(kept.test_loss, constant))
    return Outcome(
        result=replace(result, metadata={**result.metadata, "epoch": epoch}),
        kept=kept,
        reports=reports,
        converged=ended and not risen,
        pages=pages,
    )


def _risen(reports: Sequence[EpochReport], kept: int) -> int:
    """The epoch behind the kept one whose loss rose highest, if that is far; else 0."""
    losses = [one.loss for one in reports if one.loss is not None]
    if len(losses) < len(reports) or kept == len(reports):
        return 0
    loss, highest = losses[kept - 1], max(losses[kept:])
    far = max((RISEN - 1) * abs(loss), SWING * (max(losses[:kept]) - loss))
    return losses.index(highest, kept) + 1 if highest > loss + far else 0


def _still_falls(reports: Sequence[EpochReport], constant: float | None) -> tuple[int, float, float] | None:
    """Of how many of the last epochs which loss fell to which, where that is noticeable: more of them would help."""
    losses = [one.loss if one.test_loss is None else one.test_loss for one in reports]
    known = [one for one in losses if one is not None]
    last = len(known) // 10
    if len(known) < max(SETTLING, len(reports)):
        return None
    before, now = min(known[:-last]), min(known)
    scale = max(abs(known[0]), abs(now)) if constant is None else constant
    fell = before - now > UNFINISHED * max(scale, 2 * abs(now))
    return (last, before, now) if fell and abs(now) > LEFT * scale else None


NONE_LEFT_OUT = Notice(
    level=Level.WARNING,
    message='argument "test_size" leaves out no row to judge the model by',
    hint="Rows with a NULL in a column in use do not count, nor do those of weight 0. Leave out a larger part.",
)


def _worse_elsewhere(loss: float, constant: float) -> Notice:
    return Notice(
        level=Level.WARNING,
        message="on the rows left out the model is worse than a constant prediction: its loss there is "
        f"{loss:.6g}, that of a constant on the rows trained on is {constant:.6g}",
        hint="It knows its rows by heart, or they lie in an order that misleads it (shuffle => true): train for fewer "
        "epochs, with a stronger penalty, or on more rows.",
    )


def _no_better(loss: float, constant: float) -> Notice:
    return Notice(
        level=Level.WARNING,
        message=f"the model is no better than a constant prediction, whose loss is {constant:.6g}; its own: {loss:.6g}",
        hint="The features may tell nothing of the label; or train for more epochs, or with another learning rate.",
    )
