"""Merges over the tuples of a batch: the adjacent-pair tree, over a thread's tuples, over threads, over rounds.

In: a value for each tuple of the group. Out: operations that leave the merge of the round in the merge block, in every
thread, or a shard of it in each; and the sections that join the blocks of several rounds. Tuples that the round does
not have are the operation's identity from the first step on.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dana.compiler.place.shards import shares
from dana.compiler.select.ops import Buffer
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Mask, Opcode, Section


def merge_round(emitter: Emitter, op: Opcode, value: Value, block: Value, *, in_place: bool) -> None:
    """Merge the tuples of a round into `block`; at the end of `tuple`."""
    rows, threads, group = emitter.rows(value), emitter.threads, emitter.group
    vectors, chunks, chunk = emitter.parts(block)
    name = block.buffer.name
    if group == 1 and threads == 1:  # every round has its one tuple
        emitter.elementwise(Section.TUPLE, Opcode.MOV, block, value)
        return
    # the round may be short: PAIR and SINGLE read the identity for tuples that it does not have
    mask = Mask.PAIR if group > 1 else Mask.SINGLE
    here = View(value.buffer, value.base, (value.stride, 1))
    count, mine = group, in_place and value.stride > 0
    last = View(block.buffer, block.base, (0, 1))
    while count > 1:
        count //= 2
        # the last step writes the block; the steps before it overwrite rows that nothing else reads
        if count == 1 and threads == 1:
            target = last
        else:
            target = here if mine else emitter.room(name, (count, rows), per_tuple=False)
            target = replace(target, steps=(rows, 1))
        # adjacent pairs, as the language merges: tuple 2i with tuple 2i + 1
        pairs = (2 * here.steps[0], 1)
        left, right = replace(here, steps=pairs), replace(here.moved(0, 1), steps=pairs)
        emitter.nest(Section.TUPLE, op, (count, rows), target, left, right, outer=0, mask=mask)
        here, mask, mine = target, Mask.NONE, True
    mine = mine or (in_place and group == 1)
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


def merge_levels(emitter: Emitter, block: Buffer, stack: Buffer, parts: Sequence[tuple[Opcode, int, int]]) -> None:
    """Sections `merge` and `push`, for batches of several rounds.

    `parts`: (operation, first row, rows) of the block's parts.
    """
    for op, first, rows in parts:
        here, there = View(block, first, (0, 1)), View(stack, first, (0, 1), level=True)
        emitter.nest(Section.MERGE, op, (1, rows), here, there, here)
    here, there = View(block, 0, (0, 1)), View(stack, 0, (0, 1), level=True)
    emitter.nest(Section.PUSH, Opcode.MOV, (1, block.rows), there, here)
