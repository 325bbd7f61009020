"""Values that a rule finds without declaring them: whether it trains, and what the training has come to.

In: the name of one. Out: a value; the states that count for it are made with the first that asks. Must not:
know what a rule does with them.
"""

from __future__ import annotations

from dsl.hdfg.graph import EachEpoch, Op
from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.ops import ROW_NUMBERS
from dsl.semantics.context import Context
from dsl.semantics.objects import GIVEN_WORDS
from dsl.semantics.program import CheckedUpdate, Operation
from dsl.source import Span

ROW = "row"
"""The state that has the number of a batch's first tuple."""

STATES = {
    "epoch": (Init(), EachEpoch.COUNT),
    "batch": (Init(), EachEpoch.RESET),
    "rows": (Init(kind=InitKind.ROWS, first=1.0), None),
    ROW: (Init(), EachEpoch.RESET),
}
"""By what follows "dana." in its name: how it begins, and what the end of an epoch makes of it."""

GIVEN = tuple(GIVEN_WORDS)


def given(context: Context, name: str, span: Span) -> Operation:
    """Return `dana.<name>`."""
    if name == "training":
        return context.program.given(Op.TRAINING, span)
    fresh = name not in context.given
    state = _state(context, name, span)
    # once for the rule: a second use reads the same state, which must grow by 1 a batch
    if fresh and name == "batch":
        program = context.program
        value = program.add(Op.ADD, (state, program.constant(1, span)), (), span)
        context.state_updates.append(CheckedUpdate(model=state, value=value, index=None, span=span))
    return state


def row_number(context: Context, span: Span) -> Operation:
    """Return the number of the tuple in its epoch, modulo `ROW_NUMBERS`; what a batch adds to it is settled last."""
    number = context.program.given(Op.ROW, span)
    # both are below 2**23, so that their sum is exact in binary32
    total = context.program.add(Op.ADD, (_state(context, ROW, span), number), (), span)
    return _wrapped(context, total, span)


def count_rows(context: Context) -> None:
    """Let the number of a batch's first tuple grow by a batch, now that the rule has said its size."""
    state = context.given.get(ROW)
    batch = None if context.algorithm is None else context.algorithm.batch
    if state is None or (batch is not None and batch.size is None):
        return  # a batch of the whole table begins with its first tuple
    program, span = context.program, state.span
    if batch is None or batch.meta is None:
        size = program.constant((1 if batch is None else batch.size or 0) % ROW_NUMBERS, span)
    else:
        size = _wrapped(context, batch.meta, span)
    value = _wrapped(context, program.add(Op.ADD, (state, size), (), span), span)
    context.state_updates.append(CheckedUpdate(model=state, value=value, index=None, span=span))


def _wrapped(context: Context, value: Operation, span: Span) -> Operation:
    """A whole number below twice `ROW_NUMBERS`, modulo that."""
    program = context.program
    most = program.constant(ROW_NUMBERS, span)
    over = program.add(Op.MUL, (program.add(Op.GE, (value, most), (), span), most), (), span)
    return program.add(Op.SUB, (value, over), (), span)


def _state(context: Context, name: str, span: Span) -> Operation:
    if name not in context.given:
        init, each_epoch = STATES[name]
        # no rule can declare a name with a dot
        state = context.program.leaf(Op.MODEL, f"dana.{name}", (), span, init=init, each_epoch=each_epoch)
        context.states.append(state)
        context.given[name] = state
    return context.given[name]
