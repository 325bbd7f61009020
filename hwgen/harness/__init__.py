"""Runs the generated machine under Verilator, through its host port only; and a whole board, through its buses."""

from hwgen.harness.board import RtlBoard
from hwgen.harness.machine import MachineHang, RtlMachine

__all__ = ["MachineHang", "RtlBoard", "RtlMachine"]
