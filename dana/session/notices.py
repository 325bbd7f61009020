"""Messages of the server as Python warnings.

In: a session. Out: its WARNINGs and NOTICEs, with details and hints, as `ServerWarning` and `ServerNotice` at the line
of the caller: in a notebook below the cell, from the command on stderr. Each text is shown once for every call,
although Python by default shows the same warning from one line only once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Self

import psycopg
from psycopg.errors import Diagnostic

from dana.printable import printable

PROGRESS = ("_notice_epoch", "_notice_run")
"""Suffixes of the extension's functions that report progress, as requested by the setting dana.notices."""

OWN = ("dana", "contextlib")
"""Packages whose frames are not the caller's; this package's context managers are called through the second."""


class ServerWarning(UserWarning):
    """A WARNING of the server: something is likely wrong."""


class ServerNotice(UserWarning):
    """A NOTICE of the server: what was done to the data, or a result that may be unexpected."""


CATEGORIES: dict[str | None, type[UserWarning]] = {
    "WARNING": ServerWarning,
    "NOTICE": ServerNotice,
    "INFO": ServerNotice,
}


def is_progress(said: Diagnostic) -> bool:
    """Whether a message reports progress: an epoch or the end of a training."""
    # by the C function: the text of a message is translated and may change
    return (said.source_function or "").endswith(PROGRESS)


def category_of(said: Diagnostic) -> type[UserWarning] | None:
    """The warning that a message becomes; None for progress and for what only a developer reads."""
    # severity_nonlocalized: lc_messages translates the other
    return None if is_progress(said) else CATEGORIES.get(said.severity_nonlocalized)


def text_of(said: Diagnostic) -> str:
    """A message with its detail and its hint."""
    parts = ("", said.message_primary), ("\nDetail: ", said.message_detail), ("\nHint: ", said.message_hint)
    return "".join(title + text for title, text in parts if text)


class Messages:
    """Collects the server's messages in a ``with`` block and issues them as warnings at its end, even on an error.

    Parameters
    ----------
    session
        Connection of psycopg.
    place
        Where the messages come from, before each text.
    """

    def __init__(self, session: psycopg.Connection, place: str = "") -> None:
        self._session, self._place = session, place
        self._said: dict[tuple[type[UserWarning], str], None] = {}

    def __enter__(self) -> Self:
        self._session.add_notice_handler(self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.remove_notice_handler(self._hear)
        _warn(self._said)

    def _hear(self, said: Diagnostic) -> None:
        category = category_of(said)
        if category is not None:
            # a dict as an ordered set: a text that the call repeats is shown once
            self._said[category, self._place + text_of(said)] = None


def repeat(notices: Iterable[str]) -> None:
    """Issue a job's messages as warnings; in `dana.job` each text follows its level."""
    said = (notice.partition(": ") for notice in notices)
    _warn((CATEGORIES[level], text) for level, _, text in said)


def _warn(said: Iterable[tuple[type[UserWarning], str]]) -> None:
    caller = _caller()
    for category, text in said:
        # a registry of its own: Python's is the module's, in which a notebook's cell that runs again is silent
        warnings.warn_explicit(
            printable(text, lines=True), category, caller.f_code.co_filename, caller.f_lineno, registry={}
        )


def _caller() -> FrameType:
    """The frame that called this package; the outermost frame if all are in `OWN`."""
    frame = sys._getframe(1)
    # by package and not by a number of frames: estimators and the command line call in different depths
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OWN:
        frame = frame.f_back
    return frame
