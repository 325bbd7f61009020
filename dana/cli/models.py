"""The command ``dana export``: a trained model for other software."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dana.terminal import printable

FORMATS = ("json", "onnx", "pmml")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    export = commands.add_parser("export", help="write a trained model as ONNX, PMML or JSON")
    export.add_argument("model", metavar="MODEL", help="its name, or name@version")
    export.add_argument("--format", choices=FORMATS, help="as the output's name ends; without an end json")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead of to the terminal")
    export.add_argument("--dsn", help="server that has the model (the embedded one)")
    export.set_defaults(run=run_export_model)


def run_export_model(options: argparse.Namespace) -> int:
    """Read the model, write it."""
    from dana.cli.server import started
    from dana.client import connect
    from dana.errors import UsageError
    from dana.experiments import value

    kind = options.format or _kind_of(options.output)
    if kind == "onnx" and options.output is None and sys.stdout.isatty():
        raise UsageError("ONNX is binary; write it to a file with --output FILE")
    with connect(options.dsn or started(major=18).dsn) as db:
        stored = value(db.session, "dana_export_model", {"model": options.model})
    made = _make(kind, stored)
    if options.output is None:
        if sys.stdout.isatty():
            made = printable(made.decode(), lines=True).encode()
        sys.stdout.buffer.write(made)
        sys.stdout.flush()
    else:
        options.output.write_bytes(made)
        name = printable(stored["name"])
        print(f"{options.output}: model {name}@{stored['version']} as {kind}, {len(made):,} bytes")
    return 0


def _kind_of(output: Path | None) -> str:
    from dana.errors import UsageError

    suffix = "" if output is None else output.suffix[1:].lower()
    if suffix and suffix not in FORMATS:
        raise UsageError(
            f"{output} does not end as a format does: .{', .'.join(FORMATS)}", hint="Or say which with --format."
        )
    return suffix or "json"


def _make(kind: str, exported: dict[str, Any]) -> bytes:
    from dana.interchange.stored import read_model

    if kind == "onnx":
        from dana.interchange.onnx_graph import onnx_model

        return onnx_model(read_model(exported))
    if kind == "pmml":
        from dana.interchange.pmml import pmml

        return pmml(read_model(exported)).encode()
    return (json.dumps(exported, indent=1) + "\n").encode()
