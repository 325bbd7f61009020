"""The sessions of a worker, as its listening process sees them: how many, which idle, what memory they hold.

In: process ids and limits. Out: sessions that are told to end, or are ended. It starts none and talks to no backend.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dana.training.memory import held_bytes, megabytes
from dana.worker.attendance import GIVE_WAY, Attendance
from hwgen.cache import CacheFolder

log = logging.getLogger("dana.worker")

WATCH_SECONDS = 0.2
"""Between two looks at the sessions' memory."""

SWEEP_SECONDS = 1.0
"""Between two looks at what ended sessions left on disk, as long as there is something."""

GIVE_WAY_GRACE = 5.0
"""Seconds that a session has between being told to give way and SIGKILL."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    pid: int
    attendance: Attendance
    told: bool = False
    """To end, once it idles."""


class Sessions:
    """All sessions.

    Parameters
    ----------
    max_sessions
        Sessions at a time.
    total_bytes
        Memory that they may hold together.
    caches
        Folders on disk in which a session that was killed may leave something.
    """

    def __init__(self, *, max_sessions: int, total_bytes: int, caches: Sequence[CacheFolder]) -> None:
        self._max_sessions = max_sessions
        self._total_bytes = total_bytes
        self._caches = caches
        self._members: list[_Member] = []
        self._greedy: tuple[_Member, float] | None = None
        """Who was told to give way for lack of memory, and until when it may take."""
        self._unswept = bool(caches)  # a worker that was killed may have left something
        self._next_watch = self._next_sweep = 0.0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def patience(self) -> float | None:
        """Seconds until `watch` has something to do; None: nothing until a session starts or ends."""
        return WATCH_SECONDS if self._members else SWEEP_SECONDS if self._unswept else None

    def room(self) -> bool:
        """Whether one more may start; where there are as many as may be, who idles longest is told to end for it."""
        self.reap()  # the signal of one that has ended may come after the connection that takes its place
        # one that was told while it took up a request is at work like any other
        present = [one for one in self._members if not (one.told and one.attendance.idle_since)]
        if len(present) < self._max_sessions:
            return True
        for one in sorted(present, key=lambda one: one.attendance.idle_since or math.inf):
            if one.attendance.end_if_idle():
                one.told = True
                return True
        return False

    def add(self, pid: int, attendance: Attendance) -> None:
        """A session has started."""
        attendance.left_to_session()
        self._members.append(_Member(pid=pid, attendance=attendance))

    def forget(self) -> None:
        """In a session's process: let go of the others, which would not notice their end otherwise."""
        for member in self._members:
            member.attendance.close()

    def reap(self) -> None:
        """Take leave of sessions that have ended, and end what they have started."""
        for member in list(self._members):
            if os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError):  # before its id, which is its group's, may be another's
                os.killpg(member.pid, signal.SIGKILL)
            _, status = os.waitpid(member.pid, 0)
            if os.WIFSIGNALED(status):
                log.warning("session %d was ended by %s", member.pid, signal.Signals(os.WTERMSIG(status)).name)
            self._members.remove(member)
            member.attendance.close()
            self._unswept = bool(self._caches)

    def watch(self) -> None:
        """Look at memory and disk, where it is time to."""
        now = time.monotonic()
        if self._members and now >= self._next_watch:
            self._next_watch = now + WATCH_SECONDS
            self._watch_memory(now)
        if self._unswept and now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            with suppress(OSError):  # a folder that may not be read is nobody's cache
                swept = [cache.sweep() for cache in self._caches]
                self._unswept = not all(swept)

    def _watch_memory(self, now: float) -> None:
        if self._greedy is not None:
            greedy, deadline = self._greedy
            if greedy not in self._members:
                self._greedy = None
            elif now < deadline:
                return
        # the cheap number is never too small; the exact one counts once what they share with us and each other
        if sum(held_bytes(one.pid) for one in self._members) <= self._total_bytes:
            return
        held = {one: held_bytes(one.pid, exact=True) for one in self._members}
        total = sum(held.values())
        if total <= self._total_bytes:
            return
        if self._greedy is not None:
            log.warning("session %d does not give way", greedy.pid)
            self._greedy = None
            with suppress(ProcessLookupError):
                os.killpg(greedy.pid, signal.SIGKILL)
            return
        largest = max(held, key=lambda one: held[one])
        log.warning(
            "sessions hold %s, more than the %s of --total-memory: session %d, which holds %s, has to give way",
            *(megabytes(total), megabytes(self._total_bytes), largest.pid, megabytes(held[largest])),
        )
        self._greedy = (largest, now + GIVE_WAY_GRACE)
        self._tell(largest)
        with suppress(ProcessLookupError):
            os.kill(largest.pid, GIVE_WAY)

    def end(self, grace: float) -> None:
        """End every session: politely, then at once."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for member in self._members:
                with suppress(ProcessLookupError):
                    os.killpg(member.pid, number)
            deadline = time.monotonic() + grace
            while self._members and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.01)
        for cache in self._caches:
            with suppress(OSError):
                cache.sweep()

    @staticmethod
    def _tell(member: _Member) -> None:
        if not member.told:
            member.told = True
            member.attendance.tell_to_end()
