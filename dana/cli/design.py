"""The command ``dana design``: the best machine for a rule, a table and a device. No server is needed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli.columns import PAGES, add_table, asked
from dana.cli.options import path
from dana.session.terminal import shown
from dana.storage import layout
from hwgen.folders import make_folder, write_file
from hwgen.spec.config import LANES_PER_CLUSTER

if TYPE_CHECKING:
    from rich.console import Console

    from dana.codesign.boards import Boards
    from dana.codesign.search import Candidate, Exploration

SHOWN = 8
"""Machines in the table after the best."""

WIDE = 1000
"""Characters; wider than any table of machines."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    design = commands.add_parser("design", help="find the best machine for a rule, a table and an FPGA")
    design.add_argument("file", type=path, metavar="FILE")
    add_table(design)
    design.add_argument("--device", default="xcvu9p", metavar="NAME", help="an FPGA, or the path of its file (xcvu9p)")
    design.add_argument("--pages", type=int, default=PAGES, metavar="N", help=f"pages of the table ({PAGES})")
    design.add_argument(
        "--boards", type=int, metavar="N", help="estimate an epoch on up to N boards, each with a part of every batch"
    )
    design.add_argument("--charts", type=path, metavar="DIR", help="draw the best machine there as SVG")
    design.set_defaults(run=run_design)


def run_design(options: argparse.Namespace) -> int:
    """Search and print."""
    from rich.console import Console

    from dana.codesign.boards import over_boards
    from dana.codesign.search import explore
    from dana.errors import UsageError
    from dana.language.rulefile import load
    from dana.trainer.designs import chosen_binding
    from hwgen.devices import DeviceError, load_device

    rule = load(options.file)
    request = asked(rule, options)
    try:
        device = load_device(options.device)
    except DeviceError as error:
        raise UsageError(str(error)) from None
    schema, page_size = request.relation.schema, request.relation.page_size
    binding, _ = chosen_binding(request)
    found = explore(
        binding, schema, device, max_tuples=options.pages * page_size // layout.SMALLEST_TUPLE, page_size=page_size
    )
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())  # a pipe has no width
    console.print(shown(f"rule {rule.name} on {device.name}, {found.best.cycles.density}, pages of {page_size} bytes"))
    _print_machines(console, found)
    _print_best(console, found, options.pages, request.stored_as)
    if options.boards is not None:
        _print_boards(
            console,
            over_boards(binding, schema, device, most=options.boards, pages=options.pages, page_size=page_size),
        )
    if options.charts is not None:
        for path in _draw(f"rule {rule.name} on {device.name}", found.best, options.charts):
            console.print(shown(str(path)), soft_wrap=True)
    return 0


def _draw(title: str, best: Candidate, folder: Path) -> list[Path]:
    """Draw the machine's use, its roofline and the schedule of each section."""
    from dana.errors import SetupError
    from dana.extras import install_command

    try:
        from dana.report.charts import machine_charts
    except ModuleNotFoundError as error:
        raise SetupError(f"charts need the package {error.name}; run: {install_command('report')}") from None
    from dana.report.machine import Machine

    make_folder(folder)
    paths = []
    for name, drawing in machine_charts(Machine.of(title, best.bundle, best.cycles)).items():
        paths.append(folder / f"{name}.svg")
        write_file(paths[-1], drawing.encode())
    return paths


def _print_boards(console: Console, made: Sequence[Boards]) -> None:
    """A line for each number; the least time of an epoch is marked."""
    from dana.codesign.boards import LINK

    link = f"links of {LINK.rate / 1e9:g} GB/s and {1e6 * LINK.latency:g} µs between hosts are assumed"
    console.print(f"Over several boards, with hosts that join sums (sync => 'batch'); {link}.")
    best = min(made, key=lambda boards: boards.seconds)
    for boards in made:
        config = boards.each.bundle.config
        console.print(
            f"  {boards.count:>2} × {config.threads}×{config.clusters}×{LANES_PER_CLUSTER}: an epoch takes "
            f"{1e3 * boards.seconds:.3f} ms, {boards.exchanging / boards.seconds:.0%} of it in pauses to join sums"
            f"{', the least' if boards is best else ''}"
        )


def _print_machines(console: Console, found: Exploration) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hwgen.devices import UNMEASURED

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    resources = {"luts": "LUT%", "dsps": "DSP%", "block_rams": "RAM%"}
    if any(candidate.area.ultra_rams for candidate in found.candidates):
        resources["ultra_rams"] = "URAM%"
    for heading in ("units", "Striders", "cycles", "waits for", "link%", "busy%", *resources.values(), ""):
        table.add_column(heading, justify="right", no_wrap=True)
    others = [candidate for candidate in found.candidates if candidate is not found.best]
    # stable: those that fit stay in the order of their speed, the others follow
    others.sort(key=lambda candidate: not candidate.fits)
    for candidate in [found.best, *others[:SHOWN]]:
        said = "best" if candidate is found.best else "" if candidate.fits else "too big"
        table.add_row(*_cells(candidate, resources), said)
    Console(highlight=False, width=WIDE).print(table)  # no number is cut, however narrow the terminal
    if (chosen := UNMEASURED.get(found.best.device.family)) is not None:
        console.print(f"Areas are chosen, not measured: {chosen}.")
    fitting = sum(candidate.fits for candidate in found.candidates)
    console.print(
        f"units: threads × clusters × {LANES_PER_CLUSTER}; cycles: per tuple; LUT to RAM: % of the limit for a design. "
        f"{len(found.candidates)} machines were tried, {fitting} fit."
    )


def _cells(candidate: Candidate, resources: Iterable[str]) -> list[str]:
    config, cycles, uses = candidate.bundle.config, candidate.cycles, candidate.uses
    return [
        f"{config.threads}×{config.clusters}×{LANES_PER_CLUSTER}={config.units}",
        str(config.striders),
        f"{cycles.per_tuple:.2f}",
        cycles.bottleneck,
        f"{100 * candidate.link_use:.0f}",
        f"{100 * cycles.unit_use:.0f}",
        *(f"{100 * uses[name]:.0f}" for name in resources),
    ]


def _print_best(console: Console, found: Exploration, pages: int, stored_as: str | None) -> None:
    from dana.codesign.chosen import records_text
    from dana.codesign.cost import repeats_text

    bundle, cycles = found.best.bundle, found.best.cycles
    config = bundle.config
    if bundle.tables:
        said = records_text(bundle.table_offsets[-1])
        console.print(shown(f"Of the machines that fit, none holds the models itself: {said}."))
    seconds = cycles.seconds(pages)
    rate = pages * config.page_size / seconds / 1e9
    console.print(
        f"An epoch over {pages:,} pages: {cycles.epoch(pages):,.0f} cycles, {1e3 * seconds:.2f} ms at "
        f"{config.clock_hz / 1e6:.0f} MHz, {rate:.3g} GB/s; {found.gap:.1%} above the bound of link, units and a "
        f"batch's steps."
    )
    if cycles.repeats:
        console.print(shown(f"{repeats_text(cycles.repeats).capitalize()}."))
    stored = "" if stored_as is None else f"stored_as => '{stored_as}', "
    console.print(shown(f"In SQL: dana_train(…, {stored}design => '{json.dumps(found.overrides)}')"), soft_wrap=True)
