"""Runs generated boards under Verilator, through their buses only; and machines on them, an epoch at a time."""

from hwgen.harness.board import RtlBoard
from hwgen.harness.machine import RtlMachine

__all__ = ["RtlBoard", "RtlMachine"]
