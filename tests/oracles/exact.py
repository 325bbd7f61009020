"""What operations give that round nothing: a row for each, for all tests.

Not from the code under test: the meaning is NumPy's, of numbers of any precision, as autograd follows it. Which of two
zeros the larger is, is none of its business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval

from dsl.hdfg.ops import Op

if TYPE_CHECKING:
    from tests.oracles.running_error import Bounded, Doubles


class Exact(NamedTuple):
    """One operation: its meaning, of numbers; how far binary32 may be from that, of numbers with their errors; and what
    is 0 where the derivative is a matter of convention, of numbers."""

    meaning: Callable[..., Any]
    error: Callable[..., Doubles]
    bend: Callable[..., Any] = lambda *operands: np.inf


def doubt(a: Bounded, b: Bounded) -> Doubles:
    """1 where a comparison may come out either way."""
    error = a.error + b.error
    doubtful = (error > 0) & ~(np.abs(a.value - b.value) > error)
    return np.asarray(doubtful | ~np.isfinite(a.value) | ~np.isfinite(b.value), dtype=np.float64)


def largest(*operands: Bounded) -> Doubles:
    """The larger error."""
    return np.asarray(np.maximum(operands[0].error, operands[-1].error))


def sign(b: Any) -> Any:
    """-1 or 1, of a zero, too; autograd has no derivative of it."""
    return np.where(np.signbit(getval(b)), -1.0, 1.0)


def signed(a: Bounded, b: Bounded) -> Doubles:
    """The error of a number whose sign is another's: either where that may be a zero."""
    return np.asarray(a.error + np.where(np.abs(b.value) > b.error, 0.0, 2 * np.abs(a.value)))


EXACT = {
    Op.NEG: Exact(lambda a: -a, largest),
    Op.ABS: Exact(anp.abs, largest, lambda a: a),
    Op.MAX: Exact(anp.maximum, largest, lambda a, b: a - b),
    Op.MIN: Exact(anp.minimum, largest, lambda a, b: a - b),
    Op.COPYSIGN: Exact(lambda a, b: anp.abs(a) * sign(b), signed, lambda a, b: a * b),
    Op.LT: Exact(lambda a, b: 1.0 * (a < b), doubt),
    Op.GT: Exact(lambda a, b: 1.0 * (a > b), doubt),
    Op.LE: Exact(lambda a, b: 1.0 * (a <= b), doubt),
    Op.GE: Exact(lambda a, b: 1.0 * (a >= b), doubt),
    Op.EQ: Exact(lambda a, b: 1.0 * (a == b), doubt),
}
