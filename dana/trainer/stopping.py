"""Decides from the losses when a training stops.

A training ends after its number of epochs, when the convergence test of the rule holds, or when its loss no longer
improves. If the table is one batch and the rule has a convergence test, that test alone decides unless a patience is
given: conjugate gradients stay on a plateau for many passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dana.trainer.contract import TrainingError, TrainRequest

PATIENCE = 30
"""Default number of epochs without improvement. With momentum the loss of a small table oscillates and that of a large
table rises before it decreases: both for up to 30 epochs with the shipped rules."""

TOLERANCE = 1e-3
"""Relative change of the loss that is not an improvement. With a tenth of it a noisy loss would never settle."""


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


def check_stopping(request: TrainRequest) -> None:
    """Raise TrainingError if the patience or tolerance of a request is invalid."""
    for name, value in (("patience", request.patience), ("tolerance", request.tolerance)):
        # written so that a NaN, for which each comparison is false, is an error
        if value is not None and not 0 <= value < math.inf:
            raise TrainingError(f'argument "{name}" must be at least 0, not {value:g}')
