"""Strider programs made for a schema do what the reference reader does, on any page."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from dana.compiler.place.rows import InputPlace, InputPlaces
from dana.compiler.strider.program import StriderProgram, compile_strider
from dana.errors import UsageError
from dana.storage import layout as pages
from dana.storage.builder import build_tuple
from dana.storage.reader import PageFault, convert, read_page
from dana.storage.schema import SchemaError, TableSchema, Use
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault
from tests.oracles.strider import PageTrace, run_page
from tests.scale import scaled
from tests.storage import test_reader as reader
from tests.storage.schemas import attribute, damage, random_page, random_schema, random_uses

CONFIG = MachineConfig(strider_depth=16384, descriptor_depth=4096)


def tuples_of(program: StriderProgram, trace: PageTrace, page: bytes, layout: InputPlaces) -> list[np.ndarray]:
    """Tuple memory rows that the handed-over columns make, one [rows, lanes] array for each complete tuple."""
    done: list[np.ndarray] = []
    rows = np.zeros((layout.rows, layout.lanes), np.float32)
    begun = False
    for address, number in trace.handed:
        column = program.columns[number]
        assert bool(column.first) is not begun
        begun = True
        values = convert(page[address : address + column.count * column.type.bytes], column.type)
        assert values.size == column.count
        if column.scalar:
            rows[column.row, :] = values[0]
        else:
            at = column.row * layout.lanes + column.lane
            rows.ravel()[at : at + column.count] = values
        if column.last:
            done.append(rows.copy())
            begun = False
    return done


def expected_rows(values: list[np.ndarray], uses: list[Use], layout: InputPlaces) -> np.ndarray:
    rows = np.zeros((layout.rows, layout.lanes), np.float32)
    for use, value in zip(uses, values, strict=True):
        place = layout.place(use.input)
        if not place.shape:
            rows[place.row, :] = value[0]
        else:
            at = place.row * layout.lanes + use.element
            rows.ravel()[at : at + use.count] = value
    return rows


NULLS: dict[str, tuple[Fault, reader.Damage]] = {
    "header of a row with a bitmap": (Fault.TUPLE_HEADER, reader.put(pages.T_HOFF, 32)),
    "bitmap of more attributes": (Fault.TUPLE_HEADER, reader.put(pages.T_INFOMASK2, 9, "H")),
    "header beyond the end": (Fault.TUPLE_HEADER, lambda stored: stored.__delitem__(slice(24, None))),
}


@pytest.mark.parametrize("what", [*reader.FAULTS, *NULLS])
def test_a_contradiction_has_the_reader_s_reason(what: str) -> None:
    fault, how = (reader.FAULTS | NULLS)[what]
    row = (None, *reader.ROW[1:]) if what in NULLS else reader.ROW
    stored = bytearray(build_tuple(reader.SCHEMA.attributes, row, short=False))
    if what == "header beyond the end":
        reader.put(pages.T_HOFF, 32)(stored)
        reader.put(pages.T_INFOMASK2, 9, "H")(stored)
    how(stored)
    page, uses = reader.page_of(bytes(stored)), [reader.X, reader.Y]
    places = InputPlaces(
        lanes=8, places=(InputPlace(name="x", shape=(3,), row=0), InputPlace(name="y", shape=(), row=1))
    )
    program = compile_strider(reader.SCHEMA, uses, places, CONFIG)
    if "bitmap that" in what:
        page = reader.page_of(bytes(stored[: pages.T_INFOMASK]) + b"\1\0" + bytes(stored[pages.T_INFOMASK + 2 :]))
    with pytest.raises(PageFault) as caught:
        read_page(page, reader.SCHEMA, uses)
    assert caught.value.fault is fault
    trace = run_page(program.instructions, program.constants, page, CONFIG)
    assert (trace.fault, trace.pointer) == (fault, caught.value.pointer)


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_program_equals_reference_reader(seed: int) -> None:
    rng = random.Random(seed)
    length = rng.randint(1, 20)
    schema = random_schema(rng, rng.choice([1, 2, 5, 12, 30, 70]))
    if not any(a.type_oid in (16, 20, 21, 23, 700, 701, 1021, 1022) for a in schema.attributes):
        schema = TableSchema(relation="t", attributes=(*schema.attributes, attribute("last", "real")))
    lanes = rng.choice([8, 16, 32])
    uses, layout = random_uses(rng, schema, lanes, length)
    program = compile_strider(schema, uses, layout, CONFIG)
    for _ in range(6):
        page = random_page(rng, schema, length)
        if rng.random() < 0.6:
            page = damage(rng, page)
        trace = run_page(program.instructions, program.constants, page, CONFIG)
        if trace.fault is not Fault.NONE:
            with pytest.raises(PageFault) as caught:
                read_page(page, schema, uses)
            assert (trace.fault, trace.pointer) == (caught.value.fault, caught.value.pointer)
            continue
        read = read_page(page, schema, uses)
        assert trace.skipped == read.skipped
        got = tuples_of(program, trace, page, layout)
        assert len(got) == len(read.rows)
        for rows, values in zip(got, read.rows, strict=True):
            np.testing.assert_array_equal(
                rows.view(np.uint32), expected_rows(values, uses, layout).view(np.uint32), strict=True
            )


@pytest.mark.parametrize("first", [7, None])
def test_tuples_of_every_length(first: int | None) -> None:
    """From none at all; at the page's end, too, and with values whose length is less than its own bytes."""
    attributes = (attribute("n", "integer"), attribute("t", "text"), attribute("x", "real"))
    schema = TableSchema(relation="t", attributes=(*attributes, *(attribute(f"c{k}", "real") for k in range(9))))
    use = Use(attribute=2, input="x", element=0, count=1)
    places = InputPlaces(lanes=8, places=(InputPlace(name="x", shape=(), row=0),))
    program = compile_strider(schema, [use], places, CONFIG)
    stored = build_tuple(schema.attributes, [first, "x" * 200, 1.5, *range(9)], short=False)
    at = 8192 - 280
    size_at = at + stored.index(struct.pack("<I", 204 << 2))
    faults = set()
    for start, length, size in [
        *((at, length, 204) for length in range(281)),
        *((8184, length, 204) for length in range(9)),
        *((at, 280, size) for size in range(6)),
    ]:
        page = bytearray(at) + stored.ljust(280, b"\0")
        struct.pack_into("<HHH", page, pages.PD_LOWER, 28, at, 8192)
        struct.pack_into("<I", page, pages.PAGE_HEADER_SIZE, start | 1 << 15 | length << 17)
        struct.pack_into("<I", page, size_at, size << 2)
        trace = run_page(program.instructions, program.constants, bytes(page), CONFIG)
        if trace.fault is Fault.NONE:
            assert len(read_page(bytes(page), schema, [use]).rows) == 1
        else:
            with pytest.raises(PageFault) as caught:
                read_page(bytes(page), schema, [use])
            assert (trace.fault, trace.pointer) == (caught.value.fault, caught.value.pointer)
        faults.add(trace.fault)
    assert faults == {Fault.NONE, Fault.TUPLE_HEADER, Fault.TUPLE_SHORT}


