"""The folders of the extension: each includes headers of its own and of folders below it, in the order of its
README."""

from __future__ import annotations

import re

from dana.server.places import CHECKOUT

EXTENSION = CHECKOUT / "pg_extension"
SOURCES = EXTENSION / "src"
INCLUDE = re.compile(r'^#include "(\w+)/(\w+\.h)"$', re.MULTILINE)


def test_includes_go_one_way() -> None:
    order = re.search(r"^ (calls → .*)$", (EXTENSION / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert order
    folders = order[1].split(" → ")
    assert sorted(folders) == sorted(folder.name for folder in SOURCES.iterdir())
    for source in sorted(SOURCES.glob("*/*.[ch]")):
        below = folders[folders.index(source.parent.name) :]
        for folder, header in INCLUDE.findall(source.read_text(encoding="utf-8")):
            if folder in folders:
                assert folder in below, f"{source.relative_to(EXTENSION)} must not include {folder}/{header}"
                assert (SOURCES / folder / header).is_file(), f"{source}: {folder}/{header}"


def test_files_include_without_a_circle() -> None:
    """A `.c` file and its header are one; then includes have no circle, and neither have calls."""
    includes: dict[str, set[str]] = {}
    for source in SOURCES.glob("*/*.[ch]"):
        name = f"{source.parent.name}/{source.stem}"
        found = {"/".join(found).removesuffix(".h") for found in INCLUDE.findall(source.read_text(encoding="utf-8"))}
        includes.setdefault(name, set()).update(found - {name})
    while leaves := {name for name, wanted in includes.items() if not wanted & includes.keys()}:
        includes = {name: wanted for name, wanted in includes.items() if name not in leaves}
    assert not includes, includes
