"""Bounds of values for any data, as far as they follow from the operations.

In: operations. Out: the least and the largest number of each. Must not: account for NaN, which has no bounds.
"""

from __future__ import annotations

import math

from dsl.binary32 import NARROW_BITS, round32
from dsl.hdfg.graph import COMPARISONS, Op
from dsl.semantics.program import Operation, reachable

Range = tuple[float, float]

ANY = (-math.inf, math.inf)
OF_OP: dict[Op, Range] = {
    **dict.fromkeys((Op.SIGMOID, Op.GAUSSIAN, *COMPARISONS), (0.0, 1.0)),
    **dict.fromkeys((Op.TANH, Op.SINPI), (-1.0, 1.0)),
    **dict.fromkeys((Op.SQRT, Op.EXP, Op.ABS, Op.ARANGE, Op.ROW), (0.0, math.inf)),
}


def range_of(value: Operation) -> Range:
    """Bounds of a value's elements."""
    found: dict[Operation, Range] = {}
    for operation in sorted(reachable([value]), key=lambda one: one.id):  # operands first
        found[operation] = _range(operation, found)
    return found[value]


def range_text(low: float, high: float) -> str:
    """Bounds in words."""
    if low == high:
        return f"{low:g}"
    if high == math.inf:
        return f"a value of at least {low:g}"
    return f"a value from {low:g} to {high:g}" if low > -math.inf else f"a value of at most {high:g}"


def _range(operation: Operation, bounds: dict[Operation, Range]) -> Range:
    of = [bounds[operand] for operand in operation.operands]
    match operation.op:
        case Op.CONST:
            return _of_number(operation)
        case Op.NEG:
            return -of[0][1], -of[0][0]
        case Op.ADD:
            return _rounded(of[0][0] + of[1][0], of[0][1] + of[1][1])
        case Op.SUB if _is_floor(operation):
            low, high = bounds[operation.operands[1].operands[1]]
            return _whole(low), _whole(high)
        case Op.SUB:
            return _rounded(of[0][0] - of[1][1], of[0][1] - of[1][0])
        # a square, by identity of its factors: bounds alone would allow -1 * 1
        case Op.MUL if operation.operands[0] is operation.operands[1]:
            return 0.0, math.inf
        case Op.MUL:
            ends = [_product(a, b) for a in of[0] for b in of[1]]
            return _rounded(min(ends), max(ends))
        # only signs are followed: a divisor that may be 0 allows any quotient
        case Op.DIV if of[0][0] >= 0 and of[1][0] >= 0:
            return 0.0, math.inf
        case Op.MAX | Op.MIN:
            choose = max if operation.op is Op.MAX else min
            return choose(of[0][0], of[1][0]), choose(of[0][1], of[1][1])
        case Op.WHERE:
            sides = [
                side for side, what in zip(of[1:], operation.operands[1:], strict=True) if _is_number(operation, what)
            ]
            return min(low for low, _ in sides), max(high for _, high in sides)
        # a sum of numbers of both signs can cancel to anything
        case Op.SIGMA | Op.PI | Op.MERGE:
            return (0.0, math.inf) if of[0][0] >= 0 else ANY
        case Op.AMAX | Op.EXPAND | Op.ELEMENT:
            return of[0]
        case Op.BFLOAT16:
            return round32(of[0][0], NARROW_BITS), round32(of[0][1], NARROW_BITS)
    return OF_OP.get(operation.op, ANY)


def _is_floor(difference: Operation) -> bool:
    """Whether it is the nearest whole number, less 1 where that is above: as `dana.floor` and `//` record it."""
    near, above = difference.operands
    if (
        above.op is not Op.GT
        or above.operands[0] is not near
        or near.op is not Op.MAX
        or near.operands[0].op is not Op.MIN
    ):
        return False
    twice = near.operands[0].operands[1]
    return twice.op is Op.ADD and set(twice.operands) == {above.operands[1]}


def _of_number(operation: Operation) -> Range:
    if operation.extent is not None:  # dims are 1 or more
        signs = {coefficient > 0 for _, coefficient in operation.extent.terms}
        return ANY if len(signs) > 1 else (0.0, math.inf) if True in signs else (-math.inf, 0.0)
    return ANY if operation.value is None else (operation.value, operation.value)


def _is_number(choice: Operation, side: Operation) -> bool:
    """Whether a side of a choice is more than the NaN that `where(a == a, …, a)` hands on."""
    condition, _, otherwise = choice.operands
    return side is not otherwise or condition.op is not Op.EQ or set(condition.operands) != {side}


def _product(a: float, b: float) -> float:
    # infinity is a bound here, not a value: 0 times a large number is 0
    return 0.0 if a == 0 or b == 0 else a * b


def _whole(bound: float) -> float:
    return float(math.floor(bound)) if math.isfinite(bound) else bound


def _rounded(low: float, high: float) -> Range:
    # rounding keeps the order of numbers, so that a rounded bound is one of rounded values
    return ANY if math.isnan(low) or math.isnan(high) else (round32(low), round32(high))
