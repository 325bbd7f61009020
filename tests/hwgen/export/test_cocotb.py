"""The package's own test in cocotb, under Icarus."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dana.cli.entry import OK, main
from dana.server.places import CHECKOUT
from tests.hwgen.export.test_package import ARGUMENTS


def test_a_package_passes_in_cocotb_and_a_wrong_word_fails(tmp_path: Path) -> None:
    """With pauses of the memories, and without."""
    folder = tmp_path / "package"
    assert main([*ARGUMENTS, "-o", str(folder)]) == OK
    done = played(folder)
    assert (done.returncode, done.stdout.split("\n")[-2]) == (0, "PASS 2 tests"), done.stdout[-2000:] + done.stderr
    expected = folder / "sim" / "expected.hex"
    first, *rest = expected.read_text().split()
    expected.write_text("\n".join([f"{int(first, 16) ^ 1:016x}", *rest, ""]))
    done = played(folder, COCOTB_TEST_FILTER="pauses=0")
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr
    assert f"1 words are not as sim/expected.hex says; the first is at {int(first[:8], 16):#x}" in done.stdout


def played(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{CHECKOUT / '.icarus'}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "sim/cocotb_board.py"],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
