"""The command ``dana shards``: the shards of a table, and what their servers answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dana.session.terminal import cells, shown

if TYPE_CHECKING:
    from rich.table import Table

    from dana.session.calls import MappedShard


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    shards = commands.add_parser("shards", help="show and check the shards of a table that lies on several servers")
    shards.add_argument("table", metavar="TABLE", help="the table, as SQL names it")
    shards.add_argument("--timeout", type=float, metavar="SECONDS", help="to wait for an answer of each (10)")
    shards.add_argument("--dsn", help="server that has the map, and would train (the embedded one)")
    shards.set_defaults(run=run_shards)


def run_shards(options: argparse.Namespace) -> int:
    """Show the shards; the exit code is that of a database's error if one cannot be gathered."""
    from rich.console import Console

    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    with connect(dsn_of(options)) as db:
        found = db.shards(options.table, timeout=options.timeout)
    Console().print(_table(found))
    return 0 if all(shard.error is None for shard in found) else 3


def _table(shards: list[MappedShard]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for title in ("shard", "server", "table", "rows", "pages", "version", "error"):
        table.add_column(title, justify="right" if title in ("shard", "rows", "pages") else "left")
    for shard in shards:
        numbers = ("" if number is None else f"{number:,}" for number in (shard.rows, shard.pages))
        begun = (str(shard.shard), shard.server, shard.relation, *numbers, shard.version or "")
        table.add_row(*cells(begun), shown(shard.error or ""))
    return table
