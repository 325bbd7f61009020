"""Conversions between the two forms of a value.

In: a value in one form and room for it in the other. Out: operations that fill the room; `lanes.py` counts their rows.

Both use exchanges between lanes, in which a lane chooses by a bit of its number. Packed to broadcast: the elements with
the bit of their number clear go into one row, the others into another, in both lanes of each pair; every bit of the
lane number doubles the rows, until each holds one element. Broadcast to packed: two rows become one, lanes with the
bit clear keep the first and the others the second, until one row is left. Scalars of tuples are the elements of one
vector here."""

from collections.abc import Iterator
from dataclasses import replace

from dana.compiler.place.lanes import blocks
from dana.compiler.place.rows import Form
from dana.compiler.select.split import rest, split
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section


def convert(emitter: Emitter, section: Section, value: Value, room: Value) -> None:
    """Fill `room` with the value in room's form."""
    # one element in all lanes of a row is both forms
    if room.form is value.form or (value.form is Form.BROADCAST and value.shape[-1:] == (1,)):
        emitter.elementwise(section, Opcode.MOV, replace(room, form=value.form), value)
    elif room.form is Form.BROADCAST:
        _broadcast(emitter, section, value, room)
    else:
        _pack(emitter, section, value, room)


def repeat(emitter: Emitter, section: Section, value: Value) -> None:
    """Make packed vectors of at most half the lanes repeat over them."""
    view = emitter.view(value, emitter.row_shape(value))
    extents = (emitter.instances(value), *emitter.row_shape(value))
    # each step copies the lanes with the bit clear to those with it set
    for bit in range((value.shape[-1] - 1).bit_length(), (emitter.lanes - 1).bit_length()):
        emitter.nest(section, Opcode.LOW, extents, view, view, view, lane=bit)


def _by_rows(
    emitter: Emitter, packed: Value, broadcast: Value, instances: int
) -> Iterator[tuple[tuple[int, ...], int, View, View]]:
    """Rows of lanes with as many elements each: loops of a nest around these, how many, and views of both values."""
    *leading, n = packed.shape
    a = emitter.view(packed, emitter.row_shape(packed))
    b, step = emitter.view(broadcast, broadcast.shape), 1
    if not broadcast.shape:  # a row for each tuple
        b, step = replace(b, steps=(0, 1)), broadcast.stride
    a, b = replace(a, steps=(*a.steps, 0)), replace(b, steps=(*b.steps[:-1], emitter.lanes * step, step))
    for first, rows, count in blocks(n, emitter.lanes):
        yield (instances, *leading, rows), count, a.moved(-2, first), b.moved(-2, first)


def _broadcast(emitter: Emitter, section: Section, value: Value, room: Value) -> None:
    for extents, count, source, target in _by_rows(emitter, value, room, emitter.instances(value)):
        places = _alternating(emitter, extents, count, target)
        bits = (count - 1).bit_length()
        # first the elements into all lanes, from the first 2 ** bits on: they repeat then
        for bit in range(bits, bits if value.repeats else (emitter.lanes - 1).bit_length()):
            emitter.nest(section, Opcode.LOW, (*extents, 1), places[bits % 2], source, source, lane=bit)
            source = places[bits % 2]
        elements = 1
        for bit in range(bits):
            into, more = places[(bits - bit - 1) % 2], min(2 * elements, count) - elements
            upper = into.moved(-1, elements)
            emitter.nest(section, Opcode.LOW, (*extents, elements), into, source, source, lane=bit)
            emitter.nest(section, Opcode.HIGH, (*extents, more), upper, source, source, lane=bit)
            source, elements = into, elements + more


def _alternating(emitter: Emitter, extents: tuple[int, ...], count: int, target: View) -> tuple[View, View]:
    """The result's rows, and others for every second step before: in place, a step would wait for rows to be read."""
    if count == 1:
        return target, target
    tuples, *others = extents
    # half of the rows: only the last step, which writes the target, makes all
    return target, emitter.room("broadcast", (*others, 1 << (count - 1).bit_length() - 1), per_tuple=tuples > 1)


def _pack(emitter: Emitter, section: Section, value: Value, room: Value) -> None:
    for extents, count, target, source in _by_rows(emitter, room, value, emitter.instances(room)):
        if count == 1:
            emitter.nest(section, Opcode.MOV, (*extents, 1), target, source)
            continue
        steps = list(_halves(count))
        own = (*extents[1:], steps[0])
        half = emitter.room("packed", own, per_tuple=room.stride > 0) if count > 2 else target
        pieces = [(0, count, source)]
        for step in steps:
            into, pairs = target if step == 1 else half, count - step
            # rows without a partner stay where they are until a step pairs them
            for low, high, left, right in split(pieces, pairs, step, -1):
                lane = step.bit_length() - 1
                emitter.nest(section, Opcode.LOW, (*extents, high - low), into.moved(-1, low), left, right, lane=lane)
            pieces = [(0, pairs, into), *rest(pieces, pairs, step)]
            count = step


def _halves(count: int) -> Iterator[int]:
    """The powers of two below, the largest first."""
    return (1 << bit for bit in reversed(range((count - 1).bit_length())))
