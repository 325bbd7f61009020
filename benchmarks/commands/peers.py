"""The commands ``dana bench peers`` and ``dana bench history``: trainings compared with other software."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli.options import names
from dana.cli.screen import console, one_thread, positive, renderer
from dana.session.terminal import cells, shown
from hwgen.folders import write_file

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.peers.cases import Case
    from benchmarks.peers.contest import Contest
    from dana.client.connection import Connection


def register(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of `dana bench`."""
    peers = kinds.add_parser(
        "peers", help="a pass of training compared with scikit-learn, C, NumPy, MADlib, count(*) …: same rows, in turn"
    )
    peers.add_argument("cases", nargs="*", metavar="CASE", help="which tables of the paper's shapes (all)")
    peers.add_argument(
        "--scale", type=_sizes, metavar="PART,…", help="of their rows, such as 0.1; several: the times by size (1)"
    )
    peers.add_argument("--table", help="a table of yours instead, which is only read")
    peers.add_argument("--rule", help="what that is trained with (logistic)")
    peers.add_argument("--label", metavar="COLUMN", help="its label")
    peers.add_argument("--features", type=names, metavar="COLUMN,…", help="its features (those of dana_train)")
    peers.add_argument("--passes", type=_count, default=5, metavar="N", help="epochs of a training (5)")
    peers.add_argument("--repeats", type=_count, default=3, metavar="N", help="trainings of each (3)")
    peers.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    peers.add_argument("--html", type=Path, metavar="FILE", help="draw a page of them")
    peers.add_argument("--history", type=Path, metavar="FILE", help="add the run to this file, not to your history")
    peers.add_argument("--dsn", help="server to train on (the embedded one)")
    peers.set_defaults(run=run_peers)
    history = kinds.add_parser("history", help="what `dana bench peers` measured, run after run")
    history.add_argument("case", nargs="?", metavar="CASE", help="this one alone")
    history.add_argument("--history", type=Path, metavar="FILE", help="another file than yours")
    history.set_defaults(run=run_history)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1 on is expected, not {text!r}")
    return int(text)


def _sizes(text: str) -> list[float]:
    return sorted({positive(part) for part in text.split(",")})


def run_peers(options: argparse.Namespace) -> int:
    """Print a table for each case as soon as it is known, then what they come to; keep the run."""
    one_thread()
    from benchmarks.peers.cases import SHAPES
    from benchmarks.peers.contest import measure
    from benchmarks.peers.history import default_file, document, keep
    from benchmarks.peers.summary import summary
    from dana.cli.server import started
    from dana.client.connection import connect
    from dana.errors import UsageError

    unknown = sorted(set(options.cases) - set(SHAPES))
    if unknown:
        raise UsageError(f"there is no case {unknown[0]!r}", hint=f"Cases are {', '.join(map(repr, SHAPES))}.")
    if options.table and (options.cases or options.scale):
        raise UsageError("--table cannot be combined with cases or --scale: all rows of the table are used")
    if not options.table and (options.rule or options.label or options.features):
        raise UsageError("--rule, --label and --features are for a table of yours", hint="Name it with --table.")
    draw = None if options.html is None else renderer("benchmarks.peers.page")
    contests: list[Contest] = []
    with connect(options.dsn or started(major=18).dsn) as db:
        try:
            for case, largest in _cases(db, options):
                contests.append(measure(db, case, passes=options.passes, repeats=options.repeats, parts=largest))
                console().print(peers_table(contests[-1]))
                if largest:
                    console().print(shown(_parts_line(contests[-1])), highlight=False)
        finally:  # measurements are kept, also after an error
            if contests:
                found = summary(contests, quoted_madlib())
                for line in found.lines():
                    console().print(shown(line), highlight=False)
                run = document(contests) | {"summary": found.document()}
                keep(run, options.history or default_file())
                if options.json is not None:
                    write_file(options.json, json.dumps(run, indent=1).encode())
                if draw is not None:
                    write_file(options.html, draw(run, contests, tuple(found.lines())).encode())
    return 0


def _cases(db: Connection, options: argparse.Namespace) -> Iterator[tuple[Case, bool]]:
    """Cases, and whether each is the largest of its name."""
    from benchmarks.peers.cases import SHAPES, shaped
    from benchmarks.peers.own import own

    if options.table:
        rule = options.rule or "logistic"
        yield own(db, options.table, rule, label=options.label, features=options.features), True
        return
    scales = options.scale or [1.0]
    for name in options.cases or SHAPES:
        for scale in scales:
            yield shaped(name, scale), scale == scales[-1]


def quoted_madlib() -> Mapping[str, float]:
    """Seconds of a pass of its cheapest method on float8[] or on ratings, by data set, as they were measured for this
    project elsewhere."""
    from benchmarks.paper.evidence import evidence

    found: dict[str, float] = {}
    for one in (one for one in evidence().madlib if one.type != "float4"):
        found[one.dataset] = min(one.figure.value, found.get(one.dataset, one.figure.value))
    return found


def peers_table(contest: Contest) -> Table:
    """For a terminal."""
    from rich.table import Table

    title = f"{contest.case}: {contest.rule}, {contest.rows:,} × {contest.columns:,}, {contest.passes} passes"
    if contest.left_out:
        title += f"; {contest.left_out:,} rows with a missing or non-numeric value are left out"
    if contest.unused:
        title += f"; without {', '.join(contest.unused)}, which dana_train would use: the peers take numbers alone"
    energy = any(line.joules is not None for line in contest.lines)
    seen = any(line.processors is not None for line in contest.lines)
    heads = ("", "ms of a pass", "DAnA = 1", *(["processors'"] if seen else []), contest.loss)
    heads = (*heads, *(["joules"] if energy else []), "how")
    table = Table(title=shown(title), title_justify="left")
    for head in cells(heads):
        table.add_column(head)
    for line in contest.lines:
        ratio, joules = contest.ratio(line), "" if line.joules is None else f"{line.joules:.3g}"
        row = (
            line.peer,
            _milliseconds(line.seconds),
            "–" if ratio is None else f"{ratio:.2f}",
            *([_milliseconds(line.processors)] if seen else []),
            "" if line.loss is None else f"{line.loss:.5g}",
            *([joules] if energy else []),
            line.how,
        )
        table.add_row(
            *cells(row),
            style="bold" if line is contest.lines[0] else "" if line.trains else "dim",
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:,.1f}"


def _parts_line(contest: Contest) -> str:
    from benchmarks.peers.parts import BOTH

    each = "; ".join(
        f"{one.process} {one.name} {f'{1e9 * one.seconds:,.0f}' if one.seconds else '–'}"
        for one in contest.parts
        if one.process != BOTH
    )
    once = ", ".join(f"{one.name} {1e3 * one.seconds:,.1f} ms" for one in contest.parts if one.process == BOTH)
    return f"Where a pass goes, ns of a page: {each}; once: {once}"


def run_history(options: argparse.Namespace) -> int:
    """Print the runs, the oldest first."""
    from rich.table import Table

    from benchmarks.peers.history import default_file, read, trend

    heads = ("when (UTC)", "commit", "machine", "case", "rows", "a pass", "fastest peer, DAnA = 1", "count(*)")
    table = Table(*heads)
    for row in trend(read(options.history or default_file()), options.case):
        table.add_row(*cells(row))
    console().print(table)
    return 0
