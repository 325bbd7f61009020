"""The command ``dana bench paper``: the paper's evaluation from this project's machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.cli.screen import console, one_thread, positive, renderer
from dana.cli.server import shown_progress
from hwgen.folders import write_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from benchmarks.paper.cells import Cell, Table
    from benchmarks.paper.measured import Measured
    from benchmarks.peers.contest import Contest

QUICK_SCALE = 0.05
WIDTH = 200
"""Of tables that go to a file."""
PASSES, REPEATS = 3, 3
STYLES = {"measured": "yellow", "quoted": "magenta", "chosen": "italic", "missing": "dim"}


def register(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `dana bench`."""
    paper = kinds.add_parser("paper", help="the paper's tables and figures, computed, measured here, or quoted")
    paper.add_argument("--device", default="xcvu9p", metavar="NAME", help="an FPGA, or the path of its file (xcvu9p)")
    paper.add_argument("--scale", type=positive, metavar="PART", help="of the rows that are measured on (1)")
    paper.add_argument(
        "--quick", action="store_true", help=f"in a minute or two: few machines, {QUICK_SCALE} of the rows"
    )
    paper.add_argument("--computed", action="store_true", help="measure nothing: no server is needed")
    paper.add_argument("--json", type=Path, metavar="FILE", help="write the tables there too")
    paper.add_argument("--html", type=Path, metavar="FILE", help="draw a page of them")
    paper.add_argument("--history", type=Path, metavar="FILE", help="add what peers took to this file, not to yours")
    paper.add_argument("--dsn", help="server to measure on (the embedded one)")
    paper.set_defaults(run=run_paper)


def run_paper(options: argparse.Namespace) -> int:
    """Compute, measure, print."""
    from benchmarks.paper.evidence import evidence
    from benchmarks.paper.model import model_all
    from benchmarks.paper.tables import Findings, tables
    from benchmarks.peers.history import circumstances
    from dana.errors import UsageError
    from hwgen.devices import DeviceError, load_device

    one_thread()
    if options.computed and (options.scale or options.dsn or options.history):
        raise UsageError("--scale, --dsn and --history are for what is measured, and --computed measures nothing")
    try:
        device = load_device(options.device)
    except DeviceError as error:
        raise UsageError(str(error)) from None
    draw = None if options.html is None else renderer("benchmarks.paper.page")
    scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    screen, known = console(WIDTH), evidence()
    with shown_progress() as progress:
        modelled = model_all(
            known.datasets, device, quick=options.quick, done=lambda name: progress(f"computed: {name}")
        )
        measured: dict[str, Measured] = {}
        contests: list[Contest] = []
        server = ""
        if not options.computed:
            measured, contests, server = _measure(options, scale, progress)
    found = tables(Findings(evidence=known, device=device, modelled=modelled, measured=measured, contests=contests))
    places = {key: place for place, key in enumerate(known.sources, 1)}
    for table in found:
        _print(screen, table, places)
    _print_marks(screen, known.sources)
    run: dict[str, Any] = circumstances() | {
        "device": device.name,
        "quick": options.quick,
        "measured": not options.computed,
        "scale": None if options.computed else scale,
        "server": server,
        "sources": dict(known.sources),
        "tables": [table.document() for table in found],
    }
    if options.json is not None:
        write_file(options.json, json.dumps(run, indent=1).encode())
    if draw is not None:
        write_file(options.html, draw(run, found, known.sources).encode())
    return 0


def _measure(
    options: argparse.Namespace, scale: float, done: Callable[[str], None]
) -> tuple[dict[str, Measured], list[Contest], str]:
    """On the server: data sets, peers, and which PostgreSQL it is."""
    from benchmarks.paper.evidence import evidence
    from benchmarks.paper.measured import contests, measure_all
    from benchmarks.peers.history import default_file, document, keep
    from dana.cli.server import started
    from dana.client.connection import connect

    repeats = 1 if options.quick else REPEATS
    peers: list[Contest] = []
    with connect(options.dsn or started(major=18).dsn) as db:
        measured = measure_all(
            db, evidence().datasets, scale=scale, repeats=repeats, done=lambda name: done(f"measured: {name}")
        )
        try:
            for one in contests(db, scale=scale, passes=PASSES, repeats=repeats):
                peers.append(one)
                done(f"measured: {one.case}, peers")
        finally:  # measurements are kept, also after an error
            if peers:
                keep(document(peers), options.history or default_file())
        version = db.session.info.parameter_status("server_version")
    return measured, peers, f"PostgreSQL {version}"


def _print(screen: Console, table: Table, places: Mapping[str, int]) -> None:
    from rich.table import Table as Drawn

    drawn = Drawn(title=table.title, title_justify="left", title_style="bold")
    labels = [cell.mark.value == "label" for cell in table.rows[0][1]]
    drawn.add_column(table.first, overflow="fold")
    for head, label in zip(table.heads, labels, strict=True):
        drawn.add_column(head, justify="left" if label else "right", overflow="fold")
    for name, cells in table.rows:
        drawn.add_row(name, *(_shown(cell, places) for cell in cells))
    screen.print()
    screen.print(drawn)
    screen.print(table.about, style="dim", markup=False, highlight=False)
    for note in table.notes():
        screen.print(f"  {note}", style="dim", markup=False, highlight=False)


def _shown(cell: Cell, places: Mapping[str, int]) -> Text:
    from rich.text import Text

    letter = f" {cell.mark.letter}" if cell.mark.letter else ""
    if cell.mark.value == "quoted":
        letter += str(places[cell.source])
    return Text(cell.text + letter, style=STYLES.get(cell.mark.value, ""))


def _print_marks(screen: Console, sources: Mapping[str, str]) -> None:
    from benchmarks.paper.cells import MEANINGS

    screen.print()
    for mark, meaning in MEANINGS.items():
        screen.print(f"{mark.letter}  {meaning}", style=STYLES.get(mark.value, ""), markup=False, highlight=False)
    screen.print("Sources:")
    for place, source in enumerate(sources.values(), 1):
        screen.print(f"  {place}  {source}", markup=False, highlight=False, soft_wrap=True)
