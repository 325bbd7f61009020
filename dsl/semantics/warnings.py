"""What is legal and surely not meant.

Comes in: a checked rule. Goes out: warnings, none of which stops anything. Must not: warn of what is merely unusual.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsl.diagnostics import Note
from dsl.hdfg.graph import COMPARISONS, Op
from dsl.semantics.context import Context
from dsl.semantics.finish import reachable, roots
from dsl.semantics.program import Checked, Operation


def warn(context: Context, checked: Checked) -> None:
    """Add the warnings about a rule."""
    _unused(context, checked)
    _scaled_twice(context, checked)
    _settled_test(context, checked)


MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
SCALING = frozenset({Op.MUL, Op.DIV, Op.NEG})
NOT_NEGATIVE = frozenset({Op.SIGMOID, Op.GAUSSIAN, Op.SQRT, Op.EXP, Op.ABS}) | COMPARISONS
KEEP_SIGN = frozenset({Op.SIGMA, Op.PI, Op.MERGE, Op.ADD, Op.MUL, Op.DIV, Op.MIN, Op.EXPAND})


def _scaled_twice(context: Context, checked: Checked) -> None:
    """Warn of a merged value divided by the batch size that was divided by it before the merge, or after it already."""
    if checked.batch is None:
        return
    divisions = [
        operation
        for operation in checked.operations
        if operation.op is Op.DIV and _is_batch_size(operation.operands[1], checked) and operation.merged
    ]
    for division in divisions:
        earlier = next(
            (o for o in _scaled(division.operands[0]) if o.op is Op.DIV and _is_batch_size(o.operands[1], checked)),
            None,
        )
        if earlier is not None:
            context.warn(
                "W706",
                "a merged value is divided by the batch size twice",
                division.span,
                label="divided again",
                notes=(Note(message="divided by it before", span=earlier.span),),
                help="a merge sums; one division makes it a mean",
            )


def _is_batch_size(operation: Operation, checked: Checked) -> bool:
    assert checked.batch is not None
    if checked.batch.meta is not None:
        return operation is checked.batch.meta
    return operation.op is Op.CONST and checked.batch.size not in (None, 1) and operation.value == checked.batch.size


def _scaled(operation: Operation) -> Iterator[Operation]:
    """Yield an operation and those that it is a multiple of, through merges."""
    waiting = [operation]
    seen: set[Operation] = set()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            if current.op in SCALING or current.op is Op.MERGE:
                waiting.extend(current.operands[:1] if current.op is Op.DIV else current.operands)


def _settled_test(context: Context, checked: Checked) -> None:
    """Warn of a convergence test whose outcome is known: a value that cannot be negative against such a bound."""
    test = checked.convergence
    if test is None or test.op not in COMPARISONS or test.op is Op.EQ:
        return
    left, right = test.operands
    op: Op = test.op
    if left.op is Op.CONST:
        left, right = right, left
        op = MIRRORED[op]
    if right.op is not Op.CONST or right.value is None or not _not_negative(left):
        return
    bound = right.value
    if (op is Op.LT and bound <= 0) or (op is Op.LE and bound < 0):
        outcome = "can never hold"
    elif (op is Op.GE and bound <= 0) or (op is Op.GT and bound < 0):
        outcome = "always holds"
    else:
        return
    context.warn(
        "W707",
        f"the convergence test {outcome}",
        test.span,
        label=f"compares a value of at least 0 with {bound:g}",
        help="compare with a small positive number, as in dana.norm(grad, 1) < 0.01",
    )


def _not_negative(operation: Operation) -> bool:
    """Whether a value is surely at least 0 (or a NaN)."""
    if operation.op is Op.CONST:
        return operation.extent is not None or (operation.value or 0.0) >= 0
    if operation.op in NOT_NEGATIVE:
        return True
    if operation.op is Op.MUL and operation.operands[0] is operation.operands[1]:
        return True
    if operation.op is Op.MAX:
        return any(_not_negative(operand) for operand in operation.operands)
    return operation.op in KEEP_SIGN and all(_not_negative(operand) for operand in operation.operands)


def _unused(context: Context, checked: Checked) -> None:
    used = reachable(roots(checked))
    updated = {update.model for update in checked.updates}
    words = {Op.INPUT: "input", Op.OUTPUT: "output"}
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
        if model not in updated:
            kind, call = ("state", "dana.setState") if model in context.states else ("model", "setModel")
            context.warn(
                "W702",
                f"the {kind} {model.name} is never updated",
                model.span,
                label="declared here",
                help=f"it keeps its start values; write {call} for it, or use a dana.meta",
            )
    for operation in checked.operations:
        if operation.op is Op.MERGE and operation not in used:
            context.warn("W709", "nothing uses the merged value", operation.span, label="merged here", help="remove it")
    for meta in checked.metas:
        if meta not in used and (checked.batch is None or checked.batch.meta is not meta):
            context.warn(
                "W708", f"the meta {meta.name} is never used", meta.span, label="declared here", help="remove it"
            )
