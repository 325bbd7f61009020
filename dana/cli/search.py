"""The command ``dana search``: tries hyperparameters on a table and ranks them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dana.cli.options import add_training, json_object, table_or_query, training_options
from dana.cli.train import registered
from dana.client.options import TrialOptions
from dana.printable import printable
from dana.session.terminal import cells, shown

if TYPE_CHECKING:
    from rich.table import Table

    from dana.session.calls import SearchPoint


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    search = commands.add_parser("search", help="try hyperparameters of a rule over a table and rank them")
    search.add_argument("rule", help="file with the rule, registered under its name; or a registered rule")
    search.add_argument("table", nargs="?", help="table to train and to evaluate on, as SQL names it; or --query")
    search.add_argument(
        "--try",
        dest="grid",
        action="append",
        required=True,
        type=_values,
        metavar="META=A,B,…",
        help="values of a meta; with several metas all combinations are tried; with --candidates also META=LOW..HIGH, "
        "or META=LOW..HIGH:log",
    )
    search.add_argument("--candidates", type=int, metavar="N", help="try only so many combinations, drawn at random")
    search.add_argument("--halving", action="store_true", help="train all on few rows, the best on more")
    search.add_argument("--metric", metavar="NAME", help="metric that ranks them: rmse (default), auc, accuracy, r2 …")
    search.add_argument("--folds", type=int, metavar="N", help="score by cross-validation with so many folds (5)")
    search.add_argument("--test-size", type=float, metavar="PART", help="score on one part of the rows instead, as 0.2")
    search.add_argument("--test-after", type=json_object, metavar="JSON", help="score on the rows later than this")
    search.add_argument("--seed", type=int, metavar="N", help="selects the rows of a fold or a part (1)")
    search.add_argument("--threshold", type=float, metavar="NUMBER", help="least prediction that counts as positive")
    search.add_argument("--keep", metavar="MODEL", help="train a model of this name with the best")
    add_training(search, TrialOptions)
    search.set_defaults(run=run_search)


def _values(text: str) -> tuple[str, list[float] | dict[str, float]]:
    name, _, values = text.partition("=")
    try:
        if ".." in values:
            low, _, high = values.removesuffix(":log").partition("..")
            return name.strip(), {"low": float(low), "high": float(high), "log": values.endswith(":log")}
        return name.strip(), [float(value) for value in values.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"META=NUMBER,NUMBER,… is expected, not {text!r}") from None


def run_search(options: argparse.Namespace) -> int:
    """Register the rule where a file is given, search, print the points."""
    from rich.console import Console

    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    # before the server is started, which takes seconds: a wrong argument is reported at once
    table, arguments = table_or_query(options), training_options(options, TrialOptions)
    with connect(dsn_of(options)) as db:
        points = db.search(
            registered(db, options.rule),
            table,
            grid=dict(options.grid),
            metric=options.metric,
            candidates=options.candidates,
            halving=options.halving,
            folds=options.folds,
            test_size=options.test_size,
            test_after=options.test_after,
            seed=options.seed,
            threshold=options.threshold,
            keep=options.keep,
            **arguments,
        )
    Console().print(_table(points, rounds=bool(options.halving)))
    return 0


def _table(points: list[SearchPoint], *, rounds: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    # all points of a grid have the same metas
    metas = list(points[0].hyper)
    for title in ("rank", *metas, *(["round"] if rounds else []), "score", "± deviation", ""):
        table.add_column(Text(printable(title)), justify="left" if title == "" else "right")
    for point in points:
        score, deviation = (f"{value:.6g}" if value is not None else "" for value in (point.score, point.deviation))
        rank = "" if point.rank is None else str(point.rank)
        values = [f"{point.hyper[meta]:g}" for meta in metas] + ([str(point.round)] if rounds else [])
        table.add_row(*cells((rank, *values, score, deviation)), shown(point.error or ""))
    return table
