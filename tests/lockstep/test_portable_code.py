"""A rule's own code on processors that have no mode for subnormals: here with a core that does not use it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults.run import HEADERS, LIBRARIES
from dana.server.places import CHECKOUT

FLAGS = ("-O1", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-DDN_PORTABLE", "-w")
FILES = ("tests/lockstep/test_compiled_code.py", "tests/lockstep/test_rounding.py")
LEAST = 140
"""Tests of these files."""
RUN = """
import ctypes, sys
replaced, portable, *arguments = sys.argv[1:]
class Library(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        super().__init__(portable if name == replaced else name, *args, **options)
ctypes.CDLL = Library
import pytest
from dana.simulator import native
assert not native.library().sim_flushes()
sys.exit(pytest.main(["-x", "-p", "no:cacheprovider", *arguments]))
"""


@pytest.mark.exhaustive
def test_code_flushes_by_instructions(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("dana.simulator._core")
    assert spec is not None
    assert spec.origin is not None
    portable = str(tmp_path / "core.so")
    folders = (f"-I{CHECKOUT / folder}" for folder in HEADERS)
    sources = sorted(map(str, CHECKOUT.glob(LIBRARIES["dana/simulator/_core"])))
    subprocess.run(["gcc", *FLAGS, *folders, "-o", portable, *sources, "-lm", "-pthread"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", RUN, spec.origin, portable, *FILES],
        env={**os.environ, "DANA_TEST_SCALE": "0.25"},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST
