"""The arithmetic that the interpreter computes with, as an interface.

Comes in: binary32 arrays. Goes out: binary32 arrays. The language fixes what is computed in which order;
how one operation rounds is the machine's contract, so an implementation is passed in. Must not: implement anything.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Arithmetic(Protocol):
    """Elementwise operations with NumPy broadcasting, and the two reduction orders of the language.

    A module with functions of these names fits. Each result is rounded to nearest even, subnormals are flushed before
    and after, NaNs come out as 0x7fc00000; comparisons give 0.0 or 1.0.
    """

    def add(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a + b."""
        ...

    def sub(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a - b."""
        ...

    def mul(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a * b."""
        ...

    def div(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a / b."""
        ...

    def neg(self, x: npt.ArrayLike, /) -> Floats:
        """The sign flipped."""
        ...

    def lt(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a < b."""
        ...

    def gt(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a > b."""
        ...

    def le(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a <= b."""
        ...

    def ge(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a >= b."""
        ...

    def eq(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a == b."""
        ...

    def where(self, c: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """a where c is other than zero, else b."""
        ...

    def sigmoid(self, x: npt.ArrayLike, /) -> Floats:
        """1 / (1 + exp(-x))."""
        ...

    def gaussian(self, x: npt.ArrayLike, /) -> Floats:
        """exp(-x * x)."""
        ...

    def sqrt(self, x: npt.ArrayLike, /) -> Floats:
        """Square root."""
        ...

    def exp(self, x: npt.ArrayLike, /) -> Floats:
        """e to the power x."""
        ...

    def log(self, x: npt.ArrayLike, /) -> Floats:
        """Natural logarithm."""
        ...

    def absolute(self, x: npt.ArrayLike, /) -> Floats:
        """Magnitude."""
        ...

    def maximum(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """The larger."""
        ...

    def minimum(self, a: npt.ArrayLike, b: npt.ArrayLike, /) -> Floats:
        """The smaller."""
        ...

    def flush(self, x: npt.ArrayLike, /) -> Floats:
        """Subnormals to zero, NaNs to the canonical one."""
        ...

    def fold(self, x: npt.ArrayLike, axis: int, op: str) -> Floats:
        """Reduce an axis by the fold order; op is add, mul, max or min."""
        ...

    def tree(self, x: npt.ArrayLike, op: str) -> Floats:
        """Reduce axis 0 as the adjacent-pair tree; op is add, mul, max or min."""
        ...
