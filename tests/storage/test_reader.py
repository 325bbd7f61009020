"""The reference readers stop at each contradiction with its own reason, and read what is unusual but sound."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from dana.storage import layout
from dana.storage.builder import PageBuilder, build_tuple
from dana.storage.parts import PartReader, build_row
from dana.storage.reader import PageFault, PageRows, read_page
from dana.storage.schema import TableSchema, Use
from hwgen.spec.strider import Fault
from tests.storage.parts import part_attribute
from tests.storage.schemas import attribute

SCHEMA = TableSchema(
    relation="t",
    attributes=(
        attribute("flag", "boolean"),
        attribute("note", "text"),
        attribute("x", "real[]", array_length=3),
        attribute("y", "smallint"),
    ),
)
X = Use(attribute=2, input="x", element=0, count=3)
Y = Use(attribute=3, input="y", element=0, count=1)
ROW = (1, "seven b", np.array([1.5, -2.0, 3.25]), -7)
HEADER = 24
NOTE = HEADER + 1
"""The text's byte header, behind the flag."""
ARRAY = NOTE + 1 + 7
"""The array's, behind that; with a long header it would be aligned to 4, and so it is here."""
POINTER = layout.PAGE_HEADER_SIZE

Damage = Callable[[bytearray], object]


def page_of(*tuples: bytes) -> bytes:
    builder = PageBuilder()
    for stored in tuples:
        builder.add(stored)
    return builder.finish()


def read(stored: bytes, uses: tuple[Use, ...] = (X, Y)) -> PageRows:
    return read_page(page_of(stored), SCHEMA, uses)


def damaged(how: Damage, *, short: bool = True, row: tuple[object, ...] = ROW) -> bytes:
    stored = bytearray(build_tuple(SCHEMA.attributes, row, short=short))
    how(stored)
    return bytes(stored)


def put(at: int, value: int, form: str = "B") -> Damage:
    return lambda stored: struct.pack_into(f"<{form}", stored, at, value)


def values(found: PageRows) -> list[list[float]]:
    return [np.concatenate(row).tolist() for row in found.rows]


EXPECTED = [1.5, -2.0, 3.25, -7.0]


@pytest.mark.parametrize("short", [True, False])
def test_a_sound_row_is_read(short: bool) -> None:
    assert values(read(damaged(lambda _: None, short=short))) == [EXPECTED]


LONG_ARRAY = HEADER + 4 + 4 + 8
"""Of a tuple whose headers are long: the text's at 28, its seven bytes, the array's at 40."""
PAYLOAD = LONG_ARRAY + 4

FAULTS: dict[str, tuple[Fault, Damage]] = {
    "length of the header": (Fault.TUPLE_HEADER, put(layout.T_HOFF, 32)),
    "a bitmap that the header has no room for": (Fault.TUPLE_HEADER, put(layout.T_INFOMASK2, 9, "H")),
    "text beyond the end": (Fault.TUPLE_SHORT, put(28, 1000 << 2, "I")),
    "text of three bytes, its length of four included": (Fault.TUPLE_SHORT, put(28, 3 << 2, "I")),
    "array beyond the end": (Fault.TUPLE_SHORT, put(LONG_ARRAY, 45 << 2, "I")),
    "array shorter than its elements": (Fault.TUPLE_SHORT, put(LONG_ARRAY, 35 << 2, "I")),
    "array without room for its fields": (Fault.TUPLE_SHORT, put(LONG_ARRAY, 23 << 2, "I")),
    "compressed": (Fault.COMPRESSED, put(LONG_ARRAY, 36 << 2 | 2, "I")),
    "out of line": (Fault.TOASTED, put(LONG_ARRAY, 1)),
    "two dimensions": (Fault.ARRAY_SHAPE, put(PAYLOAD + layout.ARRAY_NDIM, 2, "I")),
    "NULLs": (Fault.ARRAY_NULLS, put(PAYLOAD + layout.ARRAY_DATAOFFSET, 24, "I")),
    "elements of another type": (Fault.ARRAY_SHAPE, put(PAYLOAD + layout.ARRAY_ELEMTYPE, 701, "I")),
    "four elements": (Fault.ARRAY_SHAPE, put(PAYLOAD + layout.ARRAY_DIM, 4, "I")),
}


