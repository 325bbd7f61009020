"""Binary32 numbers held in Python floats, without NumPy (the front end must import fast).

In: Python numbers. Out: Python floats that are exactly binary32 values, subnormals flushed to zero of the
same sign (docs/arithmetic.md). Must not: round twice in a way that differs from rounding once (binary64 has more than
twice binary32's precision, so + - * / of two binary32 numbers in binary64, then rounded here, is the binary32 result).
"""

from __future__ import annotations

import math
import struct

SMALLEST_NORMAL = 2.0**-126
OVERFLOW = 2.0**128
_BINARY32 = struct.Struct("<f")


BITS = 24
"""Significant bits of a binary32."""
NARROW_BITS = 8
"""Significant bits of a bfloat16, which has binary32's exponents."""


def round32(number: float, bits: int = BITS) -> float:
    """Return `number` rounded to binary32, to nearest even; too large gives infinity, subnormals give zero.

    With `bits` 8 it is rounded to bfloat16. Tininess is judged after rounding, with unbounded exponent.
    """
    if math.isnan(number):
        return math.nan
    if number == 0.0 or math.isinf(number):
        return number
    # before frexp: ldexp raises OverflowError where a number near binary64's limit rounds up to 2**1024
    if abs(number) >= OVERFLOW:
        return math.copysign(math.inf, number)
    mantissa, exponent = math.frexp(number)
    # bits with the implicit one; round() goes to even at a half, as IEEE 754's roundTiesToEven
    rounded = math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)
    # what lies above the largest number by half a unit or more rounds up to 2**128
    if abs(rounded) >= OVERFLOW:
        return math.copysign(math.inf, number)
    return rounded if abs(rounded) >= SMALLEST_NORMAL else math.copysign(0.0, number)


def bits_of(number: float) -> int:
    """Return the 32 bits of a binary32 number, every NaN as 0x7fc00000."""
    return 0x7FC00000 if math.isnan(number) else int.from_bytes(_BINARY32.pack(number), "little")
