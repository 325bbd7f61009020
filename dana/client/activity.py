"""Running and recently ended trainings, with their losses.

In: a session. Out: rows of `Running` and `Ended`; curves of losses. It reads views and tables of the extension alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import class_row

# the reader may be a superuser: operands have the exact types of PostgreSQL's own operators and functions, so that no
# other of the same name fits better
RUNNING = """
SELECT p.pid, p.role, coalesce(p.source::text, 'a query') AS source, p.phase, a.wait_event, p.epoch, p.epochs, p.page,
    p.pages, p.loss, p.seconds_left
FROM dana.progress AS p LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = p.pid ORDER BY p.pid
"""
ENDED = """
SELECT id, model || '@' || model_version::text AS model, rule, source, machine, epochs, loss, wall_seconds, started
FROM dana.run ORDER BY id DESC LIMIT %s
"""
CURVES = """
SELECT pid, run, max(epoch), avg(loss) FROM (
    SELECT pid, run, epoch, loss, ntile(%s::integer) OVER (PARTITION BY pid, run ORDER BY epoch) AS part FROM dana.curve
    WHERE pid IS NOT NULL OR run = ANY (%s)
) AS epochs GROUP BY pid, run, part ORDER BY pid, run, part
"""
"""Last epochs and mean losses of equal parts of each training."""

Curve = list[tuple[int, float | None]]
"""Epochs and losses."""

NOTHING = "nothing: it is busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A row of dana.progress, with the wait event of its process."""

    pid: int
    role: str
    source: str
    phase: str
    wait_event: str | None
    epoch: int | None
    epochs: int | None
    page: int | None
    pages: int | None
    loss: float | None
    seconds_left: float | None

    @property
    def waits_for(self) -> str:
        """What the machine waits for, in words."""
        if self.phase == "streaming":
            # before PostgreSQL 17 the wait events of extensions have no names
            return NOTHING if self.wait_event in ("DanaRing", "DanaWorker", "Extension") else "pages from PostgreSQL"
        known = {
            "looking": "PostgreSQL, which reads labels and columns",
            "waiting": "the end of other trainings (dana.max_runs)",
            "compiling": "the compiler",
            "training": NOTHING,
            "storing": "nothing: PostgreSQL stores the model",
        }
        return known.get(self.phase, self.phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A row of dana.run; ``model`` is its name and version."""

    id: int
    model: str
    rule: str
    source: str
    machine: str
    epochs: int
    loss: float | None
    wall_seconds: float
    started: datetime


def read_running(session: psycopg.Connection) -> list[Running]:
    """The trainings that run now, of roles that the session may monitor."""
    with session.cursor(row_factory=class_row(Running)) as cursor:
        return cursor.execute(RUNNING).fetchall()


def read_ended(session: psycopg.Connection, limit: int) -> list[Ended]:
    """The last runs of the session's roles, the newest first."""
    with session.cursor(row_factory=class_row(Ended)) as cursor:
        return cursor.execute(ENDED, (limit,)).fetchall()


def read_curves(
    session: psycopg.Connection, points: int, runs: Collection[int] = ()
) -> tuple[dict[int, Curve], dict[int, Curve]]:
    """Losses of the running trainings by pid, and of these ended ones by run, at most so many points each."""
    of_pid: dict[int, Curve] = {}
    of_run: dict[int, Curve] = {}
    for pid, run, epoch, loss in session.execute(CURVES, (points, list(runs))):
        # a running training has no run yet
        (of_pid.setdefault(pid, []) if run is None else of_run.setdefault(run, [])).append((epoch, loss))
    return of_pid, of_run


def duration(seconds: float) -> str:
    """A duration as text."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds // 60:.0f} min"
