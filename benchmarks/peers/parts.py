"""Where a pass goes: what the backend and its worker do for a page, each part measured alone.

In: a session, a case. Out: `Part`s, in seconds of a page. The table is the case's, cut to so many pages that the ring
holds them all: then the backend never waits, and its processor time is work. No clock runs inside of the two:
unpacking is what a rule takes that only adds its columns up, computing what the case's rule takes more in a later pass,
which has its pages; `REST` is what its first pass takes more than that, streamed and surveyed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.peers.cases import Case
from benchmarks.peers.processors import backend_clock
from benchmarks.peers.stage import DROP_MODELS, TABLE, staged, train
from dana.client.connection import Connection
from dana.session.frames import columns_of
from dana.session.tables import create_table

PAGES = 4096
"""Of the ring, and of the table at most."""
FEW = 64
"""Rows of a table whose training is all statement."""
PASSES = 6
ADDS, FEW_ROWS = "dana_bench_adds", "dana_bench_few"
RULE_THAT_ADDS = """
import dana

n = dana.dim()
total = dana.model()
x = dana.input([n])
adds = dana.algo(total, x)
adds.setModel(total, total + adds.merge(dana.sigma(x, 1), 64, "+"))
adds.setEpochs(2)
"""
BACKEND, WORKER, BOTH = "backend", "worker", "both"
COPY, VISIBILITY = "copying", "visibility, hand-over"
UNPACK, COMPUTE, REST = "unpacking", "computing", "waiting for pages, survey"
STATEMENT = "the statement itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one of the processes does.

    Attributes
    ----------
    process
        `BACKEND`, `WORKER`, which run at the same time, or `BOTH`, one after the other.
    seconds
        Of a page; of `STATEMENT`, once. 0: less than the noise of the clock.
    """

    process: str
    name: str
    seconds: float


@dataclass(slots=True)
class _Taken:
    """Seconds of one run, by the clock and of the backend's processor."""

    wall: float
    backend: float | None


def measure_parts(db: Connection, case: Case, *, pages: int, repeats: int) -> tuple[Part, ...]:
    """The parts of a case whose table has so many pages.

    Raises
    ------
    psycopg.Error
        A statement fails.
    """
    rows = case.rows if pages <= PAGES else max(FEW, case.rows * PAGES // pages)
    some, few = _first(case, rows), _first(case, min(FEW, case.rows))
    session = db.session
    with ExitStack() as made:
        of_some, page_size = made.enter_context(staged(db, some))
        made.callback(session.execute, f"DROP TABLE IF EXISTS {FEW_ROWS}")
        create_table(session, FEW_ROWS, columns_of(few.columns))
        db.create_rule(ADDS, RULE_THAT_ADDS)
        made.callback(db.drop_rule, ADDS)
        made.callback(session.execute, DROP_MODELS, (ADDS,))
        alone = _large_ring(db, made)
        runs: Mapping[str, Callable[[], object]] = {
            "few": lambda: train(db, few, 1, table=FEW_ROWS),
            "one": lambda: train(db, some, 1),
            "all": lambda: train(db, some, PASSES),
            "one adds": lambda: _add(db, some, 1),
            "all adds": lambda: _add(db, some, PASSES),
        }
        source, copy = (np.ones((of_some, page_size), np.uint8) for _ in range(2))
        clock = backend_clock(session)
        taken: dict[str, list[_Taken]] = {name: [] for name in (*runs, COPY)}
        for turn in range(repeats + 1):
            for name, run in {**runs, COPY: lambda: np.copyto(copy, source)}.items():
                one = _timed(run, clock)
                if turn:  # the first compiles
                    taken[name].append(one)
    # differences of medians would be noise
    wall = {name: min(one.wall for one in each) for name, each in taken.items()}
    # no later pass takes more than the mean of all: the difference may, of a table of few pages
    later, adding = (
        min((wall[f"all{kind}"] - wall[f"one{kind}"]) / (PASSES - 1), wall[f"all{kind}"] / PASSES)
        for kind in ("", " adds")
    )
    unpacking = max(0.0, min(adding, later))
    parts = [
        Part(process=BOTH, name=STATEMENT, seconds=wall["few"]),
        Part(process=WORKER, name=UNPACK, seconds=unpacking / of_some),
        Part(process=WORKER, name=COMPUTE, seconds=max(0.0, later - unpacking) / of_some),
        Part(process=WORKER, name=REST, seconds=max(0.0, wall["one"] - wall["few"] - later) / of_some),
    ]
    if alone and clock is not None:
        used = {name: min(run.backend or 0.0 for run in taken[name]) for name in ("one", "few")}
        working = max(0.0, used["one"] - used["few"])
        copying = min(wall[COPY], working)
        parts += [
            Part(process=BACKEND, name=COPY, seconds=copying / of_some),
            Part(process=BACKEND, name=VISIBILITY, seconds=(working - copying) / of_some),
        ]
    return tuple(parts)


def _first(case: Case, rows: int) -> Case:
    return replace(case, columns={name: values[:rows] for name, values in case.columns.items()})


def _add(db: Connection, case: Case, passes: int) -> None:
    db.train(ADDS, TABLE, model=ADDS, features=list(case.features), epochs=passes, patience=0, shuffle=False)


def _large_ring(db: Connection, made: ExitStack) -> bool:
    """Whether this role may set the ring's size; it is set back in the end."""
    try:
        db.session.execute(sql.SQL("SET dana.ring_pages = {}").format(sql.Literal(PAGES)))
    except psycopg.errors.InsufficientPrivilege:
        return False
    made.callback(db.session.execute, "RESET dana.ring_pages")
    return True


def _timed(run: Callable[[], object], clock: Callable[[], float] | None) -> _Taken:
    used, begun = clock() if clock else None, time.perf_counter()
    run()
    wall = time.perf_counter() - begun
    return _Taken(wall, None if clock is None or used is None else clock() - used)
