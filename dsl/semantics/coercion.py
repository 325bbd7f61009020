"""Objects taken as what a place in the rule needs: a value, a whole number, a shape.

In: an object and the expression it came from. Out: the thing needed, or None after an error was reported (or
when the object is poison, which was reported before). Must not: record operations, constants and lists apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsl.binary32 import round32
from dsl.hdfg.dims import Dim, DimExpr, Shape, shape_text
from dsl.hdfg.graph import Op
from dsl.limits import MAX_EXTENT, MAX_INTEGER, MAX_RANK
from dsl.semantics.context import Context
from dsl.semantics.counting import given
from dsl.semantics.objects import (
    Constant,
    Declaration,
    Given,
    Items,
    Nothing,
    Object,
    Poison,
    RuleFunction,
    Start,
    Text,
    describe,
)
from dsl.semantics.program import Operation
from dsl.source import Span

DECLARE_HELP = {
    "dim": "n = dana.dim()",
    "model": "w = dana.model([n])",
    "table": "U = dana.table([m, k])",
    "input": "x = dana.input([n])",
    "output": "y = dana.output()",
    "meta": "lr = dana.meta(0.1)",
    "inter": "g = dana.inter([n])",
    "state": "velocity = dana.state(w)",
    "algo": "rule = dana.algo(w, x, y)",
}
"""One line of example for each declaration."""


def to_value(context: Context, thing: Object, span: Span) -> Operation | None:
    """Take an object as a value of the dataflow; numbers become constants, lists vectors."""
    match thing:
        # before other operations, which a table is one of
        case Operation(table=True):
            report_whole(context, thing, span)
            return None
        case Operation():
            return thing
        case Constant(number=number):
            return context.program.constant(number, span)
        case Given(name=name):
            return given(context, name, span)
        case Items():
            return _stacked(context, thing.placed(span), span)
        case Poison():
            return None
        case Declaration(kind=kind):
            context.report(
                "E304",
                f"a {kind} needs a name of its own",
                span,
                label="declared inside an expression",
                expected="a statement that names it",
                help=f"write it on a line of its own, as in {DECLARE_HELP[kind]}",
            )
            return None
    hints = {
        RuleFunction: "call it with parentheses",
        Nothing: "the function must end with return",
        Text: "remove the quotes",
        Start: "a start belongs to init=; dana.random(shape) draws numbers for each row",
    }
    context.report(
        "E301",
        "a value is needed here",
        span,
        label="this expression",
        expected="a value or a number",
        found=describe(thing),
        help=hints.get(type(thing), ""),
    )
    return None


def report_whole(context: Context, table: Operation, span: Span) -> None:
    """Say that a table is read and written by rows."""
    context.report(
        "E320",
        f"the table {table.name} is read and written by rows",
        span,
        label="all of it",
        expected=f"a row such as {table.name}[i] or {table.name}[3], or several, {table.name}[c]",
        found=describe(table),
        help=f"what is read or written whole is a model: {table.name} = dana.model(…)",
    )


def _stacked(context: Context, items: Sequence[tuple[Object, Span]], span: Span) -> Operation | None:
    """Take a list as a value: numbers and scalars become a vector, values of one shape have a new first axis."""
    if not items:
        context.report(
            "E301", "a value is needed here", span, label="an empty list", expected="at least one element in the list"
        )
        return None
    values: list[Operation] = []
    for item, place in items:
        value = to_value(context, item, place)
        if value is None:
            return None
        values.append(value)
    shape = values[0].shape
    other = next((k for k, value in enumerate(values) if value.shape != shape), None)
    # the list adds an axis to its elements' shape
    if other is not None or len(shape) == MAX_RANK:
        place = span if other is None else items[other][1]
        context.report(
            "E403",
            "the list is no value",
            place,
            label=f"shape {shape_text(shape if other is None else values[other].shape)}",
            expected=f"at most {MAX_RANK - 1} axes"
            if other is None
            else f"the shape of the first, {shape_text(shape)}",
            help="dana.concat(a, b) joins vectors of any length",
        )
        return None
    program, count = context.program, len(values)
    if count == 1:
        # one element needs no mask
        return program.expand(values[0], 0, span)
    result = values[0]
    # WHERE keeps every bit; a sum of values times masks would make NaN of an infinity, and 0 of -0
    for k, value in enumerate(values[1:], start=1):
        mask = program.add(Op.EQ, (program.arange(count, span), program.constant(k, span)), (count,), span)
        for _ in shape:
            mask = program.expand(mask, len(mask.shape), span)
        result = program.add(Op.WHERE, (mask, value, result), (count, *shape), span)
    program.lists[result] = tuple(values)
    return result


def to_whole(
    context: Context,
    thing: Object,
    span: Span,
    *,
    what: str,
    at_least: int = -MAX_INTEGER,
    at_most: int = MAX_INTEGER,
    hint: str = "",
    of_dim: str = "dims are known only when the rule meets a table; write a number",
) -> int | None:
    """Take an object as a whole number that is known when the rule is compiled.

    `hint` is for numbers out of bounds, `of_dim` for dims.
    """
    if isinstance(thing, Poison):
        return None
    bounds = [f"at least {at_least:,}"] if at_least > -MAX_INTEGER else []
    bounds += [f"at most {at_most:,}"] if at_most < MAX_INTEGER else []
    expected = "a whole number" + (f", {' and '.join(bounds)}" if bounds else "")
    match thing:
        # a float is no whole number, not even 2.0: it was written as a quantity
        case Constant(number=int(number)) if at_least <= number <= at_most:
            return number
        case Constant(number=DimExpr()):
            help_text = of_dim
        case Operation() | Given():
            help_text = "values are known only while training; write a number"
        case Constant(number=float()):
            help_text = "write it without a decimal point"
        case Text():
            help_text = "write it without quotes"
        case _:
            # an int that gets here is out of bounds
            help_text = hint
    context.report("E302", f"{what} does not fit", span, expected=expected, found=describe(thing), help=help_text)
    return None


def fits_binary32(context: Context, position: Dim, span: Span) -> bool:
    """Whether a position is a number of the machine, which would read another element otherwise; reports it."""
    if not isinstance(position, int) or round32(float(position)) == position:
        return True
    context.report(
        "E302",
        "the position does not fit",
        span,
        expected="a number of binary32, which lacks some whole numbers above 16,777,216",
        found=f"{position:,}",
    )
    return False


def to_dim(context: Context, thing: Object, span: Span) -> Dim | None:
    """Take an object as the extent of an axis."""
    match thing:
        case Constant(number=DimExpr() as dim):
            return dim
        case Constant(number=int(extent)) if 1 <= extent <= MAX_EXTENT:
            return extent
        case Poison():
            return None
    help_text = ""
    match thing:
        case Declaration(kind="dim"):
            help_text = "give the dim a name first: n = dana.dim()"
        case Operation(name=str(name)):
            help_text = f"{name} is known only while training; use a number or a dana.dim()"
    context.report(
        "E401",
        "the extent of an axis does not fit",
        span,
        expected=f"a whole number from 1 to {MAX_EXTENT:,}, or a dim",
        found=describe(thing),
        help=help_text,
    )
    return None


def symbolic_dim(thing: Object) -> Dim | None:
    """The symbolic form of an extent accepted by `to_dim`: before dims counted by loops were replaced by numbers."""
    if isinstance(thing, Constant) and isinstance(thing.number, int | DimExpr):
        return thing.number if thing.symbolic is None else thing.symbolic
    return None


def symbolic_shape(thing: Object) -> Shape:
    """The same of a shape that `to_shape` takes."""
    dims = map(symbolic_dim, thing.items if isinstance(thing, Items) else (thing,))
    return tuple(dim for dim in dims if dim is not None)


def to_shape(context: Context, thing: Object, span: Span) -> Shape | None:
    """Take an object as a shape: a list of extents, or one extent for a vector."""
    if not isinstance(thing, Items):
        dim = to_dim(context, thing, span)
        return None if dim is None else (dim,)
    # all extents before the first return, so that each wrong one is reported
    dims = [to_dim(context, item, place) for item, place in thing.placed(span)]
    if len(dims) > MAX_RANK:
        context.report(
            "E402",
            "too many axes",
            span,
            expected=f"at most {MAX_RANK}",
            found=str(len(dims)),
            help="split the value into several of fewer axes",
        )
        return None
    kept = tuple(dim for dim in dims if dim is not None)
    return kept if len(kept) == len(dims) else None


def to_number(context: Context, thing: Object, span: Span, *, what: str) -> float | None:
    """Take an object as a number that is known when the rule is compiled, as binary64 (the caller rounds)."""
    match thing:
        # a dim is not: its extent is known at the table only
        case Constant(number=int() | float() as number):
            return float(number)
        case Poison():
            return None
    context.report(
        "E303",
        f"{what} must be a number",
        span,
        expected="a number that is known when the rule is compiled",
        found=describe(thing),
        help="dims are known only when the rule meets a table" if isinstance(thing, Constant) else "",
    )
    return None
