"""Operations on values: shapes checked, per-tuple and per-batch values kept apart, then recorded.

Comes in: objects and their places. Goes out: the resulting object, or poison after a report. Must not: walk the AST.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr, shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import ShapeMismatch, broadcast, without_axis
from dsl.limits import MAX_RANK
from dsl.semantics import arithmetic
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import to_value, to_whole
from dsl.semantics.composed import COMPOSED
from dsl.semantics.context import Context
from dsl.semantics.objects import POISON, Constant, Object, Poison, describe
from dsl.semantics.program import Operation
from dsl.source import Span

OPERATORS = {
    "+": Op.ADD,
    "-": Op.SUB,
    "*": Op.MUL,
    "/": Op.DIV,
    "<": Op.LT,
    ">": Op.GT,
    "<=": Op.LE,
    ">=": Op.GE,
    "==": Op.EQ,
}

COUNTED = "axes are counted from 1"


def binary(context: Context, operator: str, left: Argument, right: Argument, span: Span) -> Object:
    """Apply an operator; numbers known at compile time are computed now. `span` is the operator's."""
    whole = left.span.to(right.span)
    if isinstance(left.value, Constant) and isinstance(right.value, Constant):
        try:
            result = arithmetic.compute(operator, left.value.number, right.value.number)
        except arithmetic.StaticError as error:
            return context.report(
                "E310",
                f"{operator!r} does not work on these numbers",
                span,
                expected=str(error),
                found=f"{describe(left.value)} and {describe(right.value)}",
            )
        if result is not None:
            return Constant(result)
    if operator not in OPERATORS:
        if isinstance(left.value, Poison) or isinstance(right.value, Poison):
            return POISON
        return context.report(
            "E310",
            f"{operator!r} works on whole numbers only",
            span,
            expected="whole numbers that are known when the rule is compiled",
            found=f"{describe(left.value)} and {describe(right.value)}",
            help="divide with /" if operator == "//" else "",
        )
    return elementwise(context, OPERATORS[operator], (left, right), span, whole)


def negative(context: Context, operand: Argument, span: Span) -> Object:
    """Negate a number or a value."""
    if isinstance(operand.value, Constant):
        return Constant(arithmetic.negate(operand.value.number))
    return elementwise(context, Op.NEG, (operand,), span, span)


def elementwise(context: Context, op: Op, operands: Sequence[Argument], span: Span, whole: Span) -> Object:
    """Record an elementwise operation. `span` is where to point the caret, `whole` the expression."""
    values = [to_value(context, operand.value, operand.span) for operand in operands]
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        return POISON
    shape = found[0].shape
    for i, value in enumerate(found[1:], start=1):
        try:
            shape = broadcast(shape, value.shape)
        except ShapeMismatch as mismatch:
            return _report_shapes(context, operands, found, i, mismatch, span)
    if not together(context, list(zip(found, operands, strict=True)), span):
        return POISON
    return context.program.add(op, found, shape, whole)


def together(context: Context, operands: Sequence[tuple[Operation, Argument]], span: Span) -> bool:
    """Report and return False if values per tuple and values per batch meet in one operation."""
    per_tuple = next((argument for value, argument in operands if value.per_tuple), None)
    merged = next((argument for value, argument in operands if value.merged), None)
    if per_tuple is None or merged is None:
        return True
    context.report(
        "E503",
        "a value per tuple meets a value per batch",
        span,
        label="these two do not exist at the same time",
        expected="both before the merge, or both after it",
        notes=(
            Note(message="one value for each tuple", span=per_tuple.span),
            Note(message="one value for the whole batch", span=merged.span),
        ),
        help="merge the value per tuple too, or do this operation before the merge",
    )
    return False


def _report_shapes(
    context: Context,
    operands: Sequence[Argument],
    values: Sequence[Operation],
    at: int,
    mismatch: ShapeMismatch,
    span: Span,
) -> Poison:
    shapes = [value.shape for value in values]
    left = max(range(at), key=lambda i: len(shapes[i]))
    notes = tuple(
        Note(message=f"shape {shape_text(shapes[i])}", span=operands[i].span)
        for i in (left, at)
        if operands[i].span != span
    )
    if len(shapes[left]) != len(shapes[at]):
        help_text = "shapes are aligned at their last axis; missing axes in front count as 1"
    elif isinstance(mismatch.left_dim, DimExpr) or isinstance(mismatch.right_dim, DimExpr):
        help_text = "declare both with the same dim if they always have the same extent"
    else:
        help_text = "declare both with the same extent"
    return context.report(
        "E403",
        "the shapes do not fit",
        span,
        label=f"{shape_text(shapes[left])} against {shape_text(shapes[at])}",
        expected="extents that are equal, or 1, axis by axis from the last",
        found=f"{mismatch.left_dim} against {mismatch.right_dim}",
        notes=notes,
        help=help_text,
    )


def reduction(context: Context, name: str, op: Op, value: Argument, axis: Argument | None, span: Span) -> Object:
    """Record `sigma`, `pi` or `amax` along an axis that the rule counts from 1; a vector's axis may be left out."""
    checked = reduced_axis(context, name, value, axis, span)
    if checked is None:
        return POISON
    operand, position = checked
    return context.program.add(op, (operand,), without_axis(operand.shape, position), span, axis=position)


def norm(context: Context, value: Argument, axis: Argument | None, span: Span) -> Object:
    """Record the Euclidean norm: sqrt(sigma(x * x))."""
    checked = reduced_axis(context, "norm", value, axis, span)
    if checked is None:
        return POISON
    operand, position = checked
    square = context.program.add(Op.MUL, (operand, operand), operand.shape, span)
    total = context.program.add(Op.SIGMA, (square,), without_axis(operand.shape, position), span, axis=position)
    return context.program.add(Op.SQRT, (total,), total.shape, span)


def composed(context: Context, name: str, value: Argument, span: Span) -> Object:
    """Record the operations that one of `COMPOSED` is made of."""
    operand = to_value(context, value.value, value.span)
    if operand is None:
        return POISON

    def record(op: Op, *operands: Operation | float) -> Operation:
        values = [one if isinstance(one, Operation) else context.program.constant(one, span) for one in operands]
        return context.program.add(op, values, operand.shape, span)

    return COMPOSED[name](record, operand)


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
    if number is None:
        return POISON
    shape = (*operand.shape[: number - 1], 1, *operand.shape[number - 1 :])
    return context.program.add(Op.EXPAND, (operand,), shape, span, axis=number - 1)


def reduced_axis(
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
            help="axes are counted from 1",
        )
        return None
    return operand, number - 1
