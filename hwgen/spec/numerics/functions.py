"""The machine's functions of binary32, defined in integers.

In: float32 arrays. Out: float32 arrays. The definition is the integer arithmetic below with the formats of layout.py:
no library function, no floating-point operation takes part, so the C header and the RTL have the same bits by
construction. Shifts of negative integers are arithmetic (floor).
"""

import numpy as np
import numpy.typing as npt

from hwgen.spec.numerics import coefficients, layout
from hwgen.spec.numerics.binary32 import QUIET_NAN_BITS, Floats, _bits, _floats, flush

Integers = npt.NDArray[np.int64]

_C0 = np.array(coefficients.C0, dtype=np.int64)
_C1 = np.array(coefficients.C1, dtype=np.int64)
_C2 = np.array(coefficients.C2, dtype=np.int64)

_HALF_T = 1 << (layout.T_BITS - 1)
_ONE = 1 << layout.C0_FRACTION  # 1 in the units of the polynomial's value
_HIDDEN = 1 << 23
_INFINITY = 255 << 23
_BIAS = 127


def _fields(x: npt.ArrayLike) -> tuple[Integers, Integers, Integers, npt.NDArray[np.bool_]]:
    """Sign, biased exponent, significand with its hidden bit (zero for a zero), is it NaN."""
    bits = _bits(flush(x)).astype(np.int64)
    exponent = bits >> 23 & 255
    significand = np.where(exponent == 0, 0, (bits & (_HIDDEN - 1)) | _HIDDEN)
    return bits >> 31, exponent, significand, (bits & 0x7FFFFFFF) > _INFINITY


def _result(bits: npt.ArrayLike, nan: npt.NDArray[np.bool_]) -> Floats:
    return _floats(np.where(nan, QUIET_NAN_BITS, bits).astype(np.uint32))


def _polynomial(row: Integers, t: Integers) -> Integers:
    """The row's quadratic at t (signed 18 bits), in 2**-28."""
    inner = (_C2[row] * t >> layout.INNER_SHIFT) + _C1[row]
    return np.asarray(_C0[row] + (inner * t >> layout.OUTER_SHIFT))


def _at(place: Integers) -> Integers:
    """The polynomial at a row and 18 bits of position."""
    return _polynomial(place >> layout.T_BITS, (place & (2 * _HALF_T - 1)) - _HALF_T)


def _scaled(value: Integers, fraction_bits: int) -> Integers:
    """Bits of the binary32 nearest to value * 2**-fraction_bits (never tiny, never too large); +0 for 0."""
    # the conversion of a 64-bit integer to binary32 rounds once, to nearest even
    whole = _bits(value.astype(np.float32)).astype(np.int64)
    return np.where(value == 0, 0, whole - (fraction_bits << 23))


def _sigmoid_place(exponent: Integers, significand: Integers) -> Integers:
    """Where a magnitude is in sigmoid's rows: below 4 in 2**-23, which is 32 segments per unit and 18 bits of position;
    above by its own significand."""
    fraction = significand & (_HIDDEN - 1)
    four, eight, sixteen = (base << layout.T_BITS for base in (128, 192, 224))
    return np.select(
        [exponent < 129, exponent == 129, exponent == 130],
        [significand << 1 >> np.clip(128 - exponent, 0, 31), four + (fraction << 1), eight + fraction],
        sixteen + fraction,
    )


def sigmoid(x: npt.ArrayLike) -> Floats:
    """1 / (1 + exp(-x)): the absolute error is below 2**-22 everywhere; exactly 1/2 at 0.

    Below -20 or so the result is 0: it is computed as 1 - sigmoid(-x) in 28 fraction bits.
    """
    sign, exponent, significand, nan = _fields(x)
    y = _at(_sigmoid_place(exponent, significand))
    y = np.where(exponent >= 132, _ONE, y)
    return _result(_scaled(np.where(sign == 1, _ONE - y, y), layout.C0_FRACTION), nan)


def tanh(x: npt.ArrayLike) -> Floats:
    """Hyperbolic tangent, within 4 ulp: x times a ratio below 3/4, 2 * sigmoid(2x) - 1 above. -0 of -0, exactly ±1 at
    infinity."""
    sign, exponent, significand, nan = _fields(x)
    # of 2x, so that a row is 1/64 of x
    place = _sigmoid_place(exponent + 1, significand)
    row = place >> layout.T_BITS
    near = row < 16 * len(layout.TANH_ROWS)
    row = np.where(near, np.take(layout.TANH_ROWS, row >> 4, mode="clip") + (row & 15), row)
    y = _polynomial(row, (place & (2 * _HALF_T - 1)) - _HALF_T)
    far = np.where(exponent >= 131, _ONE, 2 * y - _ONE)
    ratio = y >> (layout.C0_FRACTION - layout.RATIO_FRACTION)
    product = significand * ratio >> (23 + layout.RATIO_FRACTION + 1 - layout.LOG_FRACTION)
    scaled = _scaled(product, layout.LOG_FRACTION) + (exponent - _BIAS + 1 << 23)
    bits = np.where(near, np.where(exponent == 0, 0, scaled), _scaled(far, layout.C0_FRACTION))
    return _result(bits | sign << 31, nan)


