"""Errors and warnings of a rule, as data.

In: findings of the syntax and semantics stages. Out: `Diagnostic`s in the order of the text, and `RuleError`
that carries all of them at once. Must not: lay out text for people; `dsl.render` does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dsl.limits import MAX_ERRORS
from dsl.source import Span


class Severity(StrEnum):
    """Whether the rule can still be used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A second place that matters, or a remark (`span` None)."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding.

    Parameters
    ----------
    code
        Stable name of the class of findings: E1xx text and syntax, E2xx names, E3xx kinds and arguments, E4xx shapes,
        E5xx the algorithm (merge, setModel …), E6xx limits, W7xx warnings.
    title
        One line, no full stop.
    span
        The place; None if the finding is about the whole text.
    label
        What stands at the caret.
    expected, found
        What the language wants there and what it got instead; either may be empty.
    notes
        Other places and remarks.
    help
        What to do, in a sentence; may be empty.
    severity
        ERROR or WARNING.
    """

    code: str
    title: str
    span: Span | None = None
    label: str = ""
    expected: str = ""
    found: str = ""
    notes: tuple[Note, ...] = ()
    help: str = ""
    severity: Severity = Severity.ERROR


class Diagnostics:
    """Collects findings; the same finding at the same place counts once.

    A function that is called twice is elaborated twice and would otherwise report its errors twice.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, Span | None], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        """Record a finding unless its code was already reported at its place."""
        # the first report stays: those of later calls have other notes about where they come from
        self._found.setdefault((diagnostic.code, diagnostic.span), diagnostic)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Record several findings."""
        for diagnostic in diagnostics:
            self.add(diagnostic)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Errors in the order of the text, at most `MAX_ERRORS`."""
        # sorted before it is cut: the first errors of the text stay, not those found first
        return self._of(Severity.ERROR)[:MAX_ERRORS]

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings in the order of the text, at most `MAX_ERRORS`."""
        return self._of(Severity.WARNING)[:MAX_ERRORS]

    @property
    def full(self) -> bool:
        """Whether enough errors were found to stop looking."""
        return len(self._of(Severity.ERROR)) >= MAX_ERRORS

    def _of(self, severity: Severity) -> tuple[Diagnostic, ...]:
        found = [diagnostic for diagnostic in self._found.values() if diagnostic.severity is severity]
        # findings about the whole text come last; the empty Span only keeps None out of the comparison
        return tuple(sorted(found, key=lambda d: (d.span is None, d.span or Span(0, 0, 0, 0), d.code)))


class RuleError(ValueError):
    """A rule cannot be used: the user's bug, with everything that is wrong with it.

    Parameters
    ----------
    diagnostics
        All errors, in the order of the text.
    text
        The errors laid out for a terminal without colours.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...], text: str) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics
        self.text = text

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of a traceback: the rule is wrong, not the Python around it."""
        return self.text.splitlines()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the known word closest to `word`, or an empty string."""
    # difflib's time grows with the square of the length, and rule text may hold one name of 64 KB
    if len(word) > 40:
        return ""
    # of names that differ in case alone the alphabet's first is suggested: in a dict the last one written stays
    lowered = {name.lower(): name for name in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.7)
    return f"did you mean {lowered[close[0]]!r}?" if close else ""
