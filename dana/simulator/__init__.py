"""Bit- and cycle-exact simulation of the machine, in native code.

In: a `MachineConfig`, a `Bundle`, pages. Out: scratchpad rows, counters. It must not import compiler, runtime or RTL.
"""

from dana.simulator.machine import KERNELS, Simulator

__all__ = ["KERNELS", "Simulator"]
