"""The command ``dana top``: the trainings that run, and the last that ended, in a terminal."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from rich.console import Group
    from rich.table import Table

LAST_RUNS = 8
NAMED = ("role", "model", "source")
"""Columns of what users named."""
SHORTEST = 8
"""Letters that are left of such a name."""

RUNNING = """
SELECT pid, role, coalesce(source::text, 'a query'), phase, epoch, epochs, page, pages, loss, seconds_left
FROM dana.progress ORDER BY pid
"""
ENDED = """
SELECT id, model || '@' || model_version, source, backend, epochs, loss, wall_seconds, started
FROM dana.run ORDER BY id DESC LIMIT %s
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    top = commands.add_parser("top", help="watch the trainings that run and the last that ended")
    top.add_argument("--dsn", help="server to look at (the embedded one)")
    top.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (1)")
    top.add_argument("--once", action="store_true", help="look once and end")
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
    """Look, again and again until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from dana.cli.server import started
    from dana.client import connect

    console = Console(highlight=False)
    with connect(options.dsn or started(major=18).dsn) as db:
        if options.once:
            console.print(_screen(db.session, console.width))
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    live.update(_screen(db.session, console.width), refresh=True)
                    time.sleep(options.interval)
            except KeyboardInterrupt:  # how one leaves
                return 0


def _screen(session: psycopg.Connection[Any], room: int) -> Group:
    from rich.console import Group

    running = [
        (
            str(pid),
            role,
            source,
            phase,
            f"{_or_dash(epoch)}/{_or_dash(epochs)}",
            _or_dash(page) if not pages else f"{page / pages:.0%}",
            _number(loss),
            "–" if left is None else _duration(left),
        )
        for pid, role, source, phase, epoch, epochs, page, pages, loss, left in session.execute(RUNNING)
    ]
    ended = [
        (str(number), model, source, backend, str(epochs), _number(loss), _duration(wall), _moment(when))
        for number, model, source, backend, epochs, loss, wall, when in session.execute(ENDED, (LAST_RUNS,))
    ]
    return Group(
        _table("running", ("pid", "role", "source", "phase", "epoch", "page", "loss", "left"), running, room),
        _table("ended", ("run", "model", "source", "on", "epochs", "loss", "wall", "started"), ended, room),
    )


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], room: int) -> Table:
    """A table that shortens what users named where the terminal is narrow, and no number."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    widths = [max([len(column), *(len(row[k]) for row in rows)]) for k, column in enumerate(columns)]
    named = [k for k, column in enumerate(columns) if column in NAMED]
    # two blanks for each column
    while sum(widths) + 2 * len(columns) > room and any(widths[k] > SHORTEST for k in named):
        widths[max(named, key=lambda k: widths[k])] -= 1
    for column, width in zip(columns, widths, strict=True):
        made.add_column(column, no_wrap=True, width=width, overflow="ellipsis")
    for row in rows:
        made.add_row(*map(Text, row))  # Text: nothing that a user named is markup
    if not rows:
        made.add_row(Text("–"))
    return made


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
