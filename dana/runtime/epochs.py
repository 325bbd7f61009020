"""The loop over epochs: from where each epoch's pages come, and when to stop.

In: an opened training, the ring, the channel. Out: its result and counts. The first epoch's pages always come from the
backend; later ones from memory where that pays, else from the backend again, under the same snapshot. It must not
look into a page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from dana.runtime.page_errors import nulls_error
from dana.runtime.protocol import Channel, Message
from dana.runtime.ring import Ring
from dana.runtime.trainer import (
    OutOfLine,
    Relation,
    SqlState,
    Stream,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
)

KEEP_FROM_EPOCHS = 3
"""Keeping the pages costs about as much as streaming them once more, so it pays from three epochs on."""


def run_epochs(
    training: Training, request: TrainRequest, *, channel: Channel, ring: Ring, cache_bytes: int, backend_cpu: int
) -> tuple[TrainResult, dict[str, Any]]:
    """Train, and report each epoch.

    Parameters
    ----------
    cache_bytes
        Largest table that is kept in memory, bytes of pages.
    backend_cpu
        CPU that the backend runs on, to be avoided while it streams; -1: unknown.

    Returns
    -------
    tuple[TrainResult, dict[str, Any]]
        The result, and the worker's counts for the RESULT message.
    """
    started = time.perf_counter()
    _check_epochs(training.epochs, request.max_epochs)
    stream = training.stream
    _make_room(request.relation, stream, training.epochs, ring=ring, cache_bytes=cache_bytes)
    sink = training.sink
    totals = {"tuples": 0, "skipped": 0, "pages": 0}
    cycles: int | None = 0
    ring.reset()
    wish = None if stream is None else asdict(stream)
    channel.send(Message.DESIGN, {"design": training.design, "epochs": training.epochs, "stream": wish})
    for epoch in range(1, training.epochs + 1):
        epoch_started = time.perf_counter()
        if epoch > 1 and ring.kept:
            pages, status = ring.replay(sink.function, sink.context)
        else:
            if epoch > 1:
                ring.reset()
                channel.send(Message.AGAIN, {})
            with _away_from(backend_cpu):
                pages, status = ring.stream(sink.function, sink.context)
        if status != 0:
            error = training.failure(status)
            if isinstance(error, OutOfLine):
                ring.drain()
            raise error
        report = training.end_epoch()
        if request.nulls == "error" and report.skipped:
            raise nulls_error(request.relation, report.skipped)
        channel.send_epoch(epoch, report, seconds=time.perf_counter() - epoch_started)
        totals["tuples"], totals["skipped"] = report.tuples, report.skipped
        totals["pages"] += pages
        cycles = None if cycles is None or report.cycles is None else cycles + report.cycles
        if report.converged:
            break
    result = training.finish()
    return result, {
        **totals,
        "epochs": epoch,
        "cycles": cycles,
        "converged": report.converged,
        "loss": report.loss,
        "seconds": time.perf_counter() - started,
    }


def _check_epochs(epochs: int, most: int | None) -> None:
    if most is not None and epochs > most:
        raise TrainingError(
            f"the rule has {epochs} epochs, more than the {most} of dana.max_epochs",
            sqlstate=SqlState.LIMIT_EXCEEDED,
            hint="Give a smaller number with epochs => ….",
        )


def _make_room(relation: Relation, stream: Stream | None, epochs: int, *, ring: Ring, cache_bytes: int) -> None:
    """Lay the ring out, and make room for the pages where keeping them pays."""
    ring.keep(0)
    page_size = relation.page_size if stream is None else stream.page_size
    ring.lay_out(page_size)
    room = cache_bytes // page_size
    if relation.pages is not None and stream is None:
        if epochs >= KEEP_FROM_EPOCHS and relation.pages <= room:
            with suppress(MemoryError):  # less than was thought is left: each epoch asks for its pages
                ring.keep(relation.pages)
    elif epochs > 1:  # rows cost more to make into frames than frames to keep
        keep_what_fits(ring, room)


def keep_what_fits(ring: Ring, room: int) -> None:
    """Make room for pages of which nobody knows the number: what was thought to be left, or a part of it."""
    while room:
        try:
            ring.keep(room, uncounted=True)
        except MemoryError:
            room //= 2
        else:
            return


@contextmanager
def _away_from(cpu: int) -> Iterator[None]:
    """Keep this thread off the backend's CPU: sharing it makes a stream 3 to 10 times slower."""
    allowed = os.sched_getaffinity(0)
    others = allowed - {cpu}
    if not others or others == allowed:
        yield
        return
    os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
