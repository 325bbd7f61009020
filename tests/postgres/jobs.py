"""Calls in the background, as tests start, watch and await them."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.postgres.conftest import Session

errors = psycopg.errors
LONG = {"delay_us": 20_000, "epochs": 10_000}
"""A rule that trains until it is cancelled."""


def start(session: Session, name: str, source: str | None = "t", **arguments: Any) -> int:
    given = {"rule": name, "source": source, **arguments}
    row = session.execute("SELECT dana_start('dana_train', %s)", (Jsonb(given),)).fetchone()
    assert row is not None
    return int(row[0])


def start_when_free(session: Session, name: str) -> int:
    """A place is free when the postmaster has seen its process end, a moment after."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return start(session, name)
        except errors.ConfigurationLimitExceeded:
            assert time.monotonic() < deadline
        time.sleep(0.01)


def wait(session: Session, job: int, timeout: float | None = 60) -> str:
    row = session.execute("SELECT dana_wait(%s, %s)", (job, timeout)).fetchone()
    assert row is not None
    return str(row[0])


def seen(session: Session, job: int) -> dict[str, Any]:
    cursor = session.execute("SELECT * FROM dana.job WHERE id = %s", (job,))
    row = cursor.fetchone()
    assert row is not None
    assert cursor.description is not None
    return dict(zip([column.name for column in cursor.description], row, strict=True))


def until_running(session: Session, job: int) -> int:
    """The process of a job whose training is under way."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        row = session.execute(
            "SELECT p.pid FROM dana.progress p JOIN dana.job j USING (pid) WHERE id = %s AND p.phase <> 'compiling'",
            (job,),
        ).fetchone()
        if row is not None:
            return int(row[0])
        time.sleep(0.01)
    raise TimeoutError(seen(session, job))


def processes(session: Session) -> int:
    session.execute("SELECT pg_stat_clear_snapshot()")  # in a transaction they are as they were at the first look
    row = session.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'dana job%'").fetchone()
    assert row is not None
    return int(row[0])


def until_no_process(session: Session) -> None:
    deadline = time.monotonic() + 30
    while processes(session) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
