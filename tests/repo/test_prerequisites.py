"""What `make demo` says of a machine or a folder that lacks something: one line, which names it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dana.server.account import server_account
from dana.server.installation import MAKE_CANNOT
from dana.server.places import CHECKOUT

TOOLS = ("gcc", "cc", "g++")


def ready(
    folder: Path, python: str = sys.executable, tools: tuple[str, ...] = TOOLS, *, as_account: bool = False
) -> tuple[int, str]:
    """Exit code and lines of .ci/ready in ``folder``, on a PATH with these compilers alone."""
    path = folder.parent / f"path-{len(tools)}"
    path.mkdir(exist_ok=True)
    for tool in (*tools, "as", "ld"):
        if not (path / tool).exists():
            (path / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        [str(shutil.which("sh")), "-s", python],
        input=(CHECKOUT / ".ci" / "ready").read_text(),
        cwd=folder,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        **(server_account().identity() if as_account else {}),
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "Größe"
    made.mkdir()
    return made


def test_nothing_is_said_where_nothing_is_missing(folder: Path) -> None:
    assert ready(folder) == (0, "")


@pytest.mark.parametrize(
    ("tools", "missing", "packages"),
    [
        (("gcc", "cc"), "a C++ compiler (g++)", "g++"),
        (("gcc", "g++"), "a C compiler (gcc and cc) with headers", "gcc libc6-dev"),
        ((), "a C compiler (gcc and cc) with headers, a C++ compiler (g++)", "gcc libc6-dev g++"),
    ],
)
def test_a_missing_compiler_is_named_with_its_package(
    folder: Path, tools: tuple[str, ...], missing: str, packages: str
) -> None:
    code, said = ready(folder, tools=tools)
    assert code == 1
    assert said.startswith(f"dana: missing here: {missing}; Debian, Ubuntu: apt-get install {packages}; Fedora: ")
    assert said.count("\n") == 1


def test_a_missing_python_is_named(folder: Path) -> None:
    code, said = ready(folder, "no-such-python")
    assert code == 1
    assert re.fullmatch(r"dana: missing here: Python 3\.11 or newer .* apt-get install python3-venv; .*\n", said)


def test_a_python_without_venv_is_named(folder: Path) -> None:
    """Debian's, where python3-venv is not installed: it has venv, but not ensurepip."""
    python = folder.parent / "python"
    python.write_text(f"""#!/bin/sh
exec "{sys.executable}" -c "import sys; sys.modules['ensurepip'] = None; $2"
""")
    python.chmod(0o755)
    code, said = ready(folder, str(python))
    assert code == 1
    assert re.fullmatch(rf"dana: missing here: the module venv of {python}; .* install python3-venv; .*\n", said)


@pytest.mark.parametrize("character", " \t#$%:;&|<>()'\"\\`")
def test_a_folder_that_make_cannot_build_in_is_named(tmp_path: Path, character: str) -> None:
    folder = tmp_path / f"a{character}folder"
    folder.mkdir()
    code, said = ready(folder)
    assert (code, said.count("\n")) == (1, 1)
    assert f"make cannot build in a folder of this name: '{folder}'" in said
    assert MAKE_CANNOT.search(str(folder))  # the same of DANA_HOME


def test_a_folder_that_cannot_be_written_is_named(server_root: Path) -> None:
    """As the server's account in a folder of root's, or an ordinary user in one that is closed to writing."""
    folder = server_root / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    code, said = ready(folder, as_account=True)
    assert (code, said.count("\n")) == (1, 1)
    assert f"this folder is read-only: {folder}; copy it" in said


def test_a_place_without_such_characters_is_no_obstacle(folder: Path) -> None:
    assert MAKE_CANNOT.search(os.path.join(folder, "build-18")) is None
