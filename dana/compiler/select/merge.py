"""Merges over the tuples of a batch: the adjacent-pair tree, over a thread's tuples, over threads, over rounds.

In: a value for each tuple of the group. Out: operations that leave the merge of the round in the merge block, in every
thread, or a shard of it in each; and the sections that join the blocks of several rounds. Tuples that the round does
not have are the operation's identity from the first step on.

Of tuples that lie over lanes, adjacent ones are partners in the first exchanges. Rows cross there, which leaves half of
them, until lanes hold what is left of rows and are merged in the order of these. No mask counts lanes, so the identity
is put into those of tuples that the round does not have, which are known from the number of a thread's tuples.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dana.compiler.place.rows import Form
from dana.compiler.place.shards import shares
from dana.compiler.select.ops import Buffer
from dana.compiler.select.store import Store
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Mask, Opcode, Section


class Present:
    """Which tuples of a round a thread has, found once for all that is merged over lanes."""

    def __init__(self, emitter: Emitter, store: Store, *, needed: bool) -> None:
        self._emitter = emitter
        self._store = store
        self._needed = needed
        self._count: Value | None = None
        self._absent: Value | None = None

    def counts(self, op: Opcode, value: Value) -> bool:
        """Whether a merge of a value is their number, which is found anyhow."""
        return self._needed and op is Opcode.ADD and value.buffer is self._store.literal(1.0).buffer

    def count(self) -> Value:
        """The number of these tuples."""
        if self._count is None:
            self._count = self._emitter.temporary("count", (), Form.BROADCAST, per_tuple=False)
            one = self._store.literal(1.0)
            _merge_rows(self._emitter, Opcode.ADD, one, self._count, in_place=False, name="count")
        return self._count

    def only(self, op: Opcode, value: Value) -> None:
        """Write the operation's identity into the lanes of tuples that are not there, which nothing else reads."""
        emitter = self._emitter
        if self._absent is None:
            # a thread has the first of the tuples that it may have
            self._absent = emitter.temporary("absent", (), Form.PACKED, per_tuple=True)
            numbers = self._store.range(emitter.group, Form.PACKED)
            emitter.elementwise(Section.TUPLE, Opcode.LE, self._absent, self.count(), numbers)
        emitter.elementwise(Section.TUPLE, Opcode.MOVC, value, self._store.identity(op), self._absent)


def merge_round(emitter: Emitter, op: Opcode, value: Value, block: Value, *, in_place: bool, present: Present) -> None:
    """Merge the tuples of a round into `block`; at the end of `tuple`."""
    rows, threads, group = emitter.rows(value), emitter.threads, emitter.group
    vectors, chunks, chunk = emitter.parts(block)
    name = block.buffer.name
    if group == 1 and threads == 1:  # every round has its one tuple
        emitter.elementwise(Section.TUPLE, Opcode.MOV, block, value)
        return
    # where threads follow, they write the block
    last = block if threads == 1 else None
    here, mask, mine = View(value.buffer, value.base, (0, 1)), Mask.NONE, True
    if value.form is Form.PACKED and not block.shape:
        present.only(op, value)
        here = _merge_lanes(emitter, op, value, last, in_place=in_place)
    elif present.counts(op, value):
        here, mine = View(present.count().buffer, 0, (0, 1)), False
        if last is not None:
            emitter.elementwise(Section.TUPLE, Opcode.MOV, last, present.count())
    elif group > 1:
        here = _merge_rows(emitter, op, value, last, in_place=in_place, name=name)
    else:  # the round may be short: the mask reads the identity for tuples that it does not have
        mask, mine = Mask.SINGLE, in_place
    step = op
    if vectors > 1 and mask is Mask.SINGLE:
        # the outer loop counts masked tuples, so it cannot also count vectors with crossed halves: the first two
        # threads merge all rows, and take their halves of the result
        target = here if mine else replace(emitter.room(name, (rows,), per_tuple=False), steps=(0, 1))
        emitter.nest(Section.TUPLE, op, (1, rows), target, here, here, outer=0, thread=0, mask=mask)
        here, step, mask, mine = target, Opcode.LOW, Mask.NONE, True
    # threads that want a shard cross halves: each goes on with the half that it is to hold
    here = replace(here, steps=(0, chunks * chunk, 1))
    for distance, (both, one) in enumerate(pairwise(shares(chunks, threads))):
        if 2 << distance == threads:
            target = View(block.buffer, block.base, (0, one * chunk, 1))
        elif mine:
            target = here
        else:
            target = replace(emitter.room(name, (vectors, one * chunk), per_tuple=False), steps=(0, one * chunk, 1))
        extents, upper = (1, vectors, one * chunk), here.moved(2, (both - one) * chunk)
        outer = None if mask is Mask.NONE else 0
        emitter.nest(Section.TUPLE, step, extents, target, here, upper, outer=outer, thread=distance, mask=mask)
        here, step, mask, mine = target, op, Mask.NONE, True


