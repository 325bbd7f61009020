"""A lying peer and damaged pages once more, with an extension that is built with sanitizers.

The server is as it is, so that the sanitizers see the extension's stack, its constants and what the C library gave it,
and undefined behaviour; within PostgreSQL's memory contexts they see nothing. The looks at tuples are built by
themselves (`test_corruption`), and so is the predictor (`test_predictor`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from dana.server.places import CHECKOUT
from tests.scale import SEED

FLAGS = "-g1 -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
FILES = ("test_lies.py", "test_corruption.py")
SECONDS = float(os.environ.get("DANA_TEST_FUZZ_SECONDS", "600"))
"""For which peers lie and pages are damaged, from another seed in each round."""


@pytest.mark.timeout(0)
def test_no_lie_and_no_page_reaches_outside() -> None:
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    # PostgreSQL ends with memory that it has not freed; SIGABRT, for the tests look for a signal in the server's log
    server = {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
    }
    began, rounds = time.monotonic(), 0
    while rounds == 0 or time.monotonic() - began < SECONDS:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=0"]
            + [f"tests/postgres/{name}" for name in FILES],
            env={
                **os.environ,
                "COPT": FLAGS,
                "DANA_TEST_SANITIZED": json.dumps(server),
                "DANA_TEST_SEED": str(SEED + rounds),
            },
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"DANA_TEST_SEED={SEED + rounds}: {done.stdout[-8000:]}"
        rounds += 1
