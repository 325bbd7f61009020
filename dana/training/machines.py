"""The machines behind a training: the simulator, and the RTL under Verilator, taken page by page or whole epochs.

In: the name of a backend and a configuration. Out: an object that holds a Bundle, takes an epoch's pages through a
native sink, and reports counters. It knows no rule and no table.
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
from dana.training.contract import Sink, SqlState, TrainingError
from hwgen.driver import BoardError
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

ROWS_AT_ONCE = 1 << 14
"""Rows of the scratchpad that are read or written at a time: a copy of them is in the processor's cache."""


class Machine(Protocol):
    """What simulator and RTL have in common; rows are bit patterns of shape [rows, lanes]."""

    def load(self, bundle: Bundle) -> None:
        """Load program, tables and the initial scratchpad."""

    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        """Write rows of every thread's scratchpad, or of all records of a table, record after record."""

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Read rows of thread 0's scratchpad, or of a table likewise."""


@runtime_checkable
class Values(Protocol):
    """A machine that has those of tables, and may have others, elsewhere than in rows; each tells whether it has."""

    def write_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Write the value whose first row is `row`, from an element of its first axis on."""

    def read_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Fill `values` with it, likewise."""


class StreamingMachine(Machine, Protocol):
    """A machine that takes an epoch's pages as they come."""

    @property
    def sink(self) -> tuple[int, int]:
        """Addresses of the native function that takes pages, and of its context."""

    def begin_epoch(self, n_pages: int | None) -> None:
        """Start an epoch of so many pages; None: unknown."""

    def end_epoch(self) -> EpochCounters:
        """Finish the epoch whose pages the sink has had."""

    def close(self) -> None:
        """Free what the machine holds."""


class WholeEpochMachine(Machine, Protocol):
    """A machine that wants all pages of an epoch at once."""

    def run_epoch(self, pages: memoryview) -> EpochCounters:
        """Run one epoch."""


_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def feed_pages(sink: Sink, pages: npt.NDArray[np.uint8]) -> int:
    """Give pages that are the same in each epoch, shape (pages, page_size), to a sink; its status."""
    return int(_CONSUME(sink.again or sink.function)(sink.context, pages.ctypes.data, len(pages)))


NO_MEMORY = errno.ENOMEM
"""Status of a sink that has no room for the pages."""


class PageCollector:
    """A sink that keeps what it is given.

    Parameters
    ----------
    page_size
        Bytes of a page.
    most
        Bytes that it keeps; of more it keeps none. None: any number.
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
        """The pages since the last call."""
        pages = memoryview(self._pages)
        self._pages = bytearray()
        return pages

    def _consume(self, _context: int | None, address: int, count: int) -> int:
        try:
            if self._most is None or len(self._pages) + count * self._page_size <= self._most:
                self._pages += ctypes.string_at(address, count * self._page_size)
            else:
                self._pages, self._most = bytearray(), 0
        except MemoryError:  # ctypes would print it, and the pages would be missing
            self._pages = bytearray()
            return NO_MEMORY
        return 0


@contextmanager
def _board_errors() -> Iterator[None]:
    """A board that does not do what it is told, as an SQL error."""
    try:
        yield
    except BoardError as error:
        raise TrainingError(
            f"the generated hardware did not train: {error}",
            sqlstate=SqlState.INTERNAL,
            hint="Train with backend => 'sim'; the worker's log has the details.",
        ) from error


class Buffered:
    """Makes a `WholeEpochMachine` take pages as they come, by keeping them until the epoch's end.

    Raises
    ------
    TrainingError
        From its methods: the machine hangs, or refuses what it is given.
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
        del n_pages  # the pages themselves tell
        self._collector.take()

    def end_epoch(self) -> EpochCounters:
        with _board_errors():
            return self._machine.run_epoch(self._collector.take())

    def close(self) -> None:
        self._collector.take()


def load_backend(backend: str) -> None:
    """Import what a backend needs; others than those of `MACHINES` need nothing.

    Raises
    ------
    UsageError
        It is not installed.
    """
    if backend == "sim":
        importlib.import_module("dana.simulator")
    elif backend == "rtl":
        try:
            importlib.import_module("hwgen.harness")
        except ModuleNotFoundError as error:
            if error.name not in ("amaranth", "verilator"):
                raise
            raise UsageError(
                f"backend 'rtl' needs the package {error.name}, which is not installed",
                hint=f"Install it with {install_command('rtl')}; Verilator also needs g++ and make.",
            ) from error


def _simulator(config: MachineConfig) -> StreamingMachine:
    from dana.simulator import Simulator

    return Simulator(config)


def _rtl(config: MachineConfig) -> StreamingMachine:
    load_backend("rtl")
    from hwgen.folders import ForeignFolder
    from hwgen.harness import RtlMachine
    from hwgen.rtl.verilate import BuildError

    try:
        with _board_errors():
            return Buffered(RtlMachine(config), config.page_size)
    except (BuildError, ForeignFolder) as error:
        raise UsageError(f"backend 'rtl' cannot build the hardware's simulation: {error}") from error


MACHINES: dict[str, Callable[[MachineConfig], StreamingMachine]] = {"sim": _simulator, "rtl": _rtl}
"""Backends that run a Bundle, by their names in SQL."""


def write_symbol(machine: Machine, symbol: Symbol, values: Floats, lanes: int) -> None:
    """Give a machine a value: where the simulator's code has it, or else as rows."""
    if isinstance(machine, Values) and machine.write_values(symbol.row, values, table=symbol.table):
        return
    for row, part, at in _by_parts(symbol, lanes):
        machine.write_rows(row, part.place(values[at], lanes).view(np.uint32), table=symbol.table)


def read_symbol(machine: Machine, symbol: Symbol, lanes: int, over: Floats | None = None) -> Floats:
    """A value, likewise; in the place of an earlier one, if that is given."""
    values = large.zeros(prod(symbol.shape)).reshape(symbol.shape) if over is None else over
    if isinstance(machine, Values) and machine.read_values(symbol.row, values, table=symbol.table):
        return values
    for row, part, at in _by_parts(symbol, lanes):
        rows = machine.read_rows(row, part.rows(lanes), table=symbol.table)
        values[at] = part.collect(rows.view(np.float32))
    return values


def _by_parts(symbol: Symbol, lanes: int) -> Iterator[tuple[int, Symbol, EllipsisType | slice]]:
    """A symbol by some rows of the scratchpad at a time: the first, the part, and where in the value it lies."""
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
