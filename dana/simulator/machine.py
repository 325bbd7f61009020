"""The simulator: a machine in native code, bit for bit and cycle for cycle the one of `docs/machine.md`.

In: a configuration, Bundles for it, pages. Out: scratchpad rows and an epoch's counters. It knows no rule, no table and
no training, and no arithmetic of Python or NumPy takes part in it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dana.errors import InternalError, UsageError
from dana.simulator import large, native, structures
from dana.simulator.layout import padded
from dana.simulator.problems import NO_MEMORY, refusal
from hwgen.spec import legal
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.strider import Fault

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Pages = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

KERNELS = ("avx512", "avx2", "sse2", "portable")
"""Names of the inner loops; all of them give the same bits."""


class Code(Protocol):
    """Functions in memory that lasts as long as the object."""

    @property
    def data(self) -> structures.CompiledData:
        """Where they are, and what they work on."""


class Observer(Protocol):
    """Functions that look at an epoch's values, and what they fill, in memory that lasts as long as the object."""

    @property
    def data(self) -> structures.ObserverData:
        """Where they are."""


_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_FLOAT = ctypes.sizeof(ctypes.c_float)


class Joined:
    """What the native core calls to exchange merges with other parts.

    Attributes
    ----------
    error
        What ended an epoch: ctypes would lose an exception of the callback, a signal handler's, too.
    """

    def __init__(self, exchange: Callable[[bytes], bytes], parts: int) -> None:
        self.error: BaseException | None = None
        self._exchange, self._parts = exchange, parts
        self._function = _EXCHANGE(self._call)
        self.data = structures.Join(exchange=ctypes.cast(self._function, ctypes.c_void_p).value, parts=parts)

    def _call(self, _context: int | None, own: int, every: int, floats: int) -> int:
        try:
            found = self._exchange(ctypes.string_at(own, _FLOAT * floats))
            if len(found) != _FLOAT * floats * self._parts:
                raise InternalError(f"{self._parts} parts exchanged {len(found)} bytes, not {_FLOAT * floats} each")
            ctypes.memmove(every, found, len(found))
        except BaseException as error:
            self.error = error
            return 1
        return 0


