"""One that takes part in a comparison, while it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class NotHere(Exception):
    """A peer is not on this machine, or not on the server; says why, and what to do."""


@dataclass(slots=True, kw_only=True)
class Peer:
    """One of them.

    Attributes
    ----------
    run
        What is timed; returns over how many passes it went.
    loss
        Asked once, before anything is timed.
    """

    name: str
    how: str
    trains: bool
    run: Callable[[], float]
    loss: Callable[[], float] | None = None
