"""What a session and the listening process know of one another: who idles, and who is to end.

A page of shared memory says since when the session idles; a pipe tells it to end. A second pipe holds a byte while the
session idles, which it takes back before it takes up a request, and the listening process takes to end it: so only one
of the two happens. Neither waits for the other, so a session that hangs does not hold up the listening process.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from contextlib import suppress
from typing import Final

GIVE_WAY: Final = signal.SIGUSR1
"""Tells a session at work that it has to end for lack of memory."""


class Attendance:
    """Made before the fork, for both."""

    def __init__(self) -> None:
        self._since = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._told, self._tell = os.pipe()
        try:
            self._taken, self._give = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self._told)
            os.close(self._tell)
            raise

    @property
    def idle_since(self) -> float | None:
        """When the session's last request was answered (time.monotonic); None: it is at work, or has had none."""
        return self._since[0] or None

    def idle(self) -> None:
        """In the session: it has nothing more to do for a request than to send its answer."""
        if self.idle_since is None:  # else an answer could not be sent, and now an error is
            self._since[0] = time.monotonic()
            os.write(self._give, b"\0")

    def busy(self) -> bool:
        """In the session that idles: whether it may take up a request; if not, it is to end."""
        if not self._take():
            return False
        self._since[0] = 0.0
        return True

    def fileno(self) -> int:
        """In the session: readable once it is to end."""
        return self._told

    def left_to_listener(self) -> None:
        """In the session: drop the other's end of the pipe."""
        os.close(self._tell)

    def left_to_session(self) -> None:
        """In the listening process: drop the other's ends of the pipes."""
        os.close(self._told)
        os.close(self._give)

    def tell_to_end(self) -> None:
        """In the listening process: the session ends once it idles."""
        with suppress(BrokenPipeError):  # it has ended
            os.write(self._tell, b"\0")

    def end_if_idle(self) -> bool:
        """In the listening process: whether the session idles, and takes up no other request but ends."""
        if not self._take():
            return False
        self.tell_to_end()
        return True

    def close(self) -> None:
        """In the listening process, and in sessions that were forked from it later."""
        os.close(self._tell)
        os.close(self._taken)
        self._since.release()

    def _take(self) -> bool:
        try:
            return os.read(self._taken, 1) != b""
        except BlockingIOError:
            return False
