"""Verilog as a file for each module."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from dana.cli.entry import OK, main
from hwgen.export import MANIFEST
from hwgen.export.verilog import modules, split
from hwgen.spec import board
from tests.hwgen.board.test_driver import verilog
from tests.hwgen.export.test_package import ARGUMENTS, verilator


def test_files_of_modules_are_the_whole_text_bottom_up() -> None:
    found = split(verilog())
    lines = [[line for line in text.split("\n") if line] for text in ("".join(found.values()), verilog())]
    assert sorted(lines[0]) == sorted(lines[1])
    assert [text.count("\nmodule ") + text.startswith("module ") for text in found.values()] == [1] * len(found)
    assert list(found)[-1] == f"{board.TOP}.v"
    before: set[str] = set()
    for name, module in modules(verilog()).items():
        assert set(module.instances.values()) <= before, name
        before.add(name)
    assert not any("$" in name for name in found)


def test_a_divided_package_is_the_same_hardware_to_every_tool(tmp_path: Path) -> None:
    """Verilator's linter, the core file and the project's own harness take all its files."""
    folder = tmp_path / "package"
    assert main([*ARGUMENTS, "--divided", "-o", str(folder)]) == OK
    manifest = json.loads((folder / MANIFEST).read_text())
    paths = sorted(f"rtl/{path.name}" for path in (folder / "rtl").glob("*.v"))
    assert len(paths) > 20
    top = ["--lint-only", "-Wall", "--top-module", manifest["top"]]
    done = verilator(folder, *top, "rtl/lint.vlt", *paths)
    assert done.returncode == 0, done.stderr
    assert "%Warning" not in done.stderr
    core = yaml.safe_load((folder / f"{board.TOP}.core").read_text().partition("\n")[2])
    listed = [name for file in core["filesets"]["rtl"]["files"] for name in file]
    assert (sorted(listed), listed[-1]) == (paths, f"rtl/{manifest['top']}.v")
    named = re.findall(r"<spirit:name>(rtl/.*?)</spirit:name>", (folder / "component.xml").read_text())
    assert named == listed
    assert main(["board", str(folder)]) == OK
    assert main([*ARGUMENTS, "-o", str(folder)]) == OK
    assert [path.name for path in (folder / "rtl").glob("*.v")] == [f"{board.TOP}.v"]
