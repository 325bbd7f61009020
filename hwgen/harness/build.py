"""A machine's configuration in, its board's Verilog out; a board's Verilog in, a compiled simulation out.

Generating Verilog takes seconds, and compiling it longer, so both are cached: the text under a hash of all that it is
made from, the object by `hwgen.rtl.verilate`.
"""

import dataclasses
import hashlib
import re
from importlib.metadata import version
from pathlib import Path

import hwgen.rtl
import hwgen.spec
from hwgen.rtl.board.board import generate
from hwgen.rtl.verilate import object_cache, verilate
from hwgen.spec.board import PAGE_BASES, PAGE_BUS, TOP, of_bus
from hwgen.spec.config import NOT_HARDWARE, MachineConfig

DRIVER = Path(__file__).with_name("board.cpp")
SHARED = {
    "modules.vlt": "`verilator_config\n"
    + "".join(f'no_inline -module "{name}"\n' for name in ("lane", "special", "cluster", "thread"))
}
"""Verilator copies small modules into those that use them; these stay one function for all their instances. A file
that goes among its arguments."""


def _sources() -> bytes:
    digest = hashlib.sha256()
    for package in (hwgen.rtl, hwgen.spec):
        for folder in package.__path__:
            for path in sorted(path for kind in ("*.py", "*.h") for path in Path(folder).rglob(kind)):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


def verilog_of(config: MachineConfig) -> str:
    """The Verilog of the machine's board, from the cache where it has been generated before."""
    # without what only the model of the link and of time reads: equal for equal hardware
    plain = MachineConfig()
    hardware = dataclasses.replace(config, **{name: getattr(plain, name) for name in NOT_HARDWARE})
    key = hashlib.sha256(_sources() + version("amaranth").encode() + hardware.fingerprint().encode()).hexdigest()
    cache, name = object_cache(), f"{key}.v"
    cached = cache.read(name)
    if cached is not None:
        return cached.decode()
    text = generate(hardware)
    cache.write(name, text.encode())
    return text


def build(verilog: str, *, traced: bool = False) -> Path:
    """The shared object that simulates a board, one for equal hardware: what a package says above it is left out."""
    if traced:
        # no waveforms of what has no name, a third of all: Verilator leaves out what begins with an underscore
        verilog = re.sub(r"\\\$(\d+) ", r"_\1 ", verilog)
    trace = ("--trace-vcd",) if traced else ()
    buses = sum(f"{of_bus(PAGE_BUS, k)}_arvalid" in verilog for k in range(len(PAGE_BASES)))
    defined = [name for name, there in (("RECORDS", "m_axi_records_arvalid" in verilog), ("TRACE", traced)) if there]
    defined.append(f"BUSES={buses}")
    return verilate(
        re.sub(r"\A(//.*\n)+", "", verilog),
        TOP,
        DRIVER,
        # as fast as -O2, and compiled in two thirds of the time; what is traced runs a few thousand cycles
        optimize="-O0" if traced else "-O1",
        files=SHARED,
        verilator_flags=("--x-initial", "0", *trace, *SHARED),
        cxx_flags=[f"-D{name}" for name in defined],
    )
