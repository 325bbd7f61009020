"""The RTL of a machine as an object that runs epochs.

In: a configuration, Bundles, pages. Out: scratchpad rows and counters. The machine is driven through its register map
alone, as a board would be; pages come over the modelled link of `docs/machine.md`, section 5. All cycles run in C++.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from hwgen.harness.build import build, hardware_of
from hwgen.spec import cycles, load, registers
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.counters import EpochCounters, read_counters
from hwgen.spec.engine import Instruction
from hwgen.spec.load import bundle_blocks
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import STRIDER_BOUND, Fault

Words = npt.NDArray[np.uint32]

START = 1
TUPLE_BYTES_LEAST = 28
"""A line pointer and a tuple header (PostgreSQL, `storage/itemid.h` and `access/htup_details.h`)."""
NEVER = 0xFFFFFFFF
STALLS = (8, 64, 128, 230)
"""Beats of 256 that a stalling link holds back."""


class MachineHang(RuntimeError):
    """The machine is still busy although nothing has moved for longer than its work can take."""


def _library(config: MachineConfig) -> ctypes.CDLL:
    library = ctypes.CDLL(str(build(config)))
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("machine_new", pointer, []),
        ("machine_delete", None, [pointer]),
        ("machine_now", u64, [pointer]),
        ("machine_write", None, [pointer, u32, pointer, u32]),
        ("machine_read", None, [pointer, u32, pointer, u32, u32]),
        ("machine_run", u32, [pointer, u32, u32, pointer, u32, u32, u32, u32, u32, u64, u64]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class RtlMachine:
    """A machine under Verilator.

    Parameters
    ----------
    config
        The machine. Machines whose hardware is equal are compiled once.
    stall_seed
        None: the link of the cycle contract. A number: a link that stalls at random, differently for each number and
        each epoch.
    patience
        Cycles after which a machine that is busy, and neither asks for a page nor takes a beat, counts as hung; None:
        more than the loaded Bundle's work can take.

    Raises
    ------
    hwgen.rtl.verilate.BuildError
        Verilator, g++ or make is missing, or refused the design.
    """

    def __init__(self, config: MachineConfig, *, stall_seed: int | None = None, patience: int | None = None) -> None:
        self.config = config
        self._given_patience = patience
        self._stalls = None if stall_seed is None else np.random.default_rng(stall_seed)
        self._bundle: Bundle | None = None
        self._ran = False
        self._library = _library(config)
        self._handle = self._library.machine_new()
        weakref.finalize(self, self._library.machine_delete, self._handle)

    @property
    def clock(self) -> int:
        """Cycles simulated since the machine was made, the host's accesses included."""
        return int(self._library.machine_now(self._handle))

    def load(self, bundle: Bundle) -> None:
        """Reset the machine and fill its memories and registers from a Bundle.

        Raises
        ------
        hwgen.spec.bundle.BundleError
            The Bundle breaks a rule of the machine, which stays as it is.
        ValueError
            It is for another machine.
        """
        blocks = bundle_blocks(bundle, whole_scratchpad=self._ran)
        if hardware_of(bundle.config) != hardware_of(self.config):
            raise ValueError(
                f"the Bundle must be for this machine ({self.config.fingerprint()}), "
                f"but it is for another ({bundle.config.fingerprint()}); compile it for this one"
            )
        self._bundle = bundle
        for address, words in blocks:
            self._write(address, words)

    def write_rows(self, row: int, rows: npt.ArrayLike) -> None:
        """Write scratchpad rows of every thread; `rows` holds bit patterns, shape [k, lanes]."""
        words = np.asarray(rows, dtype=np.uint32)
        self._check_rows(row, len(words), words.shape)
        self._write(load.address(Region.SCRATCH, row * self.config.lanes), words)

    def read_rows(self, row: int, k: int) -> Words:
        """Bit patterns of `k` scratchpad rows of thread 0, shape [k, lanes]."""
        self._check_rows(row, k, (k, self.config.lanes))
        words = self._read(load.address(Region.SCRATCH, row * self.config.lanes), k * self.config.lanes)
        return words.reshape(k, self.config.lanes)

    def run_epoch(self, pages: Any) -> EpochCounters:
        """Run one epoch over pages that follow one another in a buffer of bytes.

        Raises
        ------
        MachineHang
            The machine did not come to an end.
        """
        bundle = self._bundle
        if bundle is None:
            raise ValueError("a machine must be loaded with a Bundle before it runs; call load first")
        buffer = np.frombuffer(pages, dtype=np.uint8) if len(pages) else np.zeros(0, dtype=np.uint8)
        count, rest = divmod(buffer.size, self.config.page_size)
        if rest:
            raise ValueError(f"pages must be a multiple of {self.config.page_size} bytes, not {buffer.size}")
        self._ran = True
        self._write_register(Register.PAGES, count)
        stall, seed = 0, 0
        if self._stalls is not None:
            stall, seed = int(self._stalls.choice(STALLS)), int(self._stalls.integers(1 << 63))
        status = self._library.machine_run(
            self._handle,
            Register.CONTROL,
            START,
            buffer.ctypes.data_as(ctypes.c_void_p),
            self.config.page_size,
            self.config.link_bytes,
            self.config.link_latency,
            registers.READ_LATENCY,
            stall,
            seed,
            self._patience(bundle),
        )
        if status == NEVER:
            raise MachineHang(
                f"the machine must end an epoch of {count} pages, but it has not moved for {self._patience(bundle)} "
                f"cycles; it was handed {self._counters(Fault.NONE).tuples} tuples. Please report the Bundle as a bug"
            )
        return self._counters(Fault(status >> 8 & 0xFF))

    def _patience(self, bundle: Bundle) -> int:
        """Cycles that may pass without a page asked for or sent: Striders at their bound, each tuple a batch."""
        if self._given_patience is not None:
            return self._given_patience
        strider = STRIDER_BOUND * self.config.page_size * max(cycles.STRIDER_CYCLES.values())
        sections = sum(_section_cycles(bundle.section(name), self.config.divide_interval) for name in bundle.sections)
        tuples = self.config.page_size // TUPLE_BYTES_LEAST + 1
        return (self.config.striders + 1) * (strider + tuples * (bundle.levels + 1) * sections)

    def _counters(self, fault: Fault) -> EpochCounters:
        return read_counters(self._read, fault)

    def _write_register(self, register: int, value: int) -> None:
        self._write(load.address(Region.CONTROL, register), np.array([value], dtype=np.uint32))

    def _write(self, address: int, words: Words) -> None:
        flat = np.ascontiguousarray(words, dtype=np.uint32).ravel()
        self._library.machine_write(self._handle, address, flat.ctypes.data_as(ctypes.c_void_p), flat.size)

    def _read(self, address: int, count: int) -> Words:
        words = np.empty(count, dtype=np.uint32)
        self._library.machine_read(
            self._handle, address, words.ctypes.data_as(ctypes.c_void_p), count, registers.READ_LATENCY
        )
        return words

    def _check_rows(self, row: int, count: int, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.config.lanes:
            raise ValueError(f"rows must have shape [k, {self.config.lanes}], not {list(shape)}")
        if row < 0 or row + count > self.config.scratch_depth:
            raise ValueError(f"rows must lie in 0 … {self.config.scratch_depth - 1}, not {row} … {row + count - 1}")


def _section_cycles(section: tuple[Instruction, ...], divide_interval: int) -> int:
    """At least the cycles of a section."""
    return cycles.SECTION_START + sum(
        instruction.wait
        + instruction.rows
        * cycles.element_interval(instruction.op, divide_interval)
        * (LANES_PER_CLUSTER if instruction.op.special else 1)
        for instruction in section
    )
