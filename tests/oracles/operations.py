"""What each operation with a result of its own gives, by NumPy: a row of `Opcode` and a function of `numerics` suffice.

In: the table of operations. Out: `OPERATIONS`. Moves and exchanges have a meaning of their own where they are tested.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hwgen.spec import numerics
from hwgen.spec.operations import Opcode, Unit

SPELLED = {"abs": "absolute", "max": "maximum", "min": "minimum"}
"""Names that are Python's own."""

OPERATIONS: dict[Opcode, Callable[..., npt.NDArray[np.float32]]] = {
    op: getattr(numerics, SPELLED.get(op.name.lower(), op.name.lower()))
    for op in Opcode
    if op.unit is not Unit.SEQUENCER and not op.chooses and op not in (Opcode.MOV, Opcode.MOVC)
}
