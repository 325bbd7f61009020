"""The sessions of a worker: their number, idle time and memory, as seen by the listening process.

It ends sessions that exceed the limits; it starts none and does not communicate with backends.
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

from dana.trainer.memory import held_bytes, megabytes
from dana.worker.activity import GIVE_WAY, Activity
from hwgen.cache import CacheFolder

log = logging.getLogger("dana.worker")

WATCH_SECONDS = 0.2
"""Interval between checks of the memory of sessions."""

SWEEP_SECONDS = 1.0
"""Interval between removals of files of ended sessions, while there are any."""

GIVE_WAY_GRACE = 5.0
"""Seconds between GIVE_WAY and SIGKILL for a session."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    pid: int
    activity: Activity
    ending: bool = False
    """It ends as soon as it is idle."""


class Sessions:
    """All sessions.

    Parameters
    ----------
    max_sessions
        Maximum number of sessions.
    total_bytes
        Maximum memory of all sessions together.
    caches
        Folders on disk in which killed sessions may leave files.
    """

    def __init__(self, *, max_sessions: int, total_bytes: int, caches: Sequence[CacheFolder]) -> None:
        self._max_sessions = max_sessions
        self._total_bytes = total_bytes
        self._caches = caches
        self._members: list[_Member] = []
        self._greedy: tuple[_Member, float] | None = None
        """The session that was signalled for lack of memory, and the deadline for its end."""
        self._unswept = bool(caches)  # a killed worker may have left files
        self._next_watch = self._next_sweep = 0.0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def timeout(self) -> float | None:
        """Seconds until the next `watch`; None: not before a session starts or ends."""
        return WATCH_SECONDS if self._members else SWEEP_SECONDS if self._unswept else None

    def room(self) -> bool:
        """Return whether another session may start; if the maximum is reached, end the longest idle session for it."""
        self.reap()  # SIGCHLD of a session may arrive after the connection that replaces it
        # a session that started a request before it was asked to end still counts
        present = [one for one in self._members if not (one.ending and one.activity.idle_since)]
        if len(present) < self._max_sessions:
            return True
        for one in sorted(present, key=lambda one: one.activity.idle_since or math.inf):
            if one.activity.end_if_idle():
                one.ending = True
                return True
        return False

    def add(self, pid: int, activity: Activity) -> None:
        """A session has started."""
        activity.close_session_ends()
        self._members.append(_Member(pid=pid, activity=activity))

    def forget(self) -> None:
        """In a session process: close the pipes of other sessions, so that these notice when they are closed."""
        # an end that a sibling holds would keep the pipe open after its session has ended
        for member in self._members:
            member.activity.close()

    def reap(self) -> None:
        """Remove ended sessions, and kill their child processes."""
        for member in list(self._members):
            # WNOWAIT leaves the zombie, and with it the process id, until its group was killed
            if os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError):  # before waitpid, after which the process group id can be reused
                os.killpg(member.pid, signal.SIGKILL)
            _, status = os.waitpid(member.pid, 0)
            if os.WIFSIGNALED(status):
                log.warning("session %d was ended by %s", member.pid, signal.Signals(os.WTERMSIG(status)).name)
            self._members.remove(member)
            member.activity.close()
            self._unswept = bool(self._caches)

    def watch(self) -> None:
        """Check memory and disk if the intervals have passed."""
        now = time.monotonic()
        if self._members and now >= self._next_watch:
            self._next_watch = now + WATCH_SECONDS
            self._watch_memory(now)
        if self._unswept and now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            with suppress(OSError):  # an unreadable folder cannot contain our files
                swept = [cache.sweep() for cache in self._caches]
                self._unswept = not all(swept)

    def _watch_memory(self, now: float) -> None:
        if self._greedy is not None:
            greedy, deadline = self._greedy
            if greedy not in self._members:
                self._greedy = None
            elif now < deadline:
                return
        # the cheap number is an upper bound; the exact one counts shared pages once
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
        # asked first to end when idle, then signalled: the signal does nothing in an idle session
        self._greedy = (largest, now + GIVE_WAY_GRACE)
        self._request_end(largest)
        with suppress(ProcessLookupError):
            os.kill(largest.pid, GIVE_WAY)

    def end(self, grace: float) -> None:
        """End every session, with SIGTERM and after `grace` seconds with SIGKILL."""
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
    def _request_end(member: _Member) -> None:
        if not member.ending:
            member.ending = True
            member.activity.request_end()
