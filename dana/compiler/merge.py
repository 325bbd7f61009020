"""Merges over the tuples of a batch: the adjacent-pair tree, over a thread's tuples, over threads, over rounds.

In: a value for each tuple of the group. Out: operations that leave the merge of the round in the merge block, in every
thread; and the sections that join the blocks of several rounds. Tuples that the round does not have are the operation's
identity from the first step on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dana.compiler.ops import Access, Buffer
from dana.compiler.values import Emitter, Value
from hwgen.spec.engine import Mask, Opcode, Section, Source

CHUNK = 8192
"""Rows of the block that one instruction joins."""


def merge_round(emitter: Emitter, op: Opcode, value: Value, block: Value, *, in_place: bool, name: str) -> None:
    """Merge the tuples of a round into `block`; at the end of `tuple`."""
    rows, threads, group = emitter.rows(value.shape), emitter.threads, emitter.group
    here, stride, count = value, value.stride, group
    mask = Mask.PAIR if group > 1 else Mask.SINGLE
    if group == 1 and threads == 1:  # every round has its one tuple
        emitter.elementwise(Section.TUPLE, Opcode.MOV, block, value)
        return
    while count > 1:
        count //= 2
        if count == 1 and threads == 1:
            target = block
        elif here is value and not (in_place and value.stride):
            target = _room(emitter, value, rows, count, name)
        else:
            target = here
        emitter.emit(
            Section.TUPLE,
            op,
            Access(buffer=target.buffer, base=target.base, inner=1, outer=rows),
            Access(buffer=here.buffer, base=here.base, inner=1, outer=2 * stride),
            Access(buffer=here.buffer, base=here.base + stride, inner=1, outer=2 * stride),
            inner=rows,
            outer=count,
            mask=mask,
        )
        here, stride, mask = target, rows, Mask.NONE
    for distance in range((threads - 1).bit_length()):
        if 2 << distance == threads:
            target = block
        elif here is value and not in_place:
            target = _room(emitter, value, rows, 1, name)
        else:
            target = here
        emitter.emit(
            Section.TUPLE,
            op,
            Access(buffer=target.buffer, base=target.base, inner=1),
            Access(buffer=here.buffer, base=here.base, inner=1),
            inner=rows,
            source=Source.THREAD_XOR,
            distance=distance,
            mask=mask,
        )
        here, mask = target, Mask.NONE


def merge_levels(emitter: Emitter, block: Buffer, stack: Buffer, parts: Sequence[tuple[Opcode, int, int]]) -> None:
    """Sections `merge` and `push`, for batches of several rounds.

    Parameters
    ----------
    parts
        (operation, first row, rows) of the block's parts.
    """
    for op, first, rows in parts:
        for row, inner in _chunks(first, rows):
            here = Access(buffer=block, base=row, inner=1)
            there = Access(buffer=stack, base=row, inner=1, level=True)
            emitter.emit(Section.MERGE, op, here, there, here, inner=inner)
    for row, inner in _chunks(0, block.rows):
        here = Access(buffer=block, base=row, inner=1)
        emitter.emit(Section.PUSH, Opcode.MOV, Access(buffer=stack, base=row, inner=1, level=True), here, inner=inner)


def _chunks(first: int, rows: int) -> list[tuple[int, int]]:
    """(first row, rows) of pieces that an inner loop can count."""
    return [(row, min(CHUNK, first + rows - row)) for row in range(first, first + rows, CHUNK)]


def _room(emitter: Emitter, value: Value, rows: int, count: int, name: str) -> Value:
    shape = (rows * count * emitter.lanes,)
    room = emitter.temporary(name, shape, per_tuple=False)
    return Value(buffer=room.buffer, shape=value.shape, stride=rows, owned=True)
