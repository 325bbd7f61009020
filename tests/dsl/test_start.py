"""Start values of models: the same bits everywhere, with the distribution that the rule names."""

from __future__ import annotations

import numpy as np
import pytest

from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.start import BLOCK, start_block, start_values

UNIFORM = Init(kind=InitKind.UNIFORM, first=-0.5, second=0.5, seed=1)
NORMAL = Init(kind=InitKind.NORMAL, first=2.0, second=0.5, seed=1)


def splitmix64(state: int) -> int:
    """One draw, in whole numbers of Python (Steele, Lea, Flood 2014)."""
    mask = (1 << 64) - 1
    z = state & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def draws(name: str, seed: int, count: int) -> list[int]:
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    start = splitmix64(seed ^ value)
    return [splitmix64(start + i * 0x9E3779B97F4A7C15) for i in range(1, count + 1)]


def test_uniform_is_what_whole_numbers_give() -> None:
    expected = [np.float32(-0.5 + (d >> 40) / 2**24) for d in draws("w", 1, 6)]
    np.testing.assert_array_equal(start_values(UNIFORM, "w", (2, 3)).ravel(), expected)


def test_normal_is_what_whole_numbers_give() -> None:
    numbers = draws("w", 1, 36)
    sums = [sum(d >> 48 for d in numbers[12 * i : 12 * i + 12]) for i in range(3)]
    expected = [np.float32(2.0 + 0.5 * (s / 2**16 - 6)) for s in sums]
    np.testing.assert_array_equal(start_values(NORMAL, "w", (3,)), expected)


def test_bits_never_change() -> None:
    assert start_values(UNIFORM, "w", (3,)).view(np.uint32).tolist() == PINNED_UNIFORM
    assert start_values(NORMAL, "größe", (3,)).view(np.uint32).tolist() == PINNED_NORMAL


PINNED_UNIFORM = [3197307172, 3199049052, 1045728996]
PINNED_NORMAL = [1074830080, 1074965536, 1074635488]


def test_a_block_is_of_the_same_values() -> None:
    for init in (UNIFORM, NORMAL, Init(first=3.0)):
        whole = start_values(init, "w", (3 * BLOCK,))
        for first, count in ((0, 5), (7, BLOCK), (BLOCK + 1, 2 * BLOCK - 1), (9, 0)):
            np.testing.assert_array_equal(start_block(init, "w", first, count), whole[first : first + count])


def test_moments_are_right() -> None:
    uniform = start_values(UNIFORM, "w", (40_000,)).astype(np.float64)
    assert uniform.min() >= -0.5
    assert uniform.max() < 0.5
    assert abs(uniform.mean()) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.002
    normal = start_values(NORMAL, "w", (40_000,)).astype(np.float64)
    assert abs(normal.mean() - 2) < 0.01
    assert abs(normal.std() - 0.5) < 0.01


def test_names_and_seeds_choose_other_numbers() -> None:
    first = start_values(UNIFORM, "w", (8,))
    assert not np.array_equal(first, start_values(UNIFORM, "v", (8,)))
    other = Init(kind=InitKind.UNIFORM, first=-0.5, second=0.5, seed=2)
    assert not np.array_equal(first, start_values(other, "w", (8,)))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4)])
def test_constants_fill_any_shape(shape: tuple[int, ...]) -> None:
    values = start_values(Init(first=0.25), "w", shape)
    assert values.shape == shape
    assert values.dtype == np.float32
    assert (values == 0.25).all()


def test_the_upper_bound_is_never_reached() -> None:
    narrow = Init(kind=InitKind.UNIFORM, first=1.0, second=float(np.nextafter(np.float32(1), np.float32(2))))
    assert (start_values(narrow, "w", (1000,)) == 1.0).all()
