"""The pass that measures the loss of the kept model, which ends a training.

Another training computes it, of the rule's loss alone, so that the models stand still. It runs on the simulator for
every machine, and equal models have the same loss bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Constant, Parameter, Sink, Training
from dana.trainer.data.centres import Centring
from dana.trainer.losses import models_of_one_number


class Judged(ABC):
    """Methods of `dana.trainer.contract.Training` that all machines share: on its judge, and on centres.

    Parameters
    ----------
    open_judge
        Opens a training of the loss alone; None: the rule has no loss.
    """

    def __init__(self, open_judge: Callable[[], Training] | None) -> None:
        self._open_judge = open_judge
        self._judge: Training | None = None
        self._freed = False
        self._constant: Callable[[Mapping[str, float]], Constant | None] | None = None
        self._centring: Centring | None = None

    @abstractmethod
    def _free(self) -> None:
        """Free all resources."""

    @abstractmethod
    def _failure(self, status: int) -> Exception:
        """Return the error for a non-zero status of a sink."""

    def failure(self, status: int) -> Exception:
        """See `Training.failure`."""
        return self._failure(status) if self._judge is None else self._judge.failure(status)

    def judge(self, parameters: Sequence[Parameter]) -> Sink | None:
        """See `Training.judge`."""
        if self._open_judge is None:
            return None
        # first: a large model must not exist three times
        self._free_once()
        self._judge = self._open_judge()
        self._judge.adopt(parameters)
        return self._judge.sink

    def end_judging(self) -> float | None:
        """See `Training.end_judging`."""
        assert self._judge is not None
        return self._judge.end_epoch().loss

    @property
    def rounded(self) -> NDArray[np.bool_]:
        """See `Training.rounded`."""
        assert self._centring is not None
        return self._centring.inexact

    def centre(self, close: NDArray[np.bool_]) -> None:
        """See `Training.centre`."""
        assert self._centring is not None
        self._centring.check(close)

    def constant(self, parameters: Sequence[Parameter]) -> Constant | None:
        """See `Training.constant`."""
        return None if self._constant is None else self._constant(models_of_one_number(parameters))

    def close(self) -> None:
        """See `Training.close`."""
        self._free_once()
        if self._judge is not None:
            self._judge.close()

    def _free_once(self) -> None:
        if not self._freed:
            self._freed = True
            self._free()
