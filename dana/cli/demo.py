"""Command ``dana demo``: the demonstration on the embedded server, as a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dana.demo import Comparison


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    demo = commands.add_parser("demo", help="train two tables in the embedded PostgreSQL and compare")
    demo.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> int:
    """Run the demonstration; 1 where two backends disagree."""
    from rich.console import Console

    from dana import demo
    from dana.cli.server import shown_progress
    from dana.client import connect
    from dana.datasets import COVERTYPE_VARIABLE
    from dana.server.embedded import EmbeddedServer

    with shown_progress() as progress:
        server = EmbeddedServer.start(progress=progress)
        progress(f"preparing the data (set {COVERTYPE_VARIABLE} to use the real Covertype)")
        tasks = demo.tasks()
        with connect(server.dsn) as db:
            compared = demo.run(db, tasks, progress)
    console = Console()
    for one in compared:
        _print(console, one)
    console.print("\nTo go on, open [bold].venv/bin/dana psql[/bold] and paste:\n")
    for line in demo.lines_to_paste(compared[0].task):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(one.identical is not False for one in compared) else 1


def _print(console: Console, compared: Comparison) -> None:
    from rich.table import Table

    task = compared.task
    rows = next(iter(compared.results.values())).tuples
    shape = f"{rows:,} rows × {task.data.features.shape[1]}, {task.epochs} epochs"
    console.print(f"\n[bold]{task.table}[/bold]: {task.data.name}, {shape}", highlight=False)
    table = Table()
    table.add_column("")
    for backend in compared.results:
        table.add_column(f"dana, {backend}", justify="right")
    table.add_column("scikit-learn", justify="right")
    results = list(compared.results.items())
    table.add_row(
        "accuracy on held-out rows",
        *(f"{compared.accuracy[backend]:.4f}" for backend, _ in results),
        f"{compared.reference_accuracy:.4f}",
    )
    table.add_row("epochs run", *(str(result.epochs) for _, result in results), "")
    table.add_row("cycles", *(f"{result.cycles:,}" for _, result in results), "")
    table.add_row("modelled time at 150 MHz", *(_time(result.modelled_seconds) for _, result in results), "")
    table.add_row("wall time of the epochs", *(_time(compared.epoch_seconds[backend]) for backend, _ in results), "")
    walls = [_time(result.wall_seconds) for _, result in results]
    table.add_row("wall time of the statement", *walls, _time(compared.reference_seconds))
    table.add_row("wall time of count(*)", _time(compared.count_seconds), *[""] * len(results))
    console.print(table)
    if compared.identical is not None:
        verdict = "[green]bit-identical[/green]" if compared.identical else "[red]not identical[/red]"
        console.print(f"The models of {' and '.join(compared.results)} are {verdict}.")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3f} s" if seconds >= 1.0 else f"{1e3 * seconds:.2f} ms"
