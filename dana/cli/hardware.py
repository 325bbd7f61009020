"""Commands for FPGAs: export an accelerator, synthesise it, run it on a board. No server is needed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli.columns import add_table, asked
from dana.cli.options import path
from dana.cli.rules import override
from dana.session.terminal import say
from hwgen.folders import create_file

if TYPE_CHECKING:
    from hwgen.devices import Device
    from hwgen.spec.bundle import Bundle

DEFAULT_SIZE = 1 << 24
"""Bytes of a board's memory for pages."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    export = commands.add_parser("hdl", help="write an accelerator as Verilog, with scripts to build and check it")
    export.add_argument("file", type=path, metavar="FILE")
    _add_machine(export)
    export.add_argument("-o", "--output", type=path, required=True, metavar="DIR", help="folder of the package")
    export.set_defaults(run=run_export)

    synth = commands.add_parser("synth", help="synthesise an accelerator with yosys and nextpnr")
    synth.add_argument("file", type=path, metavar="PATH", help="a folder that dana hdl wrote, or a rule to export")
    _add_machine(synth)
    synth.add_argument(
        "-o", "--output", type=path, metavar="DIR", help="of a rule: folder of the package (RULE-DEVICE)"
    )
    synth.add_argument("--place", action="store_true", help="place and route as well (ECP5; takes many minutes)")
    synth.set_defaults(run=run_synth)

    board = commands.add_parser(
        "board", help="train an exported package on its board, and compare the results with the expected ones"
    )
    board.add_argument("folder", type=path, metavar="DIR", help="a folder that dana hdl wrote")
    board.add_argument(
        "--registers",
        metavar="FILE[@OFFSET]",
        help="file of the register map: /dev/uio0 (by default the package's Verilog is simulated)",
    )
    pages = board.add_mutually_exclusive_group()
    pages.add_argument("--pages", metavar="FILE[@OFFSET]", help="file to map as memory for pages: /dev/udmabuf0")
    pages.add_argument("--write-pages", metavar="FILE", help="file to write at addresses of the bus: /dev/xdma0_h2c_0")
    board.add_argument("--base", type=_number, metavar="N", help="the memory's address on the bus (0x40000000)")
    board.add_argument("--size", type=_number, metavar="N", help="bytes of the memory (0x1000000)")
    board.add_argument("--records", metavar="FILE[@OFFSET]", help="file to map as memory for records, if there is one")
    board.add_argument(
        "--records-base", type=_number, metavar="N", help="that memory's address on its bus (0x80000000)"
    )
    board.add_argument(
        "--records-size", type=_number, metavar="N", help="bytes of that memory (what the package's tables take)"
    )
    board.add_argument(
        "--write-records",
        type=path,
        metavar="FILE",
        help="do not train; write the initial contents of the memory for records",
    )
    board.add_argument(
        "--trace",
        type=path,
        metavar="FILE.vcd",
        help="of simulated Verilog: write waveforms of the training, and FILE.gtkw, a view of the main signals",
    )
    board.add_argument("--seconds", type=float, metavar="N", help="time limit of the training (none)")
    board.set_defaults(run=run_board)


def _add_machine(command: argparse.ArgumentParser) -> None:
    """Arguments that describe a design: table, device, parameters."""
    add_table(command)
    command.add_argument("--device", default="xcvu9p", metavar="NAME", help="an FPGA, or the path of its file (xcvu9p)")
    command.add_argument(
        "--design",
        action="append",
        default=[],
        type=override,
        metavar="NAME=VALUE",
        help="parameter of the design: threads=4",
    )
    command.add_argument(
        "--prefix", metavar="NAME", help="prefix of the Verilog modules (the rule's name and a digest)"
    )
    command.add_argument(
        "--divided", action="store_true", help="write each Verilog module into a file of its own (all are in one)"
    )


def run_export(options: argparse.Namespace) -> int:
    """Write the package and print a summary."""
    from dana.codesign.package import export, write
    from dana.language.rulefile import load
    from dana.trainer.designs import chosen_binding

    rule = load(options.file)
    request = asked(rule, options)
    schema, page_size = request.relation.schema, request.relation.page_size
    binding, metas = chosen_binding(request)
    device, design = _device(options.device), dict(options.design)
    files = export(
        rule,
        binding,
        schema,
        device,
        page_size=page_size,
        design=design,
        metas=metas,
        prefix=options.prefix,
        divided=options.divided,
    )
    write(options.output, files)
    say(f"{options.output}: rule {rule.name}, {len(files)} files; read {options.output / 'REPORT.md'}")
    return 0


