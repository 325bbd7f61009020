"""Rows that are split over several frames: how their parts are written and read.

`TableSchema.part` is the number of values in a part. A part is a tuple: header (24 bytes), its number (int4), then its
values as binary32, flattened in the order of the columns. The parts of a row are consecutive; a skipped row is a single
tuple without attributes. This is the reference for pg_extension/src/source/frames.c, which writes parts, and for the
machine, which reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dana.storage import layout
from dana.storage.builder import PageBuilder, PageFull
from dana.storage.reader import PageFault, PageRows, convert, line_pointers
from dana.storage.schema import TableSchema, Use
from hwgen.spec.columns import ColumnType
from hwgen.spec.strider import Fault

HEADER = layout.align_up(layout.TUPLE_HEADER_SIZE, layout.MAXALIGN)
NUMBER_BYTES = 4
ATTRIBUTES = 2
"""Number of attributes of a part: its number and its values."""

VALUE_BYTES = 4


def most_values(page_size: int) -> int:
    """Return the maximum number of values in a part on a page."""
    # a tuple begins at a multiple of MAXALIGN, counted from the end of the page
    room = (page_size - layout.PAGE_HEADER_SIZE - layout.ITEM_ID_SIZE) // layout.MAXALIGN * layout.MAXALIGN
    return (room - HEADER - NUMBER_BYTES) // VALUE_BYTES


def places(schema: TableSchema) -> list[int]:
    """Return the position of the first value of each column in a row, followed by the total."""
    found = [0]
    for attribute in schema.attributes:
        found.append(found[-1] + (attribute.array_length or 1))
    return found


def cut(schema: TableSchema) -> list[tuple[int, int]]:
    """Return the first value and the number of values of each part of a row."""
    total = places(schema)[-1]
    return [(first, min(schema.part, total - first)) for first in range(0, total, schema.part)]


def build_row(schema: TableSchema, row: Sequence[object]) -> list[bytes]:
    """Return the tuples of a row; a row with a None is stored as skipped."""
    if any(value is None for value in row):
        return [_tuple(0, b"")]
    values = np.concatenate([np.asarray(value, dtype="<f4").reshape(-1) for value in row])
    if values.size != places(schema)[-1]:
        raise ValueError(f"a row of {schema.relation} has {places(schema)[-1]} values, not {values.size}")
    return [
        _tuple(ATTRIBUTES, struct.pack("<i", number) + values[first : first + count].tobytes())
        for number, (first, count) in enumerate(cut(schema))
    ]


def build_part_pages(schema: TableSchema, rows: Iterable[Sequence[object]], *, page_size: int) -> bytes:
    """Build the pages of all rows as frames.c does: a page is full when the next tuple does not fit."""
    return pack((stored for row in rows for stored in build_row(schema, row)), page_size=page_size)


def pack(tuples: Iterable[bytes], *, page_size: int) -> bytes:
    """Put tuples on pages in order; a new page starts when the next tuple does not fit."""
    pages = bytearray()
    builder, used = PageBuilder(page_size), False
    for stored in tuples:
        try:
            builder.add(stored)
        except PageFull:
            pages += builder.finish()
            builder = PageBuilder(page_size)
            builder.add(stored)
        used = True
    if used:
        pages += builder.finish()
    return bytes(pages)


def _tuple(attributes: int, data: bytes) -> bytes:
    # HEAP_HASVARWIDTH as frames.c sets it: the values are one attribute without a fixed length
    infomask = layout.HEAP_XMIN_FROZEN | layout.HEAP_XMAX_INVALID | layout.HEAP_HASVARWIDTH
    header = struct.pack("<IIIHHHHHB", 0, 0, 0, 0, 0, 0, attributes, infomask, HEADER)
    return header.ljust(HEADER, b"\0") + data


class PartReader:
    """The reference reader of pages with parts, which must be read in order.

    Parameters
    ----------
    uses
        Columns to read.
    """

    def __init__(self, schema: TableSchema, uses: Sequence[Use]) -> None:
        self._parts = cut(schema)
        self._places = places(schema)
        self._uses = uses
        self._open: list[npt.NDArray[np.float32]] = []
        """Parts of the row that is still incomplete."""
        self._behind = 0
        """Page address after the last line pointer, where a Strider ends its page."""

    def read(self, page: bytes) -> PageRows:
        """Return the rows that end on the page and the number of skipped rows. Raises PageFault at the first error."""
        result = PageRows()
        self._behind = 0
        for address, start, state, length in line_pointers(page):
            self._behind = address + layout.ITEM_ID_SIZE
            if state != layout.LP_NORMAL:
                continue
            values = self._part(page, address, start, start + length)
            if values is None:
                result.skipped += 1
                continue
            self._open.append(values)
            if len(self._open) == len(self._parts):
                result.rows.append(self._row())
        return result

    def finish(self) -> None:
        """End the epoch after the last page. Raises PageFault if a row is incomplete."""
        if self._open:
            raise PageFault(Fault.TUPLE_PARTS, self._behind)

    def _row(self) -> list[npt.NDArray[np.float32]]:
        values = np.concatenate(self._open)
        self._open = []
        return [values[self._places[use.attribute] :][: use.count] for use in self._uses]

    def _part(self, page: bytes, pointer: int, start: int, end: int) -> npt.NDArray[np.float32] | None:
        if end - start <= layout.TUPLE_HEADER_SIZE:
            raise PageFault(Fault.TUPLE_HEADER, pointer)
        infomask2, infomask = struct.unpack_from("<HH", page, start + layout.T_INFOMASK2)
        if infomask & layout.HEAP_HASNULL or page[start + layout.T_HOFF] != HEADER:
            raise PageFault(Fault.TUPLE_HEADER, pointer)
        # a skipped row has no attributes
        if infomask2 & (1 << layout.HEAP_NATTS_BITS) - 1 < ATTRIBUTES:
            return None
        data = start + HEADER
        if data + NUMBER_BYTES > end:
            raise PageFault(Fault.TUPLE_SHORT, pointer)
        (number,) = struct.unpack_from("<I", page, data)
        if number >= len(self._parts):
            raise PageFault(Fault.TUPLE_PARTS, pointer)
        _, count = self._parts[number]
        data += NUMBER_BYTES
        # as in the machine, the length is checked before the order; the first fault is the one that is reported
        if data + VALUE_BYTES * count > end:
            raise PageFault(Fault.TUPLE_SHORT, pointer)
        if number != len(self._open):
            raise PageFault(Fault.TUPLE_PARTS, pointer)
        return convert(page[data : data + VALUE_BYTES * count], ColumnType.FLOAT4)
