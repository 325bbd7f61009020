"""Reductions along an axis: the language's fold as row steps and lane steps.

In: a value. Out: operations that leave its reduction along one axis; `lanes.py` counts the rows of the exchanges. The
order of the additions is the language's: with h the largest power of two below n, element i takes in element i + h,
then n becomes h.

Along an axis with elements in rows of their own, a step adds rows to rows. Along a packed last axis a step with h
of at least a row's lanes does so, too; the steps within a row exchange lanes. A single row's missing lanes, and those
of the last row that is taken in, are the operation's identity.

Exchanges of a row with itself leave the result in every lane: broadcast. Where there are several vectors, two of them
can share an exchange, one keeping the lower half of the lanes and the other the upper one. So P vectors become one row
of P results in P - 1 rows of operations, and lie packed, result k in lane k.

Row steps run in place where the value may be overwritten; else the first writes to rows of its own, and the second
takes the elements that the first left alone from where they are.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dana.compiler.place.lanes import blocks
from dana.compiler.place.rows import Form
from dana.compiler.select.split import rest, split
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section

Nest = Callable[..., None]
"""`Emitter.nest` in a section, for an operation."""


def reduce_axis(
    emitter: Emitter, section: Section, op: Opcode, value: Value, axis: int, *, form: Form, in_place: bool, name: str
) -> Value:
    """Reduce one axis, counted from 0.

    Parameters
    ----------
    form
        In which the result is wanted where a packed last axis is reduced and another is left, or a scalar for each
        tuple; else it lies as the value does.
    """
    lanes = emitter.lanes if value.form is Form.PACKED and axis == len(value.shape) - 1 else 1
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    n = value.shape[axis]
    # an axis of one is a view
    if n == lanes == 1:
        return replace(value, shape=shape, owned=in_place)
    if lanes == 1:
        form = value.form
    result = emitter.temporary(name, shape, form, per_tuple=value.stride > 0, grain=value.grain)
    rows = emitter.row_shape(value)
    before, after = rows[:axis], rows[axis + 1 :]
    packing = lanes > 1 and form is Form.PACKED
    last = emitter.view(result, emitter.row_shape(result) if packing else (*before, *after))
    over_tuples = packing and not before
    if over_tuples:  # the tuples take the place of the axis before
        last = replace(last, steps=(0, 1))
    else:
        last = replace(last, steps=(*last.steps[: axis + 1], 0, *last.steps[axis + 1 :]))
    source = target = emitter.view(value, rows)
    pieces = [(0, rows[axis], source)]
    nest = partial(emitter.nest, section, op)
    while n > lanes:
        # the language's order: h, the largest power of two below n; element i takes in element i + h
        half = 1 << (n - 1).bit_length() - 1
        first, second = half // lanes, -(-(n - half) // lanes)
        if n == 2:  # rows only: this is the result
            target = last
        elif over_tuples and half == lanes:
            # side by side, as exchanges go through them in one loop
            target = emitter.room(name, (1,), per_tuple=True)
        elif not in_place and target is source:
            # the second step reaches all of the first half; its rows fit as well
            room = max(second, half // 2 // lanes, 1)
            target = emitter.room(name, (*before, room, *after), per_tuple=value.stride > 0)
        # lanes beyond the last element hold garbage: the machine reads the identity there
        tail = (n - half) % lanes
        for start, stop, left, right in split(pieces, second, first, axis + 1):
            cut = tail if stop == second else 0
            extents, into = (emitter.instances(value), *before, stop - start, *after), target.moved(axis + 1, start)
            nest(extents, into, left, right, inner=axis + 1 if cut else None, tail_b=cut > 0, tail=cut)
        pieces = [(0, first, target)] if target is source else [(0, second, target), *rest(pieces, second, first)]
        n = half
    if lanes > 1:
        here = pieces[0][2]
        outer = (emitter.instances(value), *before)
        tail = n if n < lanes else 0
        if not packing:
            for distance in reversed(range((lanes - 1).bit_length())):  # each row with itself
                _exchange(nest, (*outer, 1), last, here, here, distance, tail)
                here, tail = last, 0
        else:
            mine = in_place or here is not source
            if over_tuples:
                here, outer = replace(here, steps=(0, *here.steps)), (1, *outer)
            fresh = None if mine else partial(emitter.room, name, per_tuple=outer[0] > 1)
            _reduce_crossed(nest, emitter.lanes, here, outer, last, tail, fresh)
    return result


def _reduce_crossed(
    nest: Nest,
    lanes: int,
    source: View,
    extents: tuple[int, ...],
    result: View,
    tail: int,
    room: Callable[[tuple[int, ...]], View] | None,
) -> None:
    """Reduce single rows, those of the last of `extents` to one row for each lanes' worth of them.

    `room` makes some; None: the rows may be overwritten.
    """
    *outer, vectors = extents
    loop = len(outer) + 1
    for first, rows, count in blocks(vectors, lanes):
        here, last = _blocked(source.moved(loop - 1, first * lanes), lanes), result.moved(loop - 1, first)
        last = replace(last, steps=(*last.steps[:loop], 0, 0))
        target = here
        if room is not None:
            target = room((*outer[1:], rows, min(count, lanes // 2)))
            target = replace(target, steps=(*target.steps, 0))
        cut = tail
        for distance in reversed(range((lanes - 1).bit_length())):
            step = 1 << distance
            target = target if distance else last
            pairs = max(count - step, 0)
            alone = min(count, step) - pairs
            for start, some, apart in ((pairs, alone, 0), (0, pairs, step)):  # the last rows are ready last
                left, into = here.moved(loop, start), target.moved(loop, start)
                _exchange(nest, (*outer, rows, some, 1), into, left, left.moved(loop, apart), distance, cut)
            here, count, cut = target, min(count, step), 0


def _blocked(view: View, lanes: int) -> View:
    """The last two loops, vectors and a row of each, as three: rows of lanes of vectors, vectors of a row, a row."""
    *outer, vector, row = view.steps
    return replace(view, steps=(*outer, lanes * vector, vector, row))


def _exchange(nest: Nest, extents: tuple[int, ...], target: View, a: View, b: View, distance: int, tail: int) -> None:
    inner, cut = len(extents) - 1 if tail else None, tail > 0
    nest(extents, target, a, b, inner=inner, lane=distance, tail_a=cut, tail_b=cut, tail=tail)
