"""Updates of models and their rows: setModel, setState, addRows.

In: bound arguments of a method. Out: updates of the algorithm, or of states. Must not: judge what depends on
other statements; `finish` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsl.diagnostics import Note
from dsl.hdfg.dims import shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import ShapeMismatch, broadcast
from dsl.semantics.arguments import Argument
from dsl.semantics.batches import batch_of, keep_batch, merge_sign, share
from dsl.semantics.coercion import report_whole, to_value
from dsl.semantics.context import Context
from dsl.semantics.elements import Part, select
from dsl.semantics.objects import Algorithm, Constant, Items, Poison, describe
from dsl.semantics.program import Batch, CheckedUpdate, Operation
from dsl.source import Span

Bound = dict[str, Argument]


def call_set_model(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> None:
    """Call setModel."""
    arguments = list(bound.values())
    if len(arguments) > 2:
        context.report(
            "E308",
            "setModel takes at most 2 arguments",
            arguments[2].span,
            label="one too many",
            expected="setModel(value) or setModel(model, value)",
            found=f"{len(arguments)} arguments",
        )
        algorithm.complete = False
        return
    # one argument is the new value of the only model
    pairs = [tuple(arguments)] if len(arguments) == 1 else _pairs(context, arguments[0], arguments[1])
    if pairs is None:
        algorithm.complete = False
        return
    for pair in pairs:
        target = _target(context, algorithm, pair, span)
        if target is None:
            algorithm.complete = False
        else:
            set_model(context, algorithm, target, pair[-1], span)


def _pairs(context: Context, rows: Argument, value: Argument) -> list[tuple[Argument, ...]] | None:
    """Rows and what is said of each: of a list of rows one pair for each, else what is given."""
    if not isinstance(rows.value, Items):
        return [(rows, value)]
    listed = rows.value.placed(rows.span)
    values = _row_each(context, value, len(listed))
    if values is None:
        return None
    return [(Argument(row, place), each) for (row, place), each in zip(listed, values, strict=True)]


def call_add_rows(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> None:
    """Call addRows."""
    batch, sign = None, "add"
    if ("batch" in bound) != ("op" in bound):
        given, missing = ("batch", "op") if "batch" in bound else ("op", "batch")
        context.report(
            "E307",
            f"addRows takes {missing} together with {given}",
            span,
            label=f"no {missing}",
            expected='addRows(rows, value), or addRows(rows, value, 64, "mean")',
            help="as in merge, the operation says whether the rows take the sum or the mean of a batch",
        )
        algorithm.complete = False
        return
    if "batch" in bound:
        batch, found = batch_of(context, bound["batch"]), merge_sign(context, bound["op"])
        if found not in (None, "add", "mean"):
            context.report(
                "E309",
                "the operation of addRows does not fit",
                bound["op"].span,
                expected='"+" or "mean"',
                found=describe(bound["op"].value),
                help="rows take the sum of what a batch adds to them, or its mean over the batch's tuples",
            )
        if batch is None or found not in ("add", "mean"):
            algorithm.complete = False
            return
        sign = found
    add_to_rows(context, algorithm, bound["rows"], bound["value"], span, batch=batch, mean=sign == "mean")


def add_to_rows(
    context: Context,
    algorithm: Algorithm,
    rows: Argument,
    value: Argument,
    span: Span,
    *,
    batch: Batch | None,
    mean: bool = False,
) -> None:
    """Say what is added to a row of a table, or to each of a list of them: behind each tuple, or behind a batch."""
    if batch is not None:
        # even if the value is wrong, so that later batches are compared with this size
        keep_batch(context, algorithm, batch)
    if mean and isinstance(value.value, Operation) and not value.value.table:
        # before a value of several rows is taken apart, so that they share the operation
        value = Argument(_part(context, algorithm, value.value, span), value.span)
        mean = False
    pairs = _pairs(context, rows, value)
    for row, new in pairs or []:
        target = row.value
        if isinstance(target, Operation) and target.op is Op.GATHER and target.operands[0].table:
            _add_row(context, algorithm, target, new, span, at_once=batch is None, mean=mean)
            continue
        if isinstance(target, Operation) and target.table:
            report_whole(context, target, row.span)
        elif not isinstance(target, Poison):
            context.report(
                "E506",
                "addRows adds to rows of a table",
                row.span,
                label="this is none",
                expected="a row such as U[i], or rows U[c], of U = dana.table(…)",
                found=describe(target),
                help="the rows come first, then what is added to them; a model changes by setModel",
            )
        algorithm.complete = False
    if pairs is None:
        algorithm.complete = False


def _part(context: Context, algorithm: Algorithm, value: Operation, span: Span) -> Operation:
    """A tuple's part of a mean over the batch, so that the rows need no division at the end."""
    return context.program.add(Op.MUL, (value, share(context, algorithm, span)), value.shape, span)


