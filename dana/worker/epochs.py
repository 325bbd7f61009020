"""Runs a training in a session: streams or replays the pages of each epoch, and reports its progress.

The loop over epochs is `dana.trainer.loop.run`. The pages of the first epoch come from the backend. Later epochs
replay them from memory if that pays; otherwise the backend streams them again under the same snapshot. If a training
takes its rows in another order, they are laid out once, in memory or in files, and all passes read those pages.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dana.errors import InternalError
from dana.storage.permuted import CHUNK_BYTES, PermutedPages, TemporaryFileLimit, temporary_files
from dana.trainer.checkpoints import StoredCheckpoints
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
from dana.trainer.loop import run
from dana.trainer.messages.page_errors import PageError
from dana.trainer.parts import Following, Leading
from dana.worker.messages import Message
from dana.worker.protocol import Channel
from dana.worker.ring import Ring

KEEP_FROM_STREAMS = 3
"""Number of passes from which pages are kept; keeping them costs about as much as streaming them once more."""


NO_RESULT = TrainResult(parameters=(), predictor=None, modelled_seconds=None, metadata={})
"""Of a follower: the leader's backend stores the model."""


def run_epochs(
    training: Training,
    request: TrainRequest,
    *,
    channel: Channel,
    ring: Ring,
    cache_bytes: int,
    temporary: Path | None,
    backend_cpu: int,
    notify: Notify,
    held_out: HeldOut | None,
) -> tuple[TrainResult, dict[str, Any]]:
    """Train and report each epoch.

    Parameters
    ----------
    cache_bytes
        Maximum size of a table that is kept in memory, bytes of pages.
    temporary
        Folder for the rows beyond that, if they come in another order; None: ``$TMPDIR``.
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
    left_out = 0
    if held_out is not None:
        # at most half: the pages of the training are read in each epoch, too
        cache_bytes -= _receive(held_out, channel, ring, cache_bytes // 2, notify)
        left_out = ring.digest
    stream = training.stream
    # 1: the pass that measures the loss of the kept model
    streams = training.epochs + (training.survey is not None) + 1
    # after the held-out rows, which use the ring with frames of another size
    ring.keep(0)
    ring.lay_out(request.relation.page_size if stream is None else stream.page_size)
    permuted = None
    if training.order is None:
        _make_room(request.relation, stream, streams, ring=ring, cache_bytes=cache_bytes)
    else:
        files = temporary_files(temporary, request.temp_file_limit)
        memory = _memory(request.relation, stream, ring=ring, room=cache_bytes, files=files)
        permuted = PermutedPages(page_size=ring.laid_out, order=training.order, memory=memory)
    pages = _Pages(training, channel, ring, backend_cpu, permuted, digests=request.resume is not None)
    # before DESIGN, on which the backend begins to write
    ring.reset()
    wanted = None if stream is None else asdict(stream)
    channel.send(Message.DESIGN, {"design": training.design, "epochs": training.epochs, "stream": wanted})
    if isinstance(training, Following):
        training.follow(pages.feed, held_out, lambda: ring.digest ^ left_out)
        return NO_RESULT, {"epochs": 0, "converged": False}
    leads = isinstance(training, Leading)
    checkpoints = None
    if isinstance(training, Leading) and request.resume is not None:
        checkpoints = StoredCheckpoints(channel, request, training, notify)
    try:
        outcome = run(
            training,
            request,
            # the rows are with the followers
            feed=(lambda sink: 0) if leads else pages.feed,
            notify=notify,
            report_epoch=lambda epoch, report, seconds: channel.send_epoch(epoch, report, seconds=seconds),
            # the followers have the held-out rows
            held_out=training if isinstance(training, Leading) and request.held_out else held_out,
            checkpoints=checkpoints,
        )
    except PageError:
        pages.find_fault()
        raise
    except TemporaryFileLimit as error:
        assert request.temp_file_limit is not None
        limit = request.temp_file_limit >> 10
        raise TrainingError(
            f'the rows in their pseudo-random order need larger files than "temp_file_limit" ({limit:,} kB)',
            sqlstate=SqlState.CONFIGURATION_LIMIT_EXCEEDED,
            hint="Raise it, start the worker with a higher --cache-limit, or train with shuffle => false.",
        ) from error
    finally:
        if permuted is not None:
            permuted.close()
    if isinstance(training, Leading):
        training.dismiss()
    kept = outcome.kept
    return outcome.result, {
        "tuples": kept.tuples,
        "skipped": kept.skipped,
        "pages": outcome.pages,
        "epochs": len(outcome.reports),
        "cycles": outcome.cycles,
        "kept": outcome.result.metadata["epoch"],
        "converged": outcome.converged,
        "loss": kept.loss,
        "validation_loss": kept.validation_loss,
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
    pages, status = ring.stream(sink.function, sink.context, digests=held_out.request.resume is not None)
    if status != 0:
        raise held_out.failure(status)
    if pages and not held_out.kept and held_out.request.part is not None:  # other parts have theirs
        raise TrainingError(
            "the held-out rows need more memory than the worker has for pages",
            sqlstate=SqlState.CONFIGURATION_LIMIT_EXCEEDED,
            hint="Start the worker with a higher --cache-limit, or reduce validation_size.",
        )
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
    permuted: PermutedPages | None
    digests: bool
    fed: bool = False

    def feed(self, sink: Sink) -> int:
        """Feed all pages to a sink, in the order of the training; return their number."""
        again, ring = self.fed, self.ring
        if self.permuted is not None:
            if not again:
                self._permute(self.permuted)
            pages, status = self.permuted.feed((again and sink.again) or sink.function, sink.context)
        # `kept` is 0 if the pages did not all fit, so every epoch is then streamed
        elif again and ring.kept:
            pages, status = ring.replay(sink.again or sink.function, sink.context)
        else:
            pages, status = self._stream(sink.function, sink.context)
        if status != 0:
            raise self._failure(status, streams=self.permuted is None)
        return pages

    def find_fault(self) -> None:
        """Raise the error of a page under its number in the table, if the training saw it elsewhere."""
        if self.permuted is None:
            return
        sink = self.training.sink
        _, status = self._stream(sink.function, sink.context)
        if status != 0:
            raise self._failure(status, streams=True)
        self.training.end_epoch()

    def _failure(self, status: int, *, streams: bool) -> Exception:
        error = self.training.failure(status)
        if streams and isinstance(error, OutOfLine):
            # the backend sends the rest in any case, and waits for room in the ring
            self.ring.drain()
        return error

    def _stream(self, function: int, context: int) -> tuple[int, int]:
        digests = self.digests and not self.fed
        if self.fed:
            # reset before the request: from then on the backend writes
            self.ring.reset()
            self.channel.send(Message.AGAIN, {})
        self.fed = True
        with _away_from(self.backend_cpu):
            return self.ring.stream(function, context, digests=digests)

    def _permute(self, permuted: PermutedPages) -> None:
        _, status = self._stream(*permuted.sink)
        if status != 0:
            permuted.check()
            raise MemoryError("no room for the rows in another order")
        if permuted.damaged:
            self.find_fault()
            raise InternalError("a page contradicts itself, and the machine accepts it")


def _check_epochs(epochs: int, most: int | None) -> None:
    if most is not None and epochs > most:
        raise TrainingError(
            f"the rule has {epochs} epochs, more than the {most} of dana.max_epochs",
            sqlstate=SqlState.LIMIT_EXCEEDED,
            hint="Give a smaller number with epochs => ….",
        )


def _make_room(relation: Relation, stream: Stream | None, streams: int, *, ring: Ring, cache_bytes: int) -> None:
    """Allocate memory for the pages if keeping them pays."""
    room = cache_bytes // ring.laid_out
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


CHUNKS_IN_PART = 33 << 20
"""Memory of `PermutedPages` in addition to the tuples, bytes."""


def _memory(
    relation: Relation, stream: Stream | None, *, ring: Ring, room: int, files: Iterator[mmap.mmap]
) -> Iterator[mmap.mmap]:
    """Yield memory for the rows in another order: that of kept pages, then files."""
    if relation.pages is not None and stream is None:
        # a tuple takes 8 bytes more than its line pointer does, and the shortest has 32
        room = min(room, relation.pages * ring.laid_out * 5 // 4 + CHUNKS_IN_PART)
    while room >= CHUNK_BYTES:
        try:
            yield ring.lend(room)
            break
        except MemoryError:
            room //= 2
    yield from files


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
