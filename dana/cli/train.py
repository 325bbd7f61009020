"""Command ``dana train``: a rule over a table, through SQL on the embedded server or another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dana.terminal import cells

if TYPE_CHECKING:
    from dana.client import TrainResult


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    train = commands.add_parser("train", help="train a rule over a table of a PostgreSQL server")
    train.add_argument("rule", help="file with the rule, registered under its name; or a registered rule")
    train.add_argument("table", help="table to train on, as SQL names it")
    train.add_argument("--model", help="name of the model")
    train.add_argument("--features", type=names, metavar="A,B,…", help="feature columns, in order")
    train.add_argument("--label", metavar="COLUMN", help="label column")
    train.add_argument("--epochs", type=int, metavar="N", help="passes over the table (the rule's)")
    train.add_argument("--backend", choices=("sim", "rtl", "interp"), help="what executes the rule (sim)")
    train.add_argument(
        "--set", dest="hyper", action="append", default=[], type=_assignment, metavar="META=VALUE", help="change a meta"
    )
    train.add_argument("--background", action="store_true", help="start it and do not wait: dana jobs shows it")
    train.add_argument("--dsn", help="server to train on (the embedded one)")
    train.set_defaults(run=run_train)


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _assignment(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"META=NUMBER is expected, not {text!r}") from None


def run_train(options: argparse.Namespace) -> int:
    """Register the rule where a file is given, train, print the result."""
    from dana.cli.server import started
    from dana.client import connect
    from dana.rulefile import read_rule

    dsn = options.dsn or started(major=18).dsn
    with connect(dsn) as db:
        name = options.rule
        file = Path(name)
        if file.suffix == ".py" or file.is_file():
            name = file.stem
            db.create_udf(name, read_rule(file))
        arguments = {
            "model": options.model,
            "features": options.features,
            "label": options.label,
            "epochs": options.epochs,
            "hyper": dict(options.hyper) or None,
            "backend": options.backend,
        }
        if options.background:
            print(f"job {db.start('train', name, options.table, **arguments)}")
            return 0
        result = db.train(name, options.table, **arguments, progress=True)
    _print(result)
    return 0


def _print(result: TrainResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for row in _rows(result):
        table.add_row(*cells(row))
    Console().print(table)


def _rows(result: TrainResult) -> list[tuple[str, str]]:
    ended = "converged" if result.converged else "all epochs run"
    rows = [
        ("model", f"{result.model}, version {result.version}"),
        ("epochs", f"{result.epochs}, {ended}"),
        ("tuples", f"{result.tuples:,}, {result.skipped:,} skipped, {result.pages:,} pages"),
    ]
    if result.loss is not None:
        rows.append(("loss", f"{result.loss:.6g}"))
    if result.cycles is not None:
        rows.append(("cycles", f"{result.cycles:,}"))
    if result.modelled_seconds is not None:
        rows.append(("modelled time", f"{1e3 * result.modelled_seconds:.3f} ms"))
    return [*rows, ("wall time", f"{1e3 * result.wall_seconds:.3f} ms")]
