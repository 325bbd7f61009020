"""Run the benchmarks, or those that are named, and print one table: ``python -m benchmarks [--json FILE] [NAME …]``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.measure import Figure, show

NAMES = (
    "epoch",
    "frames",
    "visibility",
    "order",
    "pgbench",
    "simulator",
    "learners",
    "factor",
    "sparse",
    "fixed_cost",
    "many",
    "predict",
    "shards",
    "compile",
    "cost",
    "side_by_side",
    "paging",
    "utilisation",
    "areas",
    "verilator",
)
"""In the order in which they run; each is a module with ``run() -> list[Figure]``."""

LONG = ("arithmetic", "lockstep", "faults", "synthesis", "scheduling", "links")
"""Many minutes each; run only if named."""


def main() -> int:
    """Run and print; 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of: {', '.join(NAMES)} (all); {', '.join(LONG)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*NAMES, *LONG})
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join((*NAMES, *LONG))}")
    # a reference that spins on every core would slow the other process that is measured; read when NumPy loads
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    figures: list[Figure] = []
    for name in options.names or NAMES:
        print(f"{name} …", file=sys.stderr, flush=True)
        module = "benchmarks.faults.run" if name == "faults" else f"benchmarks.speed.{name}"
        figures += importlib.import_module(module).run()
    show(figures, options.json)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
