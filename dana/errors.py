"""The families of errors: by who can correct them, the user, the administrator or the developers.

Every error that `dana` raises on purpose is one of them. Only `dana.cli.entry` maps them to exit codes. A message says
what was expected, what was found, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from dana.printable import printable


class DanaError(Exception):
    """An error of this package; its message is made printable, as it may hold untrusted names."""

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


class UsageError(DanaError):
    """An error of the user: an invalid request (a missing table, a column of the wrong type …).

    Parameters
    ----------
    message
        What was expected, what was found and where.
    hint
        What to do about it, in sentences; may be empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return printable(f"{self.message}\nHint: {self.hint}" if self.hint else self.message, lines=True)


class SetupError(DanaError):
    """An error of the environment: something is missing or fails (a C compiler, a server, rights on a folder)."""


class InternalError(DanaError):
    """A bug: an invariant of this package does not hold."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its chain of causes."""
    while error is not None:
        yield error
        # as tracebacks do: `raise … from None` hides the context
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
