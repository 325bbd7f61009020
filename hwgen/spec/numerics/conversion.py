"""Column types to binary32: what a tuple's bytes mean to the machine.

In: NumPy arrays of the column's type. Out: float32 arrays, rounded once to nearest even, flushed, canonical NaN.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from hwgen.spec.numerics.binary32 import Floats, _rounded, flush


def from_float32(x: npt.ArrayLike) -> Floats:
    """float4: subnormals flushed, NaN made canonical. A copy: pages are written over."""
    return np.array(flush(x))


def from_float64(x: npt.ArrayLike) -> Floats:
    """float8: rounded to nearest even; out of range becomes infinite, tiny after rounding becomes zero."""
    with np.errstate(all="ignore"):
        return _rounded(np.asarray(x, dtype=np.float64))


def _from_integer(x: npt.ArrayLike, dtype: type[np.signedinteger[Any]]) -> Floats:
    # one rounding: NumPy converts the integer itself, not a float64 made of it
    return np.asarray(np.asarray(x, dtype=dtype).astype(np.float32))


def from_int16(x: npt.ArrayLike) -> Floats:
    """int2: exact."""
    return _from_integer(x, np.int16)


def from_int32(x: npt.ArrayLike) -> Floats:
    """int4: rounded to nearest even above 2**24."""
    return _from_integer(x, np.int32)


def from_int64(x: npt.ArrayLike) -> Floats:
    """int8: rounded to nearest even above 2**24."""
    return _from_integer(x, np.int64)


def from_bool(x: npt.ArrayLike) -> Floats:
    """boolean: 1.0 and 0.0."""
    return np.asarray(np.asarray(x, dtype=np.bool_).astype(np.float32))
