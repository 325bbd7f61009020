"""Schemas and rows that are cut into parts, and pages of them, sound and damaged."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np

from dana.storage import layout
from dana.storage.builder import PageBuilder, PageFull
from dana.storage.parts import build_row, most_values, places
from dana.storage.schema import Attribute, TableSchema

Row = Sequence[object]


def part_schema(rng: random.Random, *, longest: int, page_size: int) -> TableSchema:
    """Frames' columns, numbers and arrays, whose row has up to `longest` values, and some size of its parts."""
    attributes = []
    while not attributes or rng.random() < 0.5:
        length = rng.choice([0, rng.randint(1, max(1, longest // 3))])
        attributes.append(part_attribute(f"c{len(attributes)}", length))
    total = sum(a.array_length or 1 for a in attributes)
    part = min(most_values(page_size), rng.choice([1, 7, total, rng.randint(1, total), -(-total // 2)]))
    return TableSchema(relation="t", attributes=tuple(attributes), part=max(part, -(-total // 40)))


def part_attribute(name: str, length: int) -> Attribute:
    """A frame's column: an array of so many, or a number (0)."""
    kind = (1021, -1) if length else (700, 4)
    return Attribute(
        name=name, type_oid=kind[0], type_name="real", length=kind[1], align="i", array_length=length or None
    )


def part_row(rng: random.Random, schema: TableSchema) -> Row:
    """A row; one with a NULL, now and then: it is to be skipped."""
    if rng.random() < 0.1:
        return [None] * len(schema.attributes)
    special = [0.0, -0.0, 1e-40, 1e30, float("nan")]
    return [
        np.array([rng.gauss(0, 1) if rng.random() < 0.98 else rng.choice(special) for _ in range(a.array_length or 1)])
        for a in schema.attributes
    ]


def part_pages(rng: random.Random, schema: TableSchema, rows: Sequence[Row], *, page_size: int) -> list[bytes]:
    """Pages with the rows' tuples, as many on each as chance has it; with pointers to nothing and empty pages."""
    tuples = [stored for row in rows for stored in build_row(schema, row)]
    full = rng.choice([0.0, 0.1, 0.9])
    pages = []
    builder = PageBuilder(page_size)
    for stored in tuples:
        if rng.random() < 0.1:
            builder.add_pointer(rng.choice([layout.LP_UNUSED, layout.LP_DEAD, layout.LP_REDIRECT]))
        try:
            builder.add(stored)
        except PageFull:
            pages.append(builder.finish())
            builder = PageBuilder(page_size)
            builder.add(stored)
        if rng.random() > full:
            pages += [builder.finish()] + [PageBuilder(page_size).finish()] * (rng.random() < 0.05)
            builder = PageBuilder(page_size)
    return [*pages, builder.finish()]


def misplaced(rng: random.Random, schema: TableSchema, pages: Sequence[bytes]) -> list[bytes]:
    """The pages with one that is missing, double or elsewhere, with another number or too short a tuple."""
    made = list(pages)
    at = rng.randrange(len(made))
    page = bytearray(made[at])
    (pointer,) = struct.unpack_from("<I", page, layout.PAGE_HEADER_SIZE)
    start, length = pointer & (1 << layout.LP_OFFSET_BITS) - 1, pointer >> layout.LP_LENGTH_SHIFT
    kind = rng.randrange(6)
    if kind == 0:
        del made[at]
    elif kind == 1:
        made.insert(at, made[at])
    elif kind == 2:
        other = rng.randrange(len(made))
        made[at], made[other] = made[other], made[at]
    elif kind == 3 and start and length > 28:
        number = rng.choice([0, 1, places(schema)[-1] // schema.part, 1 << 31])
        page[start + 24 : start + 28] = struct.pack("<I", number)
        made[at] = bytes(page)
    elif kind == 4 and start and length > 28:
        shorter = max(0, length - rng.choice([1, 4, length - 26]))
        word = pointer & (1 << layout.LP_LENGTH_SHIFT) - 1 | shorter << layout.LP_LENGTH_SHIFT
        page[layout.PAGE_HEADER_SIZE : layout.PAGE_HEADER_SIZE + 4] = struct.pack("<I", word)
        made[at] = bytes(page)
    elif kind == 5:
        made = made[: at + 1]
    return made
