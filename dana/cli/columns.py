"""Columns as they are typed on a command line, ``x float4[54], y float4``, into the schema of a table that has them.

In: text. Out: a `TableSchema`, as PostgreSQL's catalog would describe a new table with these columns.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from dana.errors import UsageError
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS
from hwgen.spec.config import PAGE_SIZES

SCALAR_TYPES = {one.typname: one for one in SCALARS.values()}
ARRAY_TYPES = {one.typname: one for one in ARRAYS.values()}
ALIASES = {one.name: one.typname for one in SCALARS.values()} | {"int": "int4"}

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
    from dana.storage.columns import MAX_COLUMNS

    if columns > MAX_COLUMNS:
        raise UsageError(
            f"a table of PostgreSQL has at most {MAX_COLUMNS} columns, not {columns}",
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
    number = types[name]
    column = Attribute(
        name=match["name"], type_oid=number.oid, type_name=number.name, length=number.length, align=number.align
    )
    if length is None:
        return column
    # an array is aligned as its elements are, where these take four bytes or more
    return replace(column, type_oid=number.array_oid, type_name=f"{number.name}[]", length=-1, array_length=length)
