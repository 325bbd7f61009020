"""The loss on held-out rows, computed after each epoch.

The frames of the rows are received once and kept in memory. A training that computes only the loss of the rule then
evaluates the models of each epoch on them. Equal models give bit-identical losses, independently of the machine that
trained them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Json, Parameter, Sink, Stream, Training
from dana.trainer.machine import NO_MEMORY, PageCollector, feed_pages
from dana.trainer.messages.page_errors import NoRows

AT_ONCE = 1024
"""Pages fed in one call; a session notices between two calls that its backend has disconnected."""


class HeldOutRows:
    """Implements `dana.trainer.contract.HeldOut`."""

    def __init__(self, training: Training, stream: Stream) -> None:
        self.stream = stream
        self._training = training
        self._collector = PageCollector(stream.page_size)
        self._pages: NDArray[np.uint8] | None = None

    @property
    def design(self) -> Json:
        return self._training.design

    def begin(self, most: int) -> None:
        self._collector = PageCollector(self.stream.page_size, most)
        self._pages = None

    @property
    def sink(self) -> Sink:
        return self._collector.sink

    def failure(self, status: int) -> Exception:
        assert status == NO_MEMORY
        return MemoryError("no room for the held-out rows")

    @property
    def kept(self) -> int:
        if self._pages is None:
            # no copy: the array keeps the collector's memory alive
            self._pages = np.frombuffer(self._collector.take(), np.uint8).reshape(-1, self.stream.page_size)
        return self._pages.nbytes

    def loss(self, parameters: Sequence[Parameter]) -> float | None:
        # `kept` makes the array when it is first read, so it comes first
        if not self.kept or self._pages is None:
            return None
        self._training.adopt(parameters)
        for first in range(0, len(self._pages), AT_ONCE):
            status = feed_pages(self._training.sink, self._pages[first : first + AT_ONCE])
            if status:
                raise self._training.failure(status)
        try:
            return self._training.end_epoch().loss
        except NoRows:  # every row has a NULL
            return None

    def close(self) -> None:
        self._training.close()
