"""Does a test notice when a line is wrong? Each of `benchmarks/faults`, in a copy of the tree.

Those of the hardware take ten to thirty minutes: nearly every one is another machine to translate and to compile; the
others some seconds each. A test must pass before a fault is put in, or noticing one would mean nothing.
`DANA_MUTATE=language,hwgen/rtl/arith` takes areas, or files whose paths begin so; `DANA_PART=2/5` the second fifth.
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

from benchmarks.faults import AREAS, Mutation
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
"""Seconds of a test. One that takes longer says nothing: a busy computer is as slow as hardware that hangs."""
PASSED, FAILED = 0, 1
"""What pytest ends with."""
CRASHED = tuple(-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL))
"""Or what ends it where compiled code is wrong."""
NOT_THE_FAULT = ("from pytest-timeout", "TimeoutExpired", "BuildError")
"""In what pytest says of a test that failed for another reason."""
VERILATE, OPTIMIZE = "hwgen/rtl/verilate.py", 'optimize: str = "-O{}"'
"""Building takes longer than running here, so it is done without optimisation in the copy."""
LIBRARIES = {
    "dana/simulator/_core": "dana/simulator/native/*.c",
    "dana/worker/_ring": "dana/worker/native/ring.c",
    "dana/training/data/_survey": "dana/training/data/native/survey.c",
}
"""Compiled parts, and their C."""
HEADERS = ("hwgen/spec/numerics/native", "dana/simulator/native")
QUICK = """\
from hypothesis import Phase, settings
settings.register_profile("quick", phases=(Phase.explicit, Phase.generate))
settings.load_profile("quick")
"""
"""A plugin of pytest: that an example fails is enough, the smallest one is not looked for."""
COMPILED = ("cc", "-O1", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-fPIC", "-w")
"""As setup.py has it, without most of the optimisation."""


def run() -> list[Figure]:
    """Mutate and test."""
    chosen = _chosen(os.environ.get("DANA_MUTATE", ""), os.environ.get("DANA_PART", "1/1"))
    sound: set[tuple[str, ...]] = set()
    noticed: dict[Mutation, bool] = {}
    with tempfile.TemporaryDirectory(prefix="dana-mutation-") as folder:
        Path(folder).chmod(0o755)  # a server, run as another account, reads there
        tree, cache = Path(folder) / "tree", Path(folder) / "cache"
        _copy(tree)
        _compile(tree, cache)
        for area, mutation in chosen:
            if mutation.tests not in sound:
                status, said = _pytest(tree, cache, mutation.tests)
                if status != PASSED:
                    raise RuntimeError(f"{' '.join(mutation.tests)} must pass without a fault:\n{said[-3000:]}")
                sound.add(mutation.tests)
            noticed[mutation] = _noticed(tree, cache, mutation)
            verdict = "noticed" if noticed[mutation] else "MISSED "
            print(f"{verdict}  {area}, {mutation.path}: {mutation.what}", file=sys.stderr, flush=True)
    return [
        _figure(area, [m for found, m in chosen if found == area], noticed)
        for area in AREAS
        if any(found == area for found, _ in chosen)
    ]


def _chosen(names: str, part: str) -> list[tuple[str, Mutation]]:
    """Mutations with their areas: those that are named, and of them the part k/n."""
    wanted = tuple(names.split(","))
    chosen = [
        (area, mutation)
        for area, mutations in AREAS.items()
        for mutation in mutations
        if area in wanted or mutation.path.as_posix().startswith(wanted)
    ]
    k, n = (int(number) for number in part.split("/"))
    if not chosen or not 1 <= k <= n:
        raise SystemExit(
            f"DANA_MUTATE={names} must name areas ({', '.join(AREAS)}) or begin paths that have mutations, "
            f"and DANA_PART={part} be one of 1/n … n/n"
        )
    return chosen[len(chosen) * (k - 1) // n : len(chosen) * k // n]


def _figure(area: str, mutations: list[Mutation], noticed: dict[Mutation, bool]) -> Figure:
    missed = [f"{m.path}: {m.what}" for m in mutations if not noticed[m]]
    found = len(mutations) - len(missed)
    return Figure(
        what=f"{area}: faults in {len({m.path for m in mutations})} files that a quick test notices",
        measured=f"{found} of {len(mutations)}" + "".join(f"; missed {name}" for name in missed),
        reference="95 % of them",
        ratio=found / len(mutations),
        target=0.95,
        at_most=False,
    )


def _copy(tree: Path) -> None:
    tree.mkdir()
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
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
        subprocess.run(["cc", "-shared", "-o", str(part), *objects, "-lm"], check=True)
        part.rename(target)


def _noticed(tree: Path, cache: Path, mutation: Mutation) -> bool:
    path = tree / mutation.path
    text = path.read_text(encoding="utf-8")
    native = path.suffix in (".c", ".h", ".inc")
    path.write_text(mutation.applied(text), encoding="utf-8")
    try:
        if native:
            _compile(tree, cache)
        status, said = _pytest(tree, cache, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")
        if native:
            _compile(tree, cache)
    if status not in (PASSED, FAILED, *CRASHED) or any(mark in said for mark in NOT_THE_FAULT):
        raise RuntimeError(f"pytest ended with {status} for {mutation.path}, {mutation.what}:\n{said[-3000:]}")
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
