"""Folds and conversions take as many rows of exchanges as the choice of forms reckons with.

What they compute is `test_random`'s business.
"""

from __future__ import annotations

import pytest

from dana.compiler.place.lanes import rows_to_broadcast, rows_to_pack, rows_to_reduce
from dana.compiler.place.rows import Form
from dana.compiler.select.convert import convert
from dana.compiler.select.reduce import reduce_axis
from dana.compiler.select.values import Emitter, Value
from dana.compiler.target import Target
from hwgen.spec.engine import Opcode, Section, Source

LENGTHS = (1, 2, 5, 8, 10, 54, 100)
SHAPES = [(lanes, group, leading) for lanes in (8, 16, 64) for group in (1, 4) for leading in ((), (3,))]


def emitter_of(lanes: int, group: int) -> Emitter:
    return Emitter(Target(threads=1, lanes=lanes, group=group, divide_interval=1, crossed=True))


def value_of(emitter: Emitter, shape: tuple[int, ...], form: Form) -> Value:
    return emitter.temporary("value", shape, form, per_tuple=emitter.group > 1)


@pytest.mark.parametrize(("lanes", "group", "leading"), SHAPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_conversions(n: int, lanes: int, group: int, leading: tuple[int, ...]) -> None:
    vectors = group * (leading[0] if leading else 1)
    for source, target, rows in (
        (Form.PACKED, Form.BROADCAST, rows_to_broadcast(n, lanes)),
        (Form.BROADCAST, Form.PACKED, rows_to_pack(n, lanes)),
    ):
        emitter = emitter_of(lanes, group)
        value, room = (value_of(emitter, (*leading, n), form) for form in (source, target))
        convert(emitter, Section.TUPLE, value, room)
        ops = emitter.ops[Section.TUPLE]
        assert sum(op.rows for op in ops) == vectors * rows
        assert all(op.source is Source.LANE_XOR for op in ops if op.op is not Opcode.MOV)


@pytest.mark.parametrize(("lanes", "group", "leading"), SHAPES)
@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("n", [5])
def test_folds(n: int, k: int, lanes: int, group: int, leading: tuple[int, ...]) -> None:
    vectors = group * k * (leading[0] if leading else 1)
    for form in Form:
        emitter = emitter_of(lanes, group)
        value = value_of(emitter, (*leading, k, n), Form.PACKED)
        result = reduce_axis(
            emitter, Section.TUPLE, Opcode.ADD, value, len(leading) + 1, form=form, in_place=False, name="sum"
        )
        assert (result.form, result.shape) == (form, (*leading, k))
        rows = sum(op.rows for op in emitter.ops[Section.TUPLE])
        assert rows == rows_to_reduce(vectors, k, form, lanes)


def test_as_many_vectors_as_lanes_take_a_row_less_than_vectors() -> None:
    assert rows_to_reduce(64, 64, Form.PACKED, 64) == 63
    assert rows_to_reduce(64, 64, Form.BROADCAST, 64) == 64 * 6
    assert rows_to_broadcast(64, 64) == 2 * 64 - 2
    assert rows_to_pack(64, 64) == 63
