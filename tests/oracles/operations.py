"""What each operation with a result of its own gives, by NumPy: a row of `Opcode` and a function of `numerics` suffice.

In: the table of operations. Out: `OPERATIONS`, and by number of operands `UNARY` and `BINARY`. Moves and exchanges have
a meaning of their own where they are tested.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dsl.hdfg.arithmetic import function
from dsl.hdfg.ops import Op
from hwgen.spec import numerics
from hwgen.spec.operations import Opcode, Unit

OPERATIONS: dict[Opcode, Callable[..., npt.NDArray[np.float32]]] = {
    op: function(numerics, Op[op.name])
    for op in Opcode
    if op.unit is not Unit.SEQUENCER and not op.chooses and op not in (Opcode.MOV, Opcode.MOVC)
}
UNARY = {op: meaning for op, meaning in OPERATIONS.items() if op.operands == 1}
BINARY = {op: meaning for op, meaning in OPERATIONS.items() if op.operands == 2}
