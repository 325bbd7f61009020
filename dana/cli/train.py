"""Commands ``dana train`` and ``dana refresh``: a rule over a table, on the embedded server or another."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli.options import add_training, table_or_query, training_options
from dana.client.options import TrainOptions
from dana.errors import UsageError
from dana.session.terminal import cells, say

if TYPE_CHECKING:
    from dana.client.connection import Connection, TrainResult


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    train = commands.add_parser("train", help="train a rule over a table of a PostgreSQL server")
    train.add_argument("rule", help="file with the rule, registered under its name; or a registered rule")
    train.add_argument("table", nargs="?", help="table to train on, as SQL names it; or --query")
    add_training(train, TrainOptions)
    train.add_argument(
        "--shard",
        action="append",
        metavar="DSN",
        help="a server that has a part of the table, for each part; --dsn trains, and gathers the parts",
    )
    train.add_argument("--background", action="store_true", help="start it and do not wait: dana jobs shows it")
    train.set_defaults(run=run_train)
    refresh = commands.add_parser("refresh", help="train a model again on the current rows, from where it is")
    refresh.add_argument("model", help="name of a model of your own")
    refresh.add_argument("--dsn", help="server that has it (the embedded one)")
    refresh.set_defaults(run=run_refresh)


def run_train(options: argparse.Namespace) -> int:
    """Register the rule where a file is given, train, print the result."""
    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    # before the server is started, which takes seconds: a wrong argument is reported at once
    table, arguments = table_or_query(options), training_options(options, TrainOptions)
    if options.shard and options.background:
        raise UsageError("--shard and --background exclude each other", hint="The command itself reads the shards.")
    with connect(dsn_of(options)) as db:
        name = registered(db, options.rule)
        if options.background:
            say(f"job {db.start('train', name, table, **arguments)}")
            return 0
        result = db.train(name, table, shards=options.shard, progress=True, **arguments)
    _print(result)
    return 0


def run_refresh(options: argparse.Namespace) -> int:
    """Train a model again with its options, print the result."""
    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    with connect(dsn_of(options)) as db:
        result = db.refresh(options.model)
    _print(result)
    return 0


def registered(db: Connection, rule: str) -> str:
    """Name of a rule; a file's text is registered under the file's name first.

    Raises
    ------
    dsl.RuleError
        The text is no rule: said here, as warnings are, because the server does not know the file's name.
    """
    from dana.language.rulefile import load
    from dana.session.notices import ServerWarning

    file = Path(rule)
    # a registered rule may have the name of a folder, so only a file counts
    if file.suffix != ".py" and not file.is_file():
        return rule
    loaded = load(file)
    with warnings.catch_warnings():
        # `load` has shown the compiler's warnings already, with the file's name
        warnings.filterwarnings("ignore", r"warning\[", ServerWarning)
        db.create_rule(file.stem, loaded.text)
    return file.stem


def _print(result: TrainResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for row in _rows(result):
        table.add_row(*cells(row))
    Console().print(table)


def _rows(result: TrainResult) -> list[tuple[str, str]]:
    ended = "converged" if result.converged else "all epochs run"
    if result.kept != result.epochs:
        ended += f", epoch {result.kept} kept"
    # rows that stay at their shards have none here
    pages = f"; {result.pages:,} pages over all epochs" if result.pages else ""
    rows = [
        ("model", f"{result.model}, version {result.version}"),
        ("epochs", f"{result.epochs}, {ended}"),
        ("tuples", f"{result.tuples:,}, {result.skipped:,} skipped{pages}"),
    ]
    if result.loss is not None:
        rows.append(("loss", f"{result.loss:.6g}"))
    if result.validation_loss is not None:
        rows.append(("validation loss", f"{result.validation_loss:.6g}"))
    if result.cycles is not None:
        rows.append(("cycles", f"{result.cycles:,}"))
    if result.modelled_seconds is not None:
        rows.append(("modelled time", f"{1e3 * result.modelled_seconds:.3f} ms"))
    return [*rows, ("wall time", f"{1e3 * result.wall_seconds:.3f} ms")]
