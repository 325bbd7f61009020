"""The command ``dana top``: the trainings that run, and the last that ended, in a terminal."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from rich.console import Group

LAST_RUNS = 8

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
            console.print(_screen(db.session))
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    live.update(_screen(db.session), refresh=True)
                    time.sleep(options.interval)
            except KeyboardInterrupt:  # how one leaves
                return 0


def _screen(session: psycopg.Connection[Any]) -> Group:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    running = Table("pid", "role", "source", "phase", "epoch", "page", "loss", "left", box=box.SIMPLE_HEAD)
    running.title, running.title_justify = "running", "left"
    for pid, role, source, phase, epoch, epochs, page, pages, loss, left in session.execute(RUNNING):
        # Text: nothing that a user named is markup
        cells = (
            str(pid),
            role,
            source,
            phase,
            f"{_or_dash(epoch)} of {_or_dash(epochs)}",
            f"{_or_dash(page)} of {_or_dash(pages)}",
            _number(loss),
            "–" if left is None else f"{left:.0f} s",
        )
        running.add_row(*map(Text, cells))
    ended = Table("run", "model", "source", "backend", "epochs", "loss", "wall", "started", box=box.SIMPLE_HEAD)
    ended.title, ended.title_justify = "ended", "left"
    for number, model, source, backend, epochs, loss, wall, when in session.execute(ENDED, (LAST_RUNS,)):
        cells = (
            str(number),
            model,
            source,
            backend,
            str(epochs),
            _number(loss),
            f"{1e3 * wall:,.0f} ms",
            f"{when:%H:%M:%S}",
        )
        ended.add_row(*map(Text, cells))
    return Group(running, ended)


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.5g}"
