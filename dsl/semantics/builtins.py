"""Implementations of the functions of `dana` in a rule.

In: a name of `dsl.semantics.library` and bound arguments. Out: the resulting object.
Must not: bind arguments or give names.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dsl.binary32 import round32
from dsl.hdfg.dims import Dim, DimExpr, Shape, shape_text, symbol
from dsl.hdfg.graph import Op
from dsl.hdfg.init import Init, InitKind
from dsl.limits import MAX_EXTENT, MAX_INTEGER, MAX_RANK
from dsl.semantics import minimizing, updates
from dsl.semantics.arguments import Argument
from dsl.semantics.axes import ALONG_AXIS, along_axis, expand, total
from dsl.semantics.coercion import symbolic_dim, symbolic_shape, to_dim, to_number, to_shape, to_value, to_whole
from dsl.semantics.composed import COMPOSED
from dsl.semantics.context import Context
from dsl.semantics.elements import concat, transpose
from dsl.semantics.library import BINARY_OPS, COLUMN_STARTS, DECLARATIONS, UNARY_OPS
from dsl.semantics.objects import POISON, Declaration, Nothing, Object, Poison, Start, describe
from dsl.semantics.program import Operation
from dsl.semantics.random import random
from dsl.semantics.values import composed, elementwise, logarithm, stopped
from dsl.source import Span

Bound = dict[str, Argument]


def call(context: Context, name: str, bound: Bound, span: Span) -> Object:
    """Call `dana.<name>`; `span` is the whole call."""
    # before the other functions of one operand: the logarithm of a sigmoid is composed of others
    if name == "log":
        return logarithm(context, bound["value"], span)
    if name in UNARY_OPS:
        return elementwise(context, UNARY_OPS[name], (bound["value"],), span, span)
    if name in BINARY_OPS:
        return elementwise(context, BINARY_OPS[name], (bound["left"], bound["right"]), span, span)
    if name in COMPOSED:
        return composed(context, name, bound["value"], span)
    if name in ALONG_AXIS:
        return along_axis(context, name, bound["value"], bound.get("axis"), span)
    if name == "where":
        return elementwise(context, Op.WHERE, (bound["condition"], bound["then"], bound["otherwise"]), span, span)
    if name == "gradient":
        return minimizing.gradient(context, bound["value"], bound["by"], span)
    if name == "stop_gradient":
        return stopped(context, bound["value"], span)
    if name == "total":
        return total(context, bound["value"], span)
    if name == "expand":
        return expand(context, bound["value"], bound["axis"], span)
    if name == "concat":
        return concat(context, list(bound.values()), span)
    if name == "transpose":
        return transpose(context, bound["value"], span)
    if name == "arange":
        count = to_dim(context, bound["count"].value, bound["count"].span)
        return POISON if count is None else context.program.arange(count, span)
    if name == "random":
        return _random(context, bound, span)
    if name == "setState":
        updates.set_state(context, bound["state"], bound["value"], span)
        return Nothing()
    if name in DECLARATIONS:
        return _declare(context, name, bound, span)
    if name in COLUMN_STARTS:
        return _column_start(context, name, bound)
    return _start(context, name, bound)


def _declare(context: Context, kind: str, bound: Bound, span: Span) -> Object:
    if kind == "algo":
        members = tuple((argument.value, argument.span) for argument in bound.values())
        return Declaration(kind=kind, span=span, members=members)
    shape: Shape | None = ()
    owner = None
    if kind == "state":
        owner = to_value(context, bound["like"].value, bound["like"].span)
        if owner is None:
            return POISON
        shape = owner.shape
    if "shape" in bound:
        shape = to_shape(context, bound["shape"].value, bound["shape"].span)
    # the state of a row is a row itself, of a model with as many rows
    if owner is not None and shape is not None and owner.row_per_tuple:
        shape = _for_each_row(context, owner, shape, bound["shape"].span if "shape" in bound else span)
    value: float | None = None
    if kind == "dim" and "extent" in bound:
        argument = bound["extent"]
        value = to_whole(
            context, argument.value, argument.span, what="the extent of a dim", at_least=1, at_most=MAX_EXTENT
        )
        if value is None:
            return POISON
    if kind == "meta":
        value = _meta_value(context, bound["value"])
        if value is None:
            return POISON
    if kind == "table" and shape == ():
        return context.report(
            "E402",
            "a table has rows",
            bound["shape"].span,
            expected="at least one axis, which counts the rows, as in dana.table([m, k])",
            found="a scalar",
            help="a number that is no row is a model: dana.model()",
        )
    init = _init(context, bound["init"], shape) if "init" in bound else Init()
    numbered = bound.get("classes") or bound.get("categories")
    classes = None
    if numbered is not None:
        classes = _numbered(context, numbered, "classes" if "classes" in bound else "categories", shape)
    # after all arguments, so that the errors of each are reported at once
    if shape is None or init is None or (classes is None and numbered is not None):
        return POISON
    return Declaration(
        kind=kind,
        span=span,
        shape=shape,
        symbolic=symbolic_shape(bound["shape"].value) if "shape" in bound else (),
        value=value,
        init=init,
        owner=owner,
        classes=classes,
        symbolic_classes=None if numbered is None else symbolic_dim(numbered.value),
    )


def _for_each_row(context: Context, row: Operation, shape: Shape, span: Span) -> Shape | None:
    """The shape of a state with one entry per row of the model that `row` is gathered from."""
    if len(shape) < MAX_RANK:
        return (row.operands[0].shape[0], *shape)
    context.report(
        "E402",
        "too many axes",
        span,
        label=f"shape {shape_text(shape)} for each row of {row.operands[0].name}",
        expected=f"at most {MAX_RANK - 1} for each row",
        found=str(len(shape)),
    )
    return None


def _numbered(context: Context, argument: Argument, what: str, shape: Shape | None) -> Dim | None:
    """How many classes a label has, or categories an input."""
    count, least = to_dim(context, argument.value, argument.span), 2 if what == "classes" else 1
    # the text of a dim alone is its name; a table gives the extent of a dim, not of 2*n
    if (isinstance(count, int) and count < least) or (isinstance(count, DimExpr) and count != symbol(str(count))):
        context.report(
            "E401",
            f"the number of {what} does not fit",
            argument.span,
            expected=f"a whole number of at least {least}, or a dim",
            found=str(count),
        )
        return None
    if count is not None and shape and what == "classes":
        context.report(
            "E403",
            "the shapes do not fit",
            argument.span,
            label="classes number a scalar",
            expected="an output of one label: dana.output(classes=…)",
            found=f"shape {shape_text(shape)}",
        )
        return None
    return count


def _meta_value(context: Context, argument: Argument) -> float | None:
    number = to_number(context, argument.value, argument.span, what="the value of a meta")
    # a meta is compared and computed with as the machine holds it
    value = None if number is None else round32(number)
    if value is not None and not math.isfinite(value):
        context.report(
            "E302",
            "the value of the meta does not fit",
            argument.span,
            label=f"{value:g} in binary32",
            expected="a number from -3.40e+38 to 3.40e+38",
            found=f"{value:g}",
        )
        return None
    return value


def _init(context: Context, argument: Argument, shape: Shape | None) -> Init | None:
    if isinstance(argument.value, Start):
        like, init = argument.value.like, argument.value.init
        several = init.kind is InitKind.CENTRES
        if like is None or shape is None or like.shape == (shape[1:] if several and shape else shape):
            return init
        context.report(
            "E403",
            "the shapes do not fit",
            argument.span,
            label=f"{like.name} has shape {shape_text(like.shape)}",
            expected=f"a start of shape {shape_text(shape)}",
            help=f"declare the model with the shape of {like.name}" + (", and an axis before it" if several else ""),
        )
        return None
    if isinstance(argument.value, Poison):
        return None
    number = to_number(context, argument.value, argument.span, what="the start of a model")
    return None if number is None else Init(first=round32(number))


def _column_start(context: Context, name: str, bound: Bound) -> Object:
    argument = bound["value"]
    value, runs = argument.value, ""
    if "runs" in bound:
        meta = bound["runs"].value
        if isinstance(meta, Poison):
            return POISON
        if not (isinstance(meta, Operation) and meta.op is Op.META):
            return context.report(
                "E311",
                f"dana.{name} takes the number of runs as a meta",
                bound["runs"].span,
                expected="what dana.meta declared",
                found=describe(meta),
            )
        runs = str(meta.name)
    if isinstance(value, Poison):
        return POISON
    if isinstance(value, Operation) and value.op in (Op.INPUT, Op.OUTPUT):
        return Start(replace(COLUMN_STARTS[name], of=str(value.name), runs=runs), like=value)
    return context.report(
        "E311",
        f"dana.{name} takes an input or an output",
        argument.span,
        label="no column fills this",
        expected="what dana.input or dana.output declared",
        found=describe(value),
    )


def _random(context: Context, bound: Bound, span: Span) -> Object:
    """Random numbers of a shape: extents as a declaration has them, or a value's."""
    shape: Shape | None = ()
    if "shape" in bound:
        argument = bound["shape"]
        like = argument.value
        shape = like.shape if isinstance(like, Operation) else to_shape(context, like, argument.span)
    seed = _seed(context, bound)
    return POISON if shape is None or seed is None else random(context, shape, seed, span)


