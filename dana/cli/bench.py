"""Command ``dana bench``: the package `benchmarks` of a checkout, which plugs in here."""

from __future__ import annotations

import argparse
from importlib import import_module

from dana.errors import SetupError
from dana.server.places import CHECKOUT


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, with the benchmarks where they are present."""
    bench = commands.add_parser("bench", help="compare accuracy and speed with alternatives")
    if (CHECKOUT / "benchmarks" / "commands").is_dir():
        import_module("benchmarks.commands").register(bench.add_subparsers(required=True, metavar="WHAT"))
    else:
        bench.add_argument("what", nargs="*", metavar="WHAT")
        bench.set_defaults(run=_absent)


def _absent(options: argparse.Namespace) -> int:
    raise SetupError("dana bench needs the package benchmarks of a checkout; the installed package leaves it out")