@pytest.mark.parametrize("uses", [(X, Y), (X,)], ids=["both", "array"])
@pytest.mark.parametrize("what", FAULTS)
def test_a_contradiction_has_its_reason(what: str, uses: tuple[Use, ...]) -> None:
    fault, how = FAULTS[what]
    if "bitmap" in what:
        first, then = how, put(layout.T_INFOMASK, layout.HEAP_HASNULL, "H")
        stored = damaged(lambda tuple_: (first(tuple_), then(tuple_)), short=False)
    else:
        stored = damaged(how, short=False)
    with pytest.raises(PageFault) as caught:
        read(stored, uses)
    assert (caught.value.fault, caught.value.pointer) == (fault, POINTER)


@pytest.mark.parametrize(("size", "fault"), [(4, None), (3, Fault.TUPLE_SHORT), (0, Fault.TUPLE_SHORT)])
def test_a_text_is_no_shorter_than_its_length(size: int, fault: Fault | None) -> None:
    schema = TableSchema(relation="t", attributes=(attribute("note", "text"), attribute("y", "smallint")))
    stored = bytearray(build_tuple(schema.attributes, ("four", 7), short=False))
    put(HEADER, size << 2, "I")(stored)
    uses = (Use(attribute=1, input="y", element=0, count=1),)
    if fault is None:
        assert len(read_page(page_of(bytes(stored)), schema, uses).rows) == 1
        return
    with pytest.raises(PageFault) as caught:
        read_page(page_of(bytes(stored)), schema, uses)
    assert caught.value.fault is fault


def test_the_last_byte_is_the_tuple_s() -> None:
    stored = damaged(lambda _: None)
    assert len(stored) == ARRAY + 1 + 32 + 2 + (ARRAY + 33) % 2
    with pytest.raises(PageFault) as caught:
        read(stored[:-1])
    assert caught.value.fault is Fault.TUPLE_SHORT
    with pytest.raises(PageFault) as caught:
        read(stored[: layout.TUPLE_HEADER_SIZE])
    assert caught.value.fault is Fault.TUPLE_HEADER


def test_what_nobody_reads_may_be_compressed_or_out_of_line() -> None:
    assert values(read(damaged(put(LONG_ARRAY, 36 << 2 | 2, "I"), short=False), (Y,))) == [[-7.0]]
    stored = damaged(lambda _: None, row=(1, b"\x12" + b"o" * 15, *ROW[2:]))
    out_of_line = bytearray(stored)
    out_of_line[NOTE : NOTE + 2] = struct.pack("<BB", layout.VARLENA_EXTERNAL, layout.VARTAG_ONDISK)
    out_of_line[NOTE + 17 : NOTE + 18] = b"\0"
    # 18 bytes instead of the 17 of the text: one more before the array
    moved = bytes(out_of_line[: NOTE + 17]) + b"\0" + bytes(stored[NOTE + 17 :])
    aligned = len(moved[: NOTE + 18 + 33])
    fixed = moved[:aligned] + b"\0" * (aligned % 2) + moved[-2:]
    assert values(read(fixed)) == [EXPECTED]


@pytest.mark.parametrize(
    ("row", "uses", "expected"),
    [
        ((None, *ROW[1:]), (X, Y), [EXPECTED]),
        ((1, None, *ROW[2:]), (X, Y), [EXPECTED]),
        ((1, "t", None, -7), (Y,), [[-7.0]]),
        ((1, "t", None, -7), (X, Y), []),
        ((*ROW[:3], None), (X, Y), []),
    ],
)
def test_a_null_is_passed_over_or_skips_its_row(row: tuple[object, ...], uses: tuple[Use, ...], expected: list) -> None:  # type: ignore[type-arg]
    found = read(build_tuple(SCHEMA.attributes, row), uses)
    assert (values(found), found.skipped) == (expected, 1 - len(expected))


def test_a_bitmap_counts_where_the_header_says_that_there_is_one() -> None:
    """Four attributes' bitmap is a byte that the header has anyway."""
    without = damaged(put(layout.T_BITS, 0b0111))
    assert values(read(without)) == [EXPECTED]
    with_it = damaged(lambda stored: (put(layout.T_BITS, 0b0111)(stored), put(layout.T_INFOMASK, 1, "H")(stored)))
    found = read(with_it)
    assert (found.rows, found.skipped) == ([], 1)
    assert values(read(damaged(lambda s: (put(layout.T_BITS, 0b1111)(s), put(layout.T_INFOMASK, 1, "H")(s))))) == [
        EXPECTED
    ]


