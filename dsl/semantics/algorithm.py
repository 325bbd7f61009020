"""The rule's `algo` and its methods: merge, setModel, setLoss, setPrediction, setConvergence, setEpochs.

Comes in: bound arguments of a method. Goes out: the merged value, or the algorithm filled; `dsl.semantics.finish` then
judges it as a whole. Must not: judge what depends on later statements.
"""

from __future__ import annotations

from dataclasses import replace

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr, shape_text
from dsl.hdfg.graph import FROM_ROW, Op
from dsl.hdfg.shapes import ShapeMismatch, broadcast
from dsl.limits import MAX_EPOCHS, MAX_EXTENT
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import report_whole, to_value, to_whole
from dsl.semantics.context import Context
from dsl.semantics.elements import Part, select
from dsl.semantics.objects import (
    POISON,
    Algorithm,
    AllTuples,
    Constant,
    Declaration,
    Items,
    Nothing,
    Object,
    Poison,
    Text,
    describe,
)
from dsl.semantics.program import Batch, CheckedUpdate, Operation
from dsl.source import Span

Bound = dict[str, Argument]

NUMBER_OF_EACH_CLASS = (
    "pass a number for each class of dana.output(classes=…), probabilities or scores, as in setPrediction(scores); "
    "dana_classify and dana_predict choose the largest, without an argmax"
)
MERGE_SIGNS = {"+": "add", "*": "mul", "max": "max", "min": "min", "mean": "mean"}


def declare(context: Context, name: str, declaration: Declaration, span: Span) -> Algorithm:
    """Make the algorithm from the arguments of `dana.algo`; lists among them are spliced in."""
    members: list[Operation] = []
    complete = True
    for thing, span_of_argument in declaration.members:
        for item, place in thing.placed(span_of_argument) if isinstance(thing, Items) else [(thing, span_of_argument)]:
            operation = _member(context, item, place)
            if operation is None:
                complete = False
            elif operation in members:
                context.report(
                    "E505",
                    f"{operation.name} is listed twice",
                    place,
                    label="again here",
                    expected="each model, input and output once",
                    help="remove it",
                )
            else:
                members.append(operation)
    outputs = [member for member in members if member.op is Op.OUTPUT]
    numbered = next((member for member in outputs if member.classes is not None), None)
    if numbered is not None and len(outputs) > 1:
        context.report(
            "E515",
            "a rule with classes has one output",
            declaration.span,
            label=f"lists {' and '.join(str(member.name) for member in outputs)}",
            expected="one output",
            notes=(Note(message=f"{numbered.name} has classes", span=numbered.span),),
            help="classes number the label, of which there is one",
        )
        complete = False
    weights = [member for member in members if member.op is Op.WEIGHT]
    if len(weights) > 1:
        context.report(
            "E515",
            "a rule has one weight",
            declaration.span,
            label=f"lists {' and '.join(str(member.name) for member in weights)}",
            expected="one weight",
            help="a row has one weight; multiply by it as often as needed",
        )
        complete = False
    algorithm = Algorithm(name=name, span=span, members=tuple(members), complete=complete)
    if complete:
        for op, word in ((Op.MODEL, "model"), (Op.INPUT, "input")):
            if not any(member.op is op for member in members):
                context.report(
                    "E505",
                    f"the algo has no {word}",
                    declaration.span,
                    label=f"lists no {word}",
                    expected="the models, inputs and outputs of the rule",
                    help="as in dana.algo(w, x, y)",
                )
                algorithm.complete = False
    return algorithm


def _member(context: Context, item: Object, place: Span) -> Operation | None:
    if isinstance(item, Operation) and (item.op in FROM_ROW or item.op is Op.MODEL):
        return item
    if isinstance(item, Poison):
        return None
    help_text = ""
    if isinstance(item, Operation) and item.op is Op.META:
        help_text = "metas belong to the rule without being listed; remove it"
    elif isinstance(item, Declaration):
        help_text = "give it a name on a line of its own first"
    context.report(
        "E505",
        "dana.algo takes models, inputs, outputs and a weight",
        place,
        label="this argument",
        expected="a model, an input, an output or the weight",
        found=describe(item),
        help=help_text,
    )
    return None


