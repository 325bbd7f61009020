"""What a training over shards costs in each mode, and how much of it is waiting, before anything is trained.

In: sizes of table, rule and shards. Out: `Cost`, for each mode. The constants were fitted to one, two and three servers
and checked on a fourth: docs/cluster.md has how, and the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dana.cluster.gather import create_like, take_rows
from dana.cluster.shards import check_alike, opened
from dana.errors import UsageError
from dana.records import Plan

BEGIN, SHARD = 58e-3, 83e-3
"""Seconds to begin a training in parts, and more for each shard: connections, looks, machine code, a survey."""
GATHER_SHARD, GATHER_PAGE = 16e-3, 27e-6
"""Seconds of `gather` for each shard and for each page of 8 kB, the index of a key included."""
EPOCH = 1.3e-3
"""Seconds of an epoch's commands."""
ROUND = 50e-6
"""Seconds of a round of `batch` for each shard: its worker, its backend, and the process that relays."""
ROW, MEMORY_ROW = 1.3e-9, 0.37e-9
"""Seconds to read a column of a row that stays at its shard, and of one that was gathered."""
ROUND_TRIP, RATE = 100e-6, 1.25e9
"""Assumed, not measured: seconds between the process that relays and a shard, and back; bytes in a second."""

WAITING = 0.5
"""Share of an epoch above which a mode is warned of."""

SAMPLE = 1000
"""Rows of each shard that the plan is made from."""

ADVICE = "{:.0%} of an epoch is waiting: give larger batches, or sync='gather'"

SIZES = """
SELECT c.reltuples::float8 AS rows,
    pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::float8 AS pages
FROM pg_catalog.pg_class AS c WHERE c.oid = {}::pg_catalog.regclass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A training.

    Attributes
    ----------
    rows, pages
        Of all shards together.
    columns
        Numbers of a row that are read.
    batch
        Rows of a shard in a batch; None: all.
    merged, models
        Bytes of a batch's merges at one shard; of models and states.
    hosts
        Machines that the shards' servers are on, evenly; the constants were measured on one.
    round_trip, rate
        Of the network: seconds, bytes in a second.
    """

    shards: int
    rows: float
    pages: float
    columns: int
    batch: int | None
    epochs: int
    merged: int
    models: int
    hosts: int
    page_bytes: int = 8192
    round_trip: float = ROUND_TRIP
    rate: float = RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a mode costs.

    Attributes
    ----------
    seconds
        Of the whole training.
    bytes
        That pass the process that relays.
    rounds
        That wait for all shards, of the whole training.
    waiting
        The share of an epoch in which no row is worked on.
    servers
        The number of servers, up to that of the shards, with which these rows would take the least time.
    warning
        What to do about waiting, if it is more than half of an epoch.
    """

    sync: str
    seconds: float
    bytes: float
    rounds: int
    waiting: float
    servers: int
    warning: str | None


def costs(work: Work) -> list[Cost]:
    """The cost of each mode: gather, batch, epoch."""
    made = []
    for sync, of in {"gather": _gather, "batch": _batch, "epoch": _epoch}.items():
        # the same rows on fewer servers
        seconds = {n: of(replace(work, shards=n, hosts=min(work.hosts, n)))[0] for n in _counts(work.shards)}
        total, sent, rounds, waiting = of(work)
        best = min(seconds, key=lambda n: seconds[n])
        warning = ADVICE.format(waiting) if waiting > WAITING else None
        made.append(
            Cost(sync=sync, seconds=total, bytes=sent, rounds=rounds, waiting=waiting, servers=best, warning=warning)
        )
    return made


def _counts(most: int) -> list[int]:
    return sorted({most, *(2**k for k in range(most.bit_length()))})


def _gather(work: Work) -> tuple[float, float, int, float]:
    """Seconds, bytes, rounds, share of waiting."""
    sent = 2.0 * work.pages * work.page_bytes
    once = GATHER_SHARD * work.shards + max(GATHER_PAGE * work.pages, sent / work.rate)
    return once + work.epochs * MEMORY_ROW * work.columns * work.rows, sent, 0, 0.0


def _batch(work: Work) -> tuple[float, float, int, float]:
    rounds = 1 if work.batch is None else math.ceil(work.rows / work.shards / work.batch)
    # each shard is sent the merges of all
    sent = work.merged * (work.shards + work.shards**2)
    waits = rounds * (work.round_trip + ROUND * work.shards + sent / work.rate)
    return _in_parts(work, waits, sent * rounds, rounds + 1)


def _epoch(work: Work) -> tuple[float, float, int, float]:
    sent = 2 * work.models * work.shards
    return _in_parts(work, work.round_trip + sent / work.rate, sent, 1)


def _in_parts(work: Work, waits: float, sent: float, rounds: int) -> tuple[float, float, int, float]:
    reads = ROW * work.columns * work.rows / work.hosts
    waits += EPOCH
    total = BEGIN + SHARD * work.shards + work.epochs * (reads + waits)
    return total, float(work.epochs * sent), work.epochs * rounds, waits / (reads + waits)


def costs_over(
    session: psycopg.Connection,
    table: str,
    shards: Sequence[str],
    plan: Callable[[str], Plan],
    *,
    timeout: float,
) -> list[Cost]:
    """The cost of each mode for the shards of a table; rows are those that ANALYZE last counted there.

    Shards whose connection strings have the same host are on one machine, and those without a host on this one.

    Parameters
    ----------
    plan
        Explains the training over a table of the session.

    Raises
    ------
    UsageError
        The shards are not alike, or ANALYZE never ran on one.
    ShardError
        An error of one shard.
    psycopg.Error
        An error of the server that trains.
    """
    made = sql.Identifier("pg_temp", "dana_shards")
    with opened(shards, table, timeout) as parts, session.transaction(force_rollback=True):
        looks = [shard.look() for shard in parts]
        check_alike(parts, looks)
        types = create_like(session, made, looks[0])
        # labels, texts and means are known from rows alone
        take_rows(session, made, parts, looks[0], types, SAMPLE)
        found = plan(made.as_string(session))
        sizes = [shard.rows(SIZES, shard.table)[0] for shard in parts]
        for shard, (rows, _) in zip(parts, sizes, strict=True):
            if rows < 0:  # also of a view, whose rows nobody counts
                raise UsageError(f"{shard}: the rows of {table} have not been counted", hint="Run ANALYZE on it there.")
    hosts = {str(conninfo_to_dict(dsn).get("host", "/")) for dsn in shards}
    work = Work(
        shards=len(shards),
        rows=sum(rows for rows, _ in sizes),
        pages=sum(pages for _, pages in sizes),
        page_bytes=looks[0].block_size,
        columns=len(found["features"]) + len(found["labels"]),
        batch=found["batch"],
        epochs=found["epochs"],
        merged=found["merged_bytes"],
        models=found["model_bytes"],
        hosts=len({"/" if host.startswith("/") else host for host in hosts}),
    )
    return costs(work)