def test_a_row_from_before_a_column_was_added_is_skipped() -> None:
    found = read(build_tuple(SCHEMA.attributes, ROW, natts=3))
    assert (found.rows, found.skipped) == ([], 1)
    assert values(read(build_tuple(SCHEMA.attributes, ROW, natts=3), (X,))) == [EXPECTED[:3]]


@pytest.mark.parametrize(
    ("at", "form", "value", "fault"),
    [
        (layout.PD_LOWER, "H", 8144, Fault.PAGE_HEADER),
        (layout.PD_UPPER, "H", 8193, Fault.PAGE_HEADER),
        (layout.PD_SPECIAL, "H", 8193, Fault.PAGE_HEADER),
        (POINTER, "I", 8128 + 4 | 1 << 15 | 24 << 17, Fault.LINE_POINTER),
        (POINTER, "I", 8120 - 64 | 1 << 15 | 24 << 17, Fault.LINE_POINTER),
        (POINTER, "I", 8184 | 1 << 15 | 24 << 17, Fault.LINE_POINTER),
    ],
)
def test_pages_that_contradict_themselves(at: int, form: str, value: int, fault: Fault) -> None:
    page = bytearray(page_of(damaged(lambda _: None)))
    assert len(read_page(bytes(page), SCHEMA, (X, Y)).rows) == 1
    struct.pack_into(f"<{form}", page, at, value)
    with pytest.raises(PageFault) as caught:
        read_page(bytes(page), SCHEMA, (X, Y))
    assert caught.value.fault is fault


def test_pointers_that_are_not_normal_are_passed_over() -> None:
    stored = damaged(lambda _: None)
    builder = PageBuilder()
    builder.add_pointer(layout.LP_REDIRECT, offset=3)
    builder.add(stored, layout.LP_DEAD)
    builder.add(stored)
    builder.add_pointer(layout.LP_UNUSED)
    found = read_page(builder.finish(), SCHEMA, (X, Y))
    assert (values(found), found.skipped) == ([EXPECTED], 0)


PARTS = TableSchema(relation="t", attributes=(part_attribute("x", 5),), part=3)
"""Rows of two parts, of three values and two."""
PART_USES = (Use(attribute=0, input="x", element=0, count=5),)


def parts_read(first: bytes, *more: bytes) -> PartReader:
    reader = PartReader(PARTS, PART_USES)
    reader.read(page_of(first, *more))
    return reader


def test_parts_are_joined_and_a_null_skips() -> None:
    whole, null = build_row(PARTS, [np.arange(5)]), build_row(PARTS, [None])
    found = PartReader(PARTS, PART_USES).read(page_of(*whole, *null, *whole))
    assert (values(found), found.skipped) == ([[0, 1, 2, 3, 4]] * 2, 1)


@pytest.mark.parametrize(
    ("what", "how", "fault"),
    [
        ("header", put(layout.T_HOFF, 32), Fault.TUPLE_HEADER),
        ("NULLs", put(layout.T_INFOMASK, layout.HEAP_HASNULL, "H"), Fault.TUPLE_HEADER),
        ("a number behind the last", put(HEADER, 2, "I"), Fault.TUPLE_PARTS),
        ("a number too soon", put(HEADER, 1, "I"), Fault.TUPLE_PARTS),
        ("no number", lambda stored: stored.__delitem__(slice(HEADER + 3, None)), Fault.TUPLE_SHORT),
        ("a byte too few", lambda stored: stored.__delitem__(slice(-1, None)), Fault.TUPLE_SHORT),
        ("no header", lambda stored: stored.__delitem__(slice(23, None)), Fault.TUPLE_HEADER),
    ],
)
def test_parts_that_contradict_themselves(what: str, how: Damage, fault: Fault) -> None:
    first, second = build_row(PARTS, [np.arange(5)])
    stored = bytearray(first)
    how(stored)
    with pytest.raises(PageFault) as caught:
        parts_read(bytes(stored), second)
    assert (caught.value.fault, caught.value.pointer) == (fault, POINTER), what
