"""Texts that others wrote, on their way to a terminal or a page: what would act there is shown instead.

In: a name, a message, a rule's line. Out: the same, whose control characters and invisible ones (escape sequences,
overrides of the direction of writing, separators of lines) are written as Python writes them: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def printable(text: str, *, lines: bool = False) -> str:
    """The text without a character that is not printable in the sense of `str.isprintable`.

    Parameters
    ----------
    lines
        Keep line feeds and tabs: for messages, which have several lines, and not for names.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode("ascii") for one in text
    )


def cells(texts: Iterable[str]) -> list[Text]:
    """Names as a row of a table of rich: printable, and nothing in them is markup."""
    from rich.text import Text

    return [Text(printable(text)) for text in texts]
