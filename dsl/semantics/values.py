"""Operations on values: shapes checked, then recorded.

In: objects and their places. Out: the resulting object, or poison after a report. Must not: walk the AST.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr, shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import ShapeMismatch, broadcast
from dsl.semantics import arithmetic
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import to_value
from dsl.semantics.composed import COMPOSED
from dsl.semantics.context import Context
from dsl.semantics.objects import POISON, Constant, Items, Object, Poison, describe
from dsl.semantics.program import Operation, Terms
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


def binary(context: Context, operator: str, left: Argument, right: Argument, span: Span) -> Object:
    """Apply an operator; numbers known at compile time are computed now. `span` is the operator's."""
    whole = left.span.to(right.span)
    # before numbers: + joins lists, and adds nothing element by element
    if (
        operator == "+"
        and isinstance(left.value, Items)
        and isinstance(right.value, Items)
        and not (left.value.rows or right.value.rows)
    ):
        return left.value.joined(right.value, left.span, right.span)
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
            return Constant(result, symbolic=_symbolic(operator, left.value, right.value))
    if operator in ("//", "%"):
        return _whole_division(context, operator, left, right, span, whole)
    value = elementwise(context, OPERATORS[operator], (left, right), span, whole)
    if operator == "/" and isinstance(value, Operation) and isinstance(right.value, Constant) and right.value.name:
        # W706 compares names, since two numbers may be equal by chance
        context.program.divisors[value.id] = right.value.name
    return value


def _whole_division(
    context: Context, operator: str, left: Argument, right: Argument, span: Span, whole: Span
) -> Object:
    """Record floor(a / b) or the remainder: exact for whole numbers below 2^23, since their quotients stay distinct."""
    ratio = elementwise(context, Op.DIV, (left, right), span, whole)
    quotient = composed(context, "floor", Argument(ratio, whole), whole)
    if operator == "//":
        return quotient
    taken = elementwise(context, Op.MUL, (Argument(quotient, whole), right), span, whole)
    return elementwise(context, Op.SUB, (left, Argument(taken, whole)), span, whole)


def _symbolic(operator: str, left: Constant, right: Constant) -> DimExpr | None:
    if left.symbolic is None and right.symbolic is None:
        return None
    try:
        result = arithmetic.compute(operator, left.symbolic or left.number, right.symbolic or right.number)
    except arithmetic.StaticError:  # 7 // 2, which no polynomial says
        return None
    return result if isinstance(result, DimExpr) else None


def negative(context: Context, operand: Argument, span: Span) -> Object:
    """Negate a number or a value."""
    if isinstance(operand.value, Constant):
        number = operand.value
        return Constant(arithmetic.negate(number.number), symbolic=_symbolic("*", Constant(-1), number))
    return elementwise(context, Op.NEG, (operand,), span, span)


def elementwise(context: Context, op: Op, operands: Sequence[Argument], span: Span, whole: Span) -> Object:
    """Record an elementwise operation. `span` is where to point the caret, `whole` the expression."""
    values = [to_value(context, operand.value, operand.span) for operand in operands]
    found = [value for value in values if value is not None]
    # after all operands, so that the errors of each are reported
    if len(found) < len(values):
        return POISON
    shape = found[0].shape
    for i, value in enumerate(found[1:], start=1):
        try:
            shape = broadcast(shape, value.shape)
        except ShapeMismatch as mismatch:
            return _report_shapes(context, operands, found, i, mismatch, span)
    return context.program.add(op, found, shape, whole)


def _report_shapes(
    context: Context,
    operands: Sequence[Argument],
    values: Sequence[Operation],
    at: int,
    mismatch: ShapeMismatch,
    span: Span,
) -> Poison:
    shapes = [value.shape for value in values]
    # the operand with most axes has the extents that the others were repeated to
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


def composed(context: Context, name: str, value: Argument, span: Span) -> Object:
    """Record the operations that one of `COMPOSED` is made of."""
    operand = to_value(context, value.value, value.span)
    if operand is None:
        return POISON

    def record(op: Op, *operands: Operation | float) -> Operation:
        values = [one if isinstance(one, Operation) else context.program.constant(one, span) for one in operands]
        return context.program.add(op, values, operand.shape, span)

    result = COMPOSED[name](record, operand)
    context.program.derivatives[result.id] = ()  # roundings are flat
    return result


def logarithm(context: Context, value: Argument, span: Span) -> Object:
    """Record a logarithm; that of a sigmoid, or of 1 less a sigmoid, is computed from the sigmoid's operand z.

    The sigmoid is 0 or 1 for |z| above 88 and 17, and its logarithm infinite; `min(z, 0) - log(1 + exp(-|z|))` and
    `-max(z, 0) - log(1 + exp(-|z|))` are right for every z, and their derivatives are `1 - p` and `-p`.
    """
    operand = to_value(context, value.value, value.span)
    if operand is None:
        return POISON
    one = context.program.constant(1, span)
    # by identity: `Program.constant` gives one operation for each number
    rest = operand.op is Op.SUB and operand.operands[0] is one
    p = operand.operands[1] if rest else operand
    if p.op is not Op.SIGMOID or context.program.derivatives.keys() & {p.id, operand.id}:  # stopped gradients stay so
        return elementwise(context, Op.LOG, (value,), span, span)
    z, zero = p.operands[0], context.program.constant(0, span)

    def add(op: Op, *operands: Operation) -> Operation:
        return context.program.add(op, operands, z.shape, span)

    tail = add(Op.LOG, add(Op.ADD, one, add(Op.EXP, add(Op.NEG, add(Op.ABS, z)))))
    near = add(Op.NEG, add(Op.MAX, z, zero)) if rest else add(Op.MIN, z, zero)
    result = add(Op.SUB, near, tail)
    terms: Terms = (((p,), -1.0),) if rest else (((), 1.0), ((p,), -1.0))
    context.program.derivatives[result.id] = ((z, terms),)
    return result


def stopped(context: Context, value: Argument, span: Span) -> Object:
    """Record a value again, as one that counts as constant when gradients are taken."""
    operand = to_value(context, value.value, value.span)
    if operand is None:
        return POISON
    return context.program.stopped(operand, span)
