"""Commands ``dana bench``: rules beside scikit-learn on held-out rows; trainings beside what one would pick instead."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli import paper
from dana.cli.options import names
from dana.cli.screen import console, one_thread, positive, renderer

if TYPE_CHECKING:
    from rich.table import Table

    from dana.peers.contest import Contest

MISSED = 1
"""Exit code where a rule is less accurate than its counterpart by more than 1 %, on a raw table by more than 0.02."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    bench = commands.add_parser("bench", help="measure: accuracy and speed beside what one would pick instead")
    kinds = bench.add_subparsers(required=True, metavar="WHAT")
    accuracy = kinds.add_parser("accuracy", help="each rule and its counterpart: same rows, same split, same metric")
    accuracy.add_argument("names", nargs="*", metavar="RULE", help="which rules (all)")
    accuracy.add_argument(
        "--data", type=Path, metavar="FOLDER", help="folder with covtype.data, a9a.libsvm … ($DANA_DATA)"
    )
    accuracy.add_argument("--markdown", action="store_true", help="print the table of docs/rules.md, without times")
    accuracy.set_defaults(run=run_accuracy)
    peers = kinds.add_parser(
        "peers", help="a pass of training beside scikit-learn, LIBLINEAR, NumPy, numba, count(*): same rows, in turn"
    )
    peers.add_argument("cases", nargs="*", metavar="CASE", help="which tables of the paper's shapes (all)")
    peers.add_argument("--scale", type=positive, metavar="PART", help="of their rows, such as 0.1 (1)")
    peers.add_argument("--table", help="a table of yours instead, which is only read")
    peers.add_argument("--rule", help="what that is trained with (logistic)")
    peers.add_argument("--label", metavar="COLUMN", help="its label")
    peers.add_argument("--features", type=names, metavar="COLUMN,…", help="its features (all columns of numbers)")
    peers.add_argument("--passes", type=_count, default=5, metavar="N", help="epochs of a training (5)")
    peers.add_argument("--repeats", type=_count, default=3, metavar="N", help="trainings of each (3)")
    peers.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    peers.add_argument("--html", type=Path, metavar="FILE", help="draw a page of them")
    peers.add_argument("--history", type=Path, metavar="FILE", help="add the run to this file, not to your history")
    peers.add_argument("--dsn", help="server to train on (the embedded one)")
    peers.set_defaults(run=run_peers)
    paper.register(kinds)
    history = kinds.add_parser("history", help="what `dana bench peers` measured, run after run")
    history.add_argument("case", nargs="?", metavar="CASE", help="this one alone")
    history.add_argument("--history", type=Path, metavar="FILE", help="another file than yours")
    history.set_defaults(run=run_history)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1 on is expected, not {text!r}")
    return int(text)


def run_accuracy(options: argparse.Namespace) -> int:
    """Print a line as soon as it is known, then how many came within 1 %."""
    from dana.accuracy.table import compare

    given = options.data or os.environ.get("DANA_DATA")
    heads: tuple[str, ...] = (
        "rule",
        "data",
        "rows × columns",
        "metric",
        "dana",
        "theirs",
        "counterpart",
        "ratio",
        "dana s",
        "theirs s",
    )
    if options.markdown:
        heads = heads[:-2]
        layout = "| " + " | ".join(["{}"] * len(heads)) + " |"
    else:
        layout = "{:<12} {:<24} {:>15}  {:<27} {:>9} {:>9}  {:<21} {:>6}  {:>8} {:>8}"
    print(layout.format(*heads))
    if options.markdown:
        print("|---" * len(heads) + "|")
    found = []
    for row in compare(options.names, None if given is None else Path(given)):
        found.append(row.enough)
        shape = f"{row.rows:,} × {row.columns}"
        values = (f"{row.ours:.4g}", f"{row.theirs:.4g}", row.counterpart, f"{row.ratio:.3f}")
        times = (f"{row.seconds:.1f}", f"{row.their_seconds:.1f}")
        cells = (row.rule, row.data, shape, row.metric.name, *values, *times)
        print(layout.format(*cells) + ("" if row.enough or options.markdown else "  worse"), flush=True)
    print(f"\n{sum(found)} of {len(found)} within 1 %, on raw tables within 0.02, or better")
    return 0 if all(found) else MISSED


def run_peers(options: argparse.Namespace) -> int:
    """Print a table for each case as soon as it is known; keep the run."""
    one_thread()
    from dana.cli.server import started
    from dana.client.connection import connect
    from dana.errors import UsageError
    from dana.peers.cases import SHAPES, shaped
    from dana.peers.contest import measure
    from dana.peers.history import default_file, document, keep
    from dana.peers.own import own

    unknown = sorted(set(options.cases) - set(SHAPES))
    if unknown:
        raise UsageError(f"there is no case {unknown[0]!r}", hint=f"Cases are {', '.join(map(repr, SHAPES))}.")
    if options.table and (options.cases or options.scale):
        raise UsageError("a table of yours is a case of its own, with all of its rows")
    if not options.table and (options.rule or options.label or options.features):
        raise UsageError("--rule, --label and --features are for a table of yours", hint="Name it with --table.")
    draw = None if options.html is None else renderer("dana.peers.page")
    contests: list[Contest] = []
    with connect(options.dsn or started(major=18).dsn) as db:
        try:
            for name in [options.table] if options.table else options.cases or SHAPES:
                case = (
                    own(db.session, name, options.rule or "logistic", label=options.label, features=options.features)
                    if options.table
                    else shaped(name, options.scale or 1.0)
                )
                contests.append(measure(db, case, passes=options.passes, repeats=options.repeats))
                console().print(_peers_table(contests[-1]))
        finally:  # what was measured is kept, whatever ends it
            if contests:
                run = document(contests)
                keep(run, options.history or default_file())
                if options.json is not None:
                    options.json.write_text(json.dumps(run, indent=1), encoding="utf-8")
                if draw is not None:
                    options.html.write_text(draw(run, contests), encoding="utf-8")
    return 0


def _peers_table(contest: Contest) -> Table:
    from rich.table import Table

    title = f"{contest.case}: {contest.rule}, {contest.rows:,} × {contest.columns:,}, {contest.passes} passes"
    if contest.left_out:
        title += f"; {contest.left_out:,} rows are left out, which have not a number in each column"
    energy = any(line.joules is not None for line in contest.lines)
    heads = ("", "ms of a pass", "DAnA = 1", contest.loss, *(["joules"] if energy else []), "how")
    table = Table(*heads, title=title, title_justify="left")
    for line in contest.lines:
        ratio, joules = contest.ratio(line), "" if line.joules is None else f"{line.joules:.3g}"
        table.add_row(
            line.peer,
            "–" if line.seconds is None else f"{1e3 * line.seconds:,.1f}",
            "–" if ratio is None else f"{ratio:.2f}",
            "" if line.loss is None else f"{line.loss:.5g}",
            *([joules] if energy else []),
            line.how,
            style="bold" if line is contest.lines[0] else "" if line.trains else "dim",
        )
    return table


def run_history(options: argparse.Namespace) -> int:
    """Print the runs, the oldest first."""
    from rich.table import Table

    from dana.peers.history import default_file, read, trend

    heads = ("when (UTC)", "commit", "machine", "case", "rows", "a pass", "fastest peer, DAnA = 1", "count(*)")
    table = Table(*heads)
    for row in trend(read(options.history or default_file()), options.case):
        table.add_row(*row)
    console().print(table)
    return 0
