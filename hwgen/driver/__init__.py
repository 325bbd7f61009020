"""Drives a board: the accelerator of an exported package, on an FPGA or under Verilator."""

from hwgen.driver.board import Board, BoardError, BoardRun, PageMemory, Registers
from hwgen.driver.mapped import MappedPages, MappedRegisters, WrittenPages

__all__ = [
    "Board",
    "BoardError",
    "BoardRun",
    "MappedPages",
    "MappedRegisters",
    "PageMemory",
    "Registers",
    "WrittenPages",
]
