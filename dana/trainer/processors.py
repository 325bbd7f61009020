"""Processors: how many of them a training may use for epochs that repeat pages.

The models are the same with any number of threads, so that the number may follow the load from epoch to epoch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dana.errors import SetupError

MOST = 8
"""Default maximum for a training; four already read memory about as fast as it can be read."""

LOAD = Path("/proc/loadavg")

_most = MOST


def limit(count: int) -> None:
    """Set the maximum for each training of this process and of those that it forks.

    Raises
    ------
    SetupError
        It is none.
    """
    if count < 1:
        raise SetupError(f"--threads must be at least 1, not {count}")
    global _most
    _most = count


def free() -> int:
    """Return the number of processors that the calling thread can use at the moment, at least its own."""
    allowed = len(os.sched_getaffinity(0))
    idle = allowed
    with suppress(OSError, ValueError, IndexError):
        # proc(5): the fourth field is the number of runnable threads, the caller's among them, and that of all threads
        runnable = int(LOAD.read_text().split()[3].partition("/")[0])
        idle = (os.cpu_count() or 1) - runnable + 1
    return max(1, min(_most, allowed, idle))
