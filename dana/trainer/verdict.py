"""Reports about a model whose training has ended: whether it is finished, and whether it is any good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dana.trainer.contract import Constant, EpochReport, Json, Level, Notice, Notify, Training, TrainRequest
from dana.trainer.designs import SOLVERS
from dana.trainer.messages.notices import risen_notice, unfinished_notice, unsolved_notice
from dana.trainer.stopping import TOLERANCE

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

SUMMED = 1e-6
"""Relative rounding error of a sum of losses in binary32."""

WORSE = 1.1
"""Multiple of the loss of a constant above which a loss on held-out rows, possibly few, is not due to chance."""


ONLY_A_DIRECTION = Notice(
    level=Level.WARNING,
    message="the model is still where it started: the first epoch of a rule that solves only finds a direction",
    hint="Train for 2 epochs or more; without epochs the training ends when the rule has converged.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A training that has ended.

    Attributes
    ----------
    reports
        Of all epochs.
    epoch, kept
        The epoch of the kept model, and its report with the loss of that model.
    metadata
        Of its result.
    constant
        The best constant prediction.
    solves
        The rule's own test decides when the training ends.
    solved
        It holds, or a last step arrived at the maximum of the likelihood.
    separated
        There is no such maximum, which has been reported.
    in_vain
        The epochs after the kept one began elsewhere and found no better model.
    over, patience
        Of its `dana.trainer.stopping.Stopping`.
    """

    reports: Sequence[EpochReport]
    epoch: int
    kept: EpochReport
    metadata: Json
    constant: Constant | None
    solves: bool
    solved: bool
    separated: bool
    in_vain: bool
    over: bool
    patience: int

    @property
    def reason(self) -> str:
        """Why it ended: the rule's test, the loss, or the number of epochs."""
        return "converged" if self.solved else "loss no longer improved" if self.over else "epochs"

    @property
    def risen(self) -> int:
        """See `_risen`."""
        return 0 if self.in_vain else _risen(self.reports, self.epoch)

    @property
    def converged(self) -> bool:
        """Whether it ended before its number of epochs; a loss that rises exhausts the patience, too."""
        return (self.solved or self.over) and not self.risen


def report(ended: Ended, training: Training, request: TrainRequest, *, validates: bool, notify: Notify) -> None:
    """Report what the user of a model should know.

    Parameters
    ----------
    validates
        Held-out rows have chosen the epoch.
    """
    _report_end(ended, training, request, validates=validates, notify=notify)
    _report_loss(ended, training, notify=notify)
    if validates and ended.kept.validation_loss is not None and ended.patience:
        notify(_validated(ended.epoch, len(ended.reports), ended.kept.validation_loss))


def _report_end(ended: Ended, training: Training, request: TrainRequest, *, validates: bool, notify: Notify) -> None:
    """Report a training that should have gone on, or whose loss rose."""
    reports, constant = ended.reports, ended.constant
    unlimited = request.epochs is None and not (ended.solved or ended.over)
    if len(reports) == 1 and not (ended.solved or ended.over) and SOLVERS.intersection(ended.metadata["optimizers"]):
        notify(ONLY_A_DIRECTION)
    elif ended.solves and unlimited and not ended.separated:
        notify(unsolved_notice(request, len(reports)))
    elif risen := ended.risen:
        losses_of = [reports[k - 1].loss for k in (ended.epoch, risen)]
        heap_order = training.order is None and not training.whole_table
        notify(risen_notice(request, (ended.epoch, risen), losses_of, heap_order=heap_order))
    elif (
        unlimited
        and ended.patience
        and (fell := _still_falls(reports, None if constant is None else constant.loss, validates=validates))
    ):
        notify(unfinished_notice(request, len(reports), *fell))


def _report_loss(ended: Ended, training: Training, *, notify: Notify) -> None:
    """Report a model that is no better than a constant."""
    kept, constant = ended.kept, ended.constant
    if kept.loss and len(ended.reports) > 1 and (zero := _all_zero(ended.metadata)) is not None:
        notify(zero)
    elif constant is not None and kept.loss is not None:
        columns = len(training.layout.features)
        least = max(_small(constant), constant.chance * by_chance(columns) / kept.tuples)
        if kept.loss >= constant.loss - max(least, SUMMED * abs(constant.loss)):
            notify(_no_better(kept.loss, constant, columns, solved=ended.solves and ended.solved))
        elif kept.validation_loss is not None and kept.validation_loss > WORSE * constant.loss:
            notify(_worse_elsewhere(kept.validation_loss, constant.loss))


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
