"""Frames: which columns PostgreSQL's side can rewrite for a Strider, and what the rewritten pages look like.

In: a table's attributes. Out: the same as a machine would see them if they were rewritten, and the attributes of the
frames. A frame is a heap page whose tuples hold the columns in use and nothing else: `real` for a number, `real[]` for
an array; or, of rows that no frame holds, parts (pg_extension/src/source/frames.c writes them). This module reads no
page and knows no rule.
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
"""Sizes of frames; a line pointer counts to 32767."""

TUPLE_DATA = 24
"""Offset of the columns in a tuple."""

ARRAY_HEADER = 24
"""Bytes of an array before its elements, its own length included."""

NEAR = 0.05
"""Fraction of a row's bytes that larger frames may cost."""

MAX_PARTS = 4096
"""Parts of a row at most: the descriptors of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What frames look like.

    Attributes
    ----------
    page_size
        Bytes of a frame.
    part
        Values of a part, where a row lies over several frames (`dana.storage.parts`); 0: a row is a tuple.
    """

    page_size: int
    part: int = 0


class RowTooLong(SchemaError):
    """A row has more numbers than frames can hold."""


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
    if oid in ARRAYS or oid in CONVERTED_ARRAYS:
        kind, length = REAL_ARRAY, -1
    elif labels or oid in SCALARS or oid in CONVERTED_SCALARS:
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


def frame_layout(relation: str, lengths: Collection[int]) -> Frames:
    """The smallest frames that hold a row, or else the largest in which its parts take about the fewest bytes.

    Parameters
    ----------
    lengths
        Elements of arrays, 0 for a number.

    Raises
    ------
    RowTooLong
        It has more parts than a machine can tell apart.
    """
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
    """The frames' columns, those in use in the order of their uses, and what the frames look like."""
    columns = [rewritten(schema.attributes[use.attribute]) for use in uses]
    lengths = [use.count if column.type_oid == REAL_ARRAY else 0 for use, column in zip(uses, columns, strict=True)]
    frames = frame_layout(schema.relation, lengths)
    attributes = tuple(
        replace(column, number=at + 1, array_length=length or None)
        for at, (column, length) in enumerate(zip(columns, lengths, strict=True))
    )
    return TableSchema(relation=schema.relation, attributes=attributes, part=frames.part), frames
