"""docs/security.md names a test for each line, and these tests exist; the extension's versions agree."""

from __future__ import annotations

import json
import re
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
    extension = ROOT / "pg_extension"
    described = json.loads((extension / "META.json").read_text())
    control = re.search(r"default_version = '(.+)'", (extension / "dana.control").read_text())
    library = re.search(r'PG_MODULE_MAGIC_EXT\(.*version = "(.+)"\)', (extension / "src/dana.c").read_text())
    assert control
    assert library
    assert {control[1], library[1], described["version"], described["provides"]["dana"]["version"]} == {control[1]}
    assert list((extension / "sql").glob(f"dana--*--{control[1]}.sql"))