def _merge_rows(emitter: Emitter, op: Opcode, value: Value, last: Value | None, *, in_place: bool, name: str) -> View:
    """Merge a thread's tuples that lie in rows, into `last` if given; returns where the result lies."""
    rows, count, mask, mine = emitter.rows(value), emitter.group, Mask.PAIR, in_place and value.stride > 0
    here = View(value.buffer, value.base, (value.stride, 1))
    while count > 1:
        count //= 2
        # the steps before the last overwrite rows that nothing else reads
        if count == 1 and last is not None:
            target = View(last.buffer, last.base, (0, 1))
        else:
            target = here if mine else emitter.room(name, (count, rows), per_tuple=False)
            target = replace(target, steps=(rows, 1))
        # adjacent pairs, as the language merges: tuple 2i with tuple 2i + 1
        pairs = (2 * here.steps[0], 1)
        left, right = replace(here, steps=pairs), replace(here.moved(0, 1), steps=pairs)
        emitter.nest(Section.TUPLE, op, (count, rows), target, left, right, outer=0, mask=mask)
        here, mask, mine = target, Mask.NONE, True
    return here


def _merge_lanes(emitter: Emitter, op: Opcode, value: Value, last: Value | None, *, in_place: bool) -> View:
    """Merge a thread's tuples that lie over lanes, into `last` if given; returns where the result lies."""
    source, rows = View(value.buffer, value.base, (0, 1)), emitter.rows(value)
    room = source if in_place else emitter.room(value.buffer.name, (max(rows // 2, 1),), per_tuple=False)
    here = replace(room, steps=(0, 1))
    steps: list[tuple[int, View, View, int | None]] = []
    crossed: list[int] = []
    for bit in range((emitter.lanes - 1).bit_length()):
        own = here if steps else source
        upper = own
        if rows > 1:
            # row k crosses with the one half of them behind: lanes with the bit set go on with the latter's tuples
            rows //= 2
            upper = own.moved(1, rows)
            crossed.append(bit)
        steps.append((rows, own, upper, bit))
    # rows that are left are neighbours; then come those that crossed last, which lay nearest
    while rows > 1:
        rows //= 2
        steps.append((rows, replace(here, steps=(0, 2)), replace(here.moved(1, 1), steps=(0, 2)), None))
    steps += [(1, here, here, bit) for bit in reversed(crossed)]
    end = here if last is None else View(last.buffer, last.base, (0, 1))
    for left, (count, a, b, lane) in zip(reversed(range(len(steps))), steps, strict=True):
        emitter.nest(Section.TUPLE, op, (1, count), here if left else end, a, b, lane=lane)
    return end


def merge_levels(emitter: Emitter, block: Buffer, stack: Buffer, parts: Sequence[tuple[Opcode, int, int]]) -> None:
    """Sections `merge` and `push`, for batches of several rounds.

    `parts`: (operation, first row, rows) of the block's parts.
    """
    for op, first, rows in parts:
        here, there = View(block, first, (0, 1)), View(stack, first, (0, 1), level=True)
        emitter.nest(Section.MERGE, op, (1, rows), here, there, here)
    here, there = View(block, 0, (0, 1)), View(stack, 0, (0, 1), level=True)
    emitter.nest(Section.PUSH, Opcode.MOV, (1, block.rows), there, here)
