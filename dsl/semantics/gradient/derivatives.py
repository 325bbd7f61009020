"""The derivative of each elementwise operation with respect to each of its operands.

In: an operation. Out: one polynomial for each operand, by which what is asked of the result is multiplied.
Must not: know shapes, or what is asked.

Where an operation bends, the derivative is one that convention has: 0 for `abs` and `copysign` at 0, and for
`dana.max(x, 0)` at 0; of two equal operands of `max` or `min` the first counts. Comparisons are flat, as are `floor`,
`ceil` and `round`, and `copysign` in its sign; `bfloat16` is followed as if it did not round.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dsl.hdfg.ops import COMPARISONS, Op
from dsl.semantics.gradient.polynomial import ONE, Algebra, Polynomial
from dsl.semantics.program import Operation

SMALLEST = 2.0**-126
"""The smallest normal number: a square root's derivative is finite at 0, so that a norm's is 0 there."""

FLAT = Polynomial()

Rule = Callable[[Algebra, Operation], tuple[Polynomial, ...]]


def factors(algebra: Algebra, operation: Operation) -> tuple[tuple[Operation, Polynomial], ...]:
    """Each operand with the derivative of an elementwise operation by it; what is flat has no term."""
    own = algebra.program.derivatives.get(operation.id)
    if own is not None:
        return tuple(
            (
                operand,
                Polynomial.of(
                    (tuple(sorted(algebra.first(f).id for f in product)), number) for product, number in terms
                ),
            )
            for operand, terms in own
        )
    return tuple(zip(operation.operands, RULES[operation.op](algebra, operation), strict=True))


def _multiply(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    left, right = operation.operands
    return algebra.polynomial(right), algebra.polynomial(left)


def _divide(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    divisor = operation.operands[1]
    # stays a number, so that it is multiplied with others and rounded once
    if divisor.op is Op.CONST and divisor.value:
        return ONE.scaled(1 / divisor.value), FLAT
    one = algebra.atom(algebra.add(Op.DIV, algebra.number(1.0), divisor))
    return one, algebra.product(one, algebra.atom(operation)).scaled(-1)


def _sigmoid(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    value = algebra.atom(operation)
    # a sum, not value * (1 - value): its terms can cancel with those of other factors
    return (value + algebra.product(value, value).scaled(-1),)


def _tanh(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    value = algebra.atom(operation)
    return (ONE + algebra.product(value, value).scaled(-1),)


def _sinpi(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    # cos(pi x) is 1 - 2 sinpi(x / 2)^2: a half of x is exact, x + 1/2 may be rounded
    half = algebra.add(Op.MUL, operation.operands[0], algebra.number(0.5))
    value = algebra.atom(algebra.add(Op.SINPI, half))
    return ((ONE + algebra.product(value, value).scaled(-2)).scaled(math.pi),)


def _gaussian(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    return (algebra.product(algebra.atom(operation), algebra.atom(operation.operands[0])).scaled(-2),)


def _sqrt(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    root = algebra.add(Op.MAX, operation, algebra.number(SMALLEST))
    return (algebra.atom(algebra.add(Op.DIV, algebra.number(0.5), root)),)


def _log(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    return (algebra.atom(algebra.add(Op.DIV, algebra.number(1.0), operation.operands[0])),)


def _abs(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    operand = operation.operands[0]
    above, below = (algebra.add(op, operand, algebra.number(0.0)) for op in (Op.GT, Op.LT))
    return (algebra.atom(above) + algebra.atom(below).scaled(-1),)


def _copysign(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    sign = algebra.atom(algebra.add(Op.COPYSIGN, algebra.number(1.0), operation.operands[1]))
    return algebra.product(_abs(algebra, operation)[0], sign), FLAT


def _largest(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    left, right = operation.operands
    over, under = (Op.GT, Op.LT) if operation.op is Op.MAX else (Op.LT, Op.GT)
    # of a number and a value that are equal the number counts, so that relu is flat at 0
    first = over if right.op is Op.CONST else Op.GE if operation.op is Op.MAX else Op.LE
    return algebra.atom(algebra.add(first, left, right)), algebra.atom(algebra.add(under, left, right))


def _where(algebra: Algebra, operation: Operation) -> tuple[Polynomial, ...]:
    condition = operation.operands[0]
    holds = algebra.first(condition)
    # WHERE takes any number but zero for true; a factor must be 1 or 0
    if holds.op not in COMPARISONS:
        holds = algebra.add(Op.WHERE, condition, algebra.number(1.0), algebra.number(0.0))
    return FLAT, algebra.atom(holds), ONE + algebra.atom(holds).scaled(-1)


RULES: dict[Op, Rule] = {
    Op.ADD: lambda algebra, operation: (ONE, ONE),
    Op.SUB: lambda algebra, operation: (ONE, ONE.scaled(-1)),
    Op.MUL: _multiply,
    Op.DIV: _divide,
    Op.NEG: lambda algebra, operation: (ONE.scaled(-1),),
    Op.SIGMOID: _sigmoid,
    Op.TANH: _tanh,
    Op.SINPI: _sinpi,
    Op.GAUSSIAN: _gaussian,
    Op.SQRT: _sqrt,
    Op.EXP: lambda algebra, operation: (algebra.atom(operation),),
    Op.LOG: _log,
    Op.ABS: _abs,
    Op.MAX: _largest,
    Op.MIN: _largest,
    Op.COPYSIGN: _copysign,
    Op.BFLOAT16: lambda algebra, operation: (ONE,),
    Op.WHERE: _where,
    **dict.fromkeys(COMPARISONS, lambda algebra, operation: (FLAT, FLAT)),
}
