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

    from dana.client.activity import Curve

LAST_RUNS = 8
NAMED = ("role", "model", "source")
"""Columns with names from users."""
SHORTEST = 8
"""Least characters that are kept of such a name."""
BARS = "▁▂▃▄▅▆▇█"
CURVE = "curve"
SPARKS = 16
"""Characters of a curve."""


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

    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    console = Console(highlight=False)
    curves: dict[int, Curve] = {}
    with connect(dsn_of(options)) as db:
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


def _screen(session: psycopg.Connection, room: int, of_run: dict[int, Curve]) -> Group:
    """The current screen; ``of_run`` caches the curves of ended runs."""
    from rich.console import Group

    from dana.client.activity import duration, read_curves, read_ended, read_running

    now, then = read_running(session), read_ended(session, LAST_RUNS)
    # curves of ended runs do not change, so only those not yet cached are read
    of_pid, new = read_curves(session, SPARKS, [one.id for one in then if one.id not in of_run])
    of_run |= new
    running = [
        (
            str(one.pid),
            one.role,
            one.source,
            one.phase,
            f"{_or_dash(one.epoch)}/{_or_dash(one.epochs)}",
            _or_dash(one.page) if not one.pages else f"{(one.page or 0) / one.pages:.0%}",
            _number(one.loss),
            _sparkline(of_pid.get(one.pid, [])),
            "–" if one.seconds_left is None else duration(one.seconds_left),
        )
        for one in now
    ]
    ended = [
        (
            str(one.id),
            one.model,
            one.source,
            one.machine,
            str(one.epochs),
            _number(one.loss),
            _sparkline(of_run.get(one.id, [])),
            duration(one.wall_seconds),
            _moment(one.started),
        )
        for one in then
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


def _sparkline(curve: Curve) -> str:
    """Losses as bars from the least to the largest; a blank for one that is missing or not finite."""
    losses = [loss for _, loss in curve]
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


def _moment(when: datetime) -> str:
    today = when.date() == datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if today else f"{when:%Y-%m-%d}"
