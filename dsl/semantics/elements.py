"""Elements, slices, lists as vectors, concatenation, transposition and matrix products.

In: values and what selects from them. Out: the resulting object, or poison after a report. The machine has no
operation that moves elements: those of a slice are chosen by masks and summed with zeros, which changes no bit of them;
the compiler does the same for a single element. Must not: walk the AST.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.hdfg import dims
from dsl.hdfg.dims import Dim, DimExpr, Shape, shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import broadcast, without_axis
from dsl.limits import MAX_RANK
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import fits_binary32, to_value
from dsl.semantics.context import Context
from dsl.semantics.objects import POISON, Constant, Object, Poison, describe
from dsl.semantics.program import Operation
from dsl.semantics.values import elementwise
from dsl.source import Span

NOTHING = -0.0
"""The neutral element of sums: adding it keeps zeros of either sign."""


@dataclass(frozen=True, slots=True)
class Part:
    """The index of one axis between brackets: a position, or a slice with optional ends."""

    span: Span
    position: Object | None = None
    start: Object | None = None
    stop: Object | None = None


def enough_axes(context: Context, value: Operation, parts: Sequence[Part]) -> bool:
    """Report and return False if a value has fewer axes than parts."""
    rank = len(value.shape)
    if len(parts) <= rank:
        return True
    context.report(
        "E313",
        "too many indices",
        parts[rank].span,
        label=f"the value has shape {shape_text(value.shape)}" if rank else "of a scalar",
        expected=f"at most {rank}" if rank else "a value with at least one axis",
        found=str(len(parts)) if rank else describe(value),
        help="each axis takes one position or slice" if rank else "",
    )
    return False


def select(context: Context, value: Operation, parts: Sequence[Part], span: Span) -> Object:
    """Record the elements that `value[parts]` selects, axis by axis; axes without a part stay."""
    axis = 0
    for part in parts:
        record = _slice if part.position is None else _element
        found = record(context, value, axis, part, span)
        if found is None:
            return POISON
        # a position takes its axis away, so that the next part meets the same number
        axis += part.position is None
        value = found
    return value


def elements(context: Context, vector: Operation, span: Span) -> list[Operation] | None:
    """All elements of a vector, in order; those that were taken before are the same operations."""
    extent = vector.shape[0]
    if not isinstance(extent, int):
        context.report(
            "E302",
            "a vector that chooses rows has a number of elements",
            span,
            label=f"shape {shape_text(vector.shape)}",
            expected="a whole number, as in dana.input([4])",
            found=f"{extent} elements, which a table decides",
            help="each element is a row of its own, and rows are counted when the rule is compiled",
        )
        return None
    parts = [Part(span, position=Constant(number)) for number in range(extent)]
    return [one for part in parts if (one := _element(context, vector, 0, part, span)) is not None]


def _element(context: Context, value: Operation, axis: int, part: Part, span: Span) -> Operation | None:
    extent = value.shape[axis]
    at = _place(context, extent, part.position, part.span)
    if at is not None and not fits_binary32(context, at, part.span):
        return None
    # 0 <= at < extent, as extents of at least 1: where dims are left, only `Graph.bind` knows
    if at is None or not _within(context, (dims.add(at, 1), dims.subtract(extent, at)), value, extent, part.span):
        return None
    known = context.program.elements
    if (value, axis, at) not in known:
        operands = (value, context.program.constant(at, span))
        shape = without_axis(value.shape, axis)
        known[value, axis, at] = context.program.add(Op.ELEMENT, operands, shape, span, axis=axis)
    return known[value, axis, at]


def _slice(context: Context, value: Operation, axis: int, part: Part, span: Span) -> Operation | None:
    extent = value.shape[axis]
    start = 0 if part.start is None else _place(context, extent, part.start, part.span)
    stop = extent if part.stop is None else _place(context, extent, part.stop, part.span)
    if start is None or stop is None:
        return None
    count = dims.subtract(stop, start)
    fits = (dims.add(start, 1), dims.add(dims.subtract(extent, stop), 1), count)
    if not _within(context, fits, value, extent, part.span):
        return None
    if count == extent:
        return value
    # the mask has an axis more than the value
    if len(value.shape) == MAX_RANK:
        context.report(
            "E402",
            "too many axes",
            part.span,
            label=f"of shape {shape_text(value.shape)}",
            expected=f"a slice of a value of at most {MAX_RANK - 1} axes",
            found=str(MAX_RANK),
            help="select positions of other axes first",
        )
        return None
    return _moved(context, value, axis, count, dims.subtract(0, start), span)


def _place(context: Context, extent: Dim, thing: Object | None, span: Span) -> Dim | None:
    """Return a position that is known at compile time, counted from 0; one below 0 is counted from the end."""
    match thing:
        case Constant(number=int(number)):
            # the sign of an expression of dims is unknown, so that n - 5 counts from the front
            return dims.add(extent, number) if number < 0 else number
        case Constant(number=DimExpr() as dim):
            return dim
        case Poison():
            return None
    context.report(
        "E314",
        "elements are selected by numbers",
        span,
        expected="a whole number that is known when the rule is compiled",
        found="nothing" if thing is None else describe(thing),
        help="an element chosen by a value is dana.sigma(dana.where(dana.arange(n) == value, x, 0))",
    )
    return None


def _within(context: Context, needed: Sequence[Dim], value: Operation, extent: Dim, span: Span) -> bool:
    """Whether all of some extents are at least 1; those of dims are left to `Graph.bind`."""
    if any(isinstance(one, int) and one < 1 for one in needed):
        context.report(
            "E302",
            "there are no such elements",
            span,
            label=f"the value has shape {shape_text(value.shape)}",
            expected=f"positions from 0 to {dims.subtract(extent, 1)}, and at least one",
            help="a position below 0 counts from the end: x[-1] is the last",
        )
        return False
    # without a negative coefficient it holds for all dims, which are at least 1
    context.program.needs += [one for one in needed if isinstance(one, DimExpr) and min(c for _, c in one.terms) < 0]
    return True


def _mask(context: Context, sides: tuple[Operation, Operation], shape: Shape, behind: Shape, span: Span) -> Operation:
    """Record where two are equal, a 1 or a 0 for each element of the axes before `behind`."""
    mask = context.program.add(Op.EQ, sides, shape, span)
    for _ in behind:
        mask = context.program.expand(mask, len(mask.shape), span)
    return mask


def _masked(context: Context, mask: Operation, value: Operation, axis: int, span: Span) -> Operation:
    """Record the sum along an axis of the elements that a mask holds."""
    shape = broadcast(mask.shape, value.shape)
    chosen = context.program.add(Op.WHERE, (mask, value, context.program.constant(NOTHING, span)), shape, span)
    return context.program.add(Op.SIGMA, (chosen,), without_axis(shape, axis), span, axis=axis)


def _moved(context: Context, value: Operation, axis: int, count: Dim, by: Dim, span: Span) -> Operation:
    """Record an axis of `count` elements: element i + `by` is the value's element i, the others are `NOTHING`."""
    program, extent = context.program, value.shape[axis]
    from_ = program.arange(extent, span)
    if by != 0:
        from_ = program.add(Op.ADD, (from_, program.constant(by, span)), from_.shape, span)
    to = context.program.expand(program.arange(count, span), 1, span)
    mask = _mask(context, (to, from_), (count, extent), value.shape[axis + 1 :], span)
    return _masked(context, mask, context.program.expand(value, axis, span), axis + 1, span)


