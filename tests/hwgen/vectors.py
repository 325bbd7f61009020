"""Test vectors of binary32: the numbers on which arithmetic goes wrong, in the proportions that find it."""

from itertools import product

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

_EDGE_MAGNITUDES = (
    0x00000000,  # zero
    0x00000001,  # smallest subnormal
    0x00400000,
    0x007FFFFF,  # largest subnormal
    0x00800000,  # smallest normal
    0x00800001,
    0x00FFFFFF,
    0x01000000,
    0x1F800000,  # 2**-64: squares underflow
    0x20000000,
    0x33000000,  # 2**-25: half an ulp of 1 and its neighbours
    0x33800000,
    0x33800001,
    0x34000000,
    0x3F000000,
    0x3F7FFFFF,
    0x3F800000,  # 1
    0x3F800001,
    0x3FB504F3,  # sqrt 2
    0x3FFFFFFF,
    0x40000000,
    0x40490FDB,
    0x41800000,
    0x42AEAC50,  # where exp starts to underflow and to overflow
    0x42B17218,
    0x42000000,
    0x43000000,
    0x4B7FFFFF,  # 2**24
    0x4B800000,
    0x5F000000,
    0x5F800000,  # 2**64: squares overflow
    0x7E800000,
    0x7F000000,
    0x7F7FFFFF,  # largest
    0x7F800000,  # infinity
    0x7F800001,  # signalling NaN
    0x7FC00000,
    0x7FFFFFFF,
)
EDGES: Bits = np.array([m | s for m in _EDGE_MAGNITUDES for s in (0, 0x80000000)], dtype=np.uint32)


def floats(bits: npt.ArrayLike) -> Floats:
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def uniform(count: int, rng: np.random.Generator) -> Floats:
    """Uniform bits: every exponent, subnormals, infinities and NaNs."""
    return floats(rng.integers(0, 1 << 32, count, dtype=np.uint32))


def _band(count: int, rng: np.random.Generator, low: int, high: int, sparse: bool) -> Bits:
    """Random sign and significand, biased exponents in [low, high); sparse significands have few ones or few zeros."""
    sign = rng.integers(0, 2, count, dtype=np.uint32) << 31
    exponent = rng.integers(low, high, count).astype(np.uint32) << 23
    fraction = rng.integers(0, 1 << 23, count, dtype=np.uint32)
    if sparse:
        ones = np.uint32(1) << rng.integers(0, 23, (2, count), dtype=np.uint32)
        inverted = np.where(rng.integers(0, 2, count), 0x7FFFFF, 0).astype(np.uint32)
        fraction = (ones[0] | ones[1] & -rng.integers(0, 2, count, dtype=np.uint32)) ^ inverted
    return np.asarray(sign | exponent | fraction, dtype=np.uint32)


def single(count: int, seed: int = 1) -> Floats:
    """Operands of a one-operand function: edges, uniform bits, middling exponents, sparse significands."""
    rng = np.random.default_rng(seed)
    third = count // 3 + 1
    parts = [
        floats(EDGES),
        uniform(third, rng),
        floats(_band(third, rng, 127 - 26, 127 + 8, False)),
        floats(_band(third, rng, 127 - 26, 127 + 8, True)),
    ]
    return np.concatenate(parts)


def pairs(count: int, seed: int = 1) -> tuple[Floats, Floats]:
    """Operand pairs: edge × edge, edge × anything, uniform bits, near cancellation, the bands of under- and overflow.

    At least ``count`` of them.
    """
    rng = np.random.default_rng(seed)
    part = count // 8 + 1
    edges = np.array(list(product(EDGES, EDGES)), dtype=np.uint32).T
    lefts, rights = [edges[0]], [edges[1]]

    def take(a: Bits, b: Bits) -> None:
        swap = rng.integers(0, 2, a.shape[0], dtype=np.uint32).astype(bool)
        lefts.append(np.where(swap, b, a))
        rights.append(np.where(swap, a, b))

    def anything(size: int) -> Bits:
        return uniform(size, rng).view(np.uint32)

    take(rng.choice(EDGES, part), anything(part))
    take(anything(part), anything(part))
    a = _band(part, rng, 1, 255, False)
    # the other sign, a few ulp and a few exponents away, often exactly half an ulp
    nearby = a + rng.integers(-9, 10, part).astype(np.uint32)
    take(a, (nearby - (rng.integers(0, 3, part).astype(np.uint32) << 23)) ^ np.uint32(0x80000000))
    a = _band(part, rng, 30, 225, True)
    b = _band(part, rng, 1, 2, True) & np.uint32(0x807FFFFF)
    take(a, b | ((a >> 23 & 255) - rng.integers(0, 28, part).astype(np.uint32) << 23))
    # exponents that add up to the smallest and to the largest
    for total in (127 + 1, 127 + 254):
        a = _band(part, rng, max(1, total - 253), min(254, total - 1), total == 381)
        exponent = np.clip(total - (a >> 23 & 255).astype(np.int64) + rng.integers(-2, 3, part), 0, 254)
        take(a, _band(part, rng, 0, 1, False) | exponent.astype(np.uint32) << 23)
    # exponents that differ by as much: quotients
    a = _band(part, rng, 1, 255, False)
    exponent = np.clip(
        (a >> 23 & 255).astype(np.int64) + rng.choice([-126, -125, -127, 127, 126, 128, 0], part), 0, 254
    )
    take(a, _band(part, rng, 0, 1, False) | exponent.astype(np.uint32) << 23)
    take(_band(part, rng, 100, 154, True), _band(part, rng, 100, 154, True))
    return floats(np.concatenate(lefts)), floats(np.concatenate(rights))


def same_bits(got: Floats, want: Floats, *operands: Floats) -> None:
    """Fail with the first operands on which the bits differ."""
    g, w = np.asarray(got).view(np.uint32), np.asarray(want).view(np.uint32)
    assert g.shape == w.shape
    wrong = np.flatnonzero(g != w)
    if wrong.size:
        k = int(wrong[0])
        inputs = ", ".join(f"{operand.view(np.uint32)[k]:08x}" for operand in operands)
        raise AssertionError(f"{wrong.size} of {g.size} differ; first for ({inputs}): {g[k]:08x}, expected {w[k]:08x}")
