"""The command ``dana top``: running and recently ended trainings, in a terminal."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dana.printable import printable
from dana.session.terminal import cells

if TYPE_CHECKING:
    import psycopg
    from rich.console import Group
    from rich.table import Table

LAST_RUNS = 8
NAMED = ("role", "model", "source")
"""Columns with names from users."""
SHORTEST = 8
"""Least characters that are kept of such a name."""
BARS = "▁▂▃▄▅▆▇█"
CURVE = "curve"
SPARKS = 16
"""Characters of a curve."""

# the reader may be a superuser: operands have the exact types of PostgreSQL's own operators and functions, so that no
# other of the same name fits better
RUNNING = """
SELECT pid, role, coalesce(source::text, 'a query'), phase, epoch, epochs, page, pages, loss, seconds_left
FROM dana.progress ORDER BY pid
"""
ENDED = """
SELECT id, model || '@' || model_version::text, source, machine, epochs, loss, wall_seconds, started
FROM dana.run ORDER BY id DESC LIMIT %s
"""
CURVES = """
SELECT pid, run, avg(loss) FROM (
    SELECT pid, run, loss, ntile(%s::integer) OVER (PARTITION BY pid, run ORDER BY epoch) AS part FROM dana.curve
    WHERE pid IS NOT NULL OR run = ANY (%s)
) AS epochs GROUP BY pid, run, part ORDER BY pid, run, part
"""
"""Mean losses of equal parts of each training, one for each character of a curve."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    top = commands.add_parser("top", help="watch running and recently ended trainings")
    top.add_argument("--dsn", help="server to look at (the embedded one)")
    top.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="refresh interval (1)")
    top.add_argument("--once", action="store_true", help="print once and exit")
    top.set_defaults(run=run_top)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"seconds from 0.1 to 3600 are expected, not {text!r}")
    return value


def run_top(options: argparse.Namespace) -> int:
    """Refresh the screen until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from dana.cli.server import started
    from dana.client.connection import connect

    console = Console(highlight=False)
    curves: dict[int, list[float | None]] = {}
    with connect(options.dsn or started(major=18).dsn) as db:
        if options.once:
            console.print(_screen(db.session, console.width, curves))
            return 0
        # refreshed by hand after each query: the alternate screen would otherwise be drawn four times a second
        with Live(console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    live.update(_screen(db.session, console.width, curves), refresh=True)
                    time.sleep(options.interval)
            except KeyboardInterrupt:  # the way to quit
                return 0


def _screen(session: psycopg.Connection, room: int, of_run: dict[int, list[float | None]]) -> Group:
    """The current screen; ``of_run`` caches the curves of ended runs."""
    from rich.console import Group

    now = session.execute(RUNNING).fetchall()
    then = session.execute(ENDED, (LAST_RUNS,)).fetchall()
    of_pid: dict[int, list[float | None]] = {}
    # curves of ended runs do not change, so only those not yet cached are read
    for pid, run, loss in session.execute(CURVES, (SPARKS, [row[0] for row in then if row[0] not in of_run])):
        # a running training has no run yet
        (of_pid.setdefault(pid, []) if run is None else of_run.setdefault(run, [])).append(loss)
    running = [
        (
            str(pid),
            role,
            source,
            phase,
            f"{_or_dash(epoch)}/{_or_dash(epochs)}",
            _or_dash(page) if not pages else f"{page / pages:.0%}",
            _number(loss),
            _sparkline(of_pid.get(pid, [])),
            "–" if left is None else _duration(left),
        )
        for pid, role, source, phase, epoch, epochs, page, pages, loss, left in now
    ]
    ended = [
        (
            str(number),
            model,
            source,
            machine,
            str(epochs),
            _number(loss),
            _sparkline(of_run.get(number, [])),
            _duration(wall),
            _moment(when),
        )
        for number, model, source, machine, epochs, loss, wall, when in then
    ]
    return Group(
        _table("running", ("pid", "role", "source", "phase", "epoch", "page", "loss", CURVE, "left"), running, room),
        _table("ended", ("run", "model", "source", "on", "epochs", "loss", CURVE, "wall", "started"), ended, room),
    )


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], room: int) -> Table:
    """A table that fits a narrow terminal: it shortens names of users, then omits the curve, but never a number."""
    from rich import box
    from rich.table import Table

    rows = [tuple(map(printable, row)) for row in rows]  # before their widths are taken
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    widths = [max([len(column), *(len(row[k]) for row in rows)]) for k, column in enumerate(columns)]
    named = [k for k, column in enumerate(columns) if column in NAMED]
    # two blanks for each column
    while sum(widths) + 2 * len(columns) > room and any(widths[k] > SHORTEST for k in named):
        # the longest name first, by a character at a time
        widths[max(named, key=lambda k: widths[k])] -= 1
    if sum(widths) + 2 * len(columns) > room and CURVE in columns:
        k = columns.index(CURVE)
        return _table(title, columns[:k] + columns[k + 1 :], [row[:k] + row[k + 1 :] for row in rows], room)
    for column, width in zip(columns, widths, strict=True):
        made.add_column(column, no_wrap=True, width=width, overflow="ellipsis")
    for row in rows:
        made.add_row(*cells(row))
    if not rows:
        made.add_row("–")
    return made


def _sparkline(losses: Sequence[float | None]) -> str:
    """Losses as bars from the least to the largest; a blank for one that is missing or not finite."""
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if not finite:
        return "–"
    least, span = min(finite), max(finite) - min(finite)
    return "".join(
        " "
        if loss is None or not math.isfinite(loss)
        else BARS[round((loss - least) / span * (len(BARS) - 1)) if span > 0 else 0]
        for loss in losses
    )


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds // 60:.0f} min"


def _moment(when: datetime) -> str:
    today = when.date() == datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if today else f"{when:%Y-%m-%d}"
