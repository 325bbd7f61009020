"""Diagnostics laid out for people: the line, a caret, what was expected, what was found, a hint.

In: a `Diagnostic` and the text it is about. Out: plain text, no colours (a terminal layer may add them).
Must not: decide what is wrong.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from dsl.diagnostics import Diagnostic
from dsl.sections import place
from dsl.source import Source, Span

WINDOW = 100
"""Columns of a source line that are shown; longer lines are cut around the caret."""


def render(diagnostics: Iterable[Diagnostic], source: Source) -> str:
    """Lay out diagnostics one below the other, a blank line between them."""
    return "\n\n".join(render_one(diagnostic, source) for diagnostic in diagnostics)


def render_one(diagnostic: Diagnostic, source: Source) -> str:
    """Lay out one diagnostic.

    Parameters
    ----------
    diagnostic
        What to show.
    source
        The text it is about.
    """
    out = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.title}"]
    marks = [_Mark(diagnostic.span, diagnostic.label, "^")] if diagnostic.span else []
    marks += [_Mark(note.span, note.message, "-") for note in diagnostic.notes if note.span]
    # lines of a module count in its own file
    places = [place(source, mark.span.line) for mark in marks]
    gutter = max((len(str(line)) for _, line in places), default=1)
    blank = " " * gutter
    file, number = places[0] if diagnostic.span else (source.filename, 0)
    out.append(f"{blank}--> {file}" + (f":{number}:{diagnostic.span.column}" if diagnostic.span else ""))
    for previous, mark, (home, number) in zip([None, *marks], marks, places, strict=False):
        # an error at the end of the text can stand behind its last line
        line = source.lines[mark.span.line - 1] if mark.span.line <= len(source.lines) else ""
        shown, first, last = _window(line, mark.span)
        if home != file:
            file = home
            out.append(f"{blank}::: {file}:{number}:{mark.span.column}")
        if previous is None:
            out.append(f"{blank} |")
        # a line that the window shows differently must be shown again
        if previous is None or previous.span.line != mark.span.line or len(line) > WINDOW:
            out.append(f"{number:>{gutter}} | {_printable(shown)}".rstrip())
        # at least one caret: a span can be empty, as at the end of a line
        carets = mark.sign * max(1, _width(shown[first:last]))
        out.append(f"{blank} | {' ' * _width(shown[:first])}{carets} {mark.text}".rstrip())
    remarks = [("expected", diagnostic.expected), ("found", diagnostic.found)]
    remarks += [("note", note.message) for note in diagnostic.notes if not note.span]
    remarks += [("help", diagnostic.help)]
    out += [f"{blank} = {kind}: {message}" for kind, message in remarks if message]
    return "\n".join(out)


class _Mark(NamedTuple):
    """A stretch to underline and what to say at it."""

    span: Span
    text: str
    sign: str


def _window(line: str, span: Span) -> tuple[str, int, int]:
    """Return what is shown of a line, and the underlined part of that as indices."""
    first = min(span.column - 1, len(line))
    last = span.end_column - 1 if span.end_line == span.line else len(line)
    # at least one character wide, behind the line's end if need be
    last = max(first + 1, min(last, len(line)))
    if len(line) <= WINDOW:
        return line, first, last
    # a quarter of the window lies before the caret: what follows it says more
    cut = max(0, min(first - WINDOW // 4, len(line) - WINDOW))
    before = "…" if cut else ""
    after = "…" if cut + WINDOW < len(line) else ""
    shift = len(before) - cut
    return before + line[cut : cut + WINDOW] + after, first + shift, min(last, cut + WINDOW) + shift


def _printable(text: str) -> str:
    return "".join("    " if c == "\t" else c if c.isprintable() else "�" for c in text)


def _width(text: str) -> int:
    # cells as `_printable` writes them, since columns of a span count characters
    return sum(4 if c == "\t" else 2 if unicodedata.east_asian_width(c) in "WF" else _narrow(c) for c in text)


def _narrow(character: str) -> int:
    return 0 if unicodedata.combining(character) else 1
