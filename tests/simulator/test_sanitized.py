"""The fuzzing tests once more, with native parts that are built with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from benchmarks.faults.run import HEADERS, LIBRARIES
from dana.server.places import CHECKOUT

FLAGS = ("-O0", "-g1", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared")
"""Unoptimised, the kernels compile in a third of the time, and all that the sources do is there to be looked at."""
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FILES = {
    "simulator/test_walk": 7,
    "simulator/test_access": 2,
    "simulator/test_simulated_engine": 2,
    "simulator/test_simulated_machine": 31,
    "simulator/test_exchange": 12,
    "simulator/test_shared": 5,
    "worker/test_ring": 40,
    "storage/test_permuted": 30,
}
"""Of each the least number of tests."""
WANTED = (
    "(loops or tables or wild or machine or under_way or exchange or alike or in_any_calls or ring or permuted)"
    " and not memory_stays"
)
SHARE = "0.25"
"""Of the cases that they have without sanitizers, which tell whether the results are right."""
SECONDS = float(os.environ.get("DANA_TEST_FUZZ_SECONDS", "600"))
"""For which damaged pages are trained on."""
FUZZ = """
import ctypes, json, sys
sanitized = json.loads(sys.argv[1])
class Library(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        super().__init__(sanitized.get(name, name), *args, **options)
ctypes.CDLL = Library
import pytest
# the report of a sanitizer, which ends the process, goes to stderr itself
sys.exit(pytest.main(["-v", "-x", "--capture=sys", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Libraries, by the paths of those that they stand for."""
    made = {}
    for name, sources in LIBRARIES.items():
        spec = importlib.util.find_spec(name.replace("/", "."))
        assert spec is not None
        assert spec.origin is not None
        made[spec.origin] = str(tmp_path_factory.mktemp("sanitized") / "library.so")
        headers = (f"-I{CHECKOUT / folder}" for folder in HEADERS)
        given = sorted(map(str, CHECKOUT.glob(sources)))
        subprocess.run(
            ["gcc", *FLAGS, *SANITIZERS, *headers, "-o", made[spec.origin], *given, "-lm", "-pthread"], check=True
        )
    return made


def run(sanitized: dict[str, str], *arguments: str, **environment: str) -> str:
    """Run tests with these libraries; what they print."""
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, json.dumps(sanitized), *arguments],
        env={
            **os.environ,
            "LD_PRELOAD": runtime,
            # Python itself leaks, and maps more memory than a shadow of it would like
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            **environment,
        },
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_no_page_and_no_program_reaches_outside(sanitized: dict[str, str]) -> None:
    said = run(sanitized, "-k", WANTED, *(f"tests/{name}.py" for name in FILES), DANA_TEST_SCALE=SHARE)
    passed = {name: len(re.findall(rf"{name}\.py::\S+.* PASSED", said)) for name in FILES}
    assert all(passed[name] >= least for name, least in FILES.items()), passed


@pytest.mark.timeout(0)
def test_no_training_on_damaged_pages_reaches_outside(sanitized: dict[str, str]) -> None:
    run(sanitized, "--timeout=0", "tests/trainer/test_damaged_pages.py", DANA_TEST_FUZZ_SECONDS=str(SECONDS))
