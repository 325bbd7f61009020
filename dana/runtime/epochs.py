"""The loop over epochs: from where each epoch's pages come, and when to stop.

In: an opened training, the ring, the channel. Out: its result and counts. The first epoch's pages always come from the
backend; later ones from memory where that pays, else from the backend again, under the same snapshot. It must not
look into a page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dana.runtime.protocol import Channel, Message
from dana.runtime.ring import Ring
from dana.runtime.trainer import Training, TrainRequest, TrainResult

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
    relation = request.relation
    keep = training.epochs >= KEEP_FROM_EPOCHS and relation.pages * relation.page_size <= cache_bytes
    ring.keep(relation.pages if keep else 0)
    sink = training.sink
    totals = {"tuples": 0, "skipped": 0, "pages": 0}
    cycles: int | None = 0
    ring.reset()
    channel.send(Message.DESIGN, {"design": training.design, "epochs": training.epochs})
    for epoch in range(1, training.epochs + 1):
        epoch_started = time.perf_counter()
        if epoch > 1 and keep:
            pages, status = ring.replay(sink.function, sink.context)
        else:
            if epoch > 1:
                ring.reset()
                channel.send(Message.AGAIN, {})
            with _away_from(backend_cpu):
                pages, status = ring.stream(sink.function, sink.context)
        if status != 0:
            raise training.failure(status)
        report = training.end_epoch()
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