def _add_row(
    context: Context,
    algorithm: Algorithm,
    target: Operation,
    argument: Argument,
    span: Span,
    *,
    at_once: bool,
    mean: bool,
) -> None:
    """Say what is added to the row of a table that a GATHER reads."""
    update = _update(context, target, argument, span)
    if update is None:
        algorithm.complete = False
        return
    value = _part(context, algorithm, update.value, span) if mean else update.value
    algorithm.updates.append(replace(update, value=value, adds=True, at_once=at_once))


def _row_each(context: Context, argument: Argument, count: int) -> list[Argument] | None:
    """Return one new value per row of a list of rows, from a list of values or from the first axis of one value."""
    value = argument.value
    # a list goes item by item, even where each item has `count` elements
    if isinstance(value, Items) and len(value.items) == count:
        return [Argument(item, place) for item, place in value.placed(argument.span)]
    if isinstance(value, Operation) and value.shape[:1] == (count,):
        parts = [Part(argument.span, position=Constant(number)) for number in range(count)]
        return [Argument(select(context, value, [part], argument.span), argument.span) for part in parts]
    if not isinstance(value, Poison):
        context.report(
            "E406",
            f"{count} rows need as many new values",
            argument.span,
            expected=f"a list of {count} values, or a value with a first axis of {count} elements",
            found=f"a list of {len(value.items)}" if isinstance(value, Items) else describe(value),
            help="write each in a loop: for row in U[c]: rule.setModel(row, …)",
        )
    return None


def set_model(context: Context, algorithm: Algorithm, target: Operation, argument: Argument, span: Span) -> None:
    """Say what a model becomes, or the row that a GATHER reads."""
    update = _update(context, target, argument, span)
    if update is None:
        algorithm.complete = False
        return
    algorithm.updates.append(update)


def set_state(context: Context, state: Argument, argument: Argument, span: Span) -> None:
    """Say what a state becomes; `span` is the whole call."""
    target = state.value
    if isinstance(target, Poison):
        return
    model = target.operands[0] if isinstance(target, Operation) and target.op is Op.GATHER else target
    if not isinstance(target, Operation) or model not in context.states:
        is_model = isinstance(target, Operation) and target.op is Op.MODEL
        context.report(
            "E506",
            "setState writes a state",
            state.span,
            label="this is none",
            expected="a state, as declared by velocity = dana.state(w)",
            found=describe(target),
            help="a model that the algo lists changes by the algo's setModel" if is_model else "",
        )
        return
    update = _update(context, target, argument, span)
    if update is not None:
        context.state_updates.append(update)


def _update(context: Context, target: Operation, argument: Argument, span: Span) -> CheckedUpdate | None:
    """Return the update of a model, or of the row that a GATHER selects, to a value; None after a report."""
    value = to_value(context, argument.value, argument.span)
    if value is None:
        return None
    try:
        # the value may be repeated to the target's shape, not the target to the value's
        fits = broadcast(value.shape, target.shape) == target.shape
    except ShapeMismatch:
        fits = False
    # the GATHER says both the row's model and its number
    model, index = (target.operands[0], target.operands[1]) if target.op is Op.GATHER else (target, None)
    if model.table and index is None:
        report_whole(context, model, argument.span)
        return None
    if not fits:
        kind = "state" if model in context.states else "model"
        context.report(
            "E406",
            f"the new value does not have the {kind}'s shape",
            argument.span,
            label=f"shape {shape_text(value.shape)}",
            expected=f"shape {shape_text(target.shape)}",
            found=f"shape {shape_text(value.shape)}",
            notes=(Note(message=f"{model.name} is declared here", span=model.span),),
            help=_shape_help(kind, value, target),
        )
    # even if the shape is wrong: else the model would be reported as never updated, too
    return CheckedUpdate(model=model, value=value, index=index, at_once=model.table, span=span)


def _shape_help(kind: str, value: Operation, target: Operation) -> str:
    if len(value.shape) > len(target.shape):
        return f"reduce an axis with dana.sigma, or declare the {kind} with this shape"
    return f"declare the {kind} with this shape, or compute a value of the {kind}'s shape"


def _target(context: Context, algorithm: Algorithm, arguments: Sequence[Argument], span: Span) -> Operation | None:
    """Return what setModel writes: a MODEL, or the GATHER that reads the row to write."""
    if len(arguments) == 1:
        if len(algorithm.models) == 1:
            return algorithm.models[0]
        if algorithm.models:
            names = ", ".join(str(model.name) for model in algorithm.models)
            context.report(
                "E506",
                "setModel must say which model",
                span,
                label="one argument",
                expected="setModel(model, value)",
                notes=(Note(message=f"the algo's models are {names}"),),
                help=f"name the model first: setModel({algorithm.models[0].name}, value)",
            )
        return None
    target = arguments[0]
    if isinstance(target.value, Operation):
        model = target.value.operands[0] if target.value.op is Op.GATHER else target.value
        if model.op is Op.MODEL:
            return target.value
    context.report(
        "E506",
        "setModel writes a model or a row of one",
        target.span,
        label="this is neither",
        expected="a model such as w, or a row such as U[i]",
        found=describe(target.value),
        help="the model comes first, then its new value",
    )
    return None
