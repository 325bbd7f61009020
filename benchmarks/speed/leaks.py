"""What a server and its worker may leave behind: processes, descriptors, shared memory, files; pins, which are logged.

In: an embedded server whose sessions have ended. Out: what is there now and was not before. Reads ``/proc`` as root or
as the server's account.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from dana.server.embedded import EmbeddedServer
from tests.postgres.cluster import children

PATIENCE = 20.0
ALARMS = re.compile(r"PANIC|was terminated by signal|\bleak|TRAP|still referenced|corrupt", re.IGNORECASE)
"""In PostgreSQL's log: what it says of pins, locks and descriptors that a transaction left, and of crashes."""


class Watch:
    """A server's state at one moment, to compare with later."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._log = len(server.server_log.read_bytes())
        self._worker = server.worker_pid
        self._before = self._state()

    def leaks(self) -> list[str]:
        """What is there that was not; waits for processes that are ending."""
        deadline = time.monotonic() + PATIENCE
        while (found := self._differences()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if self._server.worker_pid != self._worker:
            found.append("the worker was restarted")
        log = self._server.server_log.read_bytes()[self._log :].decode(errors="replace")
        found += [f"PostgreSQL's log: {line}" for line in log.splitlines() if ALARMS.search(line)]
        return found

    def _differences(self) -> list[str]:
        now = self._state()
        return [f"{what}: {now[what]}, before {self._before[what]}" for what in now if now[what] > self._before[what]]

    def _state(self) -> dict[str, int]:
        server, worker = self._server.server_pid, self._server.worker_pid
        assert server is not None
        assert worker is not None
        with psycopg.connect(self._server.dsn, autocommit=True) as db:
            row = db.execute(
                "SELECT count(*) FILTER (WHERE backend_type = 'client backend'), (SELECT count(*) FROM pg_locks"
                " WHERE pid <> pg_backend_pid()), current_setting('data_directory') FROM pg_stat_activity"
            ).fetchone()
        assert row is not None
        temporary = Path(row[2]) / "base/pgsql_tmp"
        return {
            "backends": row[0],
            "locks": row[1],
            "temporary files": len(list(temporary.iterdir())) if temporary.exists() else 0,
            "sessions of the worker": len(children(worker)),
            "descriptors of the worker": len(os.listdir(f"/proc/{worker}/fd")),
            "descriptors of the postmaster": len(os.listdir(f"/proc/{server}/fd")),
            "rings": sum(rings(pid) for pid in (server, worker, *children(server), *children(worker))),
        }


def rings(process: int) -> int:
    """Rings of pages that a process has mapped; none where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/maps").read_text().count("memfd:dana-ring")
    return 0


def descriptors(backend: int) -> int:
    """Sockets and memory files that a backend has open."""
    found = 0
    for entry in Path(f"/proc/{backend}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(entry)
            found += target.startswith("socket:") or "memfd" in target
    return found
