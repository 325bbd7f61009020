"""What a training over shards would take with each ``sync``, and how much of it is waiting, before it begins.

In: sizes of table, rule and shards. Out: `Cost`, for each mode. The constants were fitted to one, two and three servers
and checked on a fourth: docs/cluster.md has how, and the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dana.records import Plan
from dana.trainer.contract import Part, ShardSizes, TrainingError, TrainRequest
from dana.trainer.parts import check_rule

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

ADVICE = "{:.0%} of an epoch is waiting: give larger batches, or gather the rows"


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
    error
        Why the rule cannot be trained in this way, if it cannot; numbers are those of a rule that could.
    """

    sync: str
    seconds: float
    bytes: float
    rounds: int
    waiting: float
    servers: int
    warning: str | None
    error: str | None


def costs_over(plan: Plan, sizes: ShardSizes) -> list[Cost]:
    """The cost of each mode for a training that was explained over rows of shards of these sizes."""
    work = Work(
        shards=sizes.count,
        rows=sizes.rows,
        pages=sizes.pages,
        page_bytes=plan["reads"]["page_bytes"],
        columns=plan["numbers"],
        batch=plan["batch"],
        epochs=plan["epochs"],
        merged=plan["merged_bytes"],
        models=plan["model_bytes"],
        hosts=sizes.hosts,
    )
    errors = plan["sync_errors"]
    return [replace(one, warning=None, error=errors[one.sync]) if one.sync in errors else one for one in costs(work)]


def sync_errors(training: TrainRequest) -> dict[str, str]:
    """Why a rule cannot be trained with a ``sync`` that leaves rows at their shards, if it cannot."""
    found = {}
    for mode in ("batch", "epoch"):
        try:
            check_rule(training, Part(mode=mode, number=0, count=1))
        except TrainingError as error:
            found[mode] = error.message
    return found


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
            Cost(
                sync=sync,
                seconds=total,
                bytes=sent,
                rounds=rounds,
                waiting=waiting,
                servers=best,
                warning=warning,
                error=None,
            )
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