# values put together


def concat(context: Context, arguments: Sequence[Argument], span: Span) -> Object:
    """Record vectors and scalars one after the other."""
    found = [(to_value(context, argument.value, argument.span), argument) for argument in arguments]
    parts = [(value, argument) for value, argument in found if value is not None]
    if len(parts) < len(found):
        return POISON
    for value, argument in parts:
        if len(value.shape) > 1:
            return context.report(
                "E404",
                "dana.concat joins vectors and scalars",
                argument.span,
                label=f"shape {shape_text(value.shape)}",
                expected="a vector or a scalar",
                help="a list of values of one shape is a value with one axis more: [a, b]",
            )
    total: Dim = 0
    for value, _ in parts:
        total = dims.add(total, value.shape[0] if value.shape else 1)
    at: Dim = 0
    result: Operation | None = None
    for value, _ in parts:
        vector = value if value.shape else context.program.expand(value, 0, span)
        moved = vector if len(parts) == 1 else _moved(context, vector, 0, total, at, span)
        # -0 added to an element keeps its bits, so that the parts need no masks of their own
        result = moved if result is None else context.program.add(Op.ADD, (result, moved), (total,), span)
        at = dims.add(at, vector.shape[0])
    assert result is not None
    return result


# matrices


def transpose(context: Context, argument: Argument, span: Span) -> Object:
    """Record a matrix with its axes exchanged; a product reads it where it is instead."""
    value = to_value(context, argument.value, argument.span)
    if value is None:
        return POISON
    if len(value.shape) != 2:
        return context.report(
            "E404",
            "only a matrix has a transpose",
            argument.span,
            label=f"shape {shape_text(value.shape)}" if value.shape else "a scalar",
            expected="a value of two axes",
            help="a vector stands for a row or a column, as a product needs it",
        )
    columns = value.shape[1]
    program = context.program
    # [columns, 1, columns] against [rows, columns]: the last axis is summed, the first is the new one
    to = context.program.expand(context.program.expand(program.arange(columns, span), 1, span), 1, span)
    sides = (to, program.arange(columns, span))
    mask = program.add(Op.EQ, sides, (columns, 1, columns), span)
    result = _masked(context, mask, value, 2, span)
    # `product` reads the matrix where it is; the sum above is dropped if nothing else uses it
    program.transposes[result] = value
    return result


