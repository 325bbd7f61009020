"""Numbers that are known when the rule is compiled: Python's for whole numbers, NumPy's binary32 for the others."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl.binary32 import bits_of, round32
from dsl.hdfg import ops
from dsl.hdfg.arithmetic import function
from dsl.limits import MAX_INTEGER
from dsl.semantics.arithmetic import StaticError, compute, negate
from hwgen.spec import numerics
from tests.hwgen import vectors
from tests.scale import randomised

WHOLE = st.one_of(st.integers(-20, 20), st.integers(-MAX_INTEGER, MAX_INTEGER))
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 3e38, -3e38, 2.0**-126, -(2.0**-126), math.inf, -math.inf, math.nan]),
    st.floats(width=32),
).map(round32)
BINARY = {"+": numerics.add, "-": numerics.sub, "*": numerics.mul, "/": numerics.div}
COMPARED = {"<": numerics.lt, ">": numerics.gt, "<=": numerics.le, ">=": numerics.ge, "==": numerics.eq}


@randomised(300)
@given(WHOLE, WHOLE.filter(bool))
def test_whole_numbers_divide_as_python_s(left: int, right: int) -> None:
    assert compute("//", left, right) == left // right
    assert compute("%", left, right) == left % right
    assert negate(left) == -left


def test_quotients_of_negatives_are_rounded_down() -> None:
    assert [compute("//", a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [3, -4, -4, 3]
    assert [compute("%", a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [1, 1, -1, -1]


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("//", 1, 0, "a divisor other than zero"),
        ("%", 1, 0, "a divisor other than zero"),
        ("//", 1.0, 2, "whole numbers"),
        ("+", MAX_INTEGER, 1, "magnitude at most"),
        ("*", -MAX_INTEGER, 2, "magnitude at most"),
    ],
)
def test_what_has_no_result(operator: str, left: float, right: float, expected: str) -> None:
    with pytest.raises(StaticError, match=expected):
        compute(operator, left, right)


@randomised(500)
@given(st.sampled_from([*BINARY, *COMPARED]), FLOATS, FLOATS)
def test_other_numbers_are_the_machine_s(operator: str, left: float, right: float) -> None:
    found = compute(operator, left, right)
    assert isinstance(found, float)
    with np.errstate(all="ignore"):
        expected = (BINARY | COMPARED)[operator](np.float32(left), np.float32(right))
    assert bits_of(found) == int(np.asarray(expected).view(np.uint32))


def test_what_commutes_does_so_bit_for_bit_and_nothing_else_does() -> None:
    left, right = np.meshgrid(*2 * [vectors.floats(vectors.EDGES)])
    both = {op: [function(numerics, op)(*pair) for pair in ((left, right), (right, left))] for op in ops.BINARY}
    assert {op for op, (one, other) in both.items() if one.tobytes() == other.tobytes()} == ops.COMMUTATIVE


@pytest.mark.parametrize("left", [1.0, -1.0, 0.0, math.nan])
@pytest.mark.parametrize("right", [0.0, -0.0])
def test_division_by_a_zero_has_its_sign(left: float, right: float) -> None:
    with np.errstate(all="ignore"):
        expected = numerics.div(np.float32(left), np.float32(right))
    found = compute("/", left, right)
    assert isinstance(found, float)
    assert bits_of(found) == int(np.asarray(expected).view(np.uint32))


@randomised(500)
@given(st.one_of(st.floats(), st.floats(-(2.0**-125), 2.0**-125), st.floats(width=32)))
def test_rounding_is_once_and_flushes_what_is_tiny_then(number: float) -> None:
    expected = numerics.from_float64(np.array([number]))
    assert bits_of(round32(number)) == int(expected.view(np.uint32)[0])


def test_ties_go_to_even_and_tininess_is_judged_after_rounding() -> None:
    assert round32(1 + 2.0**-24) == 1.0
    assert round32(1 + 3 * 2.0**-24) == 1 + 2.0**-22
    assert round32(2.0**-126 * (1 - 2.0**-26)) == 2.0**-126
    assert round32(2.0**-126 * (1 - 2.0**-24)) == 0.0
    assert struct.pack("<f", round32(-(2.0**-127))) == struct.pack("<f", -0.0)
