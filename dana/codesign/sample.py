"""Pages for estimates: what a table's pages look like to a machine, without the table.

In: a schema. Out: one page's bytes. Values are zeros, which are legal everywhere (as labels, as row numbers) and as
good as any: no time of the machine depends on a value.
"""

from __future__ import annotations

from typing import Any

from dana.errors import UsageError
from dana.storage.builder import PageBuilder, PageFull, build_tuple
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS

UNKNOWN_VARLENA = 16
"""Bytes that a column of varying length is taken to have where nobody reads it."""


def sample_page(schema: TableSchema, *, page_size: int, tuples: int | None = None) -> tuple[bytes, int]:
    """A page of equal rows.

    Parameters
    ----------
    tuples
        Rows on the page; None: as many as fit.

    Returns
    -------
    page, tuples

    Raises
    ------
    UsageError
        Not even one row fits.
    """
    stored = build_tuple(schema.attributes, [_value(attribute) for attribute in schema.attributes])
    builder = PageBuilder(page_size)
    count = 0
    try:
        while tuples is None or count < tuples:
            builder.add(stored)
            count += 1
    except PageFull:
        pass
    if count == 0:
        raise UsageError(
            f"a row of {schema.relation} takes {len(stored)} bytes, which a page of {page_size} does not hold",
            hint="Such rows are TOASTed; estimate for larger pages (design page_size=32768) or fewer columns.",
        )
    return builder.finish(), count


def _value(attribute: Attribute) -> Any:
    if attribute.dropped:
        return None
    if attribute.type_oid in ARRAYS:
        return [0] * (attribute.array_length or 1)
    if attribute.type_oid in SCALARS:
        return 0
    return b"" if attribute.length >= 0 else bytes(UNKNOWN_VARLENA)