class Simulator:
    """One machine.

    An epoch's pages come at once (`run_epoch`), or as they arrive (`begin_epoch`, then `consume` or the native `sink`,
    then `end_epoch`). One thread at a time; the GIL is released while pages are worked on.

    Parameters
    ----------
    config
        The machine.
    kernels
        One of `KERNELS`; None: the best for this processor.
    plain
        Every Strider instruction is interpreted by itself. The results are the same.
    pause
        Cycles of each pause, of a machine that pauses behind the merges of a batch.

    Raises
    ------
    UsageError
        This processor has no such kernels.
    MemoryError
        There is not enough for the machine.
    SetupError
        The native core has not been built.
    """

    def __init__(
        self, config: MachineConfig, *, kernels: str | None = None, plain: bool = False, pause: int = 0
    ) -> None:
        self.config = config
        self._pause = pause
        self._core = native.library()
        machine = native.machine_data(config)
        address = self._core.sim_new(ctypes.byref(machine), None if kernels is None else kernels.encode(), plain)
        # sim_new returns NULL for both: without a choice of kernels, only memory can be short
        if not address and kernels is None:
            raise MemoryError(NO_MEMORY)
        if not address:
            raise UsageError(f"kernels must be one of {', '.join(KERNELS)} that this processor has, not {kernels!r}")
        self._address: int = address
        # frees the core also if `close` is never called; the second call does nothing
        self._finalizer = weakref.finalize(self, self._core.sim_free, address)
        self._held: list[Floats] = []
        """What tables hold, by symbol."""
        self._helpers: list[Simulator] = []
        self._threads = 1

    def close(self) -> None:
        """Free what the machine holds; it must not be used any more."""
        self._finalizer()
        self._held = []
        self._drop_helpers()

    def load(self, bundle: Bundle) -> None:
        """Load program, tables and the initial scratchpad; memories are otherwise zero.

        Raises
        ------
        BundleError
            It is for another machine, breaks a rule of `hwgen.spec.legal`, or the machine does not run it: an address
            outside its memory, results that collide … The machine is then to be loaded again.
        MemoryError
            There is not enough for the Bundle.
        """
        if bundle.config != self.config:
            raise BundleError(
                f"the Bundle is for another machine: {bundle.config.fingerprint()}, this is {self.config.fingerprint()}"
            )
        if bundle.image.ndim != 2 or bundle.image.shape[1] != self.config.lanes:
            raise BundleError(f"the image must have shape (rows, {self.config.lanes}), not {bundle.image.shape}")
        # before the core, which relies on these rules and does not check them again
        legal.check(bundle)
        problem = structures.Problem()
        held = [large.zeros(prod(padded(symbol.shape))) for symbol in bundle.symbols if symbol.table]
        addresses = (ctypes.c_void_p * len(held))(*(one.ctypes.data for one in held))
        data = native.bundle_data(bundle)
        self._core.sim_load(self._usable(), ctypes.byref(data), addresses, ctypes.byref(problem))
        self._bundle = bundle
        self._core.sim_pause(self._usable(), self._pause)
        self._drop_helpers()
        # after sim_load: until then the core may point to the arrays of the previous Bundle
        self._held = held
        if problem.kind:
            raise refusal(problem, bundle)

    def attach(self, code: Code) -> None:
        """Have epochs run by code (`dana.jit`) in the place of the loaded Bundle's engine program.

        The first pages go both ways, and what comes of them is compared: see `differs`.

        Raises
        ------
        MemoryError
            There is not enough for the tuples of a batch.
        """
        if not self._core.sim_attach(self._usable(), ctypes.byref(code.data)):
            raise MemoryError(NO_MEMORY)
        self._code: Code | None = code  # kept as long as it may run

    def add_helpers(self, codes: Sequence[Code]) -> None:
        """Allow as many threads in epochs that repeat pages (`threads`), each with a copy of the attached code.

        Bits do not depend on how many there are.

        Raises
        ------
        MemoryError
            There is not enough.
        """
        for code in codes:
            helper = Simulator(self.config)
            self._helpers.append(helper)
            helper.load(self._bundle)
            helper.attach(code)
        self._addresses = (ctypes.c_void_p * len(self._helpers))(*(one._usable() for one in self._helpers))

    @property
    def helpers(self) -> int:
        """How many `add_helpers` has added."""
        return len(self._helpers)

    @property
    def threads(self) -> int:
        """How many run epochs that repeat pages, where there is so much to do: 1, or at most `helpers`."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = count = min(count, max(1, len(self._helpers)))
        # this thread runs pieces, too, and counts in the last argument
        self._core.sim_share(self._usable(), self._addresses if count > 1 else None, count if count > 1 else 0)

    @property
    def shared_tuples(self) -> int:
        """Tuples of the last epoch that helpers ran."""
        return int(self._core.sim_shared_tuples(self._usable()))

    def _drop_helpers(self) -> None:
        if self._helpers and self._finalizer.alive:
            self.threads = 1
        for helper in self._helpers:
            helper.close()
        self._helpers = []

    def join(self, exchange: Callable[[bytes], bytes], parts: int) -> Joined:
        """Join the merges of attached code, or of a Bundle with `merges`, with those of other parts of the rows, by the
        language's tree.

        A batch then has the tuples of all parts, and an epoch ends in all of them at once. A part with tuples in
        fewer batches than others ends it without the last models. Pages that are compared with the engine's are not
        part of it.

        Parameters
        ----------
        exchange
            Takes the bytes of this part's merges and returns those of all parts, one after the other, of equal lengths.
        parts
            Number of parts.
        """
        joined = Joined(exchange, parts)
        self._core.sim_join(self._usable(), ctypes.byref(joined.data))
        self._joined = joined  # kept as long as it may be called
        return joined

    @property
    def differs(self) -> bool:
        """Whether code was found to compute something else than the Bundle's program; that alone runs from then on."""
        return bool(self._core.sim_differs(self._usable()))

    @property
    def proved(self) -> bool:
        """Whether code was found to compute what the Bundle's program does: epochs that train run by it since."""
        return bool(self._core.sim_proved(self._usable()))

    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        """Write scratchpad rows of every thread, or rows of records.

        Parameters
        ----------
        rows
            Bit patterns, shape [rows, lanes].
        table
            Number of a table in the record memory: the rows are those of all its records from `row` on, as many of
            each, record after record.

        Raises
        ------
        IndexError
            They are not rows of the scratchpad or of the table, or nothing is loaded.
        """
        words = np.ascontiguousarray(rows, dtype=np.uint32)
        if words.ndim != 2 or words.shape[1] != self.config.lanes:
            raise IndexError(f"rows must have shape (rows, {self.config.lanes}), not {words.shape}")
        if not self._core.sim_write_rows(self._usable(), table, row, words.shape[0], words.ctypes.data):
            raise self._outside(row, words.shape[0], table)

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Scratchpad rows of thread 0, or rows of records as `write_rows` takes them: all in all [count, lanes].

        Every NaN is the canonical one.

        Raises
        ------
        IndexError
            They are not rows of the scratchpad or of the table, or nothing is loaded.
        """
        # a negative count is rejected by the core, with the message below
        words = np.zeros((max(count, 0), self.config.lanes), dtype=np.uint32)
        if not self._core.sim_read_rows(self._usable(), table, row, count, words.ctypes.data):
            raise self._outside(row, count, table)
        return words

    def read_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Fill an array with the symbol that begins with a row, if it has none of lanes; else its rows are to be read.

        Every NaN is the canonical one. Rows of lanes take three times as long, as tables and code have none.

        Parameters
        ----------
        first
            Where along the symbol's first axis the array begins.
        """
        return self._values(row, values, table, first, write=False)

    def write_values(self, row: int, values: Floats, *, table: int = 0, first: int = 0) -> bool:
        """Write a symbol, as `read_values` reads it; False if its rows must be written instead."""
        return self._values(row, np.ascontiguousarray(values, np.float32), table, first, write=True)

    def _values(self, row: int, values: Floats, table: int, first: int, *, write: bool) -> bool:
        # the core counts vectors of the last axis
        vectors = first * prod(values.shape[1:-1])
        arguments = table, row, vectors, values.size, values.ctypes.data, write
        return bool(self._core.sim_values(self._usable(), *arguments))

    def run_epoch(self, pages: Pages) -> EpochCounters:
        """Run one epoch over whole pages, in their order."""
        self.begin_epoch()
        self.consume(pages)
        return self.end_epoch()

    def begin_epoch(
        self,
        n_pages: int | None = None,
        *,
        observer: Observer | None = None,
        trains: bool = True,
        counts: bool | None = None,
    ) -> None:
        """Start an epoch; one that was not ended is forgotten.

        Parameters
        ----------
        n_pages
            What other machines want to know beforehand; here the epoch has as many pages as come.
        observer
            What looks at the values as well, or where the epoch does not train, instead.
        counts
            Whether cycles are worked out, where not just as the epoch trains: they do not depend on what it computes.
        """
        del n_pages
        self._observer = observer  # kept as long as it may be called
        looks = None if observer is None else ctypes.byref(observer.data)
        self._core.sim_begin(self._usable(), looks, trains, trains if counts is None else counts)

    def consume(self, pages: Pages) -> bool:
        """Take the epoch's next pages; whether more are welcome (not after a fault)."""
        # no copy; the core reads the buffer during the call, without the GIL
        data = np.frombuffer(pages, dtype=np.uint8)
        count, rest = divmod(data.size, self.config.page_size)
        if rest:
            raise ValueError(f"pages must be whole: a multiple of {self.config.page_size} bytes, not {data.size}")
        status = self._core.sim_consume(self._usable(), data.ctypes.data, count)
        if status == native.UNLOADED:
            raise InternalError("pages came before a Bundle was loaded")
        return bool(status == 0)

    @property
    def sink(self) -> tuple[int, int]:
        """Addresses of ``int consume(void *context, const uint8_t *pages, size_t n_pages)`` and of its context.

        It returns 0, or another number when it takes no more pages: `end_epoch` then reports the fault. Valid until
        `close`.
        """
        return self._function("sim_consume"), self._usable()

    @property
    def sink_again(self) -> tuple[int, int]:
        """As `sink`, for an epoch that repeats the pages of the previous one in the same order.

        Cycles follow from the pages alone: those of an epoch that trained to its end are not worked out again.
        """
        return self._function("sim_consume_again"), self._usable()

    def _function(self, name: str) -> int:
        return ctypes.cast(getattr(self._core, name), ctypes.c_void_p).value or 0

    def end_epoch(self) -> EpochCounters:
        """End the epoch after its last page.

        Raises
        ------
        InternalError
            No Bundle is loaded; or the pages that came through `sink_again` were others than before.
        """
        counters = structures.Counters()
        status = self._core.sim_end(self._usable(), ctypes.byref(counters))
        if status == native.OTHER_PAGES:
            raise InternalError("the pages of an epoch were said to be those of the one before, and have other rows")
        if not status:
            raise InternalError("an epoch was ended before a Bundle was loaded")
        # by name: both sides take them from `hwgen.spec.counters.COUNTERS`
        found = {field[0]: getattr(counters, field[0]) for field in structures.Counters._fields_}
        return EpochCounters(**found | {"fault": Fault(counters.fault)})

    @property
    def walked_rows(self) -> int:
        """Rows that were processed a page at a time since the Bundle was loaded."""
        return int(self._core.sim_walked_rows(self._usable()))

    @property
    def packed_columns(self) -> int:
        """Columns of tuples that the last epoch packed: their page went before code read them; for tests."""
        return int(self._core.sim_packed_columns(self._usable()))

    def _usable(self) -> int:
        if not self._finalizer.alive:
            raise InternalError("the simulator was closed")
        return self._address

    def _outside(self, row: int, count: int, table: int) -> IndexError:
        if table:
            return IndexError(f"{count} rows from {row} on must be rows of all records of table {table} that is loaded")
        return IndexError(
            f"rows {row} to {row + count - 1} must lie in the {self.config.scratch_depth} rows of a loaded machine"
        )
