"""The faults of `faults.toml`, each located by its text alone.

In: files of the checkout. Out: `FAULTS`. It writes nothing.
"""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dana.server.places import CHECKOUT

SUFFIXES = {".py", ".c", ".h", ".inc", ".sql", ".v", ".in"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes
    ----------
    old, new
        A text that occurs once in the product, and the text that replaces it.
    what
        The fault in words.
    tests
        Arguments of pytest that select the test.
    """

    old: str
    new: str
    what: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file that holds the text, relative to the checkout.

        Raises
        ------
        ValueError
            The text does not occur exactly once.
        """
        return _place(self.old)


@cache
def _place(old: str) -> Path:
    places = [path for path, text in _sources().items() for _ in range(text.count(old))]
    if len(places) != 1:
        found = ", ".join(map(str, places)) or "no file"
        raise ValueError(f"{old!r} must occur once, but is in {found}: update benchmarks/faults/faults.toml")
    return places[0]


@cache
def _sources() -> dict[Path, str]:
    files = (file for folder in ("dana", "hwgen", "pg_extension") for file in (CHECKOUT / folder).rglob("*.*"))
    return {file.relative_to(CHECKOUT): file.read_text(encoding="utf-8") for file in files if file.suffix in SUFFIXES}


def _read() -> tuple[Fault, ...]:
    listed = tomllib.loads((Path(__file__).parent / "faults.toml").read_text(encoding="utf-8"))
    return tuple(
        Fault(old, new, what, tuple(shlex.split(tests)))
        for tests, faults in listed.items()
        for what, (old, new) in faults.items()
    )


FAULTS = _read()
