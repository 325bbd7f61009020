"""Builds heap pages as PostgreSQL would, for tests, testbenches and benchmarks without a server.

In: a schema and rows of Python values (numbers, sequences for arrays, text or bytes for other varlena columns, None for
NULL). Out: pages of the given size. Tuples are added from the end of the page downwards, line pointers upwards.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dana.storage import layout
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS


class PageFull(Exception):
    """The tuple does not fit on the page."""


def encode_value(attribute: Attribute, value: Any, *, short: bool = True) -> tuple[bytes, int]:
    """The stored bytes of a value and their alignment.

    Parameters
    ----------
    short
        Use the 1-byte varlena header where the value is small enough, as INSERT does.
    """
    if attribute.length >= 0:
        if attribute.type_oid in SCALARS:
            kind = SCALARS[attribute.type_oid].column
            return np.array([value], dtype=kind.dtype).tobytes(), attribute.alignment
        return bytes(value).ljust(attribute.length, b"\0")[: attribute.length], attribute.alignment
    if attribute.type_oid in ARRAYS:
        array = ARRAYS[attribute.type_oid]
        elements = np.asarray(value, dtype=array.column.dtype)
        if elements.size == 0:
            payload = struct.pack("<iii", 0, 0, array.oid)
        else:
            payload = struct.pack("<iiiii", 1, 0, array.oid, elements.size, 1) + elements.tobytes()
    else:
        payload = value.encode() if isinstance(value, str) else bytes(value)
    # VARATT_SHORT_MAX (varatt.h): 127 bytes with the header of one
    if short and len(payload) + 1 <= 127:
        # a short varlena is not aligned
        return bytes([(len(payload) + 1) << 1 | layout.VARLENA_SHORT_BIT]) + payload, 1
    return struct.pack("<I", (len(payload) + 4) << 2) + payload, attribute.alignment


def build_tuple(
    attributes: Sequence[Attribute], row: Sequence[object], *, natts: int | None = None, short: bool = True
) -> bytes:
    """A heap tuple with the first `natts` attributes (all by default); None is NULL."""
    count = len(attributes) if natts is None else natts
    has_nulls = any(row[k] is None for k in range(count))
    bitmap = bytearray((count + 7) // 8 if has_nulls else 0)
    data = bytearray()
    variable = False
    for k in range(count):
        if row[k] is None:
            continue
        # a set bit means that the value is there (heap_fill_tuple)
        if has_nulls:
            bitmap[k // 8] |= 1 << k % 8
        variable |= attributes[k].length < 0
        stored, alignment = encode_value(attributes[k], row[k], short=short)
        # from the start of the data, which is MAXALIGNed, so this is the alignment on the page, too
        data += b"\0" * (layout.align_up(len(data), alignment) - len(data)) + stored
    header = layout.align_up(layout.TUPLE_HEADER_SIZE + len(bitmap), layout.MAXALIGN)
    # hint bits as after VACUUM FREEZE: readers need no transaction status
    infomask = layout.HEAP_XMIN_FROZEN | layout.HEAP_XMAX_INVALID
    infomask |= layout.HEAP_HASNULL if has_nulls else 0
    infomask |= layout.HEAP_HASVARWIDTH if variable else 0
    fixed = struct.pack("<IIIHHHHHB", 2, 0, 0, 0, 0, 1, count, infomask, header)
    return (fixed + bytes(bitmap)).ljust(header, b"\0") + bytes(data)


class PageBuilder:
    """One page being filled."""

    def __init__(self, page_size: int = 8192) -> None:
        self._page = bytearray(page_size)
        self._lower = layout.PAGE_HEADER_SIZE
        self._upper = page_size

    def add(self, stored: bytes, state: int = layout.LP_NORMAL) -> int:
        """Add a tuple; returns its line pointer's page address. Raises PageFull if there is no room."""
        # tuples begin at multiples of MAXALIGN, as PageAddItemExtended places them
        offset = (self._upper - len(stored)) & -layout.MAXALIGN
        # the line pointer needs room, too
        if offset < self._lower + layout.ITEM_ID_SIZE:
            raise PageFull
        self._page[offset : offset + len(stored)] = stored
        self._upper = offset
        return self._pointer(offset, state, len(stored))

    def add_pointer(self, state: int, offset: int = 0) -> int:
        """Add a line pointer without a tuple (unused, dead, redirect)."""
        if self._upper < self._lower + layout.ITEM_ID_SIZE:
            raise PageFull
        return self._pointer(offset, state, 0)

    def finish(self) -> bytes:
        """The page's bytes."""
        size = len(self._page)
        struct.pack_into("<HHH", self._page, layout.PD_LOWER, self._lower, self._upper, size)
        # the page size is a multiple of 256, so the low byte is free for the version (PageSetPageSizeAndVersion)
        struct.pack_into("<H", self._page, layout.PD_PAGESIZE_VERSION, size | layout.PAGE_LAYOUT_VERSION)
        return bytes(self._page)

    def _pointer(self, offset: int, state: int, length: int) -> int:
        address = self._lower
        # ItemIdData: lp_off, lp_flags, lp_len from the lowest bit, as gcc lays out bit fields on x86-64
        word = offset | state << layout.LP_FLAGS_SHIFT | length << layout.LP_LENGTH_SHIFT
        struct.pack_into("<I", self._page, address, word)
        self._lower += layout.ITEM_ID_SIZE
        return address


def build_pages(
    schema: TableSchema,
    rows: Iterable[Sequence[object]],
    *,
    page_size: int = 8192,
    fill: float = 1.0,
    short: bool = True,
) -> bytes:
    """Whole pages holding all rows; `fill` is the fraction of a page used before the next is begun."""
    pages = bytearray()
    builder = PageBuilder(page_size)
    used = 0
    budget = int(fill * (page_size - layout.PAGE_HEADER_SIZE))
    for row in rows:
        stored = build_tuple(schema.attributes, row, short=short)
        need = layout.align_up(len(stored), layout.MAXALIGN) + layout.ITEM_ID_SIZE
        # `used` lets a first row through that exceeds the budget alone
        if used and used + need > budget:
            pages += builder.finish()
            builder, used = PageBuilder(page_size), 0
        try:
            builder.add(stored)
        except PageFull:
            pages += builder.finish()
            builder, used = PageBuilder(page_size), 0
            builder.add(stored)
        used += need
    if used:
        pages += builder.finish()
    return bytes(pages)
