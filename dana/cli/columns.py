"""Columns as they are typed on a command line, ``x float4[54], y float4``, into the schema of a table that has them.

In: text. Out: a `TableSchema`, as PostgreSQL's catalog would describe a new table with these columns.
"""

from __future__ import annotations

import argparse
import re

from dana.errors import UsageError
from dana.storage.schema import Attribute, TableSchema
from hwgen.spec.config import PAGE_SIZES

# catalog/pg_type.dat: oid, typlen, typalign, and the name that format_type() writes
SCALAR_TYPES = {
    "bool": (16, 1, "c", "boolean"),
    "int2": (21, 2, "s", "smallint"),
    "int4": (23, 4, "i", "integer"),
    "int8": (20, 8, "d", "bigint"),
    "float4": (700, 4, "i", "real"),
    "float8": (701, 8, "d", "double precision"),
}
ARRAY_TYPES = {
    "float4": (1021, -1, "i", "real[]"),
    "float8": (1022, -1, "d", "double precision[]"),
}
ALIASES = {
    "boolean": "bool",
    "smallint": "int2",
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
}

COLUMN = re.compile(r"\s*(?P<name>\w+)\s+(?P<type>[a-z0-9 ]*[a-z0-9])\s*(?:\[\s*(?P<length>\d+)\s*\])?\s*")


def add_table(command: argparse.ArgumentParser) -> None:
    """The options that describe a table: `declared_table` reads them, but for `label` and `page_size`."""
    table = command.add_mutually_exclusive_group()
    table.add_argument("--features", type=_count, metavar="N", help="for N float4 columns and a float4 label")
    table.add_argument("--schema", metavar="COLUMNS", help="for a table of these: 'x float4[54], y float4'")
    command.add_argument("--label", metavar="COLUMN", help="label column in --schema")
    command.add_argument("--page-size", type=int, default=8192, choices=PAGE_SIZES, help="BLCKSZ (8192)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of features from 1 is expected, not {text!r}")
    return int(text)


def declared_table(options: argparse.Namespace) -> TableSchema:
    """The table that the options of `add_table` describe.

    Raises
    ------
    UsageError
        They describe none.
    """
    if options.schema is not None:
        return declared(options.schema)
    if options.features is None:
        raise UsageError("what is made depends on the table; give --features N or --schema 'x float4[54], …'")
    _within_a_table(options.features + 1)
    return declared(", ".join([*(f"x{index + 1} float4" for index in range(options.features)), "y float4"]))


def _within_a_table(columns: int) -> None:
    from dana.storage.columns import MOST_COLUMNS

    if columns > MOST_COLUMNS:
        raise UsageError(
            f"a table of PostgreSQL has at most {MOST_COLUMNS} columns, not {columns}",
            hint="Put the features into one column: --schema 'x float4[N], y float4' --label y.",
        )


def declared(text: str) -> TableSchema:
    """Schema of a table with the columns that ``text`` lists.

    Raises
    ------
    UsageError
        More columns than a table has; or a part of the text is no column, or names a type that is not known here.
    """
    parts = text.split(",")
    _within_a_table(len(parts))
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
    types = SCALAR_TYPES if length is None else ARRAY_TYPES
    if name not in types:
        brackets = "" if length is None else "[N]"
        known = ", ".join(f"{one}{brackets}" for one in types)
        raise UsageError(f"column {match['name']} must be one of {known}, not {match['type']}{brackets}")
    oid, size, align, written = types[name]
    return Attribute(name=match["name"], type_oid=oid, type_name=written, length=size, align=align, array_length=length)
