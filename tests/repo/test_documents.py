"""The documents do not drift: every path that a README or a guide names exists, every command it shows parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dana.cli.entry import parser
from dana.server.places import CHECKOUT
from dsl import compile_rule
from dsl.hdfg.text import graph_text

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"```(?:sh|console|bash)\n(.*?)```", re.S)
TOP = {"dana", "dsl", "hwgen", "pg_extension", "tests", "docs", "examples", "benchmarks", ".ci"}

DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(file for folder in TOP for file in (CHECKOUT / folder).rglob("*.md"))])


ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named_paths(document: Path) -> set[Path]:
    """Files and folders that ``document`` names, by link or as code."""
    text = document.read_text(encoding="utf-8")
    links = {target for target in LINK.findall(text) if "://" not in target}
    found = {(document.parent / target).resolve() for target in links}
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    for code in CODE.findall(prose):
        if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+", code) and code.split("/")[0] in TOP:
            found.add((CHECKOUT / code).resolve())
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_paths_exist(document: Path) -> None:
    assert sorted(str(path) for path in named_paths(document) if not path.exists()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_lines_of_prose_are_at_most_120_characters(document: Path) -> None:
    prose = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)
    assert [line for line in prose.split("\n") if len(line) > 120 and not line.startswith(("|", "    "))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_anchors_exist(document: Path) -> None:
    pages = [
        (document.parent / page if page else document, anchor)
        for page, anchor in ANCHOR.findall(document.read_text(encoding="utf-8"))
        if "://" not in page
    ]
    missing = [
        (page.name, anchor) for page, anchor in pages if anchor not in anchors_of(page.read_text(encoding="utf-8"))
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_commands_parse(document: Path) -> None:
    for block in BLOCK.findall(document.read_text(encoding="utf-8")):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "dana":
                parser().parse_args(words[1:])  # SystemExit fails the test


def test_the_check_sees_what_a_document_names() -> None:
    names = {str(path.relative_to(CHECKOUT)) for path in named_paths(CHECKOUT / "README.md")}
    assert {"examples/churn.py", "docs/install.md", "dana/README.md"} <= names


NOTES = re.compile(r"\bDESIGN(\.md|\s+(\d|of\b))|\bSTYLE\.md|\bshared/")
"""The makers' own notes, which are not in the repository."""

NAMED = re.compile(r"(?<![\w./<{-])(?:(?:[a-z_]+/)+)[\w-]+\.md\b")


def test_sources_name_documents_that_are_here() -> None:
    kinds = {".py", ".c", ".h", ".inc", ".cpp", ".v", ".sql", ".md", ".html", ".toml", ".lark", ".service", ""}
    folders = (file for folder in TOP for file in (CHECKOUT / folder).rglob("*"))
    for file in sorted([*folders, *CHECKOUT.glob("*.*"), *CHECKOUT.glob("*file")]):
        if not file.is_file() or file.suffix not in kinds or "__pycache__" in file.parts:
            continue
        if file == CHECKOUT / "docs" / "site.toml":
            continue  # names pages that the site makes; tests/repo/test_site.py builds it
        text = file.read_text(encoding="utf-8", errors="replace")
        assert NOTES.search(text) is None, file
        missing = [name for name in NAMED.findall(text) if not (CHECKOUT / name).exists()]
        assert missing == [], file


QUOTED = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|c|h|cpp|inc|v|sql|toml))`")

ELSEWHERE = {"native/contract.h", "synth/fit.v", "storage/itemid.h", "access/htup_details.h"} | {
    f"driver/{name}" for name in ("dana.h", "dana.c", "dana_pynq.py", "dana_litex.py", "litex_soc.py", "litex_soc.c")
}
"""Files that a build or an export writes, and headers of PostgreSQL."""


def test_files_in_backquotes_are_here() -> None:
    files = [*CHECKOUT.glob("*.*"), *(file for folder in TOP for file in (CHECKOUT / folder).rglob("*.*"))]
    ends = {"/".join(file.parts[start:]) for file in files for start in range(len(CHECKOUT.parts), len(file.parts))}
    for file in files:
        if file.suffix in {".py", ".c", ".h", ".md"}:
            assert set(QUOTED.findall(file.read_text(encoding="utf-8"))) - ends - ELSEWHERE == set(), file


def test_the_readme_s_rule_is_the_example() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    listing = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "dana.algo" in block)
    example = compile_rule((CHECKOUT / "examples" / "churn.py").read_text(encoding="utf-8"))
    assert graph_text(compile_rule(listing).hdfg, spans=False) == graph_text(example.hdfg, spans=False)


MAPS = (
    "dana/codesign",
    "dana/report",
    "dana/storage",
    "dana/trainer",
    "dana/worker",
    "hwgen/export",
    "hwgen/rtl/access",
)


@pytest.mark.parametrize("folder", MAPS)
def test_a_map_names_every_file(folder: str) -> None:
    """In the order of its table; README files of these folders list nothing else."""
    text = (CHECKOUT / folder / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([^`/]+)` \|", text, flags=re.MULTILINE))
    there = {path.name for path in (CHECKOUT / folder).iterdir() if path.is_file() and path.suffix != ".so"}
    assert listed == there - {"README.md", "__init__.py"}
