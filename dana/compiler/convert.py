"""Conversions between the two forms of a value.

In: a value in one form and room for it in the other. Out: operations that fill the room.

Packed to spread: rows of -0.0, into whose lane k element k is moved under a mask of one lane, then the sum over the
lanes; x + -0.0 is x for every x. Spread to packed: element 0 into all lanes of a row, then each further one into its
lane. Both take one instruction for each row of lanes, or for each vector if those are fewer.
"""

from __future__ import annotations

from dataclasses import replace

from dana.compiler.layout import Form
from dana.compiler.ops import Buffer
from dana.compiler.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section, Source


def convert(
    emitter: Emitter, section: Section, value: Value, room: Value, *, lane_masks: Buffer, nothing: Value
) -> None:
    """Fill `room` with the value in room's form.

    Parameters
    ----------
    lane_masks
        Row k is 1.0 in lane k and 0.0 in the others.
    nothing
        The scalar -0.0.
    """
    if room.form is value.form or (value.form is Form.SPREAD and value.shape[-1] == 1):
        emitter.elementwise(section, Opcode.MOV, replace(room, form=value.form), value)
    elif room.form is Form.SPREAD:
        _spread(emitter, section, value, room, lane_masks, nothing)
    else:
        _pack(emitter, section, value, room, lane_masks)


def _blocks(n: int, lanes: int) -> list[tuple[int, int, int]]:
    """(first row, rows, elements of each) of whole rows of lanes and of the last one."""
    whole, rest = divmod(n, lanes)
    return [block for block in ((0, whole, lanes), (whole, 1, rest)) if block[1] and block[2]]


def _nested(emitter: Emitter, packed: Value, spread: Value) -> tuple[View, View]:
    """Views of both for a nest of tuples, leading axes, rows of lanes, elements of a row."""
    a = emitter.view(packed, emitter.row_shape(packed))
    b = emitter.view(spread, spread.shape)
    return replace(a, steps=(*a.steps, 0)), replace(b, steps=(*b.steps[:-1], emitter.lanes, 1))


def _spread(emitter: Emitter, section: Section, value: Value, room: Value, lane_masks: Buffer, nothing: Value) -> None:
    *leading, n = value.shape
    extents = (emitter.instances(room), *room.shape)
    target = emitter.view(room, room.shape)
    source, tail = target, 0
    if n == 1:
        source, tail = emitter.view(value, value.shape), 1
    else:
        emitter.elementwise(section, Opcode.MOV, room, nothing)
        packed, spread = _nested(emitter, value, room)
        masks = View(lane_masks, 0, (0,) * (len(packed.steps) - 1) + (1,))
        at = len(packed.steps) - 2
        for first, rows, elements in _blocks(n, emitter.lanes):
            emitter.nest(
                section,
                Opcode.MOVC,
                (emitter.instances(room), *leading, rows, elements),
                spread.moved(at, first),
                packed.moved(at, first),
                masks,
            )
    for distance in reversed(range((emitter.lanes - 1).bit_length())):
        emitter.nest(
            section,
            Opcode.ADD,
            extents,
            target,
            source,
            source,
            inner=len(extents) - 1 if tail else None,
            source=Source.LANE_XOR,
            distance=distance,
            tail_a=tail > 0,
            tail_b=tail > 0,
            tail=tail,
        )
        source, tail = target, 0


def _pack(emitter: Emitter, section: Section, value: Value, room: Value, lane_masks: Buffer) -> None:
    *leading, n = value.shape
    packed, spread = _nested(emitter, room, value)
    at, element = len(packed.steps) - 2, len(packed.steps) - 1
    blocks = _blocks(n, emitter.lanes)
    rows = sum(count for _, count, _ in blocks)
    emitter.nest(section, Opcode.MOV, (emitter.instances(room), *leading, rows, 1), packed, spread)
    masks = View(lane_masks, 1, (0,) * element + (1,))
    for first, count, elements in blocks:
        if elements > 1:
            emitter.nest(
                section,
                Opcode.MOVC,
                (emitter.instances(room), *leading, count, elements - 1),
                packed.moved(at, first),
                spread.moved(at, first).moved(element, 1),
                masks,
            )
