"""One text that holds a rule and the modules it imports.

In: a text in which a line `# %% module name` begins the text of a module, after the rule's own. Out: its
parts; where a line of it stands for people. So whoever stores a rule's text stores all that it was compiled from.
Must not: read files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dsl.diagnostics import Diagnostic
from dsl.source import Source

# a line of its own with its end, so that a module's text begins with the next line
MARK: Final = re.compile(r"^# %% module ([A-Za-z_][A-Za-z0-9_]*)[ \t]*\r?\n", re.MULTILINE)


def section(name: str, text: str) -> str:
    """Return a module's text as it stands behind a rule's."""
    return f"# %% module {name}\n{text}" + ("" if text.endswith("\n") else "\n")


def sections(text: str) -> dict[str, str]:
    """Return the parts by name, the rule's own under "", each with its lines numbered as in the whole."""
    marks = list(MARK.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)]
    parts = {"": text[: ends[0]]}
    for mark, end in zip(marks, ends[1:], strict=True):
        # empty lines stand for what comes before, so that spans count in the whole text; of equal names the first stays
        parts.setdefault(mark[1], "\n" * text.count("\n", 0, mark.end()) + text[mark.end() : end])
    return parts


def repeated(text: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with names that two modules have; lines are those of the whole text."""
    lines: dict[str, int] = {}
    for mark in MARK.finditer(text):
        line = text.count("\n", 0, mark.start()) + 1
        if mark[1] in lines:
            yield Diagnostic(
                code="E204",
                title=f"there are two modules {mark[1]}: lines {lines[mark[1]]} and {line} of the text",
                help="give one of them another name",
            )
        lines.setdefault(mark[1], line)


def place(source: Source, line: int) -> tuple[str, int]:
    """Return the file that a line of the whole text is from, and its number there."""
    before = [mark for mark in MARK.finditer(source.text) if source.text.count("\n", 0, mark.end()) < line]
    if not before:
        return source.filename, line + source.first_line - 1
    folder, slash, _ = source.filename.rpartition("/")
    return f"{folder}{slash}{before[-1][1]}.py", line - source.text.count("\n", 0, before[-1].end())
