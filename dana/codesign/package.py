"""An accelerator as a package of files, with real pages and the model that they must give.

In: a rule, a table's schema, a device. Out: files (`hwgen.export.package`). The pages are the page builder's, the
expected model is the simulator's; the machine is the best that `dana.codesign` finds, unless the user fixes it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dana.codesign.chosen import records_text
from dana.codesign.cost import repeats_text
from dana.codesign.fitting import RESOURCES
from dana.codesign.records import record_image, start_rows
from dana.codesign.search import Candidate, explore
from dana.compiler import Binding
from dana.compiler.binding.precision import choosing_inputs
from dana.errors import InternalError, SetupError, UsageError
from dana.extras import install_command
from dana.simulator import Simulator
from dana.storage import layout
from dana.storage.builder import build_pages
from dana.storage.parts import build_part_pages
from dana.storage.schema import Attribute, TableSchema
from dana.storage.types import ARRAYS, SCALARS
from dsl import Rule
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.engine_text import disassemble as engine_text
from hwgen.spec.strider import Fault
from hwgen.spec.strider_text import disassemble as strider_text

if TYPE_CHECKING:
    from hwgen.export.package import Check

PAGES = 3
"""Pages of the testbench's table; more where a row takes more."""

EPOCHS = 2
"""Epochs that the testbench trains at most."""

CHOSEN = 256
"""Records of a table that the testbench's rows choose from, at most."""

MAX_IMAGE = 64 << 20
"""Bytes of a record memory's image that is written with a package; a larger one is made when it is asked for."""

AGAIN = (
    "Up to {batch} tuples are trained side by side. A batch ends where a tuple chooses a row of a model again that one "
    "before it in the batch writes. The figures ignore that: a table that soon chooses its rows again takes more "
    'cycles, up to those of batches of one tuple. For what the testbench\'s table takes see "Check it".'
)
SEED = 1
FRACTIONAL = ("real", "double precision")
MAX_NUMBER = {"boolean": 1, "smallint": (1 << 15) - 1}
"""Largest numbers of columns with a type too small for every record."""


