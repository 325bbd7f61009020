"""One fault: a text of a file, what takes its place, and the test that is to notice.

In: files of the checkout. Out: their text with the fault. It writes nothing.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dana.server.places import CHECKOUT

SUFFIXES = {".py", ".c", ".h", ".inc", ".sql", ".v", ".service", ".in", ".lark"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes
    ----------
    file
        Where the text stands; where several files hold it, the one of this name, so that a fault survives a move.
    old, new
        Text, and what takes its place.
    what
        The fault, for people.
    tests
        Arguments of pytest that choose the quick test.
    top
        A folder of the checkout.
    """

    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]
    top: str = "hwgen/rtl"

    @property
    def path(self) -> Path:
        """The file that holds the text, from the checkout's top."""
        holding = [path for path, text in _sources().items() if text.count(self.old) == 1]
        named = [path for path in holding if path.name == Path(self.file).name]
        if len(named or holding) != 1:
            raise ValueError(f"one file named {self.file} must hold {self.old!r} once, but {named or holding} do")
        return (named or holding)[0]

    def applied(self, text: str) -> str:
        """The file's text with the fault.

        Raises
        ------
        ValueError
            The old text does not stand there once.
        """
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.path} must hold {self.old!r} once, but holds it {found} times: follow the file")
        return text.replace(self.old, self.new)


@cache
def _sources() -> dict[Path, str]:
    """The text of every file of the product, by its path from the checkout's top."""
    files = (file for folder in ("dana", "dsl", "hwgen", "pg_extension") for file in (CHECKOUT / folder).rglob("*.*"))
    return {file.relative_to(CHECKOUT): file.read_text(encoding="utf-8") for file in files if file.suffix in SUFFIXES}


Fault = tuple[str, str, str, str]
"""A file below a folder, its text, what takes the text's place, and the fault in words."""


def faults(top: str, tests: str, *listed: Fault) -> tuple[Mutation, ...]:
    """Faults below a folder that the same tests are to notice; `tests` as in a shell."""
    chosen = tuple(shlex.split(tests))
    return tuple(Mutation(file, old, new, what, chosen, top) for file, old, new, what in listed)
