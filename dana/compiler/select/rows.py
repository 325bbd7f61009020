"""The number of each tuple in its batch, which no column brings.

In: a target, room for values. Out: the numbers, and operations that make them: tuple g of a thread's share of a round
is number `thread * group + g` of the round. A thread learns its own number once an epoch, a bit from each exchange: of
two rows with other words it ends with the one that its bit chooses. Where a batch has several rounds, what the rounds
before it had is added in each.
"""

from __future__ import annotations

from dataclasses import replace

from dana.compiler.place.rows import Form
from dana.compiler.place.sections import Plan
from dana.compiler.select.ops import Home
from dana.compiler.select.store import Store
from dana.compiler.select.values import Emitter, Value
from dsl.hdfg.ops import ROW_NUMBERS
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.engine import Opcode, Section


def number_tuples(emitter: Emitter, store: Store, plan: Plan, *, several: bool) -> Value:
    """The tuples' numbers, modulo `ROW_NUMBERS`; `several` says that batches may have several rounds."""
    if plan.single:
        return store.literal(0.0)
    numbers = _of_round(emitter, store, threads=1 if plan.alone else emitter.threads)
    if not several:
        return numbers
    before, count = store.lasting("rounds"), store.literal(float(emitter.threads * emitter.group))
    for section in (Section.INIT, Section.BATCH):
        # at the start of an epoch, and after each batch
        emitter.elementwise(section, Opcode.MOV, before, store.literal(0.0))
    current = emitter.temporary("row", (), Form.BROADCAST, per_tuple=True)
    emitter.elementwise(Section.TUPLE, Opcode.ADD, current, numbers, before)
    emitter.elementwise(Section.TUPLE, Opcode.ADD, before, before, count)
    # `before` stays below 2**24, where whole numbers are exact
    if plan.batch == WHOLE_EPOCH or plan.batch > ROW_NUMBERS:
        # rounds have a power of two of tuples, so that one of them begins with number 0 again
        most, over = store.literal(float(ROW_NUMBERS)), emitter.temporary("over", (), Form.BROADCAST, per_tuple=False)
        emitter.elementwise(Section.TUPLE, Opcode.GE, over, before, most)
        emitter.elementwise(Section.TUPLE, Opcode.MUL, over, over, most)
        emitter.elementwise(Section.TUPLE, Opcode.SUB, before, before, over)
    return replace(current, owned=False)


def _of_round(emitter: Emitter, store: Store, *, threads: int) -> Value:
    """The numbers in a round."""
    group = emitter.group
    own = store.counted(group) if group > 1 else store.literal(0.0)
    if threads == 1:
        return own
    first = store.lasting("thread")
    for distance in range(threads.bit_length() - 1):
        bit = first if not distance else emitter.temporary("bit", (), Form.BROADCAST, per_tuple=False)
        clear, set_ = (emitter.view(store.literal(float(one)), ()) for one in (0, group << distance))
        emitter.nest(Section.INIT, Opcode.LOW, (1,), emitter.view(bit, ()), clear, set_, thread=distance)
        if distance:
            emitter.elementwise(Section.INIT, Opcode.ADD, first, first, bit)
    if group == 1:
        return first
    room = emitter.placed("number", Home.STATE, (group,), Form.BROADCAST)
    store.state.append(room.buffer)
    numbers = replace(room, shape=(), stride=1)
    emitter.elementwise(Section.INIT, Opcode.ADD, numbers, own, first)
    return numbers
