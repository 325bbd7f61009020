"""The fuzzing tests once more in a core built with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dana.simulator.native
from hwgen.spec import numerics

NATIVE = Path(dana.simulator.native.__file__).parent / "native"
HEADERS = Path(numerics.__file__).parent / "native"
COMPILER = shutil.which("gcc")
FLAGS = ("-O0", "-g1", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared")
"""Unoptimised, the kernels compile in a third of the time, and all that the sources do is there to be looked at."""
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FILES = {"walk": 7, "access": 2, "simulated_engine": 2, "simulated_machine": 31, "exchange": 12}
"""Of each the least number of tests."""
SHARE = "0.25"
"""Of the cases that they have without sanitizers, which tell whether the results are right."""
FUZZ = """
import ctypes, sys
from dana.simulator import native
real = ctypes.CDLL
native.ctypes.CDLL = lambda path: real(sys.argv[1])
import pytest
sys.exit(pytest.main(["-v", "-x", "-p", "no:cacheprovider", "-k", sys.argv[2], *sys.argv[3:]]))
"""


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="gcc's sanitizers are preloaded as Linux does")
def test_no_page_and_no_program_reaches_outside(tmp_path: Path) -> None:
    core = tmp_path / "core.so"
    sources = sorted(str(path) for path in NATIVE.glob("*.c"))
    subprocess.run([str(COMPILER), *FLAGS, *SANITIZERS, f"-I{HEADERS}", "-o", str(core), *sources, "-lm"], check=True)
    runtime = subprocess.run(
        [str(COMPILER), "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    wanted = "loops or tables or wild or machine or under_way or exchange or alike"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FUZZ,
            str(core),
            wanted,
            *(str(Path(__file__).with_name(f"test_{name}.py")) for name in FILES),
        ],
        env={
            **os.environ,
            "DANA_TEST_SCALE": SHARE,
            "LD_PRELOAD": runtime,
            # Python itself leaks, and maps more memory than a shadow of it would like
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed = {name: len(re.findall(rf"test_{name}\.py::\S+.* PASSED", done.stdout)) for name in FILES}
    assert all(passed[name] >= least for name, least in FILES.items()), passed
