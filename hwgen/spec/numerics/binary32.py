"""The four operations, square root, sign operations, comparisons and selection of binary32, exactly as hardware does.

In: float32 arrays of any shape, broadcast against each other by NumPy's rule. Out: float32 arrays.
Every operation is rounded on its own to nearest, ties to even; a subnormal operand counts as a zero of its sign; a
result that is below 2**-126 after rounding to 24 bits with unbounded exponent becomes a zero of its sign; every NaN
is 0x7fc00000. Nothing here may depend on the processor's floating-point modes, warn or raise.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

QUIET_NAN_BITS = 0x7FC00000
SIGN_BIT = 0x80000000
MIN_NORMAL = 2.0**-126
# A magnitude of at least this rounds up to MIN_NORMAL in 24 bits: halfway to the number below it, which is odd.
TINY_BELOW = 2.0**-126 - 2.0**-151

_SIGN = np.uint32(SIGN_BIT)
_MAGNITUDE = np.uint32(SIGN_BIT - 1)
_EXPONENT = np.uint32(0x7F800000)
_NAN = np.uint32(QUIET_NAN_BITS)
_ZERO = np.uint32(0)
_NARROW, _ONE, _HALF_BELOW, _HIGH = map(np.uint32, (16, 1, 0x7FFF, 0xFFFF0000))
_SUBNORMAL, _LEAST, _FAR = np.float32(MIN_NORMAL - 2.0**-149), np.float32(MIN_NORMAL), np.float32(2.0**-100)


def _bits(x: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    return np.asarray(x, dtype=np.float32).view(np.uint32)


def _floats(bits: Any) -> Floats:
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def _rounded(exact: npt.NDArray[np.float64]) -> Floats:
    """Round float64 to binary32: flushed when tiny after rounding, infinite when too large, canonical NaN."""
    tiny = np.abs(exact) < TINY_BELOW
    return flush(np.where(tiny, np.copysign(0.0, exact), exact).astype(np.float32))


def flush(x: npt.ArrayLike) -> Floats:
    """Subnormals to zero of the same sign, NaNs to the canonical one; everything else unchanged.

    This is what an operand goes through before any operation.

    Examples
    --------
    >>> import numpy as np
    >>> flush(np.float32([1e-40, -1e-40, 1.5]))
    array([ 0. , -0. ,  1.5], dtype=float32)
    """
    floats = np.asarray(x, dtype=np.float32)
    if _beyond(_SUBNORMAL, floats):
        return floats
    bits = floats.view(np.uint32)
    exponent = bits & _EXPONENT
    flushed = np.where(exponent == _ZERO, bits & _SIGN, bits)
    return _floats(np.where((bits & _MAGNITUDE) > _EXPONENT, _NAN, flushed))


def _beyond(bound: np.float32, x: Floats) -> bool:
    """Whether each is a zero or larger than the bound, which no NaN is. Nearly always that is so, and soon known."""
    magnitude = np.abs(x)
    return bool(np.count_nonzero((magnitude > bound) | (magnitude == 0)) == magnitude.size)


def _of_two(operation: np.ufunc, a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """A product or quotient, exact or nearly so in float64, where it is compared with the smallest normal number."""
    x, y = flush(a), flush(b)
    with np.errstate(all="ignore"):
        at_once = np.asarray(operation(x, y))
        # binary32 itself says the same but of NaNs, and next to the smallest normal number, to which it rounds more
        if _beyond(_LEAST, at_once):
            return at_once
        return _rounded(operation(x.astype(np.float64), y.astype(np.float64)))


def _sum(operation: np.ufunc, a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """A sum or difference. Tiny, of two normal numbers, it is exact: flushing it rounded is flushing it exact."""
    with np.errstate(all="ignore"):
        at_once = np.asarray(operation(np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)))
        # a subnormal operand is less than half a unit in the last place of such a sum
        return at_once if _beyond(_FAR, at_once) else flush(operation(flush(a), flush(b)))


def add(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """a + b."""
    return _sum(np.add, a, b)


def sub(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """a - b, with the sign of zero of a + (-b)."""
    return _sum(np.subtract, a, b)


def mul(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """a * b. The product of two binary32 is exact in float64."""
    return _of_two(np.multiply, a, b)


def div(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """a / b, correctly rounded: 53 bits are at least 2 * 24 + 2, so rounding the float64 quotient does no harm."""
    return _of_two(np.divide, a, b)


def sqrt(x: npt.ArrayLike) -> Floats:
    """Square root, correctly rounded; -0 of -0, NaN of negative numbers."""
    with np.errstate(all="ignore"):
        return flush(np.sqrt(flush(x)))


def neg(x: npt.ArrayLike) -> Floats:
    """-x: the sign bit flipped; NaN stays the canonical NaN."""
    return flush(_floats(_bits(flush(x)) ^ _SIGN))


def absolute(x: npt.ArrayLike) -> Floats:
    """|x|: the sign bit cleared; NaN stays the canonical NaN."""
    return _floats(_bits(flush(x)) & _MAGNITUDE)


def copysign(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """|a| with the sign of b, which is + of a NaN; NaN stays the canonical NaN."""
    return flush(np.copysign(flush(a), flush(b)))


def bfloat16(x: npt.ArrayLike) -> Floats:
    """x, rounded to the 8 bits of a bfloat16's significand: to nearest, ties to even, infinite when too large."""
    bits = _bits(flush(x))
    # the carry out of a significand of ones makes the next power of two, and infinity of the largest
    rounded = (bits + _HALF_BELOW + ((bits >> _NARROW) & _ONE)) & _HIGH
    return _floats(np.where(np.isnan(_floats(bits)), _NAN, rounded))


def _comparison(holds: np.ufunc) -> Callable[[npt.ArrayLike, npt.ArrayLike], Floats]:
    """1.0 where it holds of a and b, else 0.0 (also where either is NaN); the two zeros are equal."""
    return lambda a, b: np.asarray(holds(flush(a), flush(b)), dtype=np.float32)


lt, gt, le, ge, eq = map(_comparison, (np.less, np.greater, np.less_equal, np.greater_equal, np.equal))


def where(c: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """``a`` where c is true, else b. c is true when it is not a zero; a NaN is true, as in Python and in C."""
    condition = (_bits(flush(c)) & _MAGNITUDE) != _ZERO
    return _floats(np.where(condition, _bits(flush(a)), _bits(flush(b))))


def maximum(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """The larger; NaN if either is NaN; +0 of the two zeros in either order."""
    return _extreme(a, b, largest=True)


def minimum(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """The smaller; NaN if either is NaN; -0 of the two zeros in either order."""
    return _extreme(a, b, largest=False)


def _extreme(a: npt.ArrayLike, b: npt.ArrayLike, *, largest: bool) -> Floats:
    x, y = flush(a), flush(b)
    p, q = _bits(x), _bits(y)
    first = np.greater(x, y) if largest else np.less(x, y)
    # equal numbers have equal bits, but for the zeros: their sign bits are joined by and (max) or by or (min)
    equal = p & q if largest else p | q
    ordered = np.where(np.equal(x, y), equal, np.where(first, p, q))
    return _floats(np.where(np.isnan(x) | np.isnan(y), _NAN, ordered))
