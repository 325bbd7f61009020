"""Frames: pages that a backend builds from rows for a Strider.

A frame is a heap page that contains only the columns in use: `real` for a number and `real[]` for an array. Rows that
exceed a frame are split into parts. pg_extension/src/source/frames.c writes the frames.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dana.storage import layout
from dana.storage.parts import most_values
from dana.storage.schema import VIRTUAL, Attribute, SchemaError, TableSchema, Use
from dana.storage.types import ARRAYS, CONVERTED_ARRAYS, CONVERTED_SCALARS, SCALARS

REAL, REAL_ARRAY = 700, 1021

PAGE_SIZES = (8192, 16384, 32768)
"""Sizes of frames, bytes; the offset in a line pointer has 15 bits."""

TUPLE_DATA = 24
"""Offset of the columns in a tuple."""

ARRAY_HEADER = 24
"""Bytes of an array before its elements, including the varlena header."""

NEAR = 0.05
"""Fraction of additional bytes per row that is accepted for larger frames."""

MAX_PARTS = 4096
"""Maximum number of parts of a row, limited by the descriptors of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The layout of frames.

    Attributes
    ----------
    page_size
        Bytes of a frame.
    part
        Number of values in a part if rows are split (`dana.storage.parts`); 0: a row is a tuple.
    """

    page_size: int
    part: int = 0


class RowTooLong(SchemaError):
    """A row has more numbers than frames can hold."""


def readable(attribute: Attribute) -> bool:
    """Whether a Strider can read the column in place."""
    known = attribute.type_oid in SCALARS or attribute.type_oid in ARRAYS
    # a virtual column has no place on the page, and the default of an added one is only in pg_attribute
    stored = attribute.generated != VIRTUAL and not attribute.has_missing
    return known and stored and not attribute.out_of_line


def rewritten(attribute: Attribute, *, labels: bool = False) -> Attribute:
    """Return the column as stored in a frame; the column itself if frames cannot contain it.

    Parameters
    ----------
    labels
        The column is a label with a list of classes, so it may have any type.
    """
    oid = attribute.type_oid
    if oid in ARRAYS or oid in CONVERTED_ARRAYS:
        kind, length = REAL_ARRAY, -1
    elif labels or oid in SCALARS or oid in CONVERTED_SCALARS:
        kind, length = REAL, 4
    else:
        return attribute
    return Attribute(
        name=attribute.name,
        type_oid=kind,
        # the original type: messages name it, and the backend converts from it
        type_name=attribute.type_name,
        length=length,
        align="i",
        array_length=attribute.array_length,
        number=attribute.number,
    )


def unique_names(relation: str, attributes: Sequence[Attribute]) -> None:
    """Raise SchemaError if two columns have the same name, which is possible in a query."""
    names = [attribute.name for attribute in attributes if not attribute.dropped]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"two columns of {relation} are called {name!r}", hint="Rename one with AS.")


def frame_layout(relation: str, lengths: Collection[int]) -> Frames:
    """Return the smallest frames that fit a row, or the largest that store its parts without much waste.

    Parameters
    ----------
    lengths
        Number of elements of each array, 0 for a number.

    Raises
    ------
    RowTooLong
        The row has more than `MAX_PARTS` parts.
    """
    # array headers and elements are of 4 bytes, so nothing is padded
    row = TUPLE_DATA + sum(ARRAY_HEADER + 4 * n if n else 4 for n in lengths)
    for size in PAGE_SIZES:
        if layout.align_up(row, layout.MAXALIGN) <= size - layout.PAGE_HEADER_SIZE - layout.ITEM_ID_SIZE:
            return Frames(page_size=size)
    values = sum(max(1, n) for n in lengths)
    largest = MAX_PARTS * most_values(PAGE_SIZES[-1])
    if values > largest:
        raise RowTooLong(
            f"a row of {relation} has {values:,} numbers in use, more than the {largest:,} of {MAX_PARTS} frames",
            hint="Train on fewer columns, or on a part of the array: query => 'SELECT a[1:100000] …'.",
        )
    total = {size: -(-values // most_values(size)) * size for size in PAGE_SIZES}
    # larger frames take fewer descriptors
    size = max(size for size in PAGE_SIZES if total[size] <= (1 + NEAR) * min(total.values()))
    return Frames(page_size=size, part=most_values(size))


def framed(schema: TableSchema, uses: Sequence[Use]) -> tuple[TableSchema, Frames]:
    """Return the schema of frames, with the columns in the order of their uses, and their layout."""
    columns = [rewritten(schema.attributes[use.attribute]) for use in uses]
    lengths = [use.count if column.type_oid == REAL_ARRAY else 0 for use, column in zip(uses, columns, strict=True)]
    frames = frame_layout(schema.relation, lengths)
    attributes = tuple(
        replace(column, number=at + 1, array_length=length or None)
        for at, (column, length) in enumerate(zip(columns, lengths, strict=True))
    )
    return TableSchema(relation=schema.relation, attributes=attributes, part=frames.part), frames
