"""What a session and the listening process know of one another: who idles, and who is to end.

A page of shared memory says since when the session idles; a pipe tells it to end. Neither waits for the other, so
a session that hangs does not hold up the listening process.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from typing import Final

GIVE_WAY: Final = signal.SIGUSR1
"""Tells a session at work that it has to end for lack of memory."""


class Attendance:
    """Made before the fork, for both."""

    def __init__(self) -> None:
        self._since = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._told, self._tell = os.pipe()

    @property
    def idle_since(self) -> float | None:
        """When the session's last request was answered (time.monotonic); None: it is at work, or has had none."""
        return self._since[0] or None

    def idle(self) -> None:
        """In the session: it waits for a request from now on."""
        self._since[0] = time.monotonic()

    def busy(self) -> None:
        """In the session: it has a request."""
        self._since[0] = 0.0

    def fileno(self) -> int:
        """In the session: readable once it is to end."""
        return self._told

    def left_to_listener(self) -> None:
        """In the session: drop the other's end of the pipe."""
        os.close(self._tell)

    def left_to_session(self) -> None:
        """In the listening process: drop the other's end of the pipe."""
        os.close(self._told)

    def tell_to_end(self) -> None:
        """In the listening process: the session ends once it idles."""
        os.write(self._tell, b"\0")

    def close(self) -> None:
        """In the listening process, and in sessions that were forked from it later."""
        os.close(self._tell)
        self._since.release()
