"""The loop over epochs, and which model is kept.

It is independent of the machine and of the source of the pages. `dana.trainer.stopping` decides when it ends,
`dana.trainer.verdict` reports what came of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

from dana.trainer.calibration import calibrated
from dana.trainer.contract import (
    EpochReport,
    HeldOut,
    Level,
    Notice,
    Notify,
    Parameter,
    Sink,
    Training,
    TrainRequest,
    TrainResult,
    Validation,
)
from dana.trainer.data.clusters import start_centres
from dana.trainer.designs import CONJUGATE, rule_of
from dana.trainer.likelihoods import WEAK, penalty_of
from dana.trainer.messages.notices import diverged_error, skipped_notice
from dana.trainer.messages.page_errors import nulls_error
from dana.trainer.newton import least_squares, newton
from dana.trainer.passes import Passes, opened
from dana.trainer.stopping import PATIENCE, TOLERANCE, Stopping
from dana.trainer.summary import Summary, summarise, with_summary
from dana.trainer.verdict import Ended, report
from dana.trainer.warm import remembered

MARGIN = 0.01
"""Relative excess over the best loss up to which a later model is kept. The training loss is measured while the models
change, so its minimum may come long before they settle. A loss on held-out rows is exact: its minimum counts."""

SLOW = 20
"""Epochs of conjugate gradients after which Newton's method is faster: columns depend on each other, or separate rows.
A step costs as much as four epochs at 54 columns, and about eight steps suffice."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a training needs to go on after an epoch, in addition to its rows.

    Attributes
    ----------
    models
        Those that the next epoch reads, with the states of optimisers.
    reports, seconds
        Of each epoch.
    stopping, best, first, stepped
        As in the loop.
    """

    models: Sequence[Parameter]
    reports: Sequence[EpochReport]
    seconds: Sequence[float]
    stopping: Stopping
    best: tuple[int, Sequence[Parameter]] | None
    first: tuple[int, Sequence[Parameter]] | None
    stepped: bool


class Checkpoints(Protocol):
    """Where states are kept (`dana.trainer.checkpoints`)."""

    def load(self) -> State | None:
        """Return the state to go on from; None: the training begins."""

    def save(self, epoch: int, state: Callable[[], State]) -> None:
        """Keep the state after an epoch, or not, if that would be too often."""


def run(
    training: Training,
    request: TrainRequest,
    *,
    feed: Callable[[Sink], int],
    notify: Notify,
    report_epoch: Callable[[int, EpochReport, float], None] = lambda epoch, report, seconds: None,
    held_out: Validation | None = None,
    checkpoints: Checkpoints | None = None,
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
    checkpoints
        Keeps the state after epochs, which `held_out` is no part of.
    """
    validates = held_out is not None and request.validates
    solves = training.whole_table and training.tests_convergence and not validates
    loop = _Loop(
        training=training,
        request=request,
        feed=feed,
        notify=notify,
        report_epoch=report_epoch,
        held_out=held_out,
        validates=validates,
        solves=solves,
        conjugate=solves and CONJUGATE in rule_of(request.text, request.rule).checked.optimizers,
        stopping=Stopping(
            patience=(0 if solves else PATIENCE) if request.patience is None else request.patience,
            tolerance=TOLERANCE if request.tolerance is None else request.tolerance,
        ),
    )
    loop.prepare()
    if checkpoints is not None and (state := checkpoints.load()) is not None:
        loop.resume(state)
    loop.iterate(checkpoints)
    return loop.outcome()


