"""Frames: which columns PostgreSQL's side can rewrite for a Strider, and what the rewritten pages look like.

In: a table's attributes. Out: the same as a machine would see them if they were rewritten, and the attributes of the
frames. A frame is a heap page whose tuples hold the columns in use and nothing else: `real` for a number, `real[]` for
an array (pg_extension/src/frames.c writes them). This module reads no page and knows no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dana.storage import layout
from dana.storage.schema import VIRTUAL, Attribute, SchemaError
from dana.storage.types import ARRAYS, SCALARS

REAL, REAL_ARRAY = 700, 1021

# catalog/pg_type.dat
REWRITTEN_SCALARS = {
    1082: "date",
    1083: "time without time zone",
    1114: "timestamp without time zone",
    1184: "timestamp with time zone",
    1700: "numeric",
}
"""Types of numbers that a Strider does not read, and that the backend makes `real`."""

REWRITTEN_ARRAYS = {
    1000: "boolean[]",
    1005: "smallint[]",
    1007: "integer[]",
    1016: "bigint[]",
    1115: "timestamp without time zone[]",
    1182: "date[]",
    1183: "time without time zone[]",
    1185: "timestamp with time zone[]",
    1231: "numeric[]",
}
"""Types of arrays that the backend makes `real[]`."""

PAGE_SIZES = (8192, 16384, 32768)
"""Sizes of frames; a line pointer counts to 32767."""

TUPLE_DATA = 24
"""Offset of the columns in a tuple."""

ARRAY_HEADER = 24
"""Bytes of an array before its elements, its own length included."""

_ROOM = (PAGE_SIZES[-1] - layout.PAGE_HEADER_SIZE - layout.ITEM_ID_SIZE) // layout.MAXALIGN * layout.MAXALIGN
LONGEST = (_ROOM - TUPLE_DATA - ARRAY_HEADER) // 4
"""Elements of the longest array, where a row has nothing else."""


class RowTooLong(SchemaError):
    """A row takes more than the largest frame."""


def readable(attribute: Attribute) -> bool:
    """Whether a Strider reads the column where it lies."""
    known = attribute.type_oid in SCALARS or attribute.type_oid in ARRAYS
    stored = attribute.generated != VIRTUAL and not attribute.has_missing
    return known and stored and not attribute.out_of_line


def rewritten(attribute: Attribute, *, labels: bool = False) -> Attribute:
    """The column as it is in a frame; itself where no frame can hold it.

    Parameters
    ----------
    labels
        The column holds labels, which a list of classes numbers: then it may have any type.
    """
    oid = attribute.type_oid
    if oid in ARRAYS or oid in REWRITTEN_ARRAYS:
        kind, length = REAL_ARRAY, -1
    elif labels or oid in SCALARS or oid in REWRITTEN_SCALARS:
        kind, length = REAL, 4
    else:
        return attribute
    return Attribute(
        name=attribute.name,
        type_oid=kind,
        type_name=attribute.type_name,
        length=length,
        align="i",
        array_length=attribute.array_length,
        number=attribute.number,
    )


def unique_names(relation: str, attributes: Sequence[Attribute]) -> None:
    """Raise SchemaError where two columns have one name, as a query's may."""
    names = [attribute.name for attribute in attributes if not attribute.dropped]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"two columns of {relation} are called {name!r}", hint="Rename one with AS.")


def frame_size(relation: str, lengths: Collection[int]) -> int:
    """Bytes of the smallest frames that hold a row; lengths are elements of arrays, 0 for a number.

    Raises
    ------
    RowTooLong
        No frame does.
    """
    row = TUPLE_DATA + sum(ARRAY_HEADER + 4 * n if n else 4 for n in lengths)
    for size in PAGE_SIZES:
        if layout.align_up(row, layout.MAXALIGN) <= size - layout.PAGE_HEADER_SIZE - layout.ITEM_ID_SIZE:
            return size
    raise RowTooLong(
        f"a row of {relation} has {sum(max(1, n) for n in lengths)} numbers in use, more than the {LONGEST} or so "
        "that a page of the machine holds",
        hint="Train on fewer columns, or on a part of the array: query => 'SELECT a[1:8000] …'.",
    )
