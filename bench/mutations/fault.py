"""One fault: a text of a file, what takes its place, and the test that is to notice.

In: files of the checkout. Out: their text with the fault. It writes nothing.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes
    ----------
    file
        Below `top`; of the extension's sources the name, for these are found in whichever folder they are.
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
        """The file, from the checkout's top."""
        if self.top == "pg_extension/src":
            return next(Path(self.top).glob(f"*/{self.file}"))
        return Path(self.top) / self.file

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


Fault = tuple[str, str, str, str]
"""A file below a folder, its text, what takes the text's place, and the fault in words."""


def faults(top: str, tests: str, *listed: Fault) -> tuple[Mutation, ...]:
    """Faults below a folder that the same tests are to notice; `tests` as in a shell."""
    chosen = tuple(shlex.split(tests))
    return tuple(Mutation(file, old, new, what, chosen, top) for file, old, new, what in listed)
