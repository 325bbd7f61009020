"""Reductions along an axis: the language's fold as row steps and lane steps.

In: a value. Out: operations that leave its reduction along one axis. The order of the additions is the language's: with
h the largest power of two below n, element i takes in element i + h, then n becomes h.

Along an axis whose elements lie in rows of their own, a step adds rows to rows. Along a packed last axis a step with h
of at least a row's lanes does so, too; the steps within a row exchange lanes, and the result is in every lane. A single
row's missing lanes, and those of the last row that is taken in, are the operation's identity.
Row steps run in place where the value may be overwritten; else the first writes to rows of its own, and the second
takes the elements that the first left alone from where they are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from dana.compiler.layout import Form
from dana.compiler.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section, Source


def fold(
    emitter: Emitter, section: Section, op: Opcode, value: Value, axis: int, *, in_place: bool, name: str
) -> Value:
    """Reduce one axis, counted from 0."""
    lanes = emitter.lanes if value.form is Form.PACKED and axis == len(value.shape) - 1 else 1
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    n = value.shape[axis]
    if n == lanes == 1:
        return replace(value, shape=shape, owned=in_place)
    form = value.form if lanes == 1 else Form.SPREAD
    result = emitter.temporary(name, shape, form, per_tuple=value.stride > 0, kept=value.kept)
    rows = emitter.row_shape(value)
    before, after = rows[:axis], rows[axis + 1 :]
    last = emitter.view(result, (*before, *after))
    last = replace(last, steps=(*last.steps[: axis + 1], 0, *last.steps[axis + 1 :]))
    source = target = emitter.view(value, rows)
    pieces = [(0, rows[axis], source)]
    while n > lanes:
        half = 1 << (n - 1).bit_length() - 1
        first, second = half // lanes, -(-(n - half) // lanes)
        if n == 2:  # rows only: this is the result
            target = last
        elif not in_place and target is source:
            # the second step reaches all of the first half; its rows fit as well
            room = max(second, half // 2 // lanes, 1)
            target = emitter.room(name, (*before, room, *after), per_tuple=value.stride > 0)
        tail = (n - half) % lanes
        for start, stop, left, right in _split(pieces, second, first, axis + 1):
            cut = tail if stop == second else 0
            emitter.nest(
                section,
                op,
                (emitter.instances(value), *before, stop - start, *after),
                target.moved(axis + 1, start),
                left,
                right,
                inner=axis + 1 if cut else None,
                tail_b=cut > 0,
                tail=cut,
            )
        pieces = [(0, first, target)] if target is source else [(0, second, target), *_rest(pieces, second, first)]
        n = half
    if lanes > 1:
        _fold_lanes(emitter, section, op, pieces[0][2], (emitter.instances(value), *before, 1), last, n)
    return result


Piece = tuple[int, int, View]


def _split(pieces: list[Piece], count: int, distance: int, loop: int) -> list[tuple[int, int, View, View]]:
    """Cut rows 0 … count - 1 where the row itself or the one at `distance` changes its place."""
    cuts = {0, count}
    for start, stop, _ in pieces:
        cuts |= {cut for cut in (start, stop, start - distance, stop - distance) if 0 < cut < count}
    edges = sorted(cuts)
    return [
        (low, high, _at(pieces, low).moved(loop, low), _at(pieces, low + distance).moved(loop, low + distance))
        for low, high in pairwise(edges)
    ]


def _at(pieces: list[Piece], row: int) -> View:
    return next(view for start, stop, view in pieces if start <= row < stop)


def _rest(pieces: list[Piece], start: int, stop: int) -> list[Piece]:
    """The pieces from row `start` to row `stop`."""
    cut = [(max(low, start), min(high, stop), view) for low, high, view in pieces]
    return [piece for piece in cut if piece[0] < piece[1]]


def _fold_lanes(
    emitter: Emitter, section: Section, op: Opcode, source: View, extents: tuple[int, ...], result: View, n: int
) -> None:
    """Reduce single rows of n elements by lane exchanges; the last of `extents` runs once."""
    tail = n if n < emitter.lanes else 0
    for distance in reversed(range((emitter.lanes - 1).bit_length())):
        emitter.nest(
            section,
            op,
            extents,
            result,
            source,
            source,
            inner=len(extents) - 1 if tail else None,
            source=Source.LANE_XOR,
            distance=distance,
            tail_a=tail > 0,
            tail_b=tail > 0,
            tail=tail,
        )
        source, tail = result, 0
