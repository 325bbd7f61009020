"""The two families of errors, told apart because they end differently: the user mends the first, we mend the second.

Everything that `dana` raises on purpose derives from one of them. The command line maps them to exit codes in
`dana.cli.entry`; nothing else may decide on an exit code. A message says what was expected, what was found, where,
and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from dana.printable import printable


class DanaError(Exception):
    """Any error that this package raises on purpose; what it says is printable, as it may hold names."""

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


class UsageError(DanaError):
    """Your bug: a request that cannot be met as it stands (a missing table, a column of the wrong type …).

    Parameters
    ----------
    message
        What was expected, what was found and where.
    hint
        What to do about it, in sentences; empty where the message says all.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return printable(f"{self.message}\nHint: {self.hint}" if self.hint else self.message, lines=True)


class SetupError(DanaError):
    """Neither's bug: something outside is missing or refuses (no C compiler, no server, a folder without rights)."""


class InternalError(DanaError):
    """Our bug: an invariant of this package does not hold."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it comes from, one after the other."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
