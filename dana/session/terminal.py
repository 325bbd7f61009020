"""Output to a terminal: texts are made printable (`dana.printable`), and are never markup of rich.

In: untrusted texts, such as names of tables. Out: lines on a stream; texts and cells for rich. The command line prints
only through this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from dana.printable import printable

if TYPE_CHECKING:
    from rich.text import Text


def say(
    text: object, *, lines: bool = False, end: str = "\n", file: IO[str] | None = None, flush: bool = False
) -> None:
    """Print a line; with `lines`, a text of several."""
    print(printable(str(text), lines=lines), end=end, file=file, flush=flush)


def shown(text: str) -> Text:
    """A text of one line or more for rich."""
    from rich.text import Text

    return Text(printable(text, lines=True))


def cells(texts: Iterable[str]) -> list[Text]:
    """Names as a row of a table of rich."""
    from rich.text import Text

    return [Text(printable(text)) for text in texts]
