"""Insert each fault of `faults.toml` into a copy of the tree, and run the test that must notice it.

A test must pass before a fault is inserted: otherwise its failure would mean nothing. Faults of the hardware take
minutes each, because a machine is generated and compiled; the others take seconds. `DANA_FAULTS=hwgen/rtl/arith,dana`
selects the faults in these folders, and `DANA_PART=2/5` the second fifth of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.faults.fault import FAULTS, Fault
from benchmarks.measure import Figure, main
from dana.server.places import CHECKOUT

COPIED = (
    "benchmarks",
    "dana",
    "docs",
    "dsl",
    "examples",
    "hwgen",
    "pg_extension",
    "pyproject.toml",
    "README.md",
    "tests",
)
TIMEOUT = 3600
"""Seconds; a test that takes longer is no verdict, because a busy computer is as slow as hardware that hangs."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest."""
CRASHED = tuple(-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL))
"""Signals that end pytest where compiled code is wrong."""
NOT_THE_FAULT = ("from pytest-timeout", "TimeoutExpired", "BuildError")
"""In the output of a test that failed for another reason."""
VERILATE, OPTIMIZE = "hwgen/rtl/verilate.py", 'optimize: str = "-O{}"'
"""Building takes longer than running here, so the copy is built without optimisation."""
LIBRARIES = {
    "dana/simulator/_core": "dana/simulator/native/*.c",
    "dana/storage/_permute": "dana/storage/native/permute.c",
    "dana/worker/_ring": "dana/worker/native/ring.c",
    "dana/trainer/data/_likelihood": "dana/trainer/data/native/likelihood.c",
    "dana/trainer/data/_survey": "dana/trainer/data/native/survey.c",
}
"""Compiled parts, and their C."""
HEADERS = ("hwgen/spec/numerics/native", "dana/simulator/native")
QUICK = """\
from hypothesis import Phase, settings
settings.register_profile("quick", phases=(Phase.explicit, Phase.generate))
settings.load_profile("quick")
"""
"""A plugin of pytest: one failing example is enough, hypothesis need not shrink it."""
COMPILED = ("cc", "-O1", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-fPIC", "-w")
"""As in setup.py, with less optimisation."""


def run() -> list[Figure]:
    """Insert the chosen faults, one after another."""
    chosen = _chosen(os.environ.get("DANA_FAULTS", ""), os.environ.get("DANA_PART", "1/1"))
    passing: set[tuple[str, ...]] = set()
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="dana-faults-") as folder:
        Path(folder).chmod(0o755)  # a server, run as another account, reads there
        tree, cache = Path(folder) / "tree", Path(folder) / "cache"
        copy(tree)
        _without_optimisation(tree)
        _compile(tree, cache)
        for fault in chosen:
            if fault.tests not in passing:
                status, output = _pytest(tree, cache, fault.tests)
                if status != PASSED:
                    raise RuntimeError(f"{' '.join(fault.tests)} must pass without a fault:\n{output[-3000:]}")
                passing.add(fault.tests)
            noticed = _noticed(tree, cache, fault)
            if not noticed:
                missed.append(f"{fault.path}: {fault.what}")
            print(f"{'noticed' if noticed else 'MISSED '}  {fault.path}: {fault.what}", file=sys.stderr, flush=True)
    found = len(chosen) - len(missed)
    return [
        Figure(
            what=f"faults in {len({fault.path for fault in chosen})} files that a test notices",
            measured="; missed ".join((f"{found} of {len(chosen)}", *missed)),
            reference="95 % of them",
            ratio=found / len(chosen),
            target=0.95,
            at_most=False,
        )
    ]


def _chosen(paths: str, part: str) -> list[Fault]:
    chosen = [fault for fault in FAULTS if fault.path.as_posix().startswith(tuple(paths.split(",")))]
    k, n = (int(number) for number in part.split("/"))
    if not chosen or not 1 <= k <= n:
        raise SystemExit(f"DANA_FAULTS={paths} must start paths with faults, DANA_PART={part} be one of 1/n … n/n")
    return chosen[len(chosen) * (k - 1) // n : len(chosen) * k // n]


def copy(tree: Path) -> None:
    """Copy what the tests need."""
    tree.mkdir()
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)


def _without_optimisation(tree: Path) -> None:
    (tree / "quick.py").write_text(QUICK, encoding="utf-8")
    text = (tree / VERILATE).read_text(encoding="utf-8")
    if OPTIMIZE.format(2) not in text:
        raise RuntimeError(f"{VERILATE} must hold {OPTIMIZE.format(2)!r}: follow it in {Path(__file__).name}")
    (tree / VERILATE).write_text(text.replace(OPTIMIZE.format(2), OPTIMIZE.format(0)), encoding="utf-8")


def _compile(tree: Path, cache: Path) -> None:
    """Build the compiled parts of the copy, from objects of the cache where the preprocessed text is the same."""
    cache.mkdir(exist_ok=True)
    for library, sources in LIBRARIES.items():
        (target,) = tree.glob(f"{library}.*.so")
        objects = []
        for source in sorted(tree.glob(sources)):
            command = [*COMPILED, *(f"-I{tree / folder}" for folder in HEADERS), str(source)]
            text = subprocess.run([*command, "-E", "-P"], check=True, capture_output=True).stdout
            made = cache / f"{hashlib.sha256(text).hexdigest()[:32]}.o"
            if not made.exists():
                subprocess.run([*command, "-c", "-o", str(made)], check=True)
            objects.append(str(made))
        part = target.with_suffix(".part")  # not in place: a process may still have it mapped
        subprocess.run(["cc", "-shared", "-o", str(part), *objects, "-lm", "-pthread"], check=True)
        part.rename(target)


def _noticed(tree: Path, cache: Path, fault: Fault) -> bool:
    path = tree / fault.path
    text = path.read_text(encoding="utf-8")
    native = path.suffix in (".c", ".h", ".inc")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        if native:
            _compile(tree, cache)
        status, output = _pytest(tree, cache, fault.tests)
    finally:
        path.write_text(text, encoding="utf-8")
        if native:
            _compile(tree, cache)
    if status not in (PASSED, FAILED, *CRASHED) or any(mark in output for mark in NOT_THE_FAULT):
        raise RuntimeError(f"pytest ended with {status} for {fault.path}, {fault.what}:\n{output[-3000:]}")
    return status != PASSED


def _pytest(tree: Path, cache: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    # the copy comes before the installed packages, in this process and in those that it starts
    environment = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("-x", "-q", "-p", "quick", "-p", "no:cacheprovider", f"--timeout={TIMEOUT}")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    main(run)
