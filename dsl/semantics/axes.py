"""Functions that work along one axis of a value, and those that give it another.

In: objects and their places. Out: the resulting object, or poison after a report. Axes of a rule are counted
from 1, those of an operation from 0. Must not: walk the AST.
"""

from __future__ import annotations

from collections.abc import Callable

from dsl.hdfg.dims import shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import broadcast, without_axis
from dsl.limits import MAX_RANK
from dsl.semantics.arguments import Argument
from dsl.semantics.arithmetic import Number, negate
from dsl.semantics.coercion import to_value, to_whole
from dsl.semantics.context import Context
from dsl.semantics.objects import POISON, Object, Poison, describe
from dsl.semantics.program import Operation, Program
from dsl.source import Span

COUNTED = "axes are counted from 1"


def along_axis(context: Context, name: str, value: Argument, axis: Argument | None, span: Span) -> Object:
    """Record a function of `ALONG_AXIS`; `span` is the whole call."""
    checked = _reduced_axis(context, name, value, axis, span)
    if checked is None:
        return POISON
    operand, position = checked
    recorder = _Recorder(context, position, span)
    return ALONG_AXIS[name](recorder, operand)


class _Recorder:
    """Records operations of one call, along its axis."""

    def __init__(self, context: Context, axis: int, span: Span) -> None:
        self._program = context.program
        self.axis = axis
        self._span = span

    def add(self, op: Op, *operands: Operation) -> Operation:
        """Record an elementwise operation."""
        shape = operands[0].shape
        for operand in operands[1:]:
            shape = broadcast(shape, operand.shape)
        return self._program.add(op, operands, shape, self._span)

    def reduced(self, op: Op, operand: Operation) -> Operation:
        """Record a reduction."""
        shape = without_axis(operand.shape, self.axis)
        return self._program.add(op, (operand,), shape, self._span, axis=self.axis)

    def again(self, reduced: Operation) -> Operation:
        """Give what was reduced an axis of 1 where the axis was, so that it meets each element of the axis."""
        if self.axis == 0:  # an axis that is missing in front is repeated
            return reduced
        return self._program.expand(reduced, self.axis, self._span)

    def top(self, value: Operation) -> Operation:
        """Record the largest as a constant to gradients, where the result does not depend on it."""
        top = self.reduced(Op.AMAX, value)
        self._program.derivatives[top.id] = ()
        return top

    def number(self, number: Number) -> Operation:
        """Record a number."""
        return self._program.constant(number, self._span)

    def places(self, operand: Operation) -> Operation:
        """Record 0, 1, 2 … along the axis."""
        places = self._program.arange(operand.shape[self.axis], self._span)
        for _ in operand.shape[self.axis + 1 :]:
            places = self._program.expand(places, len(places.shape), self._span)
        return places


def _norm(record: _Recorder, value: Operation) -> Operation:
    return record.add(Op.SQRT, record.reduced(Op.SIGMA, record.add(Op.MUL, value, value)))


def _amin(record: _Recorder, value: Operation) -> Operation:
    # exact: negation changes the sign alone, so that no second reduction is needed
    return record.add(Op.NEG, record.reduced(Op.AMAX, record.add(Op.NEG, value)))


def _argmax(record: _Recorder, value: Operation) -> Operation:
    """Record the first place of the largest; a NaN where an element is one."""
    top = record.top(value)
    at_top = record.add(Op.EQ, value, record.again(top))
    # negative, so that the largest is the first place; -extent lies below each of them
    before = record.add(Op.NEG, record.places(value))
    first = record.add(Op.WHERE, at_top, before, record.number(negate(value.shape[record.axis])))
    place = record.add(Op.NEG, record.top(first))
    # NaN alone differs from itself; it equals no element, so that `place` would lie behind the axis
    return record.add(Op.WHERE, record.add(Op.EQ, top, top), place, top)


def _argmin(record: _Recorder, value: Operation) -> Operation:
    return _argmax(record, record.add(Op.NEG, value))