@dataclass(slots=True, kw_only=True)
class _Loop:
    """The epochs of one training.

    Attributes
    ----------
    solves
        The rule's own test decides when the training ends.
    conjugate
        So it does, and the rule takes steps of conjugate gradients.
    fresh
        The models before the first epoch, of a rule that solves.
    best
        The epoch of the best loss so far, and its models; None: the last epoch counts.
    first
        The epoch at which the rule's test held before the training began again, and its models.
    stepped
        Newton's method went first.
    """

    training: Training
    request: TrainRequest
    feed: Callable[[Sink], int]
    notify: Notify
    report_epoch: Callable[[int, EpochReport, float], None]
    held_out: Validation | None
    validates: bool
    solves: bool
    conjugate: bool
    stopping: Stopping
    fresh: dict[str, Parameter] = field(default_factory=dict)
    reports: list[EpochReport] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    pages: int = 0
    best: tuple[int, Sequence[Parameter]] | None = None
    first: tuple[int, Sequence[Parameter]] | None = None
    stepped: bool = False

    def prepare(self) -> None:
        """Survey the rows, and make the models that the first epoch reads."""
        # read once: the property begins the pass
        survey = self.training.survey
        # the survey writes the start values that the first epoch reads
        if survey is not None:
            self.feed(survey)
            self.training.end_survey()
        for start in self.training.clustered:
            self.training.adopt([start_centres(self.training, self.request, start, feed=self.feed)])
        self.fresh = {one.name: one for one in self.training.parameters()} if self.solves else {}

    def resume(self, state: State) -> None:
        """Go on from a state, and report its epochs."""
        self.stopping, self.best, self.first, self.stepped = state.stopping, state.best, state.first, state.stepped
        for epoch, (found, seconds) in enumerate(zip(state.reports, state.seconds, strict=True), 1):
            self._add(epoch, found, seconds)
        self.training.adopt(state.models)

    def _add(self, epoch: int, report: EpochReport, seconds: float) -> None:
        self.reports.append(report)
        self.seconds.append(seconds)
        self.report_epoch(epoch, report, seconds)

    def _state(self) -> State:
        return State(
            models=self.training.parameters(),
            reports=self.reports,
            seconds=self.seconds,
            stopping=self.stopping,
            best=self.best,
            first=self.first,
            stepped=self.stepped,
        )

    def iterate(self, checkpoints: Checkpoints | None) -> None:
        """Run epochs until the training is over."""
        left: Sequence[Parameter] = ()
        before = len(self.reports)
        for epoch in range(before + 1, self.training.epochs + 1):
            started = time.perf_counter()
            # `sink` is read anew: it begins the epoch
            self.pages += self.feed(self.training.sink)
            found = self.training.end_epoch()
            # before the epoch is reported: a model with a NaN is never one to keep
            if found.loss is not None and not math.isfinite(found.loss):
                what = f"the loss of epoch {epoch} is {found.loss}"
                raise diverged_error(what, self.request, self.training.not_finite)
            if self.request.nulls == "error" and found.skipped:
                raise nulls_error(self.request.relation, found.skipped)
            if self.held_out is not None:
                # reuse the arrays of the previous epoch, unless they hold the best model
                left = self.training.parameters(() if self.best is not None and left is self.best[1] else left)
                found = replace(found, validation_loss=self.held_out.loss(left))
            if epoch == before + 1:
                self._report_rows(found)
            self._add(epoch, found, time.perf_counter() - started)
            # rows that are to judge the kept model must not choose it
            validated = found.validation_loss if self.validates else None
            loss, margin = (found.loss, MARGIN) if validated is None else (validated, 0.0)
            # patience 0 also means that no epoch is better than another: the last model is kept
            if loss is not None and self.stopping.patience and self.stopping.better(loss, margin):
                # reuse the arrays of the previous best: a large model must not exist three times
                models = left if self.validates else self.training.parameters(() if self.best is None else self.best[1])
                self.best = epoch, models
            if self._is_over(epoch, found):
                break
            if checkpoints is not None:
                checkpoints.save(epoch, self._state)

    def _report_rows(self, found: EpochReport) -> None:
        if self.validates and found.loss is not None and found.validation_loss is None:
            self.notify(NONE_LEFT_OUT)
        if found.skipped and self.training.stream is None:  # for frames the backend reports it, by column
            self.notify(skipped_notice(self.request, found))

    def _is_over(self, epoch: int, found: EpochReport) -> bool:
        """Return whether the training is over after an epoch; move the models where a rule that solves goes astray."""
        if found.converged and self.conjugate and self.first is None and self._began_again(epoch, found):
            return False
        if found.converged or self.stopping.over:
            return True
        # the summary then steps to the maximum, in binary64: more passes in binary32 bring it no nearer
        if self.stepped and epoch == 2 * SLOW and penalty_of(self.request, self._result().metadata["hyper"]) <= WEAK:
            return True
        if self.conjugate and self.request.epochs is None and epoch == SLOW:
            passes = self._passes(self._result(), found)
            moved = None if passes is None else newton(passes)
            self.stepped = moved is not None
            # the directions of conjugate gradients led elsewhere
            fresh = self.fresh
            self.training.adopt([fresh[one.name] if remembered(one.name, fresh) else one for one in moved or ()])
        return False

    def _began_again(self, epoch: int, found: EpochReport) -> bool:
        """Begin again from least squares, if the models lack an effect that these show; return whether they do."""
        now = self._result()
        passes = self._passes(now, found)
        moved = None if passes is None else least_squares(passes)
        if moved is None:
            return False
        self.first = epoch, now.parameters
        # the rest, such as the size of the errors, is that of models that lack an effect
        models = [self.fresh[a.name] if a is b else a for a, b in zip(moved, now.parameters, strict=True)]
        self.training.adopt(models)
        return True

    def _result(self) -> TrainResult:
        return self.training.finish(self.training.parameters())

    def _passes(self, result: TrainResult, found: EpochReport) -> Passes | None:
        rows = found.tuples
        return opened(self.training, self.request, result, rows=rows, feed=self.feed, notify=self.notify)

    def outcome(self) -> Outcome:
        """Keep a model, and report what came of the training."""
        training, request, last = self.training, self.request, self.reports[-1]
        best, in_vain = self.best, False
        if best is None and self.first is not None:
            before = self.reports[self.first[0] - 1]
            in_vain = not (last.loss or 0) <= (before.loss or 0)
            best, last = (self.first, before) if in_vain else (None, last)
        epoch, parameters = best or (len(self.reports), training.parameters())
        # before the extra pass of `_measured`, which takes a step and counts cycles
        result, kept = training.finish(parameters), self.reports[epoch - 1]
        summary: Summary | None = None
        if self.solves and (last.converged or (request.epochs is None and not self.stopping.over)):
            passes = self._passes(result, kept)
            summary = None if passes is None else summarise(passes)
        if summary is not None:
            result = with_summary(training.finish(summary.parameters), summary)
            if self.held_out is not None:
                kept = replace(kept, validation_loss=self.held_out.loss(result.parameters))
        kept = self._measured(kept, result, held=epoch == len(self.reports) and summary is None)
        if request.calibrate is not None:
            result = calibrated(request, result, cast("HeldOut", self.held_out), self.notify)
        ended = Ended(
            reports=self.reports,
            epoch=epoch,
            kept=kept,
            metadata=result.metadata,
            constant=training.constant(result.parameters),
            solves=self.solves,
            solved=last.converged or (summary is not None and bool(summary.inference)),
            separated=bool(summary and summary.metadata.get("separated")),
            in_vain=in_vain,
            over=self.stopping.over,
            patience=self.stopping.patience,
        )
        report(ended, training, request, validates=self.validates, notify=self.notify)
        added = {"epoch": epoch, "ended": ended.reason, **({"newton": SLOW} if self.stepped else {})}
        return Outcome(
            result=replace(result, metadata={**result.metadata, **added}),
            kept=kept,
            reports=self.reports,
            converged=ended.converged,
            pages=self.pages,
        )

    def _measured(self, kept: EpochReport, result: TrainResult, *, held: bool) -> EpochReport:
        """Return the report of the kept model with its loss on all rows.

        Parameters
        ----------
        held
            The machine holds the kept model.
        """
        training = self.training
        if training.whole_table and kept.loss is not None:
            # an epoch computes the loss before its step: one more epoch measures that of the kept models
            if not held:
                training.adopt(result.parameters)
            self.feed(training.sink)
            # not added to the reports: it is no epoch of the training
            kept = replace(kept, loss=training.end_epoch().loss)
        elif (sink := training.judge(result.parameters)) is not None:
            self.feed(sink)
            kept = replace(kept, loss=training.end_judging())
        if kept.loss is not None and not math.isfinite(kept.loss):
            raise diverged_error(f"the loss of the model is {kept.loss}", self.request, training.not_finite)
        return kept


NONE_LEFT_OUT = Notice(
    level=Level.WARNING,
    message="no row for validation is usable: the loss of the training rows chooses the epoch",
    hint="Rows with a NULL in a column in use and rows of weight 0 do not count. Increase validation_size.",
)
