"""Rows over several pages: cut and read again, on pages as the database's side fills them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dana.storage.parts import PartReader, build_part_pages, cut, most_values
from dana.storage.reader import PageFault, convert
from dana.storage.schema import TableSchema, Use
from hwgen.spec.columns import ColumnType
from hwgen.spec.strider import Fault
from tests.storage.parts import part_attribute, part_row, part_schema

SIZE = 8192


def uses_of(schema: TableSchema) -> list[Use]:
    return [
        Use(attribute=k, input=a.name, element=0, count=a.array_length or 1) for k, a in enumerate(schema.attributes)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_what_was_cut(seed: int) -> None:
    rng = random.Random(seed)
    schema = part_schema(rng, longest=9000, page_size=SIZE)
    rows = [part_row(rng, schema) for _ in range(5)]
    pages = build_part_pages(schema, rows, page_size=SIZE)
    reader = PartReader(schema, uses_of(schema))
    found = [reader.read(pages[at : at + SIZE]) for at in range(0, len(pages), SIZE)]
    reader.finish()
    kept = [row for row in rows if row[0] is not None]
    assert sum(page.skipped for page in found) == len(rows) - len(kept)
    read = [row for page in found for row in page.rows]
    assert len(read) == len(kept)
    for one, row in zip(read, kept, strict=True):
        for got, value in zip(one, row, strict=True):
            wanted = convert(np.asarray(value, dtype="<f4").tobytes(), ColumnType.FLOAT4)
            np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))


def test_a_full_part_fills_its_page() -> None:
    total = 3 * most_values(SIZE) + 1
    schema = TableSchema(relation="t", attributes=(part_attribute("x", total),), part=most_values(SIZE))
    assert [count for _, count in cut(schema)] == [most_values(SIZE)] * 3 + [1]
    assert len(build_part_pages(schema, [[np.zeros(total)]] * 2, page_size=SIZE)) == 8 * SIZE


def test_the_end_in_a_row_is_a_fault() -> None:
    schema = TableSchema(relation="t", attributes=(part_attribute("x", 4000),), part=2000)
    pages = build_part_pages(schema, [[np.zeros(4000)]], page_size=SIZE)
    reader = PartReader(schema, uses_of(schema))
    assert not reader.read(pages[:SIZE]).rows
    with pytest.raises(PageFault) as caught:
        reader.finish()
    assert (caught.value.fault, caught.value.pointer) == (Fault.TUPLE_PARTS, 28)