def export(
    rule: Rule,
    binding: Binding,
    schema: TableSchema,
    device: Device,
    *,
    design: Mapping[str, int] | None = None,
    table_pages: int = 10_000,
    page_size: int = 8192,
    metas: Mapping[str, float] | None = None,
    prefix: str | None = None,
    divided: bool = False,
) -> dict[str, bytes]:
    """Make the package's files.

    Parameters
    ----------
    binding
        The rule on the table.
    design
        Fields of the machine that are as the user says.
    table_pages
        Pages of the training table; used if the batch is the whole table.
    metas
        Values of the rule's metas that are not its own.
    prefix
        What names of modules begin with; None: the rule's name and a digest.
    divided
        Each module into a file of its own.

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
        from hwgen.export.package import package
    if prefix is not None and not re.fullmatch(r"[A-Za-z_][0-9A-Za-z_]*", prefix):
        raise UsageError(
            f"a prefix must be letters, digits and underscores, and begin with no digit, not {prefix!r}",
            hint="Every module's name begins with it: --prefix trainer_",
        )
    max_tuples = table_pages * page_size // layout.SMALLEST_TUPLE
    found = explore(binding, schema, device, max_tuples=max_tuples, page_size=page_size, design=design).best
    if found.bundle.config.pause and not found.bundle.merges:
        raise UsageError(
            f"pause must be 0 for rule {rule.name!r}: a machine with pause=1 stops once in a batch for a host that "
            "joins the batch's sums; this rule changes models tuple by tuple, uses values of a batch in its tuples "
            "again, or has batches of one tuple",
            hint="Leave pause out of the design.",
        )
    bundle = with_metas(found.bundle, metas or {})
    supply = supply_of(bundle.config, device)
    if supply is not None:
        warnings.warn(supply, stacklevel=2)
    return package(
        bundle,
        device,
        _check(bundle, binding, schema),
        title=f"rule {rule.name} on {device.name}",
        name=rule.name,
        prefix=prefix,
        divided=divided,
        notes=_notes(found),
        texts={
            f"rule/{rule.name}.py": rule.text,
            "rule/program.txt": engine_text(bundle.program, bundle.sections),
            "rule/strider.txt": strider_text(bundle.strider),
        },
        records=b"".join(record_image(bundle)) if bundle.table_offsets[-1] <= MAX_IMAGE else None,
    )


def with_metas(bundle: Bundle, values: Mapping[str, float]) -> Bundle:
    """The Bundle with such values of metas, as a training writes them."""
    # a copy: the Bundle is cached, and its image shared
    image, lanes = bundle.image.copy(), bundle.config.lanes
    for symbol in bundle.of_kind("meta"):
        if symbol.name in values:
            rows = symbol.place(np.float32(values[symbol.name]), lanes).view(np.uint32)
            image[symbol.row : symbol.row + len(rows)] = rows
    return replace(bundle, image=image)


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


@dataclass(frozen=True, slots=True)
class _Choice:
    """A column that chooses records: its place in the schema, the element of it, and the table."""

    attribute: int
    element: int | None
    table: int


def _check(bundle: Bundle, binding: Binding, schema: TableSchema) -> Check:
    """Input of the testbench and its expected result.

    The simulator trains with the records alone that the rows choose from, numbered anew: neither values nor cycles
    depend on where a record lies, and a table may have millions.
    """
    from hwgen.export.package import Check, Records

    # a fixed seed: two exports of a rule must be identical
    draw = np.random.default_rng(SEED)
    choices = _choices(bundle, schema)
    numbers = [_numbers(draw, table.records, t, choices, schema) for t, table in enumerate(bundle.tables, 1)]
    rows, pages = _pages(draw, schema, binding, choices, numbers, bundle.config.page_size)
    sizes = [len(own) for own in numbers]
    few = replace(
        bundle,
        tables=tuple(replace(table, records=size) for table, size in zip(bundle.tables, sizes, strict=True)),
        symbols=tuple(
            replace(one, shape=(sizes[one.table - 1], *one.shape[1:])) if one.table else one for one in bundle.symbols
        ),
    )
    before = [
        np.concatenate([start_rows(bundle, t, int(number), 1) for number in own]) for t, own in enumerate(numbers, 1)
    ]
    scratchpad, losses, converged, counters, after = _train(few, rows, before)
    return Check(
        pages=pages,
        epochs=EPOCHS,
        scratchpad=scratchpad,
        losses=losses,
        converged=converged,
        counters=counters,
        records=[Records(*one) for one in zip(numbers, before, after, strict=True)],
    )


def _choices(bundle: Bundle, schema: TableSchema) -> list[_Choice]:
    names = [attribute.name for attribute in schema.attributes]
    watched = [column.table for column in bundle.columns if column.table] if bundle.tables else []
    return [
        _Choice(names.index(name), None if number is None else number - 1, table)
        for table, chosen in zip(watched, bundle.choices, strict=False)
        for name, number in chosen.columns
    ]


def _numbers(
    draw: np.random.Generator, records: int, table: int, choices: Sequence[_Choice], schema: TableSchema
) -> NDArray[np.int64]:
    """Records of a table that rows choose from, ascending: the first, the last, and others all over it."""
    columns = [schema.attributes[one.attribute].type_name for one in choices if one.table == table]
    last = min([records - 1, *(MAX_NUMBER[name] for name in columns if name in MAX_NUMBER)])
    # at most the number that fits into the column's type
    return np.unique([0, last, *draw.integers(last + 1, size=CHOSEN - 2)])


def _pages(
    draw: np.random.Generator,
    schema: TableSchema,
    binding: Binding,
    choices: Sequence[_Choice],
    numbers: Sequence[NDArray[np.int64]],
    page_size: int,
) -> tuple[bytes, bytes]:
    """Pages of rows at random, twice: with places in `numbers` where a column chooses a record, and with the records.

    Other whole numbers are 0 or 1, and so are columns of any type that number classes or choose rows.
    """
    names = {binding.graph.nodes[k].name for k in choosing_inputs(binding.graph)}
    chosen = {use.attribute for use in binding.uses if use.input in names}
    build = build_part_pages if schema.part else build_pages
    placed: list[list[Any]] = []
    rows: list[list[Any]] = []
    pages = b""
    more = 2 if schema.part else 8
    while len(pages) < PAGES * page_size:
        for _ in range(more):
            row = [_value(draw, one, whole=k in chosen) for k, one in enumerate(schema.attributes)]
            # the first row chooses a table's first record, the second its last one
            own = [len(numbers[one.table - 1]) for one in choices]
            at = [(0, size - 1)[len(rows)] if len(rows) < 2 else int(draw.integers(size)) for size in own]
            found = [int(numbers[one.table - 1][k]) for one, k in zip(choices, at, strict=True)]
            placed.append(_choosing(row, choices, at))
            rows.append(_choosing(row, choices, found))
        pages = build(schema, rows, page_size=page_size)
    end = len(pages) if schema.part else PAGES * page_size  # a row ends with its last part
    return build(schema, placed, page_size=page_size)[:end], pages[:end]


def _choosing(row: Sequence[Any], choices: Sequence[_Choice], numbers: Sequence[int]) -> list[Any]:
    """The row with these numbers where it chooses."""
    own = list(row)
    for choice, number in zip(choices, numbers, strict=True):
        if choice.element is None:
            own[choice.attribute] = number
        else:
            # a copy, because both lists of rows share the array
            own[choice.attribute] = np.array(own[choice.attribute])
            own[choice.attribute][choice.element] = number
    return own


def _value(draw: np.random.Generator, attribute: Attribute, *, whole: bool) -> Any:
    if attribute.type_oid in ARRAYS:
        size = attribute.array_length or 1
        fractional = ARRAYS[attribute.type_oid].name in FRACTIONAL and not whole
        return draw.normal(size=size) if fractional else draw.integers(2, size=size)
    if attribute.type_oid in SCALARS:
        fractional = attribute.type_name in FRACTIONAL and not whole
        return draw.normal() if fractional else int(draw.integers(2))
    return b"text"


def _train(
    bundle: Bundle, pages: bytes, records: Sequence[NDArray[np.uint32]]
) -> tuple[NDArray[np.uint32], list[int], bool, EpochCounters, list[NDArray[np.uint32]]]:
    """Scratchpad, loss of each epoch, whether the convergence test held, the last epoch's counters, and records."""
    simulator = Simulator(bundle.config)
    loss, convergence = bundle.symbol("loss"), bundle.symbol("convergence")
    losses: list[int] = []
    converged = False
    try:
        simulator.load(bundle)
        for t, rows in enumerate(records, 1):
            simulator.write_rows(0, rows.reshape(-1, bundle.config.lanes), table=t)
        # as a training: no epoch after the convergence test held
        while len(losses) < EPOCHS and not converged:
            counters = simulator.run_epoch(pages)
            if counters.fault is not Fault.NONE:
                raise InternalError(f"the simulator stopped on a testbench's page: {counters}")
            # a scalar is in every lane of its row
            losses.append(0 if loss is None else int(simulator.read_rows(loss.row, 1)[0, 0]))
            if convergence is not None:
                converged = bool(simulator.read_rows(convergence.row, 1).view(np.float32)[0, 0] != 0)
        after = [
            simulator.read_rows(0, one.records * one.rows, table=t).reshape(one.records, one.rows, -1)
            for t, one in enumerate(bundle.tables, 1)
        ]
        return simulator.read_rows(0, bundle.config.scratch_depth), losses, converged, counters, after
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
    """Expected figures of the design, in Markdown."""
    cycles, device, tables = found.cycles, found.device, found.bundle.table_offsets
    supply = supply_of(found.bundle.config, device)
    lines = [
        "## What to expect",
        "",
        f"With {cycles.density}, a page takes {cycles.page:,.0f} cycles ({cycles.per_tuple:.2f} for a tuple), and "
        f"waits for: {cycles.bottleneck}. The machine takes {found.link_use:.0%} of what the device's memory sends; "
        f"the units compute in {cycles.unit_use:.0%} of the time. Counted by the simulator, "
        "which is exact in cycles for a link of the latency, width and rate below.",
        *(["", f"There are {records_text(tables[-1])}."] if found.bundle.tables else []),
        *([] if supply is None else ["", f"{supply[0].upper()}{supply[1:]}."]),
        *(["", AGAIN.format(batch=found.bundle.batch)] if found.bundle.cut else []),
        *(["", f"{repeats_text(cycles.repeats).capitalize()}."] if cycles.repeats else []),
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
