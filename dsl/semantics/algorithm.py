"""The rule's `algo` and its methods: merge, setLoss, setPrediction, setConvergence, setEpochs; `updates` has others.

In: bound arguments of a method. Out: the merged value, or the algorithm filled; `dsl.semantics.finish` then
judges it as a whole. Must not: judge what depends on later statements.
"""

from __future__ import annotations

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr, shape_text
from dsl.hdfg.graph import FROM_ROW, Op
from dsl.limits import MAX_EPOCHS
from dsl.semantics.arguments import Argument
from dsl.semantics.batches import batch_of, keep_batch, mean, merge_sign, share
from dsl.semantics.coercion import to_value, to_whole
from dsl.semantics.context import Context
from dsl.semantics.objects import (
    POISON,
    Algorithm,
    Declaration,
    Items,
    Nothing,
    Object,
    Poison,
    describe,
)
from dsl.semantics.program import Operation
from dsl.semantics.updates import Bound, call_add_rows, call_set_model
from dsl.source import Span

NUMBER_OF_EACH_CLASS = (
    "pass a number for each class of dana.output(classes=…), probabilities or scores, as in setPrediction(scores); "
    "dana_classify and dana_predict choose the largest, without an argmax"
)


def declare(context: Context, name: str, declaration: Declaration, span: Span) -> Algorithm:
    """Make the algorithm from the arguments of `dana.algo`; lists among them are spliced in."""
    members: list[Operation] = []
    # an algorithm with a wrong member stays, so that calls of its methods are checked; `complete` keeps `finish` silent
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
            help="only one output, the label, may have classes",
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
    # after another error a missing model may be the one that is wrong
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
    # what the call would have set is unknown: nothing may be reported as missing later
    if any(isinstance(argument.value, Poison) for argument in bound.values()):
        algorithm.complete = False
        return Nothing()
    if name == "setModel":
        call_set_model(context, algorithm, bound, span)
    elif name == "addRows":
        call_add_rows(context, algorithm, bound, span)
    elif name == "setEpochs":
        _set_epochs(context, algorithm, bound["epochs"], span)
    else:
        _set_scalar(context, algorithm, name, next(iter(bound.values())), span)
    return Nothing()


def _merge(context: Context, algorithm: Algorithm, bound: Bound, span: Span) -> Object:
    value = to_value(context, bound["value"].value, bound["value"].span)
    batch = batch_of(context, bound["batch"])
    sign = merge_sign(context, bound["op"])
    # even if the value is wrong, so that later merges are compared with this size
    if batch is not None:
        keep_batch(context, algorithm, batch)
    if value is None or batch is None or sign is None:
        algorithm.complete = False
        return POISON
    if value.id in context.program.parts and sign in ("add", "mean"):
        tuples = share(context, algorithm, span)
        # the parts are those of a mean; their sum is N times as much, and `tuples` is 1 / N
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
    # the merge inside a mean, which must be used as any other
    merge = result.operands[0] if result else context.program.add(Op.MERGE, (value,), value.shape, span, merge_op=sign)
    context.program.merges.add(merge.id)
    return result or merge


def _set_scalar(context: Context, algorithm: Algorithm, name: str, argument: Argument, span: Span) -> None:
    value = to_value(context, argument.value, argument.span)
    if value is None:
        algorithm.complete = False
        return
    taken, advice = "a scalar", "reduce it with dana.sigma or dana.norm"
    classes = algorithm.classes
    if name != "setPrediction":
        fits = value.shape == ()
    elif classes is None:
        taken, fits = "a scalar or a vector", len(value.shape) <= 1
    else:
        # a scalar separates two classes only; if the number of classes is a dim, `bind` checks it
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
    # even if the shape is wrong: else it would be reported as missing, too
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
