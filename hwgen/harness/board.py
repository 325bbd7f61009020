"""A board under Verilator: registers and memories for a driver.

In: a board's Verilog, as an exported package has it. Out: the `Registers` and the `PageMemory` of `hwgen.driver`, so
that a driver of a board on an FPGA drives this one. All cycles run in C++.
"""

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.driver import BoardError
from hwgen.folders import create_file
from hwgen.harness.build import build
from hwgen.spec.aperture import aperture_bytes
from hwgen.spec.board import part_bytes, slot_bytes
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import MASTER_LATENCY, READER_LATENCY

BASE = 0x4000_0000
"""Address of the memory: not 0, and whole pages from it."""
RECORD_BASE = 0x7_4000_0000
"""Address of the record memory: not within 32 bits."""
UNBOUNDED = 1 << 40
"""Bytes of a memory that is as large as what is put into it."""
CYCLES_BETWEEN_LOOKS = 4096
WORDS_AT_ONCE = 1024
"""Words of an access in C++: a signal is seen between two of them."""
RESPONSES = {2: "SLVERR", 3: "DECERR", 4: "no answer"}


class RtlBoard:
    """The registers of a simulated board; its memory is `pages`, and `records` of a machine with a record memory.

    The memory answers such that the machine sees the page link of the cycle contract (`docs/machine.md`, section 5):
    beats of one burst after another, the first `link_latency` cycles after the machine asked for a page, including
    READER_LATENCY of the page reader; all of a page's in its `page_cycles`. The latency of the record memory,
    `record_latency`, includes MASTER_LATENCY of the record master.

    Parameters
    ----------
    verilog
        Text of the module `dana_board` and of all below it.
    config
        The board's; of it the link and the size of pages count.
    memory_bytes, record_bytes
        Of its memories.
    traced
        Compile it such that `waveforms` works; it is slower then.

    Raises
    ------
    hwgen.rtl.verilate.BuildError
        Verilator, g++ or make is missing, or rejected the design.
    MemoryError
        There is not enough for one of them, or for the board.
    """

    def __init__(
        self,
        verilog: str,
        config: MachineConfig,
        *,
        memory_bytes: int = UNBOUNDED,
        record_bytes: int = UNBOUNDED,
        traced: bool = False,
    ) -> None:
        library = ctypes.CDLL(str(build(verilog, traced=traced)))
        pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        for name, result, arguments in (
            ("board_new", pointer, [u64, u64, u32, u32, u32, u32]),
            ("board_delete", None, [pointer]),
            ("board_stall", None, [pointer, u32, u64]),
            ("board_records", None, [pointer, u64, u32, u32]),
            ("board_put", ctypes.c_bool, [pointer, u32, u64, pointer, u64]),
            ("board_get", ctypes.c_bool, [pointer, u64, pointer, u64]),
            ("board_wait", None, [pointer, u32]),
            ("board_hold", None, [pointer, u64]),
            ("board_write", u32, [pointer, u32, pointer, u32, pointer]),
            ("board_read", u32, [pointer, u32, pointer, u32, pointer]),
            *([("board_trace", ctypes.c_bool, [pointer, ctypes.c_char_p])] if traced else []),
        ):
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        self._library = library
        self._aperture = aperture_bytes(config)
        self._part = part_bytes(config, memory_bytes)
        self._buses = config.buses
        self._handle = library.board_new(
            BASE,
            self._part,
            config.bus_bytes,
            config.link_latency - READER_LATENCY,
            slot_bytes(config),
            config.page_cycles,
        )
        if not self._handle:
            raise MemoryError("no room for the simulated board")
        weakref.finalize(self, library.board_delete, self._handle)
        library.board_records(
            self._handle, RECORD_BASE, 4 * config.lanes, max(1, config.record_latency - MASTER_LATENCY)
        )
        self.pages = RtlMemory(self, BASE, memory_bytes)
        self.records = RtlMemory(self, RECORD_BASE, record_bytes, records=True) if config.record_depth else None

    def read(self, address: int, count: int) -> npt.NDArray[np.uint32]:
        words = np.empty(count, dtype=np.uint32)
        self._access("read", address, words)
        return words

    def write(self, address: int, words: npt.NDArray[np.uint32]) -> None:
        self._access("write", address, np.ascontiguousarray(words, dtype=np.uint32))

    def wait(self) -> None:
        """Until the board interrupts, or some thousand cycles."""
        self._library.board_wait(self._handle, CYCLES_BETWEEN_LOOKS)

    def hold(self, cycles: int) -> None:
        """Let cycles pass until `cycles` of them have passed since the last interrupt."""
        self._library.board_hold(self._handle, cycles)

    def stall(self, pauses: int, seed: int = 0) -> None:
        """Let the buses of memories pause at random in `pauses` of 256 cycles; 0: the cycle contract."""
        self._library.board_stall(self._handle, pauses, seed)

    @contextmanager
    def waveforms(self, path: Path) -> Iterator[None]:
        """Write all signals into a VCD file meanwhile, a cycle in 10 ns; OSError if there can be none."""
        # Verilator creates the file by its name, and says nothing of why it cannot
        with open(path, "wb", opener=create_file):
            pass
        if not self._library.board_trace(self._handle, os.fsencode(path)):
            raise OSError(f"Verilator cannot write waveforms to {path}")
        try:
            yield
        finally:
            self._library.board_trace(self._handle, None)

    def put(self, offset: int, data: memoryview, *, records: bool = False) -> None:
        """Put bytes into the memory of pages, or of records."""
        if not data:
            return
        octets = np.frombuffer(data, dtype=np.uint8)
        # the part of each bus is a memory by itself, and that of records comes after them
        bus, place = (
            (self._buses, offset) if records else (0, offset) if self._buses == 1 else divmod(offset, self._part)
        )
        if not self._library.board_put(self._handle, bus, place, octets.ctypes.data, octets.size):
            what = "records" if records else "pages"
            raise MemoryError(f"no room for {octets.size} bytes of {what} in the simulated board's memory")

    def get(self, offset: int, count: int) -> bytes:
        """Bytes of the record memory; all must have been put there."""
        octets = np.empty(count, dtype=np.uint8)
        if not self._library.board_get(self._handle, offset, octets.ctypes.data, count):
            raise ValueError(f"{count} bytes from {offset} on must have been put into the record memory, but were not")
        return octets.tobytes()

    def _access(self, what: str, address: int, words: npt.NDArray[np.uint32]) -> None:
        taken = ctypes.c_uint32()
        function = getattr(self._library, f"board_{what}")
        flat = words.ravel()
        if 4 * (address + flat.size) > self._aperture:
            raise BoardError(
                f"a {what} of {flat.size} words from byte address {4 * address:#x} on must lie in the board's aperture "
                f"of {self._aperture:#x} bytes"
            )
        for first in range(0, flat.size, WORDS_AT_ONCE):
            piece = flat[first : first + WORDS_AT_ONCE]
            at = address + first
            response = function(self._handle, 4 * at, piece.ctypes.data, piece.size, ctypes.byref(taken))
            if response:
                raise BoardError(
                    f"a {what} of byte address {4 * (at + taken.value):#x} must be answered with OKAY, "
                    f"but the board said {RESPONSES.get(response, response)}"
                )


class RtlMemory:
    """A memory of an `RtlBoard`: that of pages, or that of records, which alone can be read."""

    def __init__(self, board: RtlBoard, base: int, size: int, *, records: bool = False) -> None:
        self.base, self.size = base, size
        self._board = weakref.proxy(board)
        self._records = records

    def read(self, offset: int, count: int) -> bytes:
        data: bytes = self._board.get(offset, count)
        return data

    def write(self, offset: int, data: memoryview) -> None:
        self._board.put(offset, data, records=self._records)
