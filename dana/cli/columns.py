"""The options of a command that describe a table which need not exist."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dana.errors import UsageError
from hwgen.spec.config import PAGE_SIZES

if TYPE_CHECKING:
    from dana.storage.schema import TableSchema


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
    from dana.storage.declared import declared, within_a_table

    if options.schema is not None:
        return declared(options.schema)
    if options.features is None:
        raise UsageError("what is made depends on the table; give --features N or --schema 'x float4[54], …'")
    within_a_table(options.features + 1)
    return declared(", ".join([*(f"x{index + 1} float4" for index in range(options.features)), "y float4"]))
