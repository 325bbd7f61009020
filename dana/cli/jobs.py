"""The command ``dana jobs``: lists trainings in the background, waits for one, or cancels it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dana.cli.screen import bigint
from dana.session.terminal import cells, shown

if TYPE_CHECKING:
    from rich.table import Table

    from dana.session.calls import Job

SHOWN = 20


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    jobs = commands.add_parser("jobs", help="list the trainings in the background, wait for one, or cancel it")
    jobs.add_argument("--wait", type=bigint, metavar="JOB", help="wait for the end of this one")
    jobs.add_argument("--timeout", type=float, metavar="SECONDS", help="wait no longer than that")
    jobs.add_argument("--cancel", type=bigint, metavar="JOB", help="cancel this one")
    jobs.add_argument("--dsn", help="server to look at (the embedded one)")
    jobs.set_defaults(run=run_jobs)


def run_jobs(options: argparse.Namespace) -> int:
    """Cancel, wait, and show the jobs."""
    from rich.console import Console

    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    with connect(dsn_of(options)) as db:
        if options.cancel is not None:
            db.cancel(options.cancel)
        # a cancelled job is waited for: it ends only at its next check for interrupts
        wanted = options.wait if options.wait is not None else options.cancel
        shown = db.jobs(SHOWN) if wanted is None else [db.wait(wanted, options.timeout)]
    Console().print(_table(shown))
    return 0


def _table(jobs: list[Job]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for title in ("job", "call", "on", "state", "started", "outcome"):
        table.add_column(title)
    for job in jobs:
        source = job.arguments.get("source") or "a query"
        begun = "" if job.started is None else f"{job.started:%Y-%m-%d %H:%M:%S}"
        table.add_row(*cells((str(job.id), job.title, str(source), job.state, begun)), shown(job.outcome))
    return table