def run_synth(options: argparse.Namespace) -> int:
    """Run the tools and print their figures."""
    from dana.codesign.area import area_of
    from dana.errors import SetupError
    from hwgen.export.synthesis import SynthesisError, synthesise, tools
    from hwgen.spec.config import MachineConfig

    try:
        # a folder is a package already; anything else is a rule, which is exported first
        if not options.file.is_dir():
            device = _device(options.device)
            # before the export, which may take minutes: a missing tool is reported at once
            tools(device.name, device.family, place=options.place)
            if options.output is None:
                options.output = Path(f"{options.file.stem}-{Path(options.device).stem}")
            run_export(options)
            options.file = options.output
        made = synthesise(
            options.file, place=options.place, progress=lambda line: say(line, file=sys.stderr, flush=True)
        )
    except SynthesisError as error:
        raise SetupError(str(error)) from None
    area = area_of(MachineConfig.from_json(dict(made.config)), made.family)
    say(f"{made.units} units on {made.device}: packed, for each unit, and as estimated")
    for name, value, estimate in (
        ("LUTs", made.luts, area.luts),
        ("flip-flops", made.flipflops, area.flipflops),
        ("DSPs", made.dsps, area.dsps),
        ("block RAMs", made.block_rams, area.block_rams),
        *([("UltraRAMs", made.ultra_rams, area.ultra_rams)] if made.ultra_rams or area.ultra_rams else []),
    ):
        over = "" if not value else f" ({estimate / value - 1:+.1%})"
        say(f"  {name:<12}{value:>12,g}{value / made.units:>12,.1f}{estimate:>12,}{over}")
    if made.clock_hz is not None:
        say(f"  {'clock':<12}{made.clock_hz / 1e6:>12,.1f} MHz, placed and routed")
    return 0


def run_board(options: argparse.Namespace) -> int:
    """Train on the board and print its cycles."""
    from dana.errors import SetupError, UsageError
    from hwgen.driver import BoardError, MappedPages, MappedRecords, MappedRegisters, PageMemory, WrittenPages
    from hwgen.export import BASE, RECORD_BASE
    from hwgen.export.check import CheckError, bundle_of, check

    pages = options.pages or options.write_pages
    if (options.registers is None) != (pages is None):
        raise UsageError(
            "--registers needs --pages or --write-pages, and they need it",
            hint="Leave all of them out to simulate the package's Verilog.",
        )
    of_board = ("base", "size", "records", "records_base", "records_size")
    unused = [f"--{name.replace('_', '-')}" for name in of_board if getattr(options, name) is not None]
    if options.registers is None and unused:
        raise UsageError(
            f"{' and '.join(unused)} must come with --registers, the board that has this memory",
            hint="Leave all of them out to simulate the package's Verilog.",
        )
    if options.trace is not None:
        if options.registers is not None:
            raise UsageError(
                "--trace must come without --registers: only simulated Verilog has waveforms",
                hint="On an FPGA, a logic analyser such as ILA or LiteScope records signals.",
            )
        if options.trace.suffix != ".vcd":
            raise UsageError(
                f"--trace must name a file that ends with .vcd, not {options.trace}",
                hint="GTKWave's vcd2fst makes an FST of it.",
            )
    # None and not a default of the parser, so that an option without a board is noticed above
    base = BASE if options.base is None else options.base
    size = DEFAULT_SIZE if options.size is None else options.size
    try:
        if options.write_records is not None:
            return _write_records(bundle_of(options.folder), options.write_records)
        sides = None
        if options.registers is not None:
            file, offset = _place(options.registers)
            registers = MappedRegisters(file, offset=offset)
            memory: PageMemory
            if options.write_pages is not None:
                memory = WrittenPages(options.write_pages, base=base, size=size)
            else:
                file, offset = _place(options.pages)
                memory = MappedPages(file, base=base, size=size, offset=offset)
            records = None
            if options.records is not None:
                file, offset = _place(options.records)
                records = MappedRecords(
                    file,
                    base=RECORD_BASE if options.records_base is None else options.records_base,
                    size=options.records_size or bundle_of(options.folder).table_offsets[-1],
                    offset=offset,
                )
            sides = registers, memory, records
        run = check(options.folder, sides, seconds=options.seconds, trace=options.trace)
    except (BoardError, CheckError) as error:
        raise SetupError(str(error)) from None
    rows = run.counters.tuples
    say(
        f"PASS: {run.epochs} epochs of {rows} rows in {run.cycles:,} cycles, the last one in {run.counters.cycles:,}; "
        "every word is as expected"
    )
    return 0


def _write_records(bundle: Bundle, path: Path) -> int:
    """Write the image of the package's record memory, a piece after another."""
    from dana.codesign.records import record_image
    from dana.errors import SetupError, UsageError

    if not bundle.tables:
        raise UsageError("--write-records needs a package with a record memory; this one has none")
    try:
        # create_file: root may write the image, and must not follow a link of another account
        with open(path, "wb", opener=create_file) as file:
            for piece in record_image(bundle):
                file.write(piece)
    except OSError as error:
        raise SetupError(f"cannot write the records to {path}: {error}") from None
    say(f"{path}: {bundle.table_offsets[-1]:,} bytes, from the first table's beginning on")
    return 0


def _announce(line: str) -> None:
    say(line, file=sys.stderr, flush=True)


def _number(text: str) -> int:
    """A whole number as C writes it."""
    return int(text, 0)


def _place(text: str) -> tuple[str, int]:
    """FILE[@OFFSET]"""
    from dana.errors import UsageError

    file, _, offset = text.partition("@")
    try:
        return file, int(offset or "0", 0)
    except ValueError:
        raise UsageError(f"the offset must be a number such as 0x1000, not {offset!r}") from None


def _device(name: str) -> Device:
    from dana.errors import UsageError
    from hwgen.devices import DeviceError, load_device

    try:
        return load_device(name)
    except DeviceError as error:
        raise UsageError(str(error)) from None
