"""Arithmetic on numbers that are known when the rule is compiled.

In: `int`s, dims and binary32 `float`s. Out: the same. Whole numbers and dims stay whole under + - * // %;
everything else is binary32, rounded after each operation as the machine would. Must not: see values of the dataflow.
"""

from __future__ import annotations

import math

from dsl.binary32 import round32
from dsl.hdfg import dims
from dsl.hdfg.dims import DimExpr
from dsl.limits import MAX_INTEGER

MAX_TERMS = 16
MAX_DEGREE = 8

Number = int | float | DimExpr


class StaticError(Exception):
    """The operation is not defined on these numbers; the message says what is expected."""


def compute(operator: str, left: Number, right: Number) -> Number | None:
    """Return `left operator right`, or None if that needs the extent of an unbound dim.

    Raises
    ------
    StaticError
        For // and % of anything but whole numbers, by zero, and for whole numbers beyond `MAX_INTEGER`.
    """
    if operator in ("//", "%"):
        return _divide_whole(operator, left, right)
    if not isinstance(left, float) and not isinstance(right, float) and operator in ("+", "-", "*"):
        whole = {"+": dims.add, "-": dims.subtract, "*": dims.multiply}[operator](left, right)
        return _bounded(whole)
    # no polynomial in dims: it becomes a value of the dataflow
    if isinstance(left, DimExpr) or isinstance(right, DimExpr):
        return None
    # whole numbers up to 2**53 are exact in binary64, so that each is rounded once
    return _binary32(operator, round32(float(left)), round32(float(right)))


def negate(number: Number) -> Number:
    """Return `-number`."""
    return dims.multiply(-1, number) if isinstance(number, DimExpr) else -number


def _divide_whole(operator: str, left: Number, right: Number) -> int:
    if not isinstance(left, int) or not isinstance(right, int):
        raise StaticError("whole numbers that are known when the rule is compiled")
    if right == 0:
        raise StaticError("a divisor other than zero")
    return left // right if operator == "//" else left % right


def _bounded(number: int | DimExpr) -> int | DimExpr:
    terms = number.terms if isinstance(number, DimExpr) else (((), number),)
    if any(abs(coefficient) > MAX_INTEGER for _, coefficient in terms):
        raise StaticError(f"a whole number of magnitude at most {MAX_INTEGER:,}")
    if len(terms) > MAX_TERMS or any(len(monomial) > MAX_DEGREE for monomial, _ in terms):
        raise StaticError(f"a product of at most {MAX_DEGREE} dims and a sum of at most {MAX_TERMS} products")
    return number


def _binary32(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return round32(left + right)
        case "-":
            return round32(left - right)
        case "*":
            return round32(left * right)
        case "/":
            return _divide(left, right)
        case "<":
            # of rounded numbers: 2**24 + 1 equals 2**24, as on the machine
            return float(left < right)
        case ">":
            return float(left > right)
        case "<=":
            return float(left <= right)
        case ">=":
            return float(left >= right)
        case "==":
            return float(left == right)
    raise AssertionError(f"no operator {operator!r}")


def _divide(left: float, right: float) -> float:
    # Python raises ZeroDivisionError where IEEE 754 gives an infinity or NaN
    if right != 0.0:
        return round32(left / right)
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)
