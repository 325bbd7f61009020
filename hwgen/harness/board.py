"""A board under Verilator: both sides that a driver needs, and no register known.

In: a board's Verilog, as an exported package has it. Out: the `Registers` and the `PageMemory` of `hwgen.driver`, so
that what drives a board on an FPGA drives this one. All cycles run in C++.
"""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.driver import BoardError
from hwgen.rtl.verilate import verilate
from hwgen.spec.board import TOP

DRIVER = Path(__file__).with_name("board.cpp")
BASE = 0x4000_0000
"""Address of the memory: not 0, and whole pages from it."""
CYCLES_BETWEEN_LOOKS = 200
RESPONSES = {2: "SLVERR", 3: "DECERR", 4: "no answer"}


class RtlBoard:
    """The registers of a simulated board; its memory is `pages`.

    Parameters
    ----------
    verilog
        Text of the module `dana_board` and of all below it.
    link_bytes
        Of its configuration: bytes of a beat of the page bus.
    memory_bytes
        Of its memory.
    stall
        Of 256 cycles, those in which the page bus pauses, at random.

    Raises
    ------
    hwgen.rtl.verilate.BuildError
        Verilator, g++ or make is missing, or refused the design.
    """

    def __init__(self, verilog: str, *, link_bytes: int, memory_bytes: int, stall: int = 0) -> None:
        library = ctypes.CDLL(str(verilate(verilog, TOP, DRIVER, optimize="-O1", verilator_flags=("--x-initial", "0"))))
        pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        for name, result, arguments in (
            ("board_new", pointer, [u64, u64, u32, u32]),
            ("board_delete", None, [pointer]),
            ("board_memory", pointer, [pointer]),
            ("board_idle", None, [pointer, u32]),
            ("board_write", u32, [pointer, u32, u32]),
            ("board_read", u32, [pointer, u32, pointer]),
        ):
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        self._library = library
        self._handle = library.board_new(BASE, memory_bytes, link_bytes, stall)
        weakref.finalize(self, library.board_delete, self._handle)
        self.pages = RtlPages(self, library.board_memory(self._handle), memory_bytes)

    def read(self, address: int, count: int) -> npt.NDArray[np.uint32]:
        words = np.empty(count, dtype=np.uint32)
        for k in range(count):
            at = words[k:].ctypes.data_as(ctypes.c_void_p)
            self._check("read", address + k, self._library.board_read(self._handle, 4 * (address + k), at))
        return words

    def write(self, address: int, words: npt.NDArray[np.uint32]) -> None:
        for k, word in enumerate(words.ravel().tolist()):
            self._check("write", address + k, self._library.board_write(self._handle, 4 * (address + k), word))

    def wait(self) -> None:
        self._library.board_idle(self._handle, CYCLES_BETWEEN_LOOKS)

    def _check(self, what: str, address: int, response: int) -> None:
        if response:
            raise BoardError(
                f"a {what} of byte address {4 * address:#x} must be answered with OKAY, "
                f"but the board said {RESPONSES.get(response, response)}"
            )


class RtlPages:
    """The memory of an `RtlBoard`, which lives as long as this."""

    def __init__(self, board: RtlBoard, address: int, size: int) -> None:
        self.base, self.size = BASE, size
        self._board = board
        self._bytes = memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")

    def write(self, offset: int, data: memoryview) -> None:
        self._bytes[offset : offset + len(data)] = data