PLACES = {(False, False): (3, None, 2), (True, False): (3, 2, 1), (False, True): (2, None, 3)}
"""By which of two matrices is stored transposed: the axes at which they are expanded, the axis that is summed."""


def product(context: Context, left: Argument, right: Argument, span: Span) -> Object:
    """Record `left @ right` as sums of products, along the last axis of the left and the first of the right."""
    sides = [to_value(context, side.value, side.span) for side in (left, right)]
    if sides[0] is None or sides[1] is None:
        return POISON
    a, b = sides[0], sides[1]
    if not (1 <= len(a.shape) <= 2 and 1 <= len(b.shape) <= 2) or a.shape[-1] != b.shape[0]:
        return context.report(
            "E403",
            "the shapes do not fit",
            span,
            label=f"{shape_text(a.shape)} @ {shape_text(b.shape)}",
            expected="matrices or vectors, the last axis of the left as long as the first of the right",
            help="as in W @ x with W of [k, n] and x of [n]; multiply element by element with *",
        )
    turned = [context.program.transposes.get(side) for side in (a, b)]
    if turned[0] is not None and turned[1] is not None:
        turned[0] = None  # of two, one has to be turned
    # matrices as they are stored: a transpose is read along its other axis, and not computed
    stored = [side if other is None else other for side, other in zip((a, b), turned, strict=True)]
    if len(a.shape) == len(b.shape) == 2:
        first, second, axis = PLACES[turned[0] is not None, turned[1] is not None]
        stored = [
            side if place is None else context.program.expand(side, place - 1, span)
            for side, place in zip(stored, (first, second), strict=True)
        ]
    elif len(a.shape) == 2:  # with a vector
        axis = 2 if turned[0] is None else 1
        stored[1] = stored[1] if axis == 2 else context.program.expand(stored[1], 1, span)
    elif len(b.shape) == 2:
        axis = 1 if turned[1] is None else 2
        stored[0] = stored[0] if axis == 2 else context.program.expand(stored[0], 1, span)
    else:
        axis = 1
    factors = [Argument(value, side.span) for value, side in zip(stored, (left, right), strict=True)]
    # shapes fit by now, so that no report speaks of the expanded sides
    products = elementwise(context, Op.MUL, factors, span, left.span.to(right.span))
    if not isinstance(products, Operation):
        return POISON
    shape = without_axis(products.shape, axis - 1)
    return context.program.add(Op.SIGMA, (products,), shape, left.span.to(right.span), axis=axis - 1)
