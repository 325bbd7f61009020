"""The command ``dana load``: a table from a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from dana.session.terminal import say


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    load = commands.add_parser("load", help="make a table from a CSV or Parquet file")
    load.add_argument("file", metavar="FILE", type=Path, help="*.csv or *.parquet, with the names of its columns")
    load.add_argument("table", metavar="TABLE", help="name of the table, as in SQL")
    load.add_argument("--replace", action="store_true", help="drop a table of that name first")
    load.add_argument("--dsn", help="server to load it into (the embedded one)")
    load.set_defaults(run=run_load)


def run_load(options: argparse.Namespace) -> int:
    """Load it, and print the columns, their types, and how many values are NULL."""
    from psycopg.errors import DuplicateTable

    from dana.cli.server import dsn_of
    from dana.client.connection import connect
    from dana.errors import UsageError

    with connect(dsn_of(options)) as db:
        try:
            loaded = db.load(options.file, options.table, replace=options.replace)
        except DuplicateTable as error:
            raise UsageError(f"{error.diag.message_primary}\nHint: --replace drops it first.") from None
    say(loaded, lines=True)
    return 0
