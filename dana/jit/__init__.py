"""Machine code for rules: what the simulator's engine does, many times as fast, with the same bits.

`compile_graph` makes it of a rule's graph, by LLVM; `dana.simulator.Simulator.attach` runs it. The simulator counts
when columns, tuples and pages pass as it does without; nothing here knows of cycles.
"""

from dana.jit.code import Code, compile_graph
from dana.jit.plan import Unsupported

__all__ = ["Code", "Unsupported", "compile_graph"]
