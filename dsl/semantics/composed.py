"""Operations of one operand that are written as several of the graph's, exactly: a row of the table each.

In: an operand, and what records an operation on values of its shape. Out: the last of what was recorded.
Every executor computes these with the operations that they are composed of. docs/arithmetic.md has their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dsl.hdfg.ops import Op
from dsl.semantics.program import Operation

WHOLE_FROM = 2**23
"""From here on every number of binary32 is whole."""


class Record(Protocol):
    """Records an operation; numbers among its operands are constants."""

    def __call__(self, op: Op, *operands: Operation | float) -> Operation:
        """The operation."""


def _round(record: Record, value: Operation) -> Operation:
    """The nearest whole number, halves to the even one: 2 from 2.5; -0 from -0.3."""
    size = record(Op.ABS, value)
    # a sum with 2^23 has no bits for fractions: the addition rounds
    near = record(Op.SUB, record(Op.ADD, size, WHOLE_FROM), WHOLE_FROM)
    near = record(Op.WHERE, record(Op.LT, size, WHOLE_FROM), near, size)
    # The sign comes from 2x, which is 0 (of its sign) or at least as large as what it bounds, as |round(x)| <= |2x|;
    # comparing with 0 would lose the sign of -0.
    return record(Op.MAX, record(Op.MIN, near, record(Op.ADD, value, value)), record(Op.NEG, near))


def _floor(record: Record, value: Operation) -> Operation:
    """The largest whole number that is not above a."""
    near = _round(record, value)
    # 1 where rounding went up; a zero taken off -0 leaves -0
    return record(Op.SUB, near, record(Op.GT, near, value))


def _ceil(record: Record, value: Operation) -> Operation:
    """The smallest whole number that is not below a; -0 from -0.3."""
    # one more than what is below would make 0 of -0.5, which has the sign of zero that it came from
    return record(Op.NEG, _floor(record, record(Op.NEG, value)))


COMPOSED: dict[str, Callable[[Record, Operation], Operation]] = {"floor": _floor, "ceil": _ceil, "round": _round}
"""By their names in a rule; documents and editors say of them what their docstrings say."""
