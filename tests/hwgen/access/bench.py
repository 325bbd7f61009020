"""Runs a `Case` on the RTL under Verilator."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from hwgen.rtl.access.engine import AccessEngine
from hwgen.rtl.library import Library
from hwgen.rtl.verilate import verilate
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault
from tests.hwgen.access.case import Case, Outcome, Round, Stop, Write

DRIVER = Path(__file__).with_name("driver.cpp")
REQUEST, WRITE, ROUND, EMPTY, FAULT = range(1, 6)
ROOM = 1 << 24
"""Words that an epoch may record."""


def verilog(config: MachineConfig) -> str:
    library = Library()
    library.add("access_engine", lambda: AccessEngine(config, library))
    return library.verilog()


class Bench:
    """One access engine, which keeps what it remembers from one epoch to the next."""

    def __init__(self, config: MachineConfig) -> None:
        self.config = config
        self._library = _load(config)
        self._handle = ctypes.c_void_p(self._library.bench_new())
        self._out = np.zeros(ROOM, dtype=np.uint32)

    def close(self) -> None:
        self._library.bench_delete(self._handle)

    def run(
        self,
        case: Case,
        *,
        stall: float = 0.0,
        seed: int = 0,
        limit: int = 20_000_000,
        grace: int = 40,
        stop_at: int = 0,
    ) -> Outcome:
        """One epoch; `stall` is how often a beat of the link that could come does not."""
        config = case.config
        assert config == self.config
        host: list[int] = []
        words = [i.encode() for i in case.program]
        for k, word in enumerate(words + [0] * (config.strider_depth - len(words))):
            host += [0, k, word]
        for k, word in enumerate(case.constants + (0,) * (32 - len(case.constants))):
            host += [1, k, word]
        columns = [c.encode() for c in case.columns]
        for k, word in enumerate(columns + [0] * (config.descriptor_depth - len(columns))):
            host += [2, 2 * k, word & 0xFFFFFFFF, 2, 2 * k + 1, word >> 32]
        setup = np.array(
            [
                config.link_bytes, config.link_latency, config.page_size, config.lanes,
                len(case.pages), case.batch, case.group_log2, case.tuple_rows,
                int(stall * 65536), seed, limit, grace, len(host) // 3, len(case.delays), stop_at, config.page_cycles,
            ],
            dtype=np.uint32,
        )  # fmt: skip
        writes = np.array(host, dtype=np.uint32)
        pages = np.frombuffer(b"".join(case.pages) or b"\0", dtype=np.uint8)
        delays = np.array(case.delays, dtype=np.uint32).ravel()
        skipped = ctypes.c_uint64()
        used = self._library.bench_run(
            self._handle,
            *(ctypes.c_void_p(array.ctypes.data) for array in (setup, writes, pages, delays, self._out)),
            ctypes.c_int64(ROOM),
            ctypes.byref(skipped),
        )
        if used < 0:
            raise AssertionError({-1: "more records than room", -2: f"no end within {limit} cycles"}[used])
        outcome = _read(self._out[:used].tolist(), config)
        outcome.skipped = skipped.value
        return outcome


@cache
def _load(config: MachineConfig) -> ctypes.CDLL:
    library = ctypes.CDLL(str(verilate(verilog(config), "access_engine", DRIVER, optimize="-O1")))
    library.bench_new.restype = ctypes.c_void_p
    library.bench_run.restype = ctypes.c_int64
    return library


def _read(words: list[int], config: MachineConfig) -> Outcome:
    out = Outcome()
    lanes = config.lanes
    masks = -(-lanes // 32)
    at = 0
    while at < len(words):
        kind, cycle = words[at], words[at + 1]
        at += 2
        if kind == REQUEST:
            assert words[at] == len(out.requests), "pages are requested in order"
            out.requests.append(cycle)
            at += 1
        elif kind == WRITE:
            thread, half, row = words[at : at + 3]
            at += 3
            mask = sum(words[at + k] << 32 * k for k in range(masks))
            at += masks
            values = words[at : at + lanes]
            at += lanes
            enabled = tuple((lane, values[lane]) for lane in range(lanes) if mask >> lane & 1)
            out.writes.append(Write(cycle, thread, half, row, enabled))
        elif kind == ROUND:
            out.rounds.append(Round(cycle, words[at], bool(words[at + 1]), bool(words[at + 2])))
            at += 3
        elif kind == EMPTY:
            assert out.empty is None, "one epoch_empty"
            out.empty = cycle
        elif kind == FAULT:
            assert out.fault is None, "one fault"
            out.fault = Stop(Fault(words[at]), words[at + 1], words[at + 2])
            at += 3
        else:
            raise AssertionError(f"record {kind}")
    return out
