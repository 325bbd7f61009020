"""The machines that run a Bundle: the simulator, and the RTL under Verilator.

A machine is loaded with a Bundle, takes the pages of an epoch through a native sink, and reports counters. It knows
neither rules nor tables.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from types import EllipsisType
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dana.errors import UsageError
from dana.extras import install_command
from dana.simulator import large
from dana.trainer.contract import Sink, SqlState, TrainingError
from hwgen.driver import BoardError
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

ROWS_AT_ONCE = 1 << 14
"""Rows of the scratchpad that are read or written at a time; their copy fits into the processor's cache."""


class Machine(Protocol):
    """The interface that simulator and RTL share; rows are bit patterns of shape [rows, lanes]."""

    def load(self, bundle: Bundle) -> None:
        """Load program, tables and the initial scratchpad."""

    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        """Write rows of the scratchpad of every thread, or all records of a table in order."""

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Read rows of the scratchpad of thread 0, or all records of a table in order."""


@runtime_checkable
class Values(Protocol):
    """A machine that keeps the values of tables, and possibly others, outside of scratchpad rows.

    The methods return False for a value that is kept in rows.
    """

    def write_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Write the value at `row`, starting at element `first` of its first axis."""

    def read_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Read the value at `row` into `values`, starting at element `first` of its first axis."""


class StreamingMachine(Machine, Protocol):
    """A machine that processes pages as they arrive."""

    @property
    def sink(self) -> tuple[int, int]:
        """Addresses of the native function that takes pages and of its context."""

    def begin_epoch(self, n_pages: int | None) -> None:
        """Start an epoch of `n_pages` pages; None: unknown."""

    def end_epoch(self) -> EpochCounters:
        """Finish the epoch after its last page."""

    def close(self) -> None:
        """Free what the machine holds."""


class WholeEpochMachine(Machine, Protocol):
    """A machine that needs all pages of an epoch at once."""

    def run_epoch(self, pages: memoryview) -> EpochCounters:
        """Run one epoch."""


_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def feed_pages(sink: Sink, pages: npt.NDArray[np.uint8]) -> int:
    """Feed pages that are the same in each epoch, shape (pages, page_size), to a sink; return its status."""
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
        self._function = _CONSUME(self._consume)

    @property
    def sink(self) -> Sink:
        function = ctypes.cast(self._function, ctypes.c_void_p).value
        assert function is not None
        return Sink(function=function, context=0)

    def take(self) -> memoryview:
        """Return the pages since the last call."""
        pages = memoryview(self._pages)
        self._pages = bytearray()
        return pages

    def _consume(self, _context: int | None, address: int, count: int) -> int:
        try:
            if self._most is None or len(self._pages) + count * self._page_size <= self._most:
                self._pages += ctypes.string_at(address, count * self._page_size)
            else:
                self._pages, self._most = bytearray(), 0
        except MemoryError:  # ctypes would only print the exception, and the pages would be lost
            self._pages = bytearray()
            return NO_MEMORY
        return 0


@contextmanager
def _board_errors() -> Iterator[None]:
    """Convert errors of a board to SQL errors."""
    try:
        yield
    except BoardError as error:
        raise TrainingError(
            f"the generated hardware failed: {error}",
            sqlstate=SqlState.INTERNAL,
            hint="Train with machine => 'sim'; the worker's log has the details.",
        ) from error


class Buffered:
    """Adapts a `WholeEpochMachine` to the interface of a `StreamingMachine` by collecting the pages of an epoch.

    Raises
    ------
    TrainingError
        From its methods, if the machine hangs or reports an error.
    """

    def __init__(self, machine: WholeEpochMachine, page_size: int) -> None:
        self._machine = machine
        self._collector = PageCollector(page_size)

    def load(self, bundle: Bundle) -> None:
        with _board_errors():
            self._machine.load(bundle)

    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        with _board_errors():
            self._machine.write_rows(row, rows, table=table)

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        with _board_errors():
            return self._machine.read_rows(row, count, table=table)

    @property
    def sink(self) -> tuple[int, int]:
        sink = self._collector.sink
        return sink.function, sink.context

    def begin_epoch(self, n_pages: int | None) -> None:
        del n_pages  # known at the end of the epoch
        self._collector.take()

    def end_epoch(self) -> EpochCounters:
        with _board_errors():
            return self._machine.run_epoch(self._collector.take())

    def close(self) -> None:
        self._collector.take()


def load_machine(machine: str) -> None:
    """Import what a machine needs; the interpreter needs nothing.

    Raises
    ------
    UsageError
        It is not installed.
    """
    if machine == "sim":
        importlib.import_module("dana.simulator")
    elif machine == "rtl":
        try:
            importlib.import_module("hwgen.harness")
        except ModuleNotFoundError as error:
            if error.name not in ("amaranth", "verilator"):
                raise
            raise UsageError(
                f"machine 'rtl' needs the package {error.name}, which is not installed",
                hint=f"Install it with {install_command('rtl')}; Verilator also needs g++ and make.",
            ) from error


def _simulator(config: MachineConfig) -> StreamingMachine:
    from dana.simulator import Simulator

    return Simulator(config)


def _rtl(config: MachineConfig) -> StreamingMachine:
    load_machine("rtl")
    from hwgen.folders import ForeignFolder
    from hwgen.harness import RtlMachine
    from hwgen.rtl.verilate import BuildError

    try:
        with _board_errors():
            return Buffered(RtlMachine(config), config.page_size)
    except (BuildError, ForeignFolder) as error:
        raise UsageError(f"machine 'rtl' cannot build the hardware's simulation: {error}") from error


MACHINES: dict[str, Callable[[MachineConfig], StreamingMachine]] = {"sim": _simulator, "rtl": _rtl}
"""Machines that run a Bundle, by their names in SQL."""


def write_symbol(machine: Machine, symbol: Symbol, values: Floats, lanes: int) -> None:
    """Write a value to a machine, as rows unless the machine keeps it elsewhere."""
    if isinstance(machine, Values) and machine.write_values(symbol.row, values, table=symbol.table):
        return
    for row, part, at in _by_parts(symbol, lanes):
        machine.write_rows(row, part.place(values[at], lanes).view(np.uint32), table=symbol.table)


def read_symbol(machine: Machine, symbol: Symbol, lanes: int, over: Floats | None = None) -> Floats:
    """Read a value from a machine; `over` is an array that is overwritten and returned."""
    values = large.zeros(prod(symbol.shape)).reshape(symbol.shape) if over is None else over
    if isinstance(machine, Values) and machine.read_values(symbol.row, values, table=symbol.table):
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
    each = rows // extent
    step = max(1, ROWS_AT_ONCE // each)
    for first in range(0, extent, step):
        part = replace(symbol, shape=(min(step, extent - first), *rest))
        yield symbol.row + first * each, part, slice(first, first + step)
