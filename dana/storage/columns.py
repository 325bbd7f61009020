"""Numeric columns into heap pages, all rows at once.

In: one array for each column, none NULL. Out: a schema of float4 columns and of float4 arrays, and the pages that
PostgreSQL would write for them, headers of short arrays not packed. `dana.storage.builder` builds anything, a row at a
time; this builds two kinds of columns at the speed of a copy. It must not know a rule.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.storage import layout
from dana.storage.builder import build_tuple
from dana.storage.frames import ARRAY_HEADER, REAL, REAL_ARRAY
from dana.storage.schema import Attribute, TableSchema

MAX_COLUMNS = 1600
"""MaxHeapAttributeNumber of access/htup_details.h."""

_HEADER = layout.align_up(layout.TUPLE_HEADER_SIZE, layout.MAXALIGN)


def column_schema(columns: Mapping[str, np.ndarray], relation: str = "columns") -> TableSchema:
    """A table of float4 columns, and of float4[] for values of shape (rows, elements).

    Raises
    ------
    UsageError
        More columns than a table may have.
    """
    if not 1 <= len(columns) <= MAX_COLUMNS:
        raise UsageError(f"a table has from 1 to {MAX_COLUMNS} columns, not {len(columns)}")
    return TableSchema(
        relation=relation,
        attributes=tuple(
            column_attribute(name, values.shape[1] if values.ndim > 1 else None) for name, values in columns.items()
        ),
    )


def column_attribute(name: str, elements: int | None = None) -> Attribute:
    """A column of float4, or of arrays of it."""
    if elements is None:
        return Attribute(name=name, type_oid=REAL, type_name="real", length=4, align="i")
    return Attribute(name=name, type_oid=REAL_ARRAY, type_name="real[]", length=-1, align="i", array_length=elements)


def column_pages(columns: Mapping[str, np.ndarray], *, page_size: int = 8192) -> NDArray[np.uint8]:
    """Heap pages of a table of `column_schema`, shape (pages, page_size).

    Parameters
    ----------
    columns
        Values of shape (rows,) or (rows, elements), rounded to binary32.

    Raises
    ------
    UsageError
        No row, columns of different lengths, or a row that is longer than a page.
    """
    shapes = {name: np.shape(values) for name, values in columns.items()}
    counts = {shape[:1] for shape in shapes.values() if len(shape) < 3}
    if len(counts) != 1 or any(len(shape) > 2 or 0 in shape for shape in shapes.values()) or () in counts:
        raise UsageError(f"columns must be vectors or matrices of one length, not of shapes {list(shapes.values())}")
    ((rows,),) = counts
    attributes = column_schema(columns).attributes
    empty = [0 if one.array_length is None else np.zeros(one.array_length) for one in attributes]
    # one tuple by the slow builder: all headers are equal, as no column is NULL
    stored = build_tuple(attributes, empty, short=False)
    length = len(stored)
    stride = layout.align_up(length, layout.MAXALIGN)
    per_page = (page_size - layout.PAGE_HEADER_SIZE) // (stride + layout.ITEM_ID_SIZE)
    if per_page == 0:
        raise UsageError(f"a row of {len(columns)} columns takes {length} bytes, more than a page of {page_size} holds")
    tuples = np.zeros((rows, stride), dtype=np.uint8)
    tuples[:, :length] = np.frombuffer(stored, dtype=np.uint8)
    words = tuples.view("<f4")
    lengths = [1 if one.array_length is None else ARRAY_HEADER // 4 + one.array_length for one in attributes]
    # in words of 4 bytes: a tuple header of 24 bytes and float4 columns need no padding
    ends = accumulate(lengths, initial=_HEADER // 4)
    next(ends)
    for values, end in zip(columns.values(), ends, strict=True):
        each = np.asarray(values).reshape(rows, -1)
        words[:, end - each.shape[1] : end] = each
    pages = np.zeros((-(-rows // per_page), page_size), dtype=np.uint8)
    full = rows // per_page
    _fill(pages[:full], tuples[: full * per_page].reshape(full, per_page, stride), length)
    if full < len(pages):
        _fill(pages[full:], tuples[None, full * per_page :], length)
    return pages


def _fill(pages: NDArray[np.uint8], tuples: NDArray[np.uint8], length: int) -> None:
    """Write as many tuples on each page, from its end downwards, and its line pointers and header."""
    count, stride = tuples.shape[1:]
    page_size = pages.shape[1]
    lower = layout.PAGE_HEADER_SIZE + count * layout.ITEM_ID_SIZE
    upper = page_size - count * stride
    # reversed: the first line pointer has the last tuple on the page
    pages[:, upper:] = tuples[:, ::-1].reshape(len(pages), count * stride)
    offsets = page_size - stride * np.arange(1, count + 1, dtype=np.uint32)
    pointers = offsets | layout.LP_NORMAL << layout.LP_FLAGS_SHIFT | length << layout.LP_LENGTH_SHIFT
    pages[:, layout.PAGE_HEADER_SIZE : lower] = np.asarray(pointers, dtype="<u4").view(np.uint8)
    header = struct.pack("<HHHH", lower, upper, page_size, page_size | layout.PAGE_LAYOUT_VERSION)
    pages[:, layout.PD_LOWER : layout.PD_LOWER + len(header)] = np.frombuffer(header, dtype=np.uint8)
