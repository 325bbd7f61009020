"""Pages for estimates: what a table's pages look like to a machine, without the table.

In: a schema. Out: the bytes of a page, or of the pages of a row. Values are zeros, which are legal everywhere (as
labels, as row numbers) and as good as any: no time of the machine depends on a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dana.errors import UsageError
from dana.storage.builder import PageBuilder, PageFull, build_tuple
from dana.storage.layout import LP_UNUSED
from dana.storage.parts import build_part_pages
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS

UNKNOWN_VARLENA = (16, 8, 4, 0)
"""Assumed sizes in bytes of an unused column of varying length: the largest that leaves room for the known number of
rows in a page is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Pages of equal rows; repeated, they make a table.

    Attributes
    ----------
    data
        One page; or, where a row lies over several, those of one row.
    page_size
        Bytes of a page.
    rows
        Rows on these pages.
    """

    data: bytes
    page_size: int
    rows: int

    @property
    def pages(self) -> int:
        """Pages that the rows take."""
        return len(self.data) // self.page_size

    def pages_of(self, rows: int) -> int:
        """Pages that so many rows take."""
        return -(-rows // self.rows) * self.pages


def sample_pages(schema: TableSchema, *, page_size: int, tuples: int | None = None) -> Sample:
    """A page of equal rows, or a row over several pages.

    Parameters
    ----------
    tuples
        Rows on the page; None: as many as fit.

    Raises
    ------
    UsageError
        Not even one row fits.
    """
    if schema.part:
        row = [_value(attribute) for attribute in schema.attributes]
        return Sample(data=build_part_pages(schema, [row], page_size=page_size), page_size=page_size, rows=1)
    for unknown in UNKNOWN_VARLENA:
        stored = _row(schema, unknown)
        builder, count = _filled(stored, page_size, tuples)
        if count and (tuples is None or count == tuples):
            break
    if count == 0:
        raise UsageError(
            f"a row of {schema.relation} takes {len(stored)} bytes, which a page of {page_size} does not hold",
            hint="Such rows are TOASTed; estimate for larger pages (--page-size 32768) or fewer columns.",
        )
    return Sample(data=builder.finish(), page_size=page_size, rows=count)


def sample_table(schema: TableSchema, *, page_size: int, counts: Sequence[tuple[int, int]]) -> bytes:
    """Pages of equal rows, each with so many tuples and line pointers; a page that is too small has as many as fit."""
    most = max((tuples for tuples, _ in counts), default=0)
    unknown = next(
        (one for one in UNKNOWN_VARLENA if _filled(_row(schema, one), page_size, most)[1] == most), UNKNOWN_VARLENA[-1]
    )
    stored = _row(schema, unknown)
    # pages of equal counts are equal, and tables have thousands of them
    made = {one: _counted(stored, page_size, *one) for one in set(counts)}
    return b"".join(made[one] for one in counts)


def _counted(stored: bytes, page_size: int, tuples: int, pointers: int) -> bytes:
    builder, pointers = PageBuilder(page_size), max(tuples, pointers)
    with suppress(PageFull):
        for k in range(pointers):
            # spreads the tuples evenly over the line pointers: dead rows may be anywhere on a page
            if (k + 1) * tuples // pointers > k * tuples // pointers:
                builder.add(stored)
            else:
                builder.add_pointer(LP_UNUSED)
    return builder.finish()


def _row(schema: TableSchema, unknown: int) -> bytes:
    return build_tuple(schema.attributes, [_value(attribute, unknown) for attribute in schema.attributes])


def _filled(stored: bytes, page_size: int, tuples: int | None) -> tuple[PageBuilder, int]:
    """A page with so many equal rows, or as many as fit."""
    builder = PageBuilder(page_size)
    count = 0
    try:
        while tuples is None or count < tuples:
            builder.add(stored)
            count += 1
    except PageFull:
        pass
    return builder, count


def fits(schema: TableSchema, *, page_size: int) -> bool:
    """Whether a page holds a row."""
    stored = build_tuple(schema.attributes, [_value(attribute) for attribute in schema.attributes])
    try:
        PageBuilder(page_size).add(stored)
    except PageFull:
        return False
    return True


def _value(attribute: Attribute, unknown: int = UNKNOWN_VARLENA[0]) -> object:
    if attribute.dropped:
        return None
    if attribute.type_oid in ARRAYS:
        return [0] * (attribute.array_length or 1)
    if attribute.type_oid in SCALARS:
        return 0
    return b"" if attribute.length >= 0 else bytes(unknown)
