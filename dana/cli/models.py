"""Commands for trained models: list, evaluate, predict, export."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dana.cli.options import names, path
from dana.printable import printable
from dana.session.terminal import cells, say
from hwgen.folders import create_file, write_file

if TYPE_CHECKING:
    from rich.table import Table

    from dana.client.connection import Connection

FORMATS = ("json", "onnx", "pmml")

# the last four are the full-width forms, which spreadsheets read as the ASCII ones
FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
# ASCII digits: a spreadsheet takes others for text, and the text for a formula
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    models = commands.add_parser("models", help="list the trained models; with --metric the best first")
    models.add_argument("name", nargs="?", metavar="NAME", help="only versions of this one")
    models.add_argument("--metric", metavar="NAME", help="evaluate each, and rank them: auc, accuracy, rmse, r2 …")
    models.set_defaults(run=run_models)

    evaluate = commands.add_parser("evaluate", help="compare a model's predictions with the labels")
    evaluate.add_argument("model", metavar="MODEL", help="its name, or name@version")
    evaluate.set_defaults(run=run_evaluate)

    importance = commands.add_parser("importance", help="show what a model's metric loses without each feature")
    importance.add_argument("model", metavar="MODEL", help="its name, or name@version")
    importance.add_argument("--metric", metavar="NAME", help="metric that gets worse: rmse, log_loss, auc, accuracy …")
    importance.add_argument("--repeats", type=int, metavar="N", help="permutations of each feature (5)")
    importance.add_argument("--rows", type=int, metavar="N", help="maximum number of rows, else a sample (10000)")
    importance.add_argument("--seed", type=int, metavar="N", help="selects rows and permutations (1)")
    importance.set_defaults(run=run_importance)
    for command in (evaluate, importance):
        _add_rows(command, "table to evaluate on (what it was trained on)")
        command.add_argument("--part", metavar="PART", help="test (held-out rows), train or all")
        command.add_argument("--threshold", type=float, metavar="X", help="least prediction that counts as positive")

    predict = commands.add_parser("predict", help="write a model's predictions for a table's rows as CSV")
    predict.add_argument("model", metavar="MODEL", help="its name, or name@version")
    _add_rows(predict, "table or view with the rows; or --query")
    predict.add_argument("--columns", type=names, metavar="A,B,…", help="columns to keep (the primary key)")
    what = predict.add_mutually_exclusive_group()
    what.add_argument("--labels", action="store_true", help="labels instead of probabilities or scores")
    what.add_argument(
        "--contributions", action="store_true", help="what each feature adds to the sum of a linear model"
    )
    predict.add_argument(
        "--spreadsheet", action="store_true", help="put ' before texts that a spreadsheet would run as formulas"
    )
    predict.add_argument("-o", "--output", type=path, metavar="FILE", help="write there instead of to the terminal")
    predict.set_defaults(run=run_predict)

    export = commands.add_parser("export", help="write a trained model as ONNX, PMML or JSON")
    export.add_argument("model", metavar="MODEL", help="its name, or name@version")
    export.add_argument("--format", choices=FORMATS, help="by default the suffix of the output's name, else json")
    export.add_argument("-o", "--output", type=path, metavar="FILE", help="write there instead of to the terminal")
    export.set_defaults(run=run_export_model)
    for command in (models, evaluate, importance, predict, export):
        command.add_argument("--dsn", help="server that has the model (the embedded one)")


def _add_rows(command: argparse.ArgumentParser, source: str) -> None:
    rows = command.add_mutually_exclusive_group()
    rows.add_argument("--source", metavar="TABLE", help=source)
    rows.add_argument("--query", metavar="SQL", help="one SELECT instead")
    command.add_argument("--filter", metavar="SQL", help="condition on the rows")


def _connected(options: argparse.Namespace) -> Connection:
    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    return connect(dsn_of(options))


def run_models(options: argparse.Namespace) -> int:
    """Show the models by rank, or the newest first."""
    from rich.console import Console

    with _connected(options) as db:
        found = db.models(options.name, metric=options.metric)
    rows = []
    for model in found:
        score = model.metric if options.metric else model.loss
        seconds = "" if model.wall_seconds is None else f"{model.wall_seconds:.3g} s"
        shown = (f"{model.name}@{model.version}", model.rule, model.source, "" if score is None else f"{score:.6g}")
        part = (model.part or "",) if options.metric else ()
        rows.append((*shown, *part, seconds, f"{model.created:%Y-%m-%d %H:%M}"))
    scores = (options.metric, "part") if options.metric else ("loss",)
    Console().print(_table(("model", "rule", "data", *scores, "time", "trained"), rows))
    return 0


def run_evaluate(options: argparse.Namespace) -> int:
    """Show each metric on a line, then the tables of classes."""
    from rich.console import Console

    from dana.metrics import TABLES

    asked = {name: getattr(options, name) for name in ("query", "filter", "part", "threshold")}
    with _connected(options) as db:
        found = db.evaluate(options.model, options.source, **asked)
    console = Console()
    console.print(_table((), ((name, _shown(each)) for name, each in found.items() if name not in TABLES)))
    for titles, rows in found.tables():
        console.print()
        console.print(_table(tuple(titles), ([_shown(each) for each in row] for row in rows), names=1))
    return 0


def run_importance(options: argparse.Namespace) -> int:
    """Show the features, the most important first."""
    from rich.console import Console

    names = ("query", "filter", "part", "threshold", "metric", "repeats", "rows", "seed")
    with _connected(options) as db:
        found = db.importance(options.model, options.source, **{name: getattr(options, name) for name in names})
    rows = ((one.feature, _shown(one.importance), _shown(one.deviation)) for one in found)
    Console().print(_table(("feature", "importance", "± deviation"), rows, names=1))
    return 0


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def run_predict(options: argparse.Namespace) -> int:
    """Write the predictions as CSV, NULL as an empty field."""
    from dana.client.predictions import CONTRIBUTIONS, predicted_rows, read_predicting
    from dana.errors import UsageError

    if options.source is None and options.query is None:
        raise UsageError("pass either --source TABLE or --query 'SELECT …'")
    asked = {name: getattr(options, name) for name in ("query", "columns", "filter")}
    with _connected(options) as db:
        how = read_predicting(db.session, options.model)
        function = CONTRIBUTIONS if options.contributions else how.function(labels=options.labels)
        titles, rows = predicted_rows(db.session, options.model, options.source, function=function, **asked)
    # an array becomes a column for each element; None is a row without a prediction
    if function in ("dana_predict_array", CONTRIBUTIONS):
        names = how.contributions() if function == CONTRIBUTIONS else how.titles()
        titles = [*titles[:-1], *(": ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in names)]
        rows = [(*kept, *(numbers or [None] * len(names))) for *kept, numbers in rows]
    # with the titles: a column may be named by another user as well
    rows = [tuple(titles), *rows]
    formulas = sum(is_formula(value) for row in rows for value in row)
    if options.spreadsheet:
        # an apostrophe makes a spreadsheet show the cell as text
        rows = [tuple(f"'{value}" if is_formula(value) else value for value in row) for row in rows]
    elif formulas:
        say(
            f"warning: {formulas:,} of the texts begin like formulas; use --spreadsheet if a spreadsheet will open "
            "the file",
            file=sys.stderr,
        )
    if options.output is None:
        # only for a terminal: a file must have the bytes of the database
        shown = sys.stdout.isatty()
        if not shown and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        values = ([printable(v) if shown and isinstance(v, str) else v for v in row] for row in rows)
        csv.writer(sys.stdout, lineterminator="\n").writerows(values)
        return 0
    with open(options.output, "w", encoding="utf-8", newline="", opener=create_file) as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    say(f"{options.output}: {len(rows) - 1:,} predictions of model {options.model}")
    return 0


def is_formula(value: object) -> bool:
    """Whether a spreadsheet would run a value of a CSV file: OWASP's list (CSV Injection), without numbers."""
    return isinstance(value, str) and FORMULA.match(value) is not None and NUMBER.fullmatch(value) is None


def run_export_model(options: argparse.Namespace) -> int:
    """Read the model, write it."""
    from dana.client.models import encode_model, format_of, read_exported
    from dana.errors import UsageError

    kind = options.format or format_of(options.output)
    if kind == "onnx" and options.output is None and sys.stdout.isatty():
        raise UsageError("ONNX is binary; write it to a file with --output FILE")
    with _connected(options) as db:
        stored = read_exported(db.session, options.model)
    made = encode_model(stored, kind)
    if options.output is None:
        if sys.stdout.isatty():
            made = printable(made.decode(), lines=True).encode()
        # bytes: a text stream would translate line ends and encode in the locale's charset
        sys.stdout.buffer.write(made)
        sys.stdout.flush()
    else:
        write_file(options.output, made)
        say(f"{options.output}: model {stored['name']}@{stored['version']} as {kind}, {len(made):,} bytes")
    return 0


def _table(titles: tuple[str, ...], rows: Iterable[Sequence[str]], names: int = 3) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(titles))
    for place, title in enumerate(titles):
        name = place < names  # names may be wrapped, numbers not
        table.add_column(Text(printable(title)), no_wrap=not name, overflow="fold", justify="left" if name else "right")
    for row in rows:
        table.add_row(*cells(row))
    return table