def _seed(context: Context, bound: Bound) -> int | None:
    if "seed" not in bound:
        # the same numbers in each training, unless the rule says otherwise
        return 0
    argument = bound["seed"]
    return to_whole(context, argument.value, argument.span, what="the seed", at_least=0, at_most=MAX_INTEGER)


def _start(context: Context, name: str, bound: Bound) -> Object:
    words = ("low", "high") if name == "uniform" else ("mean", "deviation")
    numbers = [to_number(context, bound[word].value, bound[word].span, what=word) for word in words]
    seed = _seed(context, bound)
    first, second = numbers
    if first is None or second is None or seed is None:
        return POISON
    # rounded first: bounds that differ in binary64 may be one number in binary32
    first, second = round32(first), round32(second)
    if name == "uniform" and not first < second:
        return context.report(
            "E311",
            "dana.uniform needs low < high",
            bound["high"].span,
            expected=f"more than {first:g}",
            found=describe(bound["high"].value),
        )
    # a NaN is not at least 0 either
    if name == "normal" and not second >= 0:
        return context.report(
            "E311",
            "dana.normal needs a deviation of at least 0",
            bound["deviation"].span,
            expected="0 or more",
            found=describe(bound["deviation"].value),
        )
    kind = InitKind.UNIFORM if name == "uniform" else InitKind.NORMAL
    return Start(Init(kind=kind, first=first, second=second, seed=seed))
