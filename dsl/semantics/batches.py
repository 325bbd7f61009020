"""Batches: how many tuples they have, and what is merged over them.

In: arguments of the algo's methods. Out: the batch, or values merged over it. Must not: say what a model
becomes; `updates` does.
"""

from __future__ import annotations

from dsl.diagnostics import Note
from dsl.hdfg.graph import Op
from dsl.limits import MAX_EXTENT
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import to_whole
from dsl.semantics.context import Context
from dsl.semantics.objects import Algorithm, AllTuples, Constant, Poison, Text, describe
from dsl.semantics.program import Batch, Operation
from dsl.source import Span

MERGE_SIGNS = {"+": "add", "*": "mul", "max": "max", "min": "min", "mean": "mean"}


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
    # metas are compared as such: two of one default may differ in a training
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
            # binary32 holds whole numbers up to 2**24, and a meta is a binary32 number
            if 1 <= default <= 1 << 24 and default == int(default):
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


def merge_sign(context: Context, argument: Argument) -> str | None:
    """The operation that an argument names."""
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
