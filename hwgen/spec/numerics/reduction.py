"""The two orders of reduction that the language fixes: the halving fold and the adjacent-pair tree.

In: a float32 array and the name of an operator. Out: the reduced float32 array. The orders belong to the language and
not to a design, so nothing here may know of lanes, clusters or threads.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from hwgen.spec.numerics.binary32 import Floats, add, flush, maximum, minimum, mul
from hwgen.spec.operations import Opcode

REDUCTIONS: Final[dict[str, Callable[[npt.ArrayLike, npt.ArrayLike], Floats]]] = {
    "add": add,
    "mul": mul,
    "max": maximum,
    "min": minimum,
}

#: x op identity is x, bit for bit; -0.0 for the sum because +0 + -0 is +0 and -0 + -0 is -0
IDENTITIES: Final[dict[str, float]] = {
    op.name.lower(): float(np.uint32(op.identity).view(np.float32)) for op in Opcode if op.identity is not None
}


def _operator(op: str) -> Callable[[npt.ArrayLike, npt.ArrayLike], Floats]:
    if op not in REDUCTIONS:
        raise ValueError(f"a reduction must be one of {', '.join(REDUCTIONS)}, not {op!r}")
    return REDUCTIONS[op]


def _not_empty(x: Floats) -> None:
    if x.shape[0] == 0:
        raise ValueError(f"a reduction needs at least one element, but axis 0 of shape {x.shape} has none")


def fold(x: npt.ArrayLike, axis: int, op: str) -> Floats:
    """Reduce one axis by halving: with h the largest power of two below n, x[i] takes in x[i + h], then n becomes h.

    ValueError where the operator is unknown or the axis empty.

    Parameters
    ----------
    axis : int
        The axis that disappears; at least one element long.
    op : {'add', 'mul', 'max', 'min'}
    """
    operator = _operator(op)
    lanes = np.moveaxis(flush(x), axis, 0).copy()
    _not_empty(lanes)
    n = lanes.shape[0]
    while n > 1:
        half = 1 << ((n - 1).bit_length() - 1)
        lanes[: n - half] = operator(lanes[: n - half], lanes[half:n])
        n = half
    return np.asarray(lanes[0])


def tree(x: npt.ArrayLike, op: str) -> Floats:
    """Reduce axis 0 by adjacent pairs: x[0] with x[1], x[2] with x[3] …, then the pairs; an odd last one waits.

    Operators and errors are those of `fold`.
    """
    operator = _operator(op)
    level = flush(x)
    _not_empty(level)
    while level.shape[0] > 1:
        pairs = level.shape[0] // 2
        joined = operator(level[0 : 2 * pairs : 2], level[1 : 2 * pairs : 2])
        level = joined if level.shape[0] == 2 * pairs else np.concatenate([joined, level[-1:]])
    return np.asarray(level[0])
