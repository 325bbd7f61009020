"""Does a test notice when a line of the hardware is wrong? Each of `bench/mutations.py`, in a copy of the tree.

It takes ten to thirty minutes: nearly every mutation is another machine to translate and to compile. A test must pass
before a fault is put in, or noticing one would mean nothing. `DANA_MUTATE=arith,engine` takes the files whose paths,
as `docs/proof.md` lists them, begin so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Figure, main
from bench.mutations import MUTATIONS, Mutation
from dana.server.places import CHECKOUT

COPIED = ("dana", "dsl", "hwgen", "tests", "bench", "examples", "pyproject.toml", "README.md")
TIMEOUT = 3600
"""Seconds of a test. One that takes longer says nothing: a busy computer is as slow as hardware that hangs."""
PASSED, FAILED = 0, 1
"""What pytest ends with."""
NOT_THE_FAULT = ("from pytest-timeout", "TimeoutExpired", "BuildError")
"""In what pytest says of a test that failed for another reason."""
VERILATE, OPTIMIZE = "hwgen/rtl/verilate.py", 'optimize: str = "-O{}"'
"""Building takes longer than running here, so it is done without optimisation in the copy."""


def run() -> list[Figure]:
    """Mutate and test."""
    chosen = [m for m in MUTATIONS if m.file.startswith(tuple(os.environ.get("DANA_MUTATE", "").split(",")))]
    if not chosen:
        raise SystemExit(f"DANA_MUTATE={os.environ['DANA_MUTATE']}: no mutation is in a file that begins so")
    sound: set[tuple[str, ...]] = set()
    found = []
    with tempfile.TemporaryDirectory(prefix="dana-mutation-") as folder:
        tree, cache = Path(folder) / "tree", Path(folder) / "cache"
        _copy(tree)
        for mutation in chosen:
            if mutation.tests not in sound:
                status, said = _pytest(tree, cache, mutation.tests)
                if status != PASSED:
                    raise RuntimeError(f"{' '.join(mutation.tests)} must pass without a fault:\n{said[-3000:]}")
                sound.add(mutation.tests)
            found.append(_noticed(tree, cache, mutation))
            verdict = "noticed" if found[-1] else "MISSED "
            print(f"{verdict}  {mutation.file}: {mutation.what}", file=sys.stderr, flush=True)
    files = {mutation.file for mutation in chosen}
    missed = [f"{m.file}: {m.what}" for m, noticed in zip(chosen, found, strict=True) if not noticed]
    return [
        Figure(
            what=f"faults in {len(files)} files of {MUTATIONS[0].path.parts[0]} that a quick test notices",
            measured=f"{sum(found)} of {len(found)}" + "".join(f"; missed {name}" for name in missed),
            reference="all of them",
            ratio=sum(found) / len(found),
            target=1.0,
            at_most=False,
        )
    ]


def _copy(tree: Path) -> None:
    tree.mkdir()
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    text = (tree / VERILATE).read_text(encoding="utf-8")
    if OPTIMIZE.format(2) not in text:
        raise RuntimeError(f"{VERILATE} must hold {OPTIMIZE.format(2)!r}: follow it in {Path(__file__).name}")
    (tree / VERILATE).write_text(text.replace(OPTIMIZE.format(2), OPTIMIZE.format(0)), encoding="utf-8")


def _noticed(tree: Path, cache: Path, mutation: Mutation) -> bool:
    path = tree / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutation.applied(text), encoding="utf-8")
    try:
        status, said = _pytest(tree, cache, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    if status not in (PASSED, FAILED) or any(mark in said for mark in NOT_THE_FAULT):
        raise RuntimeError(f"pytest ended with {status} for {mutation.file}, {mutation.what}:\n{said[-3000:]}")
    return status == FAILED


def _pytest(tree: Path, cache: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    # the copy comes before the installed packages, in this process and in those that it starts
    environment = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={TIMEOUT}", *tests]
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    main(run)
