"""Warnings for legal code that is almost certainly a mistake.

In: a checked rule. Out: warnings, which stop nothing. Must not: warn of code that is merely unusual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsl.diagnostics import Note
from dsl.hdfg.graph import COMPARISONS, FROM_ROW, PER_TUPLE, Op
from dsl.hdfg.init import OF_TABLE
from dsl.semantics.context import Context
from dsl.semantics.finish import roots
from dsl.semantics.program import Checked, Operation, reachable
from dsl.semantics.ranges import Range, range_of, range_text


def warn(context: Context, checked: Checked) -> None:
    """Add the warnings about a rule."""
    _unused(context, checked)
    _scaled_twice(context, checked)
    _settled_test(context, checked)
    _without_model(context, checked)
    _alone(context, checked)


@dataclass(frozen=True, slots=True)
class _Mean:
    """How often a product was divided by the batch size, and how many merged values are its factors."""

    merges: int = 0
    divisions: int = 0
    last: Operation | None = None

    def __mul__(self, other: _Mean) -> _Mean:
        return _Mean(self.merges + other.merges, self.divisions + other.divisions, self.last or other.last)


def _scaled_twice(context: Context, checked: Checked) -> None:
    """Warn of a product that is divided by the batch size more often than it has merged values."""
    if checked.batch is None:
        return
    found: dict[Operation, _Mean] = {}
    # what depends on it was recorded once more by `finish`, for each phase
    for operation in (one for one in checked.operations if not one.on_training):
        mean = found[operation] = _mean(operation, found, checked)
        before = found[operation.operands[0]].last if operation.op is Op.DIV else None
        if mean.divisions > mean.merges > 0 and mean.last is operation and before is not None:
            context.warn(
                "W706",
                "a merged value is divided by the batch size twice",
                operation.span,
                label="divided again",
                notes=(Note(message="divided by it before", span=before.span),),
                help="a merge sums; one division makes it a mean",
            )


def _mean(operation: Operation, found: Mapping[Operation, _Mean], checked: Checked) -> _Mean:
    match operation.op:
        case Op.MERGE:
            return _Mean(merges=1) * found[operation.operands[0]]
        case Op.NEG:
            return found[operation.operands[0]]
        case Op.MUL if not all(operand.per_tuple for operand in operation.operands):
            # before the merge, what one factor was divided by is its own affair: 1/32 of a pixel, a mean of 32 units
            return found[operation.operands[0]] * found[operation.operands[1]]
        case Op.DIV if _counts_tuples(operation.operands[1]):
            return _Mean(divisions=1, last=operation)
        case Op.DIV:
            mean = found[operation.operands[0]]
            if (mean.merges or operation.per_tuple) and _divides_by_batch_size(operation, checked):
                return replace(mean, divisions=mean.divisions + 1, last=operation)
            return mean
    return _Mean()


def _counts_tuples(operation: Operation) -> bool:
    return operation.op is Op.MERGE and operation.operands[0].op is Op.CONST


def _divides_by_batch_size(operation: Operation, checked: Checked) -> bool:
    # a product with 1 / size is none: 0.01 times a mean over 100 may well be a learning rate
    batch = checked.batch
    dividend, divisor = operation.operands
    if batch is None or dividend.op in FROM_ROW:
        return False
    if batch.meta is not None:
        return divisor is batch.meta
    if dividend.op is Op.SIGMA and dividend.operands[0].shape[dividend.axis or 0] == batch.size:
        return False  # a mean along the axis
    # of two names that hold one number only one is the batch size
    same = checked.divisors.get(operation.id) == batch.name
    return same and divisor.op is Op.CONST and divisor.value == batch.size != 1


def _settled_test(context: Context, checked: Checked) -> None:
    """Warn of a convergence test with a known outcome: its sides' ranges are disjoint, or nothing in it changes."""
    test = checked.convergence
    if test is None:
        return
    if not any(operation.op in CHANGING for operation in reachable([test])):
        context.warn(
            "W707",
            "the convergence test is the same after every epoch",
            test.span,
            label="depends on numbers and metas only",
            help="compare what training changes, as in dana.norm(grad, 1) < 0.01",
        )
        return
    if test.op not in COMPARISONS:
        return
    outcome = _outcome(test.op, *(range_of(operand) for operand in test.operands))
    if outcome is not None:
        shown = " with ".join(range_text(*range_of(operand)) for operand in test.operands)
        context.warn(
            "W707",
            f"the convergence test {'always holds' if outcome else 'can never hold'}",
            test.span,
            label=f"compares {shown}",
            help="compare with a small positive number, as in dana.norm(grad, 1) < 0.01",
        )


