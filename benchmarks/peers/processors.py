"""Seconds that processors worked for a comparison: this process, the session's backend, and the worker's sessions.

In: a session. Out: a clock, where the server is on this machine and its processes may be looked at. Of a worker that
others use at the same time, their trainings count too.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

PROC = Path("/proc")


Watch = Callable[[], Callable[[], float]]
"""Called, it begins; what it returns gives the seconds since then."""


def watch_of(session: psycopg.Connection[Any]) -> Watch | None:
    """All of them together; None where they cannot be seen."""
    backend = backend_clock(session)
    worker = _worker(session)
    if backend is None or not worker or not (PROC / str(worker)).exists():
        return None

    def others() -> float:
        return backend() + sum(map(_seconds, _with_children(worker)))

    def begin() -> Callable[[], float]:
        theirs, ours = others(), time.process_time()  # in this order: looking at others is not counted

        def taken() -> float:
            used = time.process_time() - ours
            return max(0.0, used + others() - theirs)

        return taken

    return begin


def backend_clock(session: psycopg.Connection[Any]) -> Callable[[], float] | None:
    """Of the session's backend alone."""
    pid = session.info.backend_pid
    try:
        here = b"postgres" in (PROC / str(pid) / "cmdline").read_bytes()  # and no namesake on another machine
        _ = _seconds(pid)
    except OSError:
        return None
    return (lambda: _seconds(pid)) if here else None


def _seconds(pid: int) -> float:
    """All threads' (proc(5), schedstat); 0 of a process that ended."""
    total = 0
    with suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _worker(session: psycopg.Connection[Any]) -> int | None:
    """The process that listens on the worker's socket; a connection that says nothing costs it nothing."""
    try:
        ((path,),) = session.execute("SELECT pg_catalog.current_setting('dana.socket_path')").fetchall()
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(1)
            asked.connect(path)
            size = struct.calcsize("3i")
            return int(struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])
    except (psycopg.Error, OSError):
        return None


def _with_children(parent: int) -> set[int]:
    """It, and the sessions that it forked."""
    found = {parent}
    for one in PROC.iterdir():
        if one.name.isdecimal():
            with suppress(OSError):
                # behind the name, which may hold anything: state, parent
                if int((one / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.add(int(one.name))
    return found
