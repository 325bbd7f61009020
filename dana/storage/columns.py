"""Numeric columns into heap pages, all rows at once.

In: one array for each column, none NULL. Out: a schema of float4 columns, and the pages that PostgreSQL would write for
them. `dana.storage.builder` builds anything, a row at a time; this builds one kind of table at the speed of a copy. It
must not know a rule.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.storage import layout
from dana.storage.schema import Attribute, TableSchema

MAX_COLUMNS = 1600
"""MaxHeapAttributeNumber of access/htup_details.h."""

_FLOAT4 = 700
_HEADER = layout.align_up(layout.TUPLE_HEADER_SIZE, layout.MAXALIGN)


def column_schema(names: list[str], relation: str = "columns") -> TableSchema:
    """A table of float4 columns.

    Raises
    ------
    UsageError
        More columns than a table may have.
    """
    if not 1 <= len(names) <= MAX_COLUMNS:
        raise UsageError(f"a table has from 1 to {MAX_COLUMNS} columns, not {len(names)}")
    columns = (Attribute(name=name, type_oid=_FLOAT4, type_name="real", length=4, align="i") for name in names)
    return TableSchema(relation=relation, attributes=tuple(columns))


def column_pages(columns: Mapping[str, NDArray[Any]], *, page_size: int = 8192) -> NDArray[np.uint8]:
    """Heap pages of a table of `column_schema`, shape (pages, page_size).

    Parameters
    ----------
    columns
        Values of shape (rows,), rounded to binary32.

    Raises
    ------
    UsageError
        No row, columns of different lengths, or a row that is longer than a page.
    """
    shapes = {np.shape(values) for values in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or next(iter(shapes))[0] == 0:
        raise UsageError(f"columns must be vectors of one length, not of shapes {sorted(shapes)}")
    rows, width = next(iter(shapes))[0], len(columns)
    length = _HEADER + 4 * width
    stride = layout.align_up(length, layout.MAXALIGN)
    per_page = (page_size - layout.PAGE_HEADER_SIZE) // (stride + layout.ITEM_ID_SIZE)
    if per_page == 0:
        raise UsageError(f"a row of {width} columns takes {length} bytes, more than a page of {page_size} holds")
    tuples = np.zeros((rows, stride), dtype=np.uint8)
    tuples[:, :_HEADER] = np.frombuffer(_tuple_header(width), dtype=np.uint8)
    values = np.stack([np.asarray(column, dtype="<f4") for column in columns.values()], axis=1)
    tuples[:, _HEADER:length] = values.view(np.uint8).reshape(rows, 4 * width)
    pages = np.zeros((-(-rows // per_page), page_size), dtype=np.uint8)
    full = rows // per_page
    _fill(pages[:full], tuples[: full * per_page].reshape(full, per_page, stride), length)
    if full < len(pages):
        _fill(pages[full:], tuples[None, full * per_page :], length)
    return pages


def _tuple_header(width: int) -> bytes:
    infomask = layout.HEAP_XMIN_FROZEN | layout.HEAP_XMAX_INVALID
    return struct.pack("<IIIHHHHHB", 2, 0, 0, 0, 0, 1, width, infomask, _HEADER).ljust(_HEADER, b"\0")


def _fill(pages: NDArray[np.uint8], tuples: NDArray[np.uint8], length: int) -> None:
    """Write as many tuples on each page, from its end downwards, and its line pointers and header."""
    count, stride = tuples.shape[1:]
    page_size = pages.shape[1]
    lower = layout.PAGE_HEADER_SIZE + count * layout.ITEM_ID_SIZE
    upper = page_size - count * stride
    pages[:, upper:] = tuples[:, ::-1].reshape(len(pages), count * stride)
    offsets = page_size - stride * np.arange(1, count + 1, dtype=np.uint32)
    pointers = offsets | layout.LP_NORMAL << layout.LP_FLAGS_SHIFT | length << layout.LP_LENGTH_SHIFT
    pages[:, layout.PAGE_HEADER_SIZE : lower] = np.asarray(pointers, dtype="<u4").view(np.uint8)
    header = struct.pack("<HHHH", lower, upper, page_size, page_size | layout.PAGE_LAYOUT_VERSION)
    pages[:, layout.PD_LOWER : layout.PD_LOWER + len(header)] = np.frombuffer(header, dtype=np.uint8)
