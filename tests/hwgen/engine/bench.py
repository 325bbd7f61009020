"""An execution engine under Verilator, without its access engine: rows of tuples come from a list of events.

In: a Bundle and what is delivered when. Out: counters, the cycles of rounds, scratchpad rows. All cycles run in C++
(`engine_driver.cpp`).
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.harness.build import SHARED
from hwgen.rtl.engine.engine import SCRATCH_READ_LATENCY, Engine
from hwgen.rtl.library import Library
from hwgen.rtl.verilate import verilate
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import WORD_U32, Section

Words = npt.NDArray[np.uint32]
DRIVER = Path(__file__).with_name("engine_driver.cpp")
FINISHED, OVERFLOW, HUNG, WRONG_INDEX = range(4)


class Kind(IntEnum):
    ROW = 0
    ROUND = 1
    EMPTY = 2
    WAIT_RELEASED = 3


@dataclass(kw_only=True)
class Delivery:
    """What the access engine would do in an epoch."""

    events: list[tuple[int, ...]] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    enables: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    rounds: int = 0

    def row(
        self, *, thread: int, half: int, row: int, words: Words, enable: npt.NDArray[np.bool_], gap: int = 0
    ) -> None:
        self.events.append((Kind.ROW, gap, thread, half, row, 0, 0, 0))
        self.words.append(words)
        self.enables.append(enable)

    def round(self, *, count: int, batch_last: bool, epoch_last: bool, gap: int = 0) -> None:
        self.events.append((Kind.ROUND, gap, 0, 0, 0, count, batch_last, epoch_last))
        self.rounds += 1

    def empty(self, *, gap: int = 0) -> None:
        self.events.append((Kind.EMPTY, gap, 0, 0, 0, 0, 0, 0))
        self.rounds += 1

    def wait_released(self, halves: int) -> None:
        self.events.append((Kind.WAIT_RELEASED, 0, 0, 0, 0, halves, 0, 0))


@dataclass(frozen=True, kw_only=True)
class Ran:
    """An epoch: how it ended, its counters, and the cycles in which rounds came and halves went."""

    end: int
    cycles: int
    tuples: int
    busy: int
    handed: list[int]
    freed: list[int]


@cache
def _library(config: MachineConfig) -> ctypes.CDLL:
    modules = Library()
    modules.add("engine", lambda: Engine(config, modules))
    built = verilate(modules.verilog(), "engine", DRIVER, optimize="-O1", files=SHARED, verilator_flags=tuple(SHARED))
    library = ctypes.CDLL(str(built))
    library.bench_new.restype = ctypes.c_void_p
    return library


def _pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


class EngineBench:
    """One engine."""

    def __init__(self, config: MachineConfig) -> None:
        self.config = config
        self._library = _library(config)
        self._handle = ctypes.c_void_p(self._library.bench_new())
        weakref.finalize(self, self._library.bench_delete, self._handle)

    def load(self, bundle: Bundle) -> None:
        entries = np.array([bundle.sections.get(name, 0) for name in Section], dtype=np.uint16)
        exists = sum((name in bundle.sections) << k for k, name in enumerate(Section))
        self._library.bench_settings(
            self._handle,
            _pointer(entries),
            exists,
            bundle.level_stride,
            bundle.levels,
            bundle.group.bit_length() - 1,
            bundle.tuple_rows,
        )
        program = bundle.program_words()
        self._library.bench_program(self._handle, _pointer(program), len(bundle.program), WORD_U32)
        self.write_rows(0, bundle.image)

    def write_rows(self, row: int, rows: Words) -> None:
        words = np.ascontiguousarray(rows, dtype=np.uint32)
        self._library.bench_write(self._handle, row * self.config.lanes, _pointer(words), words.size)

    def read_rows(self, row: int, k: int) -> Words:
        words = np.empty((k, self.config.lanes), dtype=np.uint32)
        first = row * self.config.lanes
        self._library.bench_read(self._handle, first, _pointer(words), words.size, SCRATCH_READ_LATENCY)
        return words

    def run(self, delivery: Delivery, *, limit: int = 1_000_000) -> Ran:
        lanes = self.config.lanes
        events = np.array(delivery.events, dtype=np.uint32)
        words = np.array([*delivery.words, np.zeros(lanes)], dtype=np.uint32)
        enables = np.array([*delivery.enables, np.zeros(lanes)], dtype=np.uint8)
        counters = np.zeros(3, dtype=np.uint64)
        handed = np.zeros(delivery.rounds + 1, dtype=np.uint64)
        freed = np.zeros(delivery.rounds + 1, dtype=np.uint64)
        end = self._library.bench_run(
            self._handle,
            _pointer(events),
            len(events),
            _pointer(words),
            _pointer(enables),
            lanes,
            ctypes.c_uint64(limit),
            _pointer(counters),
            _pointer(handed),
            _pointer(freed),
        )
        done, tuples, busy = (int(value) for value in counters)
        return Ran(
            end=end,
            cycles=done,
            tuples=tuples,
            busy=busy,
            handed=[int(cycle) for cycle in handed[: delivery.rounds]],
            freed=[int(cycle) for cycle in freed[: delivery.rounds]],
        )
