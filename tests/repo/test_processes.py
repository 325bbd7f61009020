"""Tests in several processes: what they report is what one process would report, and a crash is a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dana.server.places import CHECKOUT

PASSES = """
import os, warnings
def test_it(tmp_path): (tmp_path.parents[1] / f"{os.getpid()}.by").touch()
def test_warns(): warnings.warn("take care")
"""
FAILS = """
def test_it():
    print("seen by a reader")
    assert 1 + 1 == 3
"""
CRASHES = "import os\ndef test_it(): os.kill(os.getpid(), 9)\ndef test_behind(): pass\n"


def outcome(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.processes", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        [*command, "--rootdir", folder, "--basetemp", folder / "temporary", folder],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_reports_are_those_of_one_process(tmp_path: Path) -> None:
    """The unit of a process is a file; each test has its outcome, its output and its warnings in the report."""
    files = {"a": PASSES, "b": PASSES, "c": PASSES, "fails": FAILS}
    status, text = outcome(tmp_path, files, "--processes", "2")
    assert status == 1
    assert re.search("^seen by a reader$", text, re.MULTILINE)
    assert "assert (1 + 1) == 3" in text
    assert "1 failed, 6 passed, 3 warnings" in text
    assert "take care" in text
    assert len(list(tmp_path.rglob("*.by"))) in (1, 2)


def test_a_crash_is_a_failure_and_ends_the_run(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, {"crashes": CRASHES}, "--processes", "2")
    assert status == 1
    assert "FAILED" in text
    assert "test_crashes.py::test_it" in text
    assert "ended with status -9" in text
    assert "1 failed in" in text  # and not the test behind


def test_it_ends_after_as_many_failures_as_were_asked_for(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, {"fails": FAILS, "other": FAILS * 2}, "--processes", "2", "--maxfail", "1")
    assert status == 1
    assert re.search("stopping after [12] failures", text), text  # the other process may fail before it is stopped
