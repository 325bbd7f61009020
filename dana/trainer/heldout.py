"""The loss on held-out rows, computed after each epoch.

The frames of the rows are received once and kept in memory. A training that computes only the loss of the rule then
evaluates the models of each epoch on them. Equal models give bit-identical losses, independently of the machine that
trained them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Json, Parameter, Sink, Stream, TrainRequest
from dana.trainer.data.likelihood import Basis, Doubles, Family, Floats, LikelihoodObserver, Sum
from dana.trainer.machine import NO_MEMORY, PageCollector, feed_pages
from dana.trainer.messages.page_errors import NoRows
from dana.trainer.training import MachineTraining

AT_ONCE = 1024
"""Pages fed in one call; a session notices between two calls that its backend has disconnected."""


MOST = 1 << 23
"""Maximum number of values of a sample of the rows: 64 MB."""


class HeldOutRows:
    """Implements `dana.trainer.contract.HeldOut`."""

    def __init__(self, training: MachineTraining, request: TrainRequest, stream: Stream) -> None:
        self.request = request
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
        self._feed(self._training.sink)
        try:
            return self._training.end_epoch().loss
        except NoRows:  # every row has a NULL
            return None

    def losses(self, parameters: Sequence[Parameter]) -> tuple[float, int]:
        if not self.kept:
            return 0.0, 0
        self._training.adopt(parameters)
        self._feed(self._training.sink)
        counters, loss = self._training.judged()
        return loss, counters.tuples

    def rows(self) -> tuple[Mapping[str, Floats], Doubles, Doubles]:
        layout = self._training.layout
        shapes = {name: places.shape for name, places in layout.inputs.items()}
        places = np.concatenate([each.reshape(-1) for each in layout.inputs.values()])
        observer = LikelihoodObserver(
            family=Family.SAMPLE,
            layout=replace(layout, features=places),
            basis=Basis(centre=np.zeros(places.size), scale=np.ones(places.size)),
            weights=np.zeros((1, places.size + 1)),
            # a tuple has at least 4 bytes for each value
            rows=max(1, min(self.kept, 4 * MOST) // (4 * places.size)),
        )
        if self.kept:
            self._feed(self._training.look(observer))
            self._training.end_look()
        found = observer.matrix[: int(observer.sums[Sum.ROWS]), 1:]
        ends = np.cumsum([each.size for each in layout.inputs.values()])[:-1]
        parts = zip(shapes.items(), np.split(found, ends, axis=1), strict=True)
        columns = {name: part.reshape(-1, *shape).astype(np.float32) for (name, shape), part in parts}
        label, weight = (found[:, places == place] for place in (layout.label, layout.weight))
        return columns, label[:, 0], weight[:, 0] if weight.size else np.ones(len(found))

    def _feed(self, sink: Sink) -> None:
        assert self._pages is not None
        for first in range(0, len(self._pages), AT_ONCE):
            status = feed_pages(sink, self._pages[first : first + AT_ONCE])
            if status:
                raise self._training.failure(status)

    def close(self) -> None:
        self._training.close()