def _exp_of(magnitude: Integers, negative: npt.NDArray[np.bool_], huge: npt.NDArray[np.bool_]) -> Integers:
    """Bits of exp(±magnitude); magnitude below 2**8 in 2**-31; ``huge`` says that it was beyond that."""
    # n = round(magnitude * log2 e) from the top 16 bits; off by one near a tie it only makes r a little larger
    coarse = magnitude >> (layout.ARGUMENT_FRACTION - layout.COARSE_FRACTION)
    product_bits = layout.COARSE_FRACTION + layout.LOG2E_FRACTION
    n = coarse * layout.LOG2E + (1 << (product_bits - 1)) >> product_bits
    r = magnitude - n * layout.LN2
    n, r = np.where(negative, -n, n), np.where(negative, ~r, r)
    row = layout.EXP_BASE + 64 + (r >> 24)
    y = _polynomial(row, (r >> 6 & (2 * _HALF_T - 1)) - _HALF_T)
    bits = _scaled(y, layout.C0_FRACTION) + (n << 23)
    over = np.where(negative, 0, _INFINITY)
    return np.where(huge, over, np.where(bits < _HIDDEN, 0, np.minimum(bits, _INFINITY)))


def exp(x: npt.ArrayLike) -> Floats:
    """e**x, within 2 ulp; exactly 1 at 0, +0 where the result is tiny, infinite above 88.72."""
    sign, exponent, significand, nan = _fields(x)
    huge = exponent >= _BIAS + 7
    magnitude = significand << 24 >> np.clip(_BIAS + 16 - exponent, 0, 63)
    return _result(_exp_of(np.where(huge, 0, magnitude), sign == 1, huge), nan)


def gaussian(x: npt.ArrayLike) -> Floats:
    """exp(-x * x), within 2 ulp: the square is not rounded to 24 bits before exp. Exactly 1 at 0, 0 at infinity."""
    _, exponent, significand, nan = _fields(x)
    huge = exponent >= _BIAS + 4
    # the square of the lowest six bits is left out: 2**-34 of the whole, and a multiplier saved
    upper, lower = significand >> 6, significand & 63
    square = (upper * upper << 12) + (upper * lower << 7)
    magnitude = square >> np.clip(15 - 2 * (exponent - _BIAS), 0, 63)
    return _result(_exp_of(np.where(huge, 0, magnitude), np.ones_like(huge), huge), nan)


def log(x: npt.ArrayLike) -> Floats:
    """Natural logarithm, within 2 ulp; exactly 0 at 1, -inf at either zero, NaN below zero."""
    sign, exponent, significand, nan = _fields(x)
    # x = 2**e * (1 + m) with m in [-0.293, 0.4141), in 2**-24
    halved = significand >> 16 >= layout.LOG_SPLIT
    e = exponent - _BIAS + halved
    m = np.where(halved, significand - 2 * _HIDDEN, (significand - _HIDDEN) << 1)
    zero = exponent == 0
    m = np.where(zero, 0, m)
    row = layout.LOG_BASE + 64 + (m >> 17)
    ratio = _polynomial(row, ((m & 0x1FFFF) << 1) - _HALF_T) >> (layout.C0_FRACTION - layout.RATIO_FRACTION)
    # e * ln 2 outweighs the rest unless e is 0, so the sign is known and magnitudes are added or subtracted
    from_e = np.abs(e) * layout.LN2 << (layout.LOG_FRACTION - layout.ARGUMENT_FRACTION)
    from_m = np.abs(m) * ratio >> (24 + layout.RATIO_FRACTION - layout.LOG_FRACTION)
    total = np.where((e != 0) & ((e < 0) != (m < 0)), from_e - from_m, from_e + from_m)
    minus = (e < 0) | ((e == 0) & (m < 0))
    bits = _scaled(total, layout.LOG_FRACTION) | np.where(minus, 1 << 31, 0)
    bits = np.where(exponent == 255, _INFINITY, bits)
    bits = np.where(zero, _INFINITY | 1 << 31, bits)
    return _result(bits, nan | ((sign == 1) & ~zero))


def sinpi(x: npt.ArrayLike) -> Floats:
    """sin(pi x), within 4 ulp everywhere: whole turns are left out exactly. Zeros of x's sign, and ±1, are exact."""
    sign, exponent, significand, nan = _fields(x)
    # |x| modulo 2, in 2**-25, folded to [0, 1/2]; below 1/2, where that may lose places, x itself is multiplied
    place = significand << np.clip(exponent - _BIAS + 2, 0, 31) >> np.clip(_BIAS - 2 - exponent, 0, 31)
    fraction, quarter = place & (1 << 25) - 1, 1 << 24
    folded = np.where(fraction > quarter, 2 * quarter - fraction, fraction)
    small = exponent < _BIAS - 1
    zero = np.where(small, exponent == 0, folded == 0)
    row = layout.SINPI_BASE + (folded >> layout.T_BITS & 63)
    y = _polynomial(row, (folded & (2 * _HALF_T - 1)) - _HALF_T)
    ratio = y >> (layout.C0_FRACTION - layout.RATIO_FRACTION)
    product = np.where(small, significand, folded >> 1) * ratio >> (24 + layout.RATIO_FRACTION - layout.LOG_FRACTION)
    # the rows have a quarter
    bits = _scaled(product, layout.LOG_FRACTION) + (np.where(small, exponent - _BIAS + 1, 0) + 2 << 23)
    bits = np.where(zero, 0, np.where(folded == quarter, _BIAS << 23, bits))
    return _result(bits | (sign ^ (place >> 25 & ~zero & 1)) << 31, nan | (exponent == 255))
