"""Yosys, as PyPI's package pyosys has it: native code that runs at once, in a process of its own for each script.

In: commands, and the folder that they read and write. Out: their files, and a log.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = "pyosys"
TAIL = 3000
"""Characters of what a tool said last, for an error."""

_PROGRAM = """
import sys
from pyosys import libyosys
libyosys.run_pass(f"tee -q -o {sys.argv[1]} script -", libyosys.Design())
"""


class YosysError(RuntimeError):
    """A command failed, or the package is missing. Says which, and what yosys said last."""


def installed() -> Path | None:
    """Folder of the package, with libraries of cells in ``share``; None if it is not installed."""
    # not imported: that changes how this process loads libraries
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def run(commands: str, folder: Path, *, log: str = "yosys.log") -> None:
    """Run a script in a folder, and write what it says into a file there; YosysError where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, log],
        cwd=folder,
        # its threads cost more than they save: other cores are idle all the same
        env={"YOSYS_MAX_THREADS": "1", **os.environ},
        input=commands + "\n",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (folder / log).read_text(errors="replace") if (folder / log).exists() else ""
        raise YosysError(f"yosys ended with status {done.returncode} in {folder}:\n{said[-TAIL:]}{done.stderr[-TAIL:]}")
