"""Rows left out of a training, kept in memory to judge its models by after each epoch.

In: a machine that computes the rule's loss and changes no model, its frames once, then models. Out: their loss, the
same bits for the same models, whatever trained them. It asks nobody for the frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dana.training.contract import Json, Parameter, Sink, Stream, Training
from dana.training.machines import NO_MEMORY, PageCollector, feed_pages
from dana.training.messages.page_errors import NoRows

AT_ONCE = 1024
"""Pages fed in one call: between two, a session hears that its backend is gone."""


class Judge(Training, Protocol):
    """A training of a rule that updates nothing."""

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        """Take the models of another training of the rule."""


class HeldOutRows:
    """Implements `dana.training.contract.HeldOut`."""

    def __init__(self, judge: Judge, stream: Stream) -> None:
        self.stream = stream
        self._judge = judge
        self._collector = PageCollector(stream.page_size)
        self._pages: NDArray[np.uint8] | None = None

    @property
    def design(self) -> Json:
        return self._judge.design

    def begin(self, most: int) -> None:
        self._collector = PageCollector(self.stream.page_size, most)
        self._pages = None

    @property
    def sink(self) -> Sink:
        return self._collector.sink

    def failure(self, status: int) -> Exception:
        assert status == NO_MEMORY
        return MemoryError("no room for the rows that are left out")

    @property
    def kept(self) -> int:
        if self._pages is None:
            self._pages = np.frombuffer(self._collector.take(), np.uint8).reshape(-1, self.stream.page_size)
        return self._pages.nbytes

    def loss(self, parameters: Sequence[Parameter]) -> float | None:
        if not self.kept or self._pages is None:
            return None
        self._judge.adopt(parameters)
        for first in range(0, len(self._pages), AT_ONCE):
            status = feed_pages(self._judge.sink, self._pages[first : first + AT_ONCE])
            if status:
                raise self._judge.failure(status)
        try:
            return self._judge.end_epoch().loss
        except NoRows:  # each has a NULL
            return None

    def close(self) -> None:
        self._judge.close()
