"""The arithmetic that the interpreter computes with, as an interface.

In: binary32 arrays. Out: binary32 arrays. The language fixes what is computed in which order;
how one operation rounds is the machine's contract, so an implementation is passed in. Must not: implement anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dsl.hdfg.ops import Op

Floats = npt.NDArray[np.float32]


class Arithmetic(Protocol):
    """Elementwise operations with NumPy broadcasting, and the two reduction orders of the language.

    A module with functions of these names, and those of `function`, fits. Each result is rounded to nearest even,
    subnormals are flushed before and after, NaNs come out as 0x7fc00000; comparisons give 0.0 or 1.0.
    """

    def add(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a + b."""
        ...

    def sub(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a - b."""
        ...

    def flush(self, x: npt.ArrayLike, /) -> Floats:
        """Subnormals to zero, NaNs to the canonical one."""
        ...

    def bfloat16(self, x: npt.ArrayLike, /) -> Floats:
        """Rounded to bfloat16, and flushed."""
        ...

    def fold(self, x: npt.ArrayLike, axis: int, op: str) -> Floats:
        """Reduce an axis by the fold order; op is add, mul, max or min."""
        ...

    def tree(self, x: npt.ArrayLike, op: str) -> Floats:
        """Reduce axis 0 as the adjacent-pair tree; op is add, mul, max or min."""
        ...


def function(arithmetic: Arithmetic, op: Op) -> Callable[..., Floats]:
    """Its function for an elementwise operation, of the same name but for those of Python itself."""
    name = {Op.ABS: "absolute", Op.MAX: "maximum", Op.MIN: "minimum"}.get(op, op.value)
    found: Callable[..., Floats] = getattr(arithmetic, name)
    return found
