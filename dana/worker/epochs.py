"""Runs a training in a session: streams or replays the pages of each epoch, and reports its progress.

The loop over epochs is `dana.trainer.stopping.run`. The pages of the first epoch come from the backend. Later epochs
replay them from memory if that pays; otherwise the backend streams them again under the same snapshot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from dana.trainer.contract import (
    HeldOut,
    Level,
    Notice,
    Notify,
    OutOfLine,
    Relation,
    Sink,
    SqlState,
    Stream,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
)
from dana.trainer.stopping import run
from dana.worker.messages import Message
from dana.worker.protocol import Channel
from dana.worker.ring import Ring

KEEP_FROM_STREAMS = 3
"""Number of passes from which pages are kept; keeping them costs about as much as streaming them once more."""


def run_epochs(
    training: Training,
    request: TrainRequest,
    *,
    channel: Channel,
    ring: Ring,
    cache_bytes: int,
    backend_cpu: int,
    notify: Notify,
    held_out: HeldOut | None,
) -> tuple[TrainResult, dict[str, Any]]:
    """Train and report each epoch.

    Parameters
    ----------
    cache_bytes
        Maximum size of a table that is kept in memory, bytes of pages.
    backend_cpu
        CPU of the backend, which is avoided while it streams; -1: unknown.
    held_out
        Held-out rows, which are requested from the backend first.

    Returns
    -------
    tuple[TrainResult, dict[str, Any]]
        The result, and the counts for the RESULT message.
    """
    started = time.perf_counter()
    # before the backend is asked for pages, which it would send for nothing
    _check_epochs(training.epochs, request.max_epochs)
    if held_out is not None:
        # at most half: the pages of the training are read in each epoch, too
        cache_bytes -= _receive(held_out, channel, ring, cache_bytes // 2, notify)
    stream = training.stream
    streams = training.epochs + (training.survey is not None) + training.whole_table
    # after the held-out rows, which use the ring with frames of another size
    _make_room(request.relation, stream, streams, ring=ring, cache_bytes=cache_bytes)
    # before DESIGN, on which the backend begins to write
    ring.reset()
    wanted = None if stream is None else asdict(stream)
    channel.send(Message.DESIGN, {"design": training.design, "epochs": training.epochs, "stream": wanted})
    outcome = run(
        training,
        request,
        feed=_Pages(training, channel, ring, backend_cpu).feed,
        notify=notify,
        report_epoch=lambda epoch, report, seconds: channel.send_epoch(epoch, report, seconds=seconds),
        held_out=held_out,
    )
    kept = outcome.kept
    return outcome.result, {
        "tuples": kept.tuples,
        "skipped": kept.skipped,
        "pages": outcome.pages,
        "epochs": len(outcome.reports),
        "cycles": outcome.cycles,
        "converged": outcome.converged,
        "loss": kept.loss,
        "test_loss": kept.test_loss,
        "seconds": time.perf_counter() - started,
    }


def _receive(held_out: HeldOut, channel: Channel, ring: Ring, most: int, notify: Notify) -> int:
    """Request the held-out rows; return the bytes that are kept."""
    # reset before the request: from then on the backend writes
    ring.keep(0)
    ring.lay_out(held_out.stream.page_size)
    ring.reset()
    held_out.begin(most)
    channel.send(Message.HELD_OUT, {"design": held_out.design, "stream": asdict(held_out.stream)})
    sink = held_out.sink
    pages, status = ring.stream(sink.function, sink.context)
    if status != 0:
        raise held_out.failure(status)
    if pages and not held_out.kept:
        notify(
            Notice(
                level=Level.NOTICE,
                message="the held-out rows need more memory than the worker has for pages",
                hint="The loss on the training rows decides when the training ends. Start the worker with a higher "
                "--cache-limit, or reduce test_size.",
            )
        )
    return held_out.kept


@dataclass(slots=True)
class _Pages:
    """Feeds all pages of the source, any number of times."""

    training: Training
    channel: Channel
    ring: Ring
    backend_cpu: int
    fed: bool = False

    def feed(self, sink: Sink) -> int:
        """Feed all pages to a sink, from memory or from the backend; return their number."""
        ring = self.ring
        # `kept` is 0 if the pages did not all fit, so every epoch is then streamed
        if self.fed and ring.kept:
            pages, status = ring.replay(sink.again or sink.function, sink.context)
        else:
            if self.fed:
                # reset before the request: from then on the backend writes
                ring.reset()
                self.channel.send(Message.AGAIN, {})
            with _away_from(self.backend_cpu):
                pages, status = ring.stream(sink.function, sink.context)
        self.fed = True
        if status != 0:
            error = self.training.failure(status)
            if isinstance(error, OutOfLine):
                # the backend sends the rest in any case, and waits for room in the ring
                ring.drain()
            raise error
        return pages


def _check_epochs(epochs: int, most: int | None) -> None:
    if most is not None and epochs > most:
        raise TrainingError(
            f"the rule has {epochs} epochs, more than the {most} of dana.max_epochs",
            sqlstate=SqlState.LIMIT_EXCEEDED,
            hint="Give a smaller number with epochs => ….",
        )


def _make_room(relation: Relation, stream: Stream | None, streams: int, *, ring: Ring, cache_bytes: int) -> None:
    """Lay out the ring, and allocate memory for the pages if keeping them pays."""
    ring.keep(0)
    page_size = relation.page_size if stream is None else stream.page_size
    ring.lay_out(page_size)
    room = cache_bytes // page_size
    if relation.pages is not None and stream is None:
        if streams >= KEEP_FROM_STREAMS and relation.pages <= room:
            with suppress(MemoryError):  # without the memory every epoch streams its pages
                ring.keep(relation.pages)
    elif streams > 1:  # building frames costs more than keeping them
        keep_what_fits(ring, room)


def keep_what_fits(ring: Ring, room: int) -> None:
    """Allocate memory for an unknown number of pages: `room`, or less if it is not available."""
    while room:
        try:
            ring.keep(room, uncounted=True)
        except MemoryError:
            room //= 2
        else:
            return


@contextmanager
def _away_from(cpu: int) -> Iterator[None]:
    """Keep this thread off the CPU of the backend: sharing it makes a stream 3 to 10 times slower."""
    # the mask may be narrower than the machine: a container or taskset limits it
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
