"""Shards of a value, a share of its rows in each thread.

In: a value that all threads hold alike and room for a shard of it, or a shard and room for the whole. Out: operations
that fill the room.

A value is cut as `merge.py` cuts what it merges: of n chunks a thread keeps the first half if bit 0 of its number is
clear, else the second, of that half one by bit 1, and so on. Halves of an odd number share the chunk in the middle, so
that every word has been written. Joining reverses this: both threads of a pair end with the words of the thread with
the bit clear, then those of the one with the bit set.
"""

from dataclasses import replace
from itertools import pairwise

from dana.compiler.place.shards import shares
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section


def halves(chunks: int, threads: int) -> list[tuple[int, int, int]]:
    """(distance, chunks of two threads together, chunks of one) of the steps that a cut takes."""
    steps = enumerate(pairwise(shares(chunks, threads)))
    return [(distance, both, one) for distance, (both, one) in steps if both > 1]


def cut(emitter: Emitter, section: Section, value: Value, room: Value) -> None:
    """Fill `room` with each thread's shard of a whole value."""
    vectors, chunks, chunk = emitter.parts(room)
    here = View(value.buffer, value.base, (0, chunks * chunk, 1))
    steps = halves(chunks, emitter.threads)
    for distance, both, one in steps:
        # the last step writes the shard, the first rows of its own, since the whole value is still read
        if (distance, both, one) == steps[-1]:
            target = View(room.buffer, room.base, (0, one * chunk, 1))
        elif distance:
            target = here
        else:
            own = emitter.room(room.buffer.name, (vectors, one * chunk), per_tuple=False)
            target = replace(own, steps=(0, one * chunk, 1))
        upper = here.moved(2, (both - one) * chunk)
        emitter.nest(section, Opcode.LOW, (1, vectors, one * chunk), target, here, upper, thread=distance)
        here = target


def join(emitter: Emitter, section: Section, value: Value, room: Value) -> None:
    """Fill `room` with the whole value that each thread has a shard of."""
    vectors, chunks, chunk = emitter.parts(value)
    here = View(value.buffer, value.base, (0, emitter.rows(value) // vectors, 1))
    there = View(room.buffer, room.base, (0, chunks * chunk, 1))
    for distance, both, one in reversed(halves(chunks, emitter.threads)):
        lower, upper = (1, vectors, one * chunk), (1, vectors, (both - one) * chunk)
        high = here.moved(2, (2 * one - both) * chunk)
        # the upper half first: from the second step on the lower one is written over what both come from
        emitter.nest(section, Opcode.HIGH, upper, there.moved(2, one * chunk), high, high, thread=distance)
        emitter.nest(section, Opcode.LOW, lower, there, here, here, thread=distance)
        here = there
