"""Reductions along a vector: the language's fold as row steps and lane steps.

In: a value of n elements. Out: operations that leave its reduction in every lane of one row. The order of the additions
is the language's: with h the largest power of two below n, element i takes in element i + h, then n becomes h.

A step with h of at least a row's lanes adds rows to rows. It runs in place where the value may be overwritten; else it
writes to rows of its own, and the second step takes the elements that the first left alone from where they are.
The steps within a row exchange lanes. A single row's missing lanes, and those of the last row that is taken in, are
the operation's identity.
"""

from __future__ import annotations

from itertools import pairwise

from dana.compiler.ops import Access
from dana.compiler.values import Emitter, Value
from hwgen.spec.engine import Opcode, Section, Source


def fold(emitter: Emitter, section: Section, op: Opcode, value: Value, *, in_place: bool, name: str) -> Value:
    """Reduce a vector; returns the scalar."""
    (n,) = value.shape
    lanes = emitter.lanes
    pieces = [(0, emitter.rows(value.shape), value)]
    target = value
    while n > lanes:
        half = 1 << (n - 1).bit_length() - 1
        taken = n - half
        if not in_place and target is value:
            # the second step reaches all of the first half; its rows fit as well
            rows = max(-(-taken // lanes), half // 2 // lanes, 1)
            target = emitter.temporary(name, (rows * lanes,), per_tuple=value.stride > 0)
        first, second = half // lanes, -(-taken // lanes)
        for start, stop, left, right in _split(pieces, second, first):
            last = stop == second
            tail = taken % lanes if last else 0
            emitter.emit(
                section,
                op,
                emitter.operand(target, row=start),
                emitter.operand(left, row=start),
                emitter.operand(right, row=start + first),
                inner=stop - start,
                outer=emitter.instances(target),
                tail_b=tail > 0,
                tail=tail,
            )
        pieces = [(0, first, target)] if target is value else [(0, second, target), *_rest(pieces, second, first)]
        n = half
    return _fold_row(emitter, section, op, pieces[0][2], n, name=name)


Piece = tuple[int, int, Value]


def _split(pieces: list[Piece], count: int, distance: int) -> list[tuple[int, int, Value, Value]]:
    """Cut rows 0 … count - 1 where the row itself or the one at `distance` changes its place."""
    cuts = {0, count}
    for start, stop, _ in pieces:
        cuts |= {cut for cut in (start, stop, start - distance, stop - distance) if 0 < cut < count}
    edges = sorted(cuts)
    return [(low, high, _at(pieces, low), _at(pieces, low + distance)) for low, high in pairwise(edges)]


def _at(pieces: list[Piece], row: int) -> Value:
    return next(value for start, stop, value in pieces if start <= row < stop)


def _rest(pieces: list[Piece], start: int, stop: int) -> list[Piece]:
    """The pieces from row `start` to row `stop`."""
    cut = [(max(low, start), min(high, stop), value) for low, high, value in pieces]
    return [piece for piece in cut if piece[0] < piece[1]]


def _fold_row(emitter: Emitter, section: Section, op: Opcode, value: Value, n: int, *, name: str) -> Value:
    """Reduce one row of n elements by lane exchanges."""
    result = emitter.temporary(name, (), per_tuple=value.stride > 0)
    source = Access(buffer=value.buffer, base=value.base, outer=value.stride)
    tail = n if n < emitter.lanes else 0
    for distance in reversed(range((emitter.lanes - 1).bit_length())):
        emitter.emit(
            section,
            op,
            emitter.operand(result),
            source,
            outer=emitter.instances(result),
            source=Source.LANE_XOR,
            distance=distance,
            tail_a=tail > 0,
            tail=tail,
        )
        source, tail = emitter.operand(result), 0
    return result
