"""The interface of a machine that runs a Bundle, and what all of them share.

A machine is loaded with a Bundle, takes the pages of an epoch through a native sink, and reports counters.
`dana.trainer.machines` has a class for each.
"""

from __future__ import annotations

import ctypes
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from types import EllipsisType
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from dana.simulator import large
from dana.simulator.machine import Observer, Simulator
from dana.trainer.contract import Sink, TrainRequest
from dana.trainer.designs import Design
from dana.trainer.machine_code import Compiled
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.counters import EpochCounters

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

ROWS_AT_ONCE = 1 << 14
"""Rows of the scratchpad that are read or written at a time; their copy fits into the processor's cache."""


class Joins(Protocol):
    """What a machine joins its batches by."""

    error: BaseException | None
    """What ended an epoch and was not raised."""


class Machine(ABC):
    """A machine that runs a Bundle; rows are bit patterns of shape [rows, lanes]."""

    observes: ClassVar[bool] = False
    """Whether an observer can look at the values of an epoch that trains."""

    @abstractmethod
    def load(self, bundle: Bundle) -> None:
        """Load program, tables and the initial scratchpad."""

    @abstractmethod
    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        """Write rows of the scratchpad of every thread, or all records of a table in order."""

    @abstractmethod
    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Read rows of the scratchpad of thread 0, or all records of a table in order."""

    def write_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Write the value at `row`, starting at element `first` of its first axis; False if it is kept in rows."""
        return False

    def read_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Read the value at `row` into `values`, as `write_values` writes it; False if it is kept in rows."""
        return False

    @property
    @abstractmethod
    def sink(self) -> tuple[int, int]:
        """Addresses of the native function that takes pages and of its context."""

    @property
    def sink_again(self) -> tuple[int, int]:
        """As `sink`, for an epoch that repeats the pages of the previous one in order."""
        return self.sink

    @abstractmethod
    def begin_epoch(self, n_pages: int | None, *, observer: Observer | None = None, counts: bool | None = None) -> None:
        """Start an epoch of `n_pages` pages, None: unknown; only a machine that `observes` gets an observer.

        Parameters
        ----------
        counts
            False: do not count the cycles; None: count them if the trainer needs them.
        """

    @abstractmethod
    def end_epoch(self) -> EpochCounters:
        """Finish the epoch after its last page."""

    @abstractmethod
    def close(self) -> None:
        """Free what the machine holds."""

    def surveyor(self, bundle: Bundle) -> Simulator:
        """Return a simulator that reads pages of the table without training: this machine's own, or another."""
        # the generated hardware trains on every page that it reads, so a simulator surveys for it
        simulator = Simulator(bundle.config)
        simulator.load(bundle)
        return simulator

    @abstractmethod
    def join(self, exchange: Callable[[bytes], bytes], parts: int) -> Joins:
        """Join the batches of epochs from now on with those of other parts; see `Simulator.join`."""

    def compiled(self, request: TrainRequest, design: Design, *, loss_only: bool) -> Compiled | None:
        """Return what compiles machine code for the training; None: this machine runs none."""
        return None


# the type of `Sink.function`
_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def feed_pages(sink: Sink, pages: npt.NDArray[np.uint8]) -> int:
    """Feed pages that are the same in each epoch, shape (pages, page_size), to a sink; return its status."""
    # ctypes releases the GIL during the call
    # `again` in the first epoch, too: without a counted epoch before, it does the same as `function`
    return int(_CONSUME(sink.again or sink.function)(sink.context, pages.ctypes.data, len(pages)))


NO_MEMORY = errno.ENOMEM
"""Status of a sink that ran out of memory."""


class PageCollector:
    """A sink that collects pages.

    Parameters
    ----------
    page_size
        Bytes of a page.
    most
        Maximum number of bytes; if it is exceeded, all pages are dropped. None: no limit.
    """

    def __init__(self, page_size: int, most: int | None = None) -> None:
        self._page_size = page_size
        self._most = most
        self._pages = bytearray()
        # kept, because native code calls it long after `sink` has returned
        self._function = _CONSUME(self._consume)

    @property
    def sink(self) -> Sink:
        function = ctypes.cast(self._function, ctypes.c_void_p).value
        assert function is not None
        return Sink(function=function, context=0)

    def take(self) -> memoryview:
        """Return the pages since the last call."""
        # a new bytearray for the next pages: one with a view cannot grow (BufferError)
        pages = memoryview(self._pages)
        self._pages = bytearray()
        return pages

    def _consume(self, _context: int | None, address: int, count: int) -> int:
        try:
            if self._most is None or len(self._pages) + count * self._page_size <= self._most:
                # a copy: the ring reuses the memory when this function returns
                self._pages += ctypes.string_at(address, count * self._page_size)
            else:
                # 0, so that the pages after these are dropped, too: a part of the rows would be another data set
                self._pages, self._most = bytearray(), 0
        except MemoryError:  # ctypes would only print the exception, and the pages would be lost
            self._pages = bytearray()
            return NO_MEMORY
        return 0


def write_symbol(machine: Machine, symbol: Symbol, values: Floats, lanes: int) -> None:
    """Write a value to a machine, as rows unless the machine keeps it elsewhere."""
    if machine.write_values(symbol.row, values, table=symbol.table):
        return
    for row, part, at in _by_parts(symbol, lanes):
        machine.write_rows(row, part.place(values[at], lanes).view(np.uint32), table=symbol.table)


def read_symbol(machine: Machine, symbol: Symbol, lanes: int, over: Floats | None = None) -> Floats:
    """Read a value from a machine; `over` is an array that is overwritten and returned."""
    # perhaps in a file: a model that exceeds the memory of the session is read as well
    values = large.zeros(prod(symbol.shape)).reshape(symbol.shape) if over is None else over
    if machine.read_values(symbol.row, values, table=symbol.table):
        return values
    for row, part, at in _by_parts(symbol, lanes):
        rows = machine.read_rows(row, part.rows(lanes), table=symbol.table)
        values[at] = part.collect(rows.view(np.float32))
    return values


def _by_parts(symbol: Symbol, lanes: int) -> Iterator[tuple[int, Symbol, EllipsisType | slice]]:
    """Split a symbol into parts of some rows: the first row, the part, and its place in the value."""
    rows = symbol.rows(lanes)
    if symbol.table or rows <= ROWS_AT_ONCE or not (symbol.broadcast or len(symbol.shape) > 1):
        yield symbol.row, symbol, ...
        return
    extent, *rest = symbol.shape
    # the values that come here have whole rows for each element of the first axis
    each = rows // extent
    step = max(1, ROWS_AT_ONCE // each)
    for first in range(0, extent, step):
        part = replace(symbol, shape=(min(step, extent - first), *rest))
        yield symbol.row + first * each, part, slice(first, first + step)