def call(context: Context, algorithm: Algorithm, name: str, bound: Bound, span: Span) -> Object:
    """Call a method; `span` is the whole call."""
    if name == "merge":
        return _merge(context, algorithm, bound, span)
    if any(isinstance(argument.value, Poison) for argument in bound.values()):
        algorithm.complete = False
        return Nothing()
    if name == "setModel":
        _set_model(context, algorithm, bound, span)
    elif name == "addRows":
        _add_rows(context, algorithm, bound, span)
    elif name == "setEpochs":
        _set_epochs(context, algorithm, bound["epochs"], span)
    else:
        _set_scalar(context, algorithm, name, next(iter(bound.values())), span)
    return Nothing()


def _merge(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> Object:
    value = to_value(context, bound["value"].value, bound["value"].span)
    batch = batch_of(context, bound["batch"])
    sign = _merge_sign(context, bound["op"])
    if batch is not None:
        keep_batch(context, algorithm, batch)
    if value is None or batch is None or sign is None:
        algorithm.complete = False
        return POISON
    if value.id in context.program.parts and sign in ("add", "mean"):
        tuples = share(context, algorithm, span)
        return value if sign == "mean" else context.program.add(Op.DIV, (value, tuples), value.shape, span)
    if value.of_batch:
        return context.report(
            "E501",
            "the value is merged already",
            bound["value"].span,
            label="one value for the whole batch",
            expected="a value per tuple",
            help="merge it together with something of a tuple, as in the mean of (x - mean) * (x - mean)",
        )
    result = mean(context, algorithm, value, span) if sign == "mean" else None
    merge = result.operands[0] if result else context.program.add(Op.MERGE, (value,), value.shape, span, merge_op=sign)
    context.program.merges.add(merge.id)
    return result or merge


def mean(context: Context, algorithm: Algorithm, value: Operation, span: Span) -> Operation:
    """Record the mean of a value per tuple over the algorithm's batch."""
    program = context.program
    total = program.add(Op.MERGE, (value,), value.shape, span, merge_op="add")
    return program.add(Op.MUL, (total, share(context, algorithm, span)), value.shape, span)


def share(context: Context, algorithm: Algorithm, span: Span) -> Operation:
    """Record 1 / the tuples of a batch, once; the last batch may be short, so that tuples are counted."""
    if algorithm.share is None:
        program = context.program
        one = program.constant(1, span)
        count = program.add(Op.MERGE, (one,), (), span, merge_op="add")
        algorithm.share = program.add(Op.DIV, (one, count), (), span)
    return algorithm.share


def keep_batch(context: Context, algorithm: Algorithm, batch: Batch) -> None:
    """Take a batch as the algorithm's; report one that is not that of the merges before."""
    if algorithm.batch is None:
        algorithm.batch = batch
    elif (algorithm.batch.size, algorithm.batch.meta) != (batch.size, batch.meta):
        context.report(
            "E502",
            "all merges of a rule share one batch size",
            batch.span,
            label="another batch size",
            expected="the batch size of the first merge",
            notes=(Note(message="first merge", span=algorithm.batch.span),),
            help="a batch has one size; keep it in a name or a meta and use that in each merge",
        )


def batch_of(context: Context, argument: Argument) -> Batch | None:
    """How many tuples an argument says that a batch has."""
    match argument.value:
        case AllTuples():
            return Batch(size=None, span=argument.span)
        case Operation(op=Op.META, value=float(default)) as meta:
            if default == int(default) and 1 <= default <= 1 << 24:
                return Batch(size=int(default), meta=meta, span=argument.span)
            context.report(
                "E302",
                "the batch size does not fit",
                argument.span,
                label=f"the meta's value is {default:g}",
                expected="a meta that holds a whole number, at least 1",
                found=f"{default:g}",
            )
            return None
    size = to_whole(context, argument.value, argument.span, what="the batch size", at_least=1, at_most=MAX_EXTENT)
    name = argument.value.name if isinstance(argument.value, Constant) else None
    return None if size is None else Batch(size=size, name=name, span=argument.span)


def _merge_sign(context: Context, argument: Argument) -> str | None:
    if isinstance(argument.value, Poison):
        return None
    if isinstance(argument.value, Text) and argument.value.text in MERGE_SIGNS:
        return MERGE_SIGNS[argument.value.text]
    context.report(
        "E309",
        "the merge operation does not fit",
        argument.span,
        expected=" or ".join(f'"{sign}"' for sign in MERGE_SIGNS),
        found=describe(argument.value),
        help='"+" sums over the batch, "mean" divides by its tuples',
    )
    return None


def _set_model(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> None:
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


def _add_rows(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> None:
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
        batch, found = batch_of(context, bound["batch"]), _merge_sign(context, bound["op"])
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
    pairs = _pairs(context, bound["rows"], bound["value"])
    for rows, value in pairs or []:
        target = rows.value
        if isinstance(target, Operation) and target.op is Op.GATHER and target.operands[0].table:
            add_row(context, algorithm, target, value, span, batch=batch, mean=sign == "mean")
            continue
        if isinstance(target, Operation) and target.table:
            report_whole(context, target, rows.span)
        elif not isinstance(target, Poison):
            context.report(
                "E506",
                "addRows adds to rows of a table",
                rows.span,
                label="this is none",
                expected="a row such as U[i], or rows U[c], of U = dana.table(…)",
                found=describe(target),
                help="the rows come first, then what is added to them; a model changes by setModel",
            )
        algorithm.complete = False
    if pairs is None:
        algorithm.complete = False


def add_row(
    context: Context,
    algorithm: Algorithm,
    target: Operation,
    argument: Argument,
    span: Span,
    *,
    batch: Batch | None = None,
    mean: bool = False,
) -> None:
    """Say what is added to the row of a table that a GATHER reads: behind each tuple, or behind a batch."""
    if batch is not None:
        keep_batch(context, algorithm, batch)
    update = _update(context, target, argument, span)
    if update is None:
        algorithm.complete = False
        return
    value = update.value
    if mean and not value.of_batch:
        value = context.program.add(Op.MUL, (value, share(context, algorithm, span)), value.shape, span)
    algorithm.updates.append(replace(update, value=value, adds=True, at_once=batch is None))


def _row_each(context: Context, argument: Argument, count: int) -> list[Argument] | None:
    """Return a new value for each of the rows that a list has, from a list or a value whose first axis counts them."""
    value = argument.value
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
            expected=f"a list of {count} values, or a value whose first axis has {count} elements",
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
        fits = broadcast(value.shape, target.shape) == target.shape
    except ShapeMismatch:
        fits = False
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
    return CheckedUpdate(model=model, value=value, index=index, at_once=model.table, span=span)


def _shape_help(kind: str, value: Operation, target: Operation) -> str:
    if len(value.shape) > len(target.shape):
        return f"reduce an axis with dana.sigma, or declare the {kind} with this shape"
    return f"declare the {kind} with this shape, or compute a value of the {kind}'s shape"


def _target(context: Context, algorithm: Algorithm, arguments: list[Argument], span: Span) -> Operation | None:
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


def _set_scalar(context: Context, algorithm: Algorithm, name: str, argument: Argument, span: Span) -> None:
    value = to_value(context, argument.value, argument.span)
    if value is None:
        algorithm.complete = False
        return
    taken, advice = "a scalar", "reduce it with dana.sigma or dana.norm"
    classes = next((member.classes for member in algorithm.members if member.classes is not None), None)
    if name != "setPrediction":
        fits = value.shape == ()
    elif classes is None:
        taken, fits = "a scalar or a vector", len(value.shape) <= 1
    else:
        # one number tells two classes apart; of a dim `bind` judges
        scalar = isinstance(classes, DimExpr) or classes == 2
        taken = f"{'a scalar, or ' if scalar else ''}a vector {shape_text((classes,))}"
        fits = value.shape == (classes,) or (scalar and value.shape == ())
        advice = NUMBER_OF_EACH_CLASS
    if not fits:
        found = "a scalar" if value.shape == () else f"shape {shape_text(value.shape)}"
        context.report(
            "E407", f"{name} takes {taken}", argument.span, label=found, expected=taken, found=found, help=advice
        )
    if name in algorithm.settings:
        _report_again(context, name, span, algorithm.settings[name][1])
        return
    algorithm.settings[name] = (value, argument.span)


def _set_epochs(context: Context, algorithm: Algorithm, argument: Argument, span: Span) -> None:
    epochs = to_whole(
        context, argument.value, argument.span, what="the number of epochs", at_least=1, at_most=MAX_EPOCHS
    )
    if epochs is None:
        return
    if algorithm.epochs is not None:
        _report_again(context, "setEpochs", span, algorithm.epochs[1])
        return
    algorithm.epochs = (epochs, argument.span)


def _report_again(context: Context, name: str, span: Span, first: Span) -> None:
    context.report(
        "E507",
        f"{name} is called twice",
        span,
        label="again here",
        expected=f"{name} once",
        notes=(Note(message="first here", span=first),),
        help="keep one of the two",
    )
