"""The simulator: a machine in native code, bit for bit and cycle for cycle the one of `docs/machine.md`.

In: a configuration, Bundles for it, pages. Out: scratchpad rows and an epoch's counters. It knows no rule, no table and
no training, and no arithmetic of Python or NumPy takes part in it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dana.errors import InternalError, UsageError
from dana.simulator import native, structures
from dana.simulator.problems import NO_MEMORY, refusal
from hwgen.spec import legal
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.strider import Fault

Words = npt.NDArray[np.uint32]
Pages = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

Doubles = npt.NDArray[np.float64]

KERNELS = ("avx512", "avx2", "sse2", "portable")
"""Inner loops that there are; all of them give the same bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What a survey finds of a tuple's elements; shapes [tuple_rows, lanes], of `tuples`, `weights`, `negative` [].

    Attributes
    ----------
    tuples
        Those without NaN or infinity and of a weight above 0, of which the others tell.
    mean, squares
        Mean, and sum of squared distances from it; a tuple counts as often as its weight says.
    bad
        How often an element is NaN or infinite.
    early, earlier
        The mean of the first tuples, as many as the largest power of two says, and of half of those.
    weights, negative
        Sum of the weights, and how many are below 0.
    classes
        Sums of the weights by the label's class.
    first, differ
        The first tuple's bits, and those in which another one's differ from them.
    summed
        Of each row, whether means and squares are wanted; shape [tuple_rows].
    weight, label
        Rows of a tuple that they lie in; -1: none, and each weight is 1.
    tally
        How often each value of the label is there, roughly where there are thousands; None: not asked.
    """

    tuples: Doubles
    mean: Doubles
    squares: Doubles
    bad: Doubles
    early: Doubles
    earlier: Doubles
    weights: Doubles
    negative: Doubles
    classes: Doubles
    first: Words
    differ: Words
    summed: npt.NDArray[np.uint8]
    weight: int
    label: int
    tally: structures.Tally | None = None

    @classmethod
    def nothing(
        cls,
        shape: tuple[int, int],
        *,
        weight: int = -1,
        label: int = -1,
        classes: int = 0,
        tallied: bool = False,
        summed: Container[int] | None = None,
    ) -> Surveyed:
        """Of no tuples yet; `summed`: rows (None: all)."""
        numbers = {name: np.zeros(()) for name in ("tuples", "weights", "negative")}
        arrays = {name: np.zeros(shape) for name in ("mean", "squares", "bad", "early", "earlier")}
        tally = structures.Tally() if tallied and label >= 0 else None
        return cls(
            **numbers,
            **arrays,
            classes=np.zeros(classes),
            first=np.zeros(shape, np.uint32),
            differ=np.zeros(shape, np.uint32),
            summed=np.array([summed is None or row in summed for row in range(shape[0])], np.uint8),
            weight=weight,
            label=label,
            tally=tally,
        )

    @property
    def varies(self) -> npt.NDArray[np.bool_]:
        """Whether an element differs from tuple to tuple, as a number: subnormals are zeros, which have two signs."""
        exponents = np.uint32(0x7F800000)
        zero = self.first & exponents == 0
        return np.where(zero, self.differ & exponents, self.differ) != 0  # type: ignore[no-any-return]

    @property
    def values(self) -> tuple[Doubles, Doubles]:
        """Values of the tally, means of those that are taken together, and how often they are there."""
        assert self.tally is not None
        counts, sums = np.array(self.tally.counts), np.array(self.tally.sums)
        return sums[counts > 0] / counts[counts > 0], counts[counts > 0]


class Code(Protocol):
    """Functions in memory that lasts as long as the object."""

    @property
    def data(self) -> structures.CompiledData:
        """Where they are, and what they work on."""


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

    Raises
    ------
    UsageError
        This processor has no such kernels.
    MemoryError
        There is not enough for the machine.
    SetupError
        The native core has not been built.
    """

    def __init__(self, config: MachineConfig, *, kernels: str | None = None, plain: bool = False) -> None:
        self.config = config
        self._core = native.library()
        machine = native.machine_data(config)
        address = self._core.sim_new(ctypes.byref(machine), None if kernels is None else kernels.encode())
        if not address and kernels is None:
            raise MemoryError(NO_MEMORY)
        if not address:
            raise UsageError(f"kernels must be one of {', '.join(KERNELS)} that this processor has, not {kernels!r}")
        self._address: int = address
        self._finalizer = weakref.finalize(self, self._core.sim_free, address)
        self._core.sim_set_plain(address, plain)
        self._survey: tuple[structures.SurveyData, Surveyed, Doubles, npt.NDArray[np.float32]] | None = None
        """What the core fills: kept as long as it may."""

    def close(self) -> None:
        """Free what the machine holds; it must not be used any more."""
        self._finalizer()

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
        legal.check(bundle)
        data, arrays = native.bundle_data(bundle)
        problem = structures.Problem()
        self._core.sim_load(self._usable(), ctypes.byref(data), ctypes.byref(problem))
        del arrays
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

    @property
    def differs(self) -> bool:
        """Whether code was found to compute something else than the Bundle's program; that alone runs from then on."""
        return bool(self._core.sim_differs(self._usable()))

    def write_rows(self, row: int, rows: Words) -> None:
        """Write scratchpad rows of every thread.

        Parameters
        ----------
        rows
            Bit patterns, shape [rows, lanes].

        Raises
        ------
        IndexError
            They are not rows of the scratchpad, or nothing is loaded.
        """
        words = np.ascontiguousarray(rows, dtype=np.uint32)
        if words.ndim != 2 or words.shape[1] != self.config.lanes:
            raise IndexError(f"rows must have shape (rows, {self.config.lanes}), not {words.shape}")
        if not self._core.sim_write_rows(self._usable(), row, words.shape[0], words.ctypes.data):
            raise self._outside(row, words.shape[0])

    def read_rows(self, row: int, count: int) -> Words:
        """Scratchpad rows of thread 0, shape [count, lanes], every NaN the canonical one.

        Raises
        ------
        IndexError
            They are not rows of the scratchpad, or nothing is loaded.
        """
        words = np.zeros((max(count, 0), self.config.lanes), dtype=np.uint32)
        if not self._core.sim_read_rows(self._usable(), row, count, words.ctypes.data):
            raise self._outside(row, count)
        return words

    def run_epoch(self, pages: Pages) -> EpochCounters:
        """Run one epoch over whole pages, in their order."""
        self.begin_epoch()
        self.consume(pages)
        return self.end_epoch()

    def begin_epoch(self, n_pages: int | None = None, *, beside: Surveyed | None = None) -> None:
        """Start an epoch; one that was not ended is forgotten.

        Parameters
        ----------
        n_pages
            What other machines want to know beforehand; here the epoch has as many pages as come.
        beside
            What is to be filled besides, as by `begin_survey`.
        """
        del n_pages
        self._survey = None
        if beside is None:
            self._core.sim_begin(self._usable(), None)
        else:
            self._begin_survey(beside, trains=True)

    def begin_survey(self, found: Surveyed) -> None:
        """Start an epoch that trains nothing and adds what it sees to `found`, which has this machine's rows."""
        self._begin_survey(found, trains=False)

    def _begin_survey(self, found: Surveyed, *, trains: bool) -> None:
        means = (found.tuples, found.mean, found.squares, found.bad, found.early, found.earlier)
        sums = np.zeros((4, *found.mean.shape))  # of a block, and as they were before
        room = np.zeros((structures.SURVEY_BLOCK + 1, *found.mean.shape), np.float32)
        doubles = (*means, sums[0], sums[1], sums[2:], found.weights, found.negative, found.classes)
        arrays = (*doubles, found.first, found.differ, room, found.summed)
        tally = None if found.tally is None else ctypes.addressof(found.tally)
        places = (tally, found.classes.size, found.weight, found.label, trains)
        self._survey = structures.SurveyData(*(array.ctypes.data for array in arrays), *places), found, sums, room
        self._core.sim_begin(self._usable(), ctypes.byref(self._survey[0]))

    def consume(self, pages: Pages) -> bool:
        """Take the epoch's next pages; whether more are welcome (not after a fault)."""
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

        It returns 0, or another number when it takes no more pages: `end_epoch` then tells the fault. Valid until
        `close`.
        """
        function = ctypes.cast(self._core.sim_consume, ctypes.c_void_p).value
        assert function is not None
        return function, self._usable()

    def end_epoch(self) -> EpochCounters:
        """End the epoch after its last page.

        Raises
        ------
        InternalError
            No Bundle is loaded.
        """
        counters = structures.Counters()
        if not self._core.sim_end(self._usable(), ctypes.byref(counters)):
            raise InternalError("an epoch was ended before a Bundle was loaded")
        found = {field[0]: getattr(counters, field[0]) for field in structures.Counters._fields_}
        return EpochCounters(**found | {"fault": Fault(counters.fault)})

    @property
    def walked_rows(self) -> int:
        """Rows that were taken from their pages all at once since the Bundle was loaded."""
        return int(self._core.sim_walked_rows(self._usable()))

    def _usable(self) -> int:
        if not self._finalizer.alive:
            raise InternalError("the simulator was closed")
        return self._address

    def _outside(self, row: int, count: int) -> IndexError:
        return IndexError(
            f"rows {row} to {row + count - 1} must lie in the {self.config.scratch_depth} rows of a loaded machine"
        )
