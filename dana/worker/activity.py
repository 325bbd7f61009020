"""Whether a session is idle, shared between its process and the listening process.

Shared memory holds the time since which the session is idle, and a pipe requests its end. A second pipe holds a token
while the session is idle: the session takes it before it starts a request, the listening process takes it to end the
session, so only one of the two can happen. Neither blocks: a session that hangs does not stop the listening process.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from contextlib import suppress
from typing import Final

GIVE_WAY: Final = signal.SIGUSR1
"""Signal that ends a busy session for lack of memory."""


class Activity:
    """Created before the fork and used by both processes."""

    def __init__(self) -> None:
        # an anonymous mapping is shared across fork, and an aligned double is written in one piece
        self._since = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._end_requested, self._end_request = os.pipe()
        try:
            self._token_out, self._token_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self._end_requested)
            os.close(self._end_request)
            raise

    @property
    def idle_since(self) -> float | None:
        """Time (time.monotonic) of the answer to the last request; None: the session is busy or has had no request."""
        # 0.0 is the initial value and means busy; time.monotonic does not return it
        return self._since[0] or None

    def idle(self) -> None:
        """In the session: the request is done, and only its answer remains to be sent."""
        if self.idle_since is None:  # it is idle already if sending the answer failed and an error follows
            # the time before the token: a session with a token must look idle
            self._since[0] = time.monotonic()
            os.write(self._token_in, b"\0")

    def busy(self) -> bool:
        """In an idle session: return whether it may start a request; otherwise it must end."""
        if not self._take():
            return False
        self._since[0] = 0.0
        return True

    def fileno(self) -> int:
        """In the session: a descriptor that is readable once the session must end."""
        return self._end_requested

    def close_listener_ends(self) -> None:
        """In the session: close the pipe end of the listening process."""
        os.close(self._end_request)

    def close_session_ends(self) -> None:
        """In the listening process: close the pipe ends of the session."""
        os.close(self._end_requested)
        os.close(self._token_in)

    def request_end(self) -> None:
        """In the listening process: make the session end as soon as it is idle."""
        with suppress(BrokenPipeError):  # the session has ended
            os.write(self._end_request, b"\0")

    def end_if_idle(self) -> bool:
        """In the listening process: end the session if it is idle; return whether it was."""
        if not self._take():
            return False
        self.request_end()
        return True

    def close(self) -> None:
        """Release everything, in the listening process and in sessions that were forked later."""
        os.close(self._end_request)
        os.close(self._token_out)
        self._since.release()

    def _take(self) -> bool:
        try:
            # empty once no process holds the write end: the session has ended
            return os.read(self._token_out, 1) != b""
        except BlockingIOError:
            return False
