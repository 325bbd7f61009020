"""Drives a board: the accelerator of an exported package, on an FPGA or under Verilator."""

from hwgen.driver.board import Board, BoardRun, PageMemory, Registers
from hwgen.driver.errors import BoardError, BusHang, MachineHang
from hwgen.driver.mapped import MappedPages, MappedRecords, MappedRegisters, WrittenPages
from hwgen.driver.records import RecordMemory

__all__ = [
    "Board",
    "BoardError",
    "BoardRun",
    "BusHang",
    "MachineHang",
    "MappedPages",
    "MappedRecords",
    "MappedRegisters",
    "PageMemory",
    "RecordMemory",
    "Registers",
    "WrittenPages",
]
