"""Runs the generated machine under Verilator, through its host port only."""

from hwgen.harness.machine import MachineHang, RtlMachine

__all__ = ["MachineHang", "RtlMachine"]