CHANGING = PER_TUPLE | {Op.MODEL}


def _outcome(op: Op, left: Range, right: Range) -> bool | None:
    """Whether a comparison of values from two ranges holds; None if that depends on the values."""
    if op in (Op.GT, Op.GE):
        # a > b is b < a; NaN is in no range
        return _outcome(Op.LT if op is Op.GT else Op.LE, right, left)
    if op is Op.EQ:
        return False if left[1] < right[0] or right[1] < left[0] else None
    if op is Op.LT:
        return True if left[1] < right[0] else False if left[0] >= right[1] else None
    return True if left[1] <= right[0] else False if left[0] > right[1] else None


def _alone(context: Context, checked: Checked) -> None:
    """Warn of merged values used within a batch of one row: the mean is the row itself."""
    if checked.batch is None or checked.batch.size != 1:
        return
    again = [one for one in reachable(roots(checked)) if one.per_tuple and one.merged]
    if again:
        context.warn(
            "W714",
            "a value of a batch of one row is used in that row",
            min(again, key=lambda one: one.id).span,
            label="of one row, the mean and the sum are the row itself, and the variance is 0",
            notes=(Note(message="one row is a batch", span=checked.batch.span),),
            help="write a larger batch, such as 64",
        )


def _without_model(context: Context, checked: Checked) -> None:
    """Warn of a loss or a prediction that training cannot change."""
    for what, value in (("loss", checked.loss), ("prediction", checked.prediction)):
        if value is not None and not any(operation.op is Op.MODEL for operation in reachable([value])):
            context.warn(
                "W710",
                f"the {what} depends on no model",
                value.span,
                label="training does not change this",
                help=f"compute the {what} from a model",
            )


def _unused(context: Context, checked: Checked) -> None:
    used = reachable(roots(checked))
    updated = {update.model for update in checked.updates}
    words = {Op.INPUT: "input", Op.OUTPUT: "output", Op.WEIGHT: "weight"}
    for member in checked.inputs:
        if member not in used:
            context.warn(
                "W701",
                f"the {words[member.op]} {member.name} is never used",
                member.span,
                label="declared here",
                help="remove it from dana.algo if the rule does not need it",
            )
    for model in checked.models:
        # what the table or the end of an epoch writes needs no call
        if model not in updated and model.init.kind not in OF_TABLE and model.each_epoch is None:
            kind, call = ("state", "dana.setState") if model in context.states else ("model", "setModel")
            context.warn(
                "W702",
                f"the {kind} {model.name} is never updated",
                model.span,
                label="declared here",
                help=f"it keeps its start values; write {call} for it, or use a dana.meta",
            )
    for update in checked.updates:
        if update.value is update.model:
            context.warn(
                "W711",
                f"the new value of {update.model.name} is {update.model.name} itself",
                update.span,
                label="changes nothing",
                help="pass the value that the model becomes, as in w - lr * grad",
            )
    for operation in checked.operations:
        # what depends on whether the rule trains was recorded again; what a gradient merges is its own affair
        if operation.id in checked.merges and operation not in used and not operation.on_training:
            context.warn("W709", "nothing uses the merged value", operation.span, label="merged here", help="remove it")
    runs = {model.init.runs for model in checked.models}
    for meta in checked.metas:
        if meta not in used and meta.name not in runs and (checked.batch is None or checked.batch.meta is not meta):
            context.warn(
                "W708", f"the meta {meta.name} is never used", meta.span, label="declared here", help="remove it"
            )
