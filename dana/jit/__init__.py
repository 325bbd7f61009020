"""Machine code for rules: what the simulator's engine does, many times as fast, with the same bits.

`compile_graph` makes it of a rule's graph, by LLVM, in two steps: `assemble` makes bytes, which other processes may
`load`, too. `dana.simulator.Simulator.attach` runs it. The simulator counts when columns, tuples and pages pass as it
does without; nothing here knows of cycles.
"""

from dana.jit.code import Code, assemble, compile_graph, load
from dana.jit.plan import Unsupported

__all__ = ["Code", "Unsupported", "assemble", "compile_graph", "load"]
