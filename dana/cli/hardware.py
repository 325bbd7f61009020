"""Commands about FPGAs: export an accelerator, and synthesise what was exported. No server is needed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dana.cli.columns import add_table, declared_table
from dana.cli.rules import wish

if TYPE_CHECKING:
    from hwgen.devices import Device


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    export = commands.add_parser("export", help="write an accelerator as Verilog, with all that builds and checks it")
    export.add_argument("file", type=Path, metavar="FILE")
    _add_machine(export)
    export.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder of the package")
    export.set_defaults(run=run_export)

    synth = commands.add_parser("synth", help="synthesise an accelerator with yosys and nextpnr")
    synth.add_argument("file", type=Path, metavar="PATH", help="a folder that dana export wrote, or a rule to export")
    _add_machine(synth)
    synth.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="of a rule: folder of the package (RULE-DEVICE)"
    )
    synth.add_argument("--place", action="store_true", help="place and route as well (ECP5; takes many minutes)")
    synth.set_defaults(run=run_synth)


def _add_machine(command: argparse.ArgumentParser) -> None:
    """Arguments that say which machine: table, device, wishes."""
    add_table(command)
    command.add_argument("--device", default="xcvu9p", metavar="NAME", help="an FPGA, or the path of its file (xcvu9p)")
    command.add_argument(
        "--design", action="append", default=[], type=wish, metavar="NAME=VALUE", help="wish for the machine: threads=4"
    )


def run_export(options: argparse.Namespace) -> int:
    """Write the package, and say what is in it."""
    from dana.export import export, write
    from dana.rulefile import load

    rule = load(options.file)
    files = export(
        rule,
        declared_table(options),
        _device(options.device),
        label=options.label,
        design=dict(options.design),
    )
    write(options.output, files)
    print(f"{options.output}: rule {rule.name}, {len(files)} files; read {options.output / 'REPORT.md'}")
    return 0


def run_synth(options: argparse.Namespace) -> int:
    """Run the tools and print their figures."""
    from dana.errors import SetupError
    from hwgen.export.synthesis import SynthesisError, synthesise

    if not options.file.is_dir():
        if options.output is None:
            options.output = Path(f"{options.file.stem}-{Path(options.device).stem}")
        run_export(options)
        options.file = options.output
    try:
        made = synthesise(options.file, place=options.place)
    except SynthesisError as error:
        raise SetupError(str(error)) from None
    print(f"{made.units} units on {made.device}:")
    for name, value in (
        ("LUTs", made.luts),
        ("flip-flops", made.flipflops),
        ("DSPs", made.dsps),
        ("block RAMs", made.block_rams),
    ):
        print(f"  {name:<12}{value:>12,g}{value / made.units:>12,.1f} for each unit")
    if made.clock_hz is not None:
        print(f"  {'clock':<12}{made.clock_hz / 1e6:>12,.1f} MHz, placed and routed")
    return 0


def _device(name: str) -> Device:
    from dana.errors import UsageError
    from hwgen.devices import DeviceError, load_device

    try:
        return load_device(name)
    except DeviceError as error:
        raise UsageError(str(error)) from None
