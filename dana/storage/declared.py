"""Parses a list of columns such as ``x float4[54], y float4`` into a table schema.

The schema is that of a new table with these columns in the catalog of PostgreSQL.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dana.errors import UsageError
from dana.storage.columns import MAX_COLUMNS
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS

SCALAR_TYPES = {one.typname: one for one in SCALARS.values()}
ARRAY_TYPES = {one.typname: one for one in ARRAYS.values()}
ALIASES = {one.name: one.typname for one in SCALARS.values()} | {"int": "int4"}
TEXT_TYPES = {"text": 25, "varchar": 1043}
"""OIDs of text types, which are allowed for labels with classes and for unused columns."""

MAX_ELEMENTS = 1 << 24
"""Maximum length of an array. No machine holds so many; the compiler reports how many fit."""

COLUMN = re.compile(r"\s*(?P<name>\w+)\s+(?P<type>[a-z0-9 ]*[a-z0-9])\s*(?:\[\s*(?P<length>\d+)\s*\])?\s*")


def within_a_table(columns: int, label: str | None = None) -> None:
    """Raise UsageError if a table of PostgreSQL has fewer columns."""
    if columns > MAX_COLUMNS:
        raise UsageError(
            f"a table of PostgreSQL has at most {MAX_COLUMNS} columns, not {columns}",
            hint=f"Put the features into one column: --schema 'x float4[{columns - 1}], {label or 'y'} float4' "
            f"--label {label or 'y'}."
            if columns <= MAX_ELEMENTS
            else "",
        )


def declared(text: str, label: str | None = None) -> TableSchema:
    """Return the schema of a table with the columns in ``text``; `label` is used only for a hint.

    Raises
    ------
    UsageError
        There are too many columns, a part of the text is not a column, or its type is unknown.
    """
    # types with a comma, such as numeric(10, 2), are not among those that are read
    parts = text.split(",")
    within_a_table(len(parts), label)
    attributes = tuple(_column(part) for part in parts)
    names: set[str] = set()
    for attribute in attributes:
        if attribute.name in names:
            raise UsageError(f"column {attribute.name} stands twice in the schema {text!r}")
        names.add(attribute.name)
    return TableSchema(relation="the schema", attributes=attributes)


def _column(text: str) -> Attribute:
    match = COLUMN.fullmatch(text)
    if match is None:
        raise UsageError(f"a column such as 'x float4[54]' or 'y int4' is expected, not {text.strip()!r}")
    name = ALIASES.get(match["type"], match["type"])
    length = int(match["length"]) if match["length"] else None
    if length is not None and length > MAX_ELEMENTS:
        raise UsageError(f"an array has at most {MAX_ELEMENTS:,} elements, not {length:,}")
    if name in TEXT_TYPES and length is None:
        # text is "i": pg_type.typalign of all variable-length text types
        return Attribute(name=match["name"], type_oid=TEXT_TYPES[name], type_name=name, length=-1, align="i")
    types = SCALAR_TYPES if length is None else ARRAY_TYPES
    if name not in types:
        brackets = "" if length is None else "[N]"
        known = ", ".join(f"{one}{brackets}" for one in (*types, *(TEXT_TYPES if length is None else ())))
        raise UsageError(f"column {match['name']} must be one of {known}, not {match['type']}{brackets}")
    number = types[name]
    column = Attribute(
        name=match["name"], type_oid=number.oid, type_name=number.name, length=number.length, align=number.align
    )
    if length is None:
        return column
    # arrays have the alignment of their elements, which take at least four bytes
    return replace(column, type_oid=number.array_oid, type_name=f"{number.name}[]", length=-1, array_length=length)
