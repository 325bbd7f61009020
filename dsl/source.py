"""Rule text and positions in it.

In: text and what to call it. Out: `Source`, and the `Span` that every token, AST node, diagnostic and hDFG
node carries. Must not: read files, or know the grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of rule text, lines and columns counted from 1, the end exclusive.

    The one dataclass here that is positional: four numbers in reading order.

    Parameters
    ----------
    line, column
        Where the first character stands.
    end_line, end_column
        Where the first character *after* the stretch stands.
    """

    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """Return the stretch from the start of this span to the end of `other`."""
        return Span(self.line, self.column, other.end_line, other.end_column)

    def __str__(self) -> str:
        return f"{self.line}:{self.column}-{self.end_line}:{self.end_column}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The text of one rule.

    Parameters
    ----------
    text
        The whole text.
    filename
        How to call it in messages.
    first_line
        Number of its first line in that file, for messages only; spans count from 1.
    """

    text: str
    filename: str
    first_line: int = 1

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines without their ends; only a line feed ends a line, as in the lexer."""
        return tuple(line.removesuffix("\r") for line in self.text.split("\n"))