def test_adjacent_columns_share_a_descriptor() -> None:
    attributes = (*(attribute(f"x{k}", "real") for k in range(54)), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=attributes)
    uses = [Use(attribute=k, input="x", element=k, count=1) for k in range(54)]
    uses.append(Use(attribute=54, input="y", element=0, count=1))
    layout = InputPlaces(
        lanes=8, places=(InputPlace(name="x", shape=(54,), row=0), InputPlace(name="y", shape=(), row=7))
    )
    program = compile_strider(schema, uses, layout, CONFIG)
    assert [(c.count, c.scalar) for c in program.columns] == [(54, 0), (1, 1)]
    assert len(program.instructions) < 100


@pytest.mark.parametrize(
    ("vectors", "hint"), [(100, "Set descriptor_depth to 128"), (4100, "No machine holds so many")]
)
def test_more_descriptors_than_there_are(vectors: int, hint: str) -> None:
    """A vector that does not fill its rows takes one of its own."""
    schema = TableSchema(relation="t", attributes=(attribute("m", "real[]", array_length=3 * vectors),))
    layout = InputPlaces(lanes=8, places=(InputPlace(name="m", shape=(vectors, 3), row=0),))
    machine = MachineConfig(strider_depth=65536)
    with pytest.raises(
        UsageError, match=f"a Strider program of {vectors} column descriptors, the machine holds 64"
    ) as e:
        compile_strider(schema, [Use(attribute=0, input="m", element=0, count=3 * vectors)], layout, machine)
    assert hint in str(e.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (attribute("c0", "text"), "type text"),
        (attribute("c0", "real", has_missing=True), "VACUUM FULL"),
    ],
)
def test_unreadable_columns_are_refused_by_name(bad: object, words: str) -> None:
    schema = TableSchema(relation="public.t", attributes=(bad,))  # type: ignore[arg-type]
    layout = InputPlaces(lanes=8, places=())
    with pytest.raises(SchemaError, match=words):
        compile_strider(schema, [Use(attribute=0, input="x", element=0, count=1)], layout, CONFIG)
