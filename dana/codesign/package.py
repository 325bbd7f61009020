"""An accelerator as a package of files, with real pages and the model that they must give.

In: a rule, a table's schema, a device. Out: files (`hwgen.export.package`). The pages are the page builder's, the
expected model is the simulator's; the machine is the best that `dana.codesign` finds, unless the user fixes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.codesign.search import RESOURCES, Candidate, explore
from dana.compiler import Binding
from dana.errors import InternalError, SetupError
from dana.extras import install_command
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.parts import build_part_pages
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS
from dsl import Rule
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine_text import disassemble as engine_text
from hwgen.spec.strider import Fault
from hwgen.spec.strider_text import disassemble as strider_text

PAGES = 3
"""Pages of the testbench's table; more where a row takes more."""

EPOCHS = 2
"""Epochs that the testbench trains at most."""

SEED = 1
FRACTIONAL = ("real", "double precision")


def export(
    rule: Rule,
    binding: Binding,
    schema: TableSchema,
    device: Device,
    *,
    design: Mapping[str, int] | None = None,
    table_pages: int = 10_000,
    page_size: int = 8192,
) -> dict[str, bytes]:
    """Make the package's files.

    Parameters
    ----------
    binding
        The rule on the table.
    design
        Fields of the machine that are as the user says.
    table_pages
        Pages of the table that is to be trained on; for rules whose batch is the whole table.

    Warns
    -----
    UserWarning
        The device's memory sends pages more slowly than the machine's link takes them.

    Raises
    ------
    UsageError
        Rule, table and device do not go together.
    SetupError
        Amaranth, which generates the hardware, is not installed.
    """
    with needs_amaranth():
        from hwgen.export.package import Check, package
    max_tuples = table_pages * page_size // 28
    found = explore(binding, schema, device, max_tuples=max_tuples, page_size=page_size, design=design).best
    bundle = found.bundle
    supply = supply_of(bundle.config, device)
    if supply is not None:
        warnings.warn(supply, stacklevel=2)
    pages = _pages(schema, binding.labels, bundle.config.page_size)
    scratchpad, losses, converged, records = _train(bundle, pages)
    return package(
        bundle,
        device,
        Check(pages=pages, epochs=EPOCHS, scratchpad=scratchpad, losses=losses, converged=converged, records=records),
        title=f"rule {rule.name} on {device.name}",
        notes=_notes(found),
        texts={
            f"rule/{rule.name}.py": rule.source.text,
            "rule/program.txt": engine_text(bundle.program, bundle.sections),
            "rule/strider.txt": strider_text(bundle.strider),
        },
    )


@contextmanager
def needs_amaranth() -> Iterator[None]:
    """Around an import of what generates hardware: says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "amaranth":
            raise
        raise SetupError(f"exporting hardware needs amaranth: {install_command('rtl')}") from error


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files into a folder."""
    with needs_amaranth():
        from hwgen.export import package
    try:
        package.write(folder, files)
    except OSError as error:
        raise SetupError(f"cannot write the package to {folder}: {error}") from error


def _pages(schema: TableSchema, labels: Sequence[str], page_size: int) -> bytes:
    """Pages of rows at random: labels and whole numbers 0 or 1, so that they may be row numbers, others about 0."""
    draw = np.random.default_rng(SEED)
    pages = b""
    rows: list[list[Any]] = []
    more = 2 if schema.part else 8
    while len(pages) < PAGES * page_size:
        rows += [
            [_value(draw, attribute, attribute.name in labels) for attribute in schema.attributes] for _ in range(more)
        ]
        pages = (build_part_pages if schema.part else build_pages)(schema, rows, page_size=page_size)
    return pages if schema.part else pages[: PAGES * page_size]  # a row ends with its last part


def _value(draw: np.random.Generator, attribute: Attribute, is_label: bool) -> Any:
    if attribute.type_oid in ARRAYS:
        return draw.normal(size=attribute.array_length or 1)
    if attribute.type_oid in SCALARS:
        fractional = attribute.type_name in FRACTIONAL and not is_label
        return draw.normal() if fractional else int(draw.integers(2))
    return b"text"


def _train(bundle: Bundle, pages: bytes) -> tuple[NDArray[np.uint32], list[int], bool, list[NDArray[np.uint32]]]:
    """Scratchpad, loss of each epoch, whether the convergence test held, and records, as the board has them."""
    simulator = Simulator(bundle.config)
    loss, convergence = bundle.symbol("loss"), bundle.symbol("convergence")
    losses: list[int] = []
    converged = False
    try:
        simulator.load(bundle)
        while len(losses) < EPOCHS and not converged:
            counters = simulator.run_epoch(pages)
            if counters.fault is not Fault.NONE:
                raise InternalError(f"the simulator stopped on a testbench's page: {counters}")
            losses.append(0 if loss is None else int(simulator.read_rows(loss.row, 1)[0, 0]))
            if convergence is not None:
                converged = bool(simulator.read_rows(convergence.row, 1).view(np.float32)[0, 0] != 0)
        records = [
            simulator.read_rows(0, one.records * one.rows, table=t).reshape(one.records, one.rows, -1)
            for t, one in enumerate(bundle.tables, 1)
        ]
        return simulator.read_rows(0, bundle.config.scratch_depth), losses, converged, records
    finally:
        simulator.close()


def supply_of(config: MachineConfig, device: Device) -> str | None:
    """Where a machine's page link takes more than the device's memory sends: a sentence; else None."""
    takes = config.link_bytes * config.clock_hz
    if takes <= device.page_bandwidth:
        return None
    counted = (
        "its cycles are counted with the wait"
        if config.page_rate * config.clock_hz <= device.page_bandwidth
        else "its cycles are counted as if it did not"
    )
    return (
        f"the page link takes {config.link_bytes} bytes a cycle, {takes / 1e9:.1f} GB/s at "
        f"{config.clock_hz / 1e6:g} MHz, {device.name} sends {device.page_bandwidth / 1e9:.1f} GB/s: the machine "
        f"waits for pages, and {counted}"
    )


def _notes(found: Candidate) -> str:
    """What is expected of the design, in Markdown."""
    cycles, device = found.cycles, found.device
    supply = supply_of(found.bundle.config, device)
    lines = [
        "## What to expect",
        "",
        f"With {cycles.density}, a page takes {cycles.page:,.0f} cycles ({cycles.per_tuple:.2f} for a tuple), and "
        f"waits for: {cycles.bottleneck}. The machine takes {found.link_use:.0%} of what the device's memory sends; "
        f"the units compute in {cycles.unit_use:.0%} of the time. Counted by the simulator, "
        "which is exact in cycles for a link of the latency, width and rate below.",
        *([] if supply is None else ["", f"{supply[0].upper()}{supply[1:]}."]),
        "",
        "| resource | estimate | of the device |",
        "|---|--:|--:|",
    ]
    for name in RESOURCES:
        value = getattr(found.area, name)
        if not getattr(device, name):
            continue
        lines.append(f"| {name.replace('_', ' ')} | {value:,} | {value / getattr(device, name):.0%} |")
    return "\n".join(lines)
