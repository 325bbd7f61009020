"""The NumPy arithmetic against its definition: exact rationals, rounded once, flushed when tiny after rounding."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from hwgen.spec import numerics
from hwgen.spec.numerics import coefficients, layout
from hwgen.spec.numerics.binary32 import QUIET_NAN_BITS
from hwgen.spec.operations import Opcode
from tests.hwgen import vectors
from tests.oracles.functions import FUNCTIONS
from tests.oracles.operations import BINARY, UNARY
from tests.scale import scaled

NAN = np.float32(np.nan)
INF = np.float32(np.inf)
ALL = vectors.floats(vectors.EDGES)


def rounded(exact: Fraction, negative_zero: bool = False) -> float:
    """Nearest binary32, ties to even, unbounded exponent first; then zero if tiny, infinite if too large."""
    if exact == 0:
        return -0.0 if negative_zero else 0.0
    exponent = math.floor(math.log2(abs(exact.numerator)) - math.log2(exact.denominator))
    exponent += 1 if abs(exact) >= Fraction(2) ** (exponent + 1) else 0
    exponent -= 1 if abs(exact) < Fraction(2) ** exponent else 0
    unit = Fraction(2) ** (exponent - 23)
    value = round(exact / unit) * unit
    sign = -1.0 if value < 0 else 1.0
    if abs(value) < Fraction(2) ** -126:
        return sign * 0.0
    return sign * math.inf if abs(value) >= Fraction(2) ** 128 else float(value)


def finite_pairs(count: int) -> tuple[vectors.Floats, vectors.Floats]:
    a, b = (numerics.flush(x) for x in vectors.pairs(count))
    keep = np.isfinite(a) & np.isfinite(b)
    chosen = np.random.default_rng(0).choice(np.flatnonzero(keep), scaled(count), replace=True)
    return a[chosen], b[chosen]


@pytest.mark.parametrize(
    ("operation", "exact"),
    [
        (numerics.add, lambda a, b: a + b),
        (numerics.sub, lambda a, b: a - b),
        (numerics.mul, lambda a, b: a * b),
        (numerics.div, lambda a, b: a / b),
    ],
)
def test_operations_are_the_rounded_exact_result(
    operation: Callable[..., vectors.Floats], exact: Callable[[Fraction, Fraction], Fraction]
) -> None:
    a, b = finite_pairs(5000)
    keep = b != 0 if operation is numerics.div else np.ones(a.shape, dtype=bool)
    a, b = a[keep], b[keep]
    results = [exact(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    # the sign of an exact zero: of products the signs' product, of sums minus only if both are
    if operation in (numerics.mul, numerics.div):
        minus = np.signbit(a) ^ np.signbit(b)
    else:
        minus = np.signbit(a) & (np.signbit(b) ^ (operation is numerics.sub))
    want = np.array([rounded(r, bool(m)) for r, m in zip(results, minus, strict=True)], dtype=np.float32)
    vectors.same_bits(operation(a, b), want, a, b)


def test_square_root_is_the_rounded_exact_result() -> None:
    x = np.abs(finite_pairs(3000)[0])
    roots = [math.isqrt(int(Fraction(float(v)) * 2**400)) for v in x]
    # 200 fraction bits and a sticky one decide every rounding
    exact = [
        Fraction(2 * r + (r * r != int(Fraction(float(v)) * 2**400)), 2**201) for r, v in zip(roots, x, strict=True)
    ]
    vectors.same_bits(numerics.sqrt(x), np.array([rounded(r) for r in exact], dtype=np.float32), x)


def test_tiny_is_judged_after_rounding() -> None:
    below = np.nextafter(np.float32(2.0**-63), np.float32(0))  # (1 - 2**-24) * 2**-63
    # (1 - 2**-24) * 2**-126 rounds to itself in 24 bits: tiny
    assert numerics.mul(below, np.float32(2.0**-63)).view(np.uint32) == 0
    # (1 - 2**-24) (1 + 2**-23) = 1 + 2**-24 - 2**-47 rounds to 1: not tiny
    above = np.float32(2.0**-63 * (1 + 2.0**-23))
    assert numerics.mul(below, above) == np.float32(2.0**-126)
    # the bound between the two: rounding to the subnormals' last place would have taken both to 2**-126
    assert numerics.from_float64(2.0**-126 * (1 - 2.0**-25 - 2.0**-40)) == 0
    assert numerics.from_float64(2.0**-126 * (1 - 2.0**-25)) == np.float32(2.0**-126)


@pytest.mark.parametrize("operation", BINARY.values(), ids=[op.name for op in BINARY])
def test_alone_as_among_others(operation: Callable[..., vectors.Floats]) -> None:
    """Arrays without a number that must be flushed go another way, and those of one pair are the most that do."""
    a, b = (found.ravel() for found in np.meshgrid(ALL, ALL))
    near = [0x1F7FFFFF, 0x20000000, 0x3F7FFFFF]  # products next to 2**-126
    near += [0x0D800000, 0x0D7FFFFF, 0x0D000000, 0x0C800000, 0x007FFFFF, 0x807FFFFF]  # sums next to 2**-100
    bound = vectors.floats(near)
    a, b = np.append(a, np.repeat(bound, len(near))), np.append(b, np.tile(bound, len(near)))
    alone = np.concatenate([operation(x, y) for x, y in zip(a[:, None], b[:, None], strict=True)])
    vectors.same_bits(alone, operation(a, b), a, b)


def test_what_is_converted_is_no_part_of_its_page() -> None:
    page = np.float32([1, 2])
    assert not np.shares_memory(numerics.from_float32(page), page)


def test_no_result_is_subnormal_and_every_nan_is_canonical() -> None:
    a, b = vectors.pairs(scaled(20_000))
    results = [operation(a, b) for operation in BINARY.values()] + [numerics.where(a, a, b)]
    results += [operation(a) for operation in UNARY.values()]
    for result in results:
        assert result.dtype == np.float32
        bits = result.view(np.uint32)
        assert not np.any(((bits & 0x7F800000) == 0) & ((bits & 0x007FFFFF) != 0))
        assert np.all(bits[np.isnan(result)] == QUIET_NAN_BITS)


@pytest.mark.parametrize("op", sorted(numerics.IDENTITIES))
def test_identities_leave_every_value_as_it_is(op: str) -> None:
    operation, identity = BINARY[Opcode[op.upper()]], np.float32(numerics.IDENTITIES[op])
    x = np.concatenate([ALL, vectors.single(10_000)])
    for result in (operation(x, identity), operation(identity, x)):
        vectors.same_bits(result, numerics.flush(x), x)


def test_maximum_and_minimum() -> None:
    zeros = np.float32([0.0, -0.0])
    for a, b in ((zeros, zeros[::-1]), (zeros[::-1], zeros)):
        assert not np.signbit(numerics.maximum(a, b)).any()
        assert np.signbit(numerics.minimum(a, b)).all()
    a, b = vectors.pairs(20_000)
    for operation in (numerics.maximum, numerics.minimum):
        vectors.same_bits(operation(a, b), operation(b, a), a, b)
        assert np.array_equal(np.isnan(operation(a, b)), np.isnan(a) | np.isnan(b))
    finite = ~(np.isnan(a) | np.isnan(b))
    assert np.array_equal(numerics.maximum(a, b)[finite], np.maximum(numerics.flush(a), numerics.flush(b))[finite])


def test_comparisons() -> None:
    a = np.float32([1, 2, 2, np.nan, 1, 1e-40, -0.0, -np.inf])
    b = np.float32([2, 1, 2, 1, np.nan, -1e-40, 0.0, np.inf])
    assert numerics.lt(a, b).tolist() == [1, 0, 0, 0, 0, 0, 0, 1]
    assert numerics.gt(a, b).tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert numerics.le(a, b).tolist() == [1, 0, 1, 0, 0, 1, 1, 1]
    assert numerics.ge(a, b).tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
    assert numerics.eq(a, b).tolist() == [0, 0, 1, 0, 0, 1, 1, 0]


def test_where() -> None:
    condition = np.float32([1, 0, -0.0, np.nan, 1e-40, -np.inf])
    assert numerics.where(condition, np.float32(7), np.float32(8)).tolist() == [7, 8, 8, 7, 8, 7]
    assert numerics.where(np.float32(1), np.float32(-1e-40), np.float32(3)).view(np.uint32) == 0x80000000


def test_special_values_of_functions() -> None:
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45])
    expected = {name: function.at for name, function in FUNCTIONS.items()} | {"sqrt": (NAN, INF, NAN, 0.0, -0.0)}
    for name, want in expected.items():
        # a subnormal is a zero of its sign
        vectors.same_bits(getattr(numerics, name)(x), numerics.flush(np.float32([*want, *want[3:]])), x)
    assert numerics.log(np.float32([1, -1])).view(np.uint32).tolist() == [0, QUIET_NAN_BITS]
    assert numerics.exp(np.float32([88.8, -88.8, 3e38, -3e38])).tolist() == [INF, 0, INF, 0]


def test_sigmoid_is_monotonic_and_symmetric() -> None:
    x = np.sort(np.abs(vectors.single(200_000)))
    x = x[~np.isnan(x)]
    y = numerics.sigmoid(x)
    # a step down by one unit of the polynomial is possible between rows, not by more
    assert np.diff(y.astype(np.float64)).min() >= -(2.0**-23)
    assert np.abs(y.astype(np.float64) + numerics.sigmoid(-x) - 1).max() <= 2.0**-24


def test_tanh_is_odd_and_near_zero_its_argument() -> None:
    x = np.abs(vectors.single(200_000))
    x = x[~np.isnan(x)]
    np.testing.assert_array_equal(numerics.tanh(-x), -numerics.tanh(x))
    small = x[x < 2.0**-13]
    assert small.size > 1000
    np.testing.assert_array_equal(numerics.tanh(small), numerics.flush(small))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 54, 100, 128, 129])
def test_fold_is_the_halving_order(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    for row, result in zip(x, numerics.fold(x, 1, "add"), strict=True):
        work, m = list(row), n
        while m > 1:
            h = max(1 << k for k in range(m.bit_length()) if 1 << k < m)
            for i in range(m - h):
                work[i] = work[i] + work[i + h]
            m = h
        assert result == work[0]
    vectors.same_bits(numerics.fold(x.T, 0, "add"), numerics.fold(x, -1, "add"))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 54, 64, 100, 129])
def test_tree_is_the_adjacent_pair_order(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
    work, stride = x.copy(), 1
    while stride < n:
        for j in range(0, n - stride, 2 * stride):
            work[j] = work[j] + work[j + stride]
        stride *= 2
    vectors.same_bits(numerics.tree(x, "add"), work[0])


def test_orders_differ_from_each_other_and_from_numpy() -> None:
    x = np.random.default_rng(1).standard_normal((101, 50)).astype(np.float32)
    results = {r.tobytes() for r in (numerics.fold(x, 0, "add"), numerics.tree(x, "add"), np.cumsum(x, axis=0)[-1])}
    assert len(results) == 3


@pytest.mark.parametrize(("op", "reference"), [("mul", np.prod), ("max", np.max), ("min", np.min)])
def test_reductions_by_other_operators(op: str, reference: Callable[..., vectors.Floats]) -> None:
    x = (np.random.default_rng(2).integers(1, 3, (9, 4)) * np.float32(-1)).astype(np.float32)
    assert np.array_equal(numerics.fold(x, 0, op), reference(x, axis=0))
    assert np.array_equal(numerics.tree(x, op), reference(x, axis=0))


def test_reduction_errors() -> None:
    with pytest.raises(ValueError, match=r"^a reduction must be one of add, mul, max, min, not 'sum'$"):
        numerics.tree(np.float32([1]), "sum")
    with pytest.raises(ValueError, match=r"^a reduction needs at least one element, but axis 0 of shape \(0, 3\)"):
        numerics.tree(np.empty((0, 3), dtype=np.float32), "add")


def test_conversions() -> None:
    assert numerics.from_float64([1e300, -1e300, 1e-300, -1e-300, 0.1]).tolist() == [INF, -INF, 0, 0, np.float32(0.1)]
    assert np.signbit(numerics.from_float64(-1e-300))
    # ties to even, and once: by way of float64 the second would have become a tie
    assert numerics.from_int64([2**24 + 1, 2**60 + 2**36 + 1, -(2**63)]).tolist() == [2**24, 2**60 + 2**37, -(2.0**63)]
    assert numerics.from_int32([2**31 - 1, -3]).tolist() == [2.0**31, -3]
    assert numerics.from_int16([-32768, 7]).tolist() == [-32768, 7]
    assert numerics.from_bool([True, False]).tolist() == [1, 0]


def test_broadcasting() -> None:
    a, b = np.ones((3, 1), dtype=np.float32), np.arange(4, dtype=np.float32)
    for operation in BINARY.values():
        assert operation(a, b).shape == (3, 4)
    assert numerics.where(a, b, b).shape == (3, 4)
    assert isinstance(numerics.add(np.float32(1), np.float32(2)), np.ndarray)


def test_inner_sum_fits_its_multiplier() -> None:
    """c1 + c2 * t stays within 18 signed bits for every t, so that the second product is 18 × 18."""
    for c1, c2 in zip(coefficients.C1, coefficients.C2, strict=True):
        for t in (-(1 << 17), (1 << 17) - 1):
            assert -(1 << 17) <= (c2 * t >> layout.INNER_SHIFT) + c1 < 1 << 17