def _softmax(record: _Recorder, value: Operation) -> Operation:
    # the largest is taken off first, so that no power overflows and the total is at least 1
    power = record.add(Op.EXP, record.add(Op.SUB, value, record.again(record.top(value))))
    total = record.reduced(Op.SIGMA, power)  # 1 or more
    share = record.add(Op.DIV, record.number(1), total)  # machines have few units that divide
    return record.add(Op.MUL, power, record.again(share))


def _log_softmax(record: _Recorder, value: Operation) -> Operation:
    # the logarithm is of a sum of at least 1, hence finite even where every other power underflows
    away = record.add(Op.SUB, value, record.again(record.top(value)))
    total = record.reduced(Op.SIGMA, record.add(Op.EXP, away))
    return record.add(Op.SUB, away, record.again(record.add(Op.LOG, total)))


ALONG_AXIS: dict[str, Callable[[_Recorder, Operation], Operation]] = {
    "sigma": lambda record, value: record.reduced(Op.SIGMA, value),
    "pi": lambda record, value: record.reduced(Op.PI, value),
    "amax": lambda record, value: record.reduced(Op.AMAX, value),
    "norm": _norm,
    "amin": _amin,
    "argmax": _argmax,
    "argmin": _argmin,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
"""Functions along one axis, and what each records."""


def total(context: Context, value: Argument, span: Span) -> Object:
    """Record the sum of all elements, axis by axis from the last."""
    operand = to_value(context, value.value, value.span)
    return POISON if operand is None else summed(context.program, operand, span)


def summed(program: Program, operand: Operation, span: Span) -> Operation:
    """Record the sum of all elements of a value of any shape."""
    # the order of axes is part of the result, since each sum is rounded
    while operand.shape:
        axis = len(operand.shape) - 1
        operand = program.add(Op.SIGMA, (operand,), operand.shape[:-1], span, axis=axis)
    return operand


def expand(context: Context, value: Argument, axis: Argument, span: Span) -> Object:
    """Record the value with a new axis of extent 1, its place in the result counted from 1."""
    operand = to_value(context, value.value, value.span)
    if operand is None or isinstance(axis.value, Poison):
        return POISON
    rank = len(operand.shape)
    if rank == MAX_RANK:
        return context.report(
            "E402",
            "too many axes",
            value.span,
            label=f"shape {shape_text(operand.shape)}",
            expected=f"at most {MAX_RANK - 1} before expanding",
            found=str(rank),
        )
    number = to_whole(context, axis.value, axis.span, what="the new axis", at_least=1, at_most=rank + 1, hint=COUNTED)
    return POISON if number is None else context.program.expand(operand, number - 1, span)


def _reduced_axis(
    context: Context, name: str, value: Argument, axis: Argument | None, span: Span
) -> tuple[Operation, int] | None:
    """Return the operand and the axis counted from 0, or None after a report."""
    operand = to_value(context, value.value, value.span)
    if operand is None or (axis is not None and isinstance(axis.value, Poison)):
        return None
    rank = len(operand.shape)
    if rank == 0:
        context.report(
            "E404",
            f"dana.{name} needs a value with at least one axis",
            value.span,
            label="a scalar",
            expected="a vector, a matrix or a value of three axes",
            found=describe(value.value),
            help="a scalar needs no reduction; use it as it is",
        )
        return None
    if axis is None:
        if rank == 1:
            return operand, 0
        context.report(
            "E405",
            f"dana.{name} needs an axis",
            span,
            label=f"the value has shape {shape_text(operand.shape)}",
            expected=f"an axis from 1 to {rank}",
            help=f"write dana.{name}(value, 1) to reduce the first axis",
        )
        return None
    number = to_whole(context, axis.value, axis.span, what="the axis", at_least=1, hint=COUNTED)
    if number is None:
        return None
    if number > rank:
        context.report(
            "E405",
            f"the value has no axis {number}",
            axis.span,
            label=f"the value has shape {shape_text(operand.shape)}",
            expected="axis 1" if rank == 1 else f"an axis from 1 to {rank}",
            found=str(number),
            help=COUNTED,
        )
        return None
    return operand, number - 1
