"""docs/security.md names a test for each line, and these tests exist; the extension's versions agree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = [line for line in (ROOT / "docs/security.md").read_text().splitlines() if line.startswith("| ")]
THREATS = [line for line in LINES if not line.startswith("| threat ")]


def test_there_are_threats() -> None:
    assert len(THREATS) > 15


@pytest.mark.parametrize("line", THREATS, ids=lambda line: line.split("|")[1].strip()[:40])
def test_each_line_names_tests_that_exist(line: str) -> None:
    named = re.findall(r"`(tests/[^`]+)`", line.rsplit("|", 2)[1])
    assert named
    for reference in named:
        file, _, function = reference.partition("::")
        text = (ROOT / file).read_text()
        assert re.search(rf"^def {function or 'test_'}", text, re.MULTILINE), reference


def test_one_version() -> None:
    """It is pyproject.toml's; the Makefile puts it where the extension needs it."""
    extension = ROOT / "pg_extension"
    described = json.loads((extension / "META.json.in").read_text())
    assert {described["version"], described["provides"]["dana"]["version"]} == {"@VERSION@"}
    assert "default_version = '@VERSION@'" in (extension / "dana.control.in").read_text()
    assert [file.name for file in (extension / "sql").iterdir()] == ["dana.sql"]
    for source in extension.glob("src/*/*.c"):
        assert not re.search(r'"[0-9]+\.[0-9]+\.[0-9]+"', source.read_text()), source


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="git makes it of a commit, and a source archive has none",
)
def test_an_archive_for_pgxn_has_what_the_extension_is_made_of(tmp_path: Path) -> None:
    subprocess.run(["make", "-C", ROOT / "pg_extension", "pgxn", f"BUILDS={tmp_path}"], check=True, capture_output=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with zipfile.ZipFile(tmp_path / f"dana-{version}.zip") as archive:
        names = {name.removeprefix(f"dana-{version}/") for name in archive.namelist()}
        described = json.loads(archive.read(f"dana-{version}/META.json"))
    provided = described["provides"]["dana"]
    assert (described["version"], provided["version"]) == (version, version)
    parts = {"Makefile", "pyproject.toml", "pg_extension/Makefile", "dana/worker/native/wire.h"}
    assert not [name for name in names if name.endswith(".py")]
    assert {provided["file"], provided["docfile"], "hwgen/spec/numerics/native/numerics.h", *parts} <= names
