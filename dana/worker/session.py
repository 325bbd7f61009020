"""The session of a backend in the worker: answers requests until the backend disconnects.

It runs in a process of its own, so that a crash or a runaway allocation ends only one training. It must never execute
the text of a rule, and must not outlive the backend.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dana.errors import SetupError, UsageError, causes
from dana.predictor.centres import NO_CENTRES
from dana.simulator.large import NoFile
from dana.storage.permuted import NoTemporaryFile
from dana.trainer.contract import (
    Json,
    Notify,
    OutOfLine,
    SqlState,
    Trainer,
    TrainingError,
    TrainRequest,
    TrainResult,
    once,
)
from dana.trainer.memory import StartAnew, lacks_memory, megabytes, memory_at_most, room_bytes
from dana.trainer.parts import Leading, begin_again
from dana.worker.activity import GIVE_WAY, Activity
from dana.worker.epochs import run_epochs
from dana.worker.link import WorkerLink
from dana.worker.messages import Message
from dana.worker.protocol import (
    RELEASE,
    Channel,
    FrameError,
    Hello,
    ProtocolError,
    categories_request,
    check_request,
    explain_request,
    train_request,
)
from dana.worker.ring import Ring

log = logging.getLogger("dana.worker")

SUPPORTED_SERVERS = range(14_00_00, 19_00_00)
"""server_version_num of the supported releases."""

BEAT_MS = 500
"""How often a session shows its backend that it runs."""

HANGUP_GRACE = 2.0
"""Seconds between the interruption of an abandoned request and the end of the process."""

MAX_ATTEMPTS = 5
"""Streams of a training before its first epoch: pages, frames, and frames less centres, each with 24 more of the 53
bits of a column's values."""

SPARING_SECONDS = 10.0
"""Idle seconds after which a session frees the memory that it keeps for its next training."""

ROOM_WITH_SPARED = 2 << 30
"""Memory limit of a request below which the spared memory is freed first."""

GREETING_SECONDS = 60.0
"""Timeout for the first message of a connection."""

FIRST_REQUEST_SECONDS = 60.0
"""Minimum timeout for the first request; a backend connects only if it has one, so it is slow and not idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a session.

    Attributes
    ----------
    cache_bytes
        Maximum size of a table that is kept in memory between epochs, bytes of pages.
    total_bytes
        Memory of all sessions together, for messages; the listening process enforces it.
    temporary
        Folder for the rows of a table that exceeds the cache; None: ``$TMPDIR``.
    idle_seconds
        Idle time after which the session ends; the backend reconnects when needed. None: never.
    """

    cache_bytes: int
    total_bytes: int
    idle_seconds: float | None
    temporary: Path | None = None


class Abandoned(BaseException):
    """The backend disconnected during a request. A BaseException, so that no trainer catches it."""


class GiveWay(BaseException):
    """The sessions exceed the total memory and this one has the most. A BaseException for the same reason."""


class _WholeMessages(Channel):
    """A channel that delays GIVE_WAY until a message is complete; the backend could not resume after a part."""

    sending = False
    gives_way = False
    """GIVE_WAY was received: nothing more is sent, even if the exception was lost in a callback."""

    def send(self, message: Message, fields: Json, raw: Sequence[bytes | memoryview] | None = None) -> None:
        self.sending = True
        try:
            if not self.gives_way:
                super().send(message, fields, raw)
        finally:
            self.sending = False
        if self.gives_way:
            raise GiveWay


def run_session(connection: socket.socket, trainer: Trainer, limits: Limits, activity: Activity) -> None:
    """Answer a backend until it disconnects, is idle too long, or is replaced by another session.

    Raises
    ------
    EOFError, ConnectionError
        The backend disconnected during the handshake.
    """
    channel = _WholeMessages(connection)
    # the mode of the socket's file is not enough: root and a process with the descriptor may connect, too
    if channel.peer_uid() != os.geteuid():
        log.warning("rejected a connection of uid %d", channel.peer_uid())
        return
    connection.settimeout(GREETING_SECONDS)
    try:
        # the descriptor arrives with the message, and would stay open if the message were rejected
        hello, memfd = channel.receive_hello()
        try:
            _check_hello(hello)
            channel.limit_text_to(hello.encoding)
            ring = Ring(memfd=memfd, socket=channel.fileno())
        finally:
            os.close(memfd)
    except (EOFError, ConnectionError):
        raise
    except (ProtocolError, ValueError, OSError) as error:
        log.warning("rejected a session: %s", error)
        channel.send(Message.ERROR, error_fields(ProtocolError(str(error))))
        return
    connection.settimeout(None)
    channel.send(Message.WELCOME, {"release": RELEASE, "pid": os.getpid()})
    session = _Session(
        channel=channel, trainer=trainer, limits=limits, activity=activity, ring=ring, backend_pid=hello.pid
    )
    with suppress(Abandoned), _interrupted_by_hangup(channel.fileno(), ring):
        session.run()


def _check_hello(hello: Hello) -> None:
    if hello.release != RELEASE:
        raise ProtocolError(
            f"the extension is of release {hello.release!r}, this worker of {RELEASE}; "
            "install both from the same release and restart the worker"
        )
    if hello.server_version not in SUPPORTED_SERVERS:
        raise ProtocolError(f"server version {hello.server_version} is outside 14 to 18")


@contextmanager
def _interrupted_by_hangup(descriptor: int, ring: Ring) -> Iterator[None]:
    """Raise `Abandoned` in the main thread when the backend disconnects, as after a cancel; exit if it is not handled.

    A thread polls the socket, because a compiler pass or a hardware simulation does not. It also shows the backend that
    this process runs.
    """
    main = threading.main_thread().ident
    assert main is not None

    def abandon(_signal: int, _frame: object) -> None:
        raise Abandoned

    def watch() -> None:
        poller = select.poll()
        # POLLRDHUP: the backend closed its end, even if unread messages remain
        poller.register(descriptor, select.POLLRDHUP)
        while not poller.poll(BEAT_MS):
            ring.beat()
        # to the main thread: only it runs Python's handlers, and it may be in a system call
        signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(HANGUP_GRACE)
        log.warning("the request did not end after its backend did; ending the process")
        # the main thread is in native code that returns to no handler
        os._exit(1)

    signal.signal(signal.SIGTERM, abandon)
    try:
        threading.Thread(target=watch, name="hangup", daemon=True).start()  # the thread may raise Abandoned at once
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@dataclass(slots=True, kw_only=True)
class _Session:
    channel: _WholeMessages
    trainer: Trainer
    limits: Limits
    activity: Activity
    ring: Ring
    backend_pid: int
    answered: int = 0
    """Number of requests so far."""
    busy: bool = False
    """Whether GIVE_WAY applies."""

    def run(self) -> None:
        signal.signal(GIVE_WAY, self._give_way)
        while self._readable():
            try:
                message, payload = self.channel.receive()
                self._reply(self._answer_or_give_way(message, payload))
            except (ConnectionError, EOFError):
                return
            except (StartAnew, GiveWay):
                self.activity.idle()
                break
            except Exception as error:
                self.ring.release()  # the error may be a lack of the spared memory
                self._reply(self._error(error))
                # the start of the next message is unknown, so the connection is of no more use
                if isinstance(error, FrameError):
                    break
            self.answered += 1
        with suppress(ConnectionError):  # the backend repeats a request that is already sent in a new session
            self.channel.send(Message.BYE, {})

    def _readable(self) -> bool:
        seconds = self.limits.idle_seconds
        if not self.answered and seconds is not None:
            seconds = max(seconds, FIRST_REQUEST_SECONDS)
        channel, ended = self.channel.fileno(), self.activity.fileno()
        waited_for = [channel, ended] if self.answered else [channel]
        brief = SPARING_SECONDS if seconds is None else min(seconds, SPARING_SECONDS)
        ready, _, _ = select.select(waited_for, [], [], brief)
        if not ready:
            self.ring.release()
            ready, _, _ = select.select(waited_for, [], [], None if seconds is None else seconds - brief)
        # a request that arrives with the order to end is left to the next session, which the backend connects to
        return ready == [channel] and (not self.answered or self.activity.busy())

    def _give_way(self, _signal: int, _frame: object) -> None:
        if self.busy:
            self.channel.gives_way = True
            if not self.channel.sending:
                raise GiveWay

    def _reply(self, send: Callable[[], None]) -> None:
        """Become idle, then send: once the backend has its answer, another session may need the place."""
        self.activity.idle()
        send()

    def _answer_or_give_way(self, message: Message, payload: bytearray | memoryview) -> Callable[[], None]:
        try:
            self.busy = True
            return self._answer(message, payload)
        except GiveWay as due:  # after this error the session ends and frees its memory
            raise self._too_much() from due
        finally:
            self.busy = self.channel.gives_way = False

    def _too_much(self) -> TrainingError:
        return TrainingError(
            f"all sessions of the worker together need more memory than its --total-memory of "
            f"{megabytes(self.limits.total_bytes)}",
            sqlstate=SqlState.OUT_OF_MEMORY,
            detail="This session used the most.",
            hint="Let fewer trainings run at once (dana.max_runs), or start the worker with a higher --total-memory.",
        )

    def _answer(self, message: Message, payload: bytearray | memoryview) -> Callable[[], None]:
        """Execute a request; return a function that sends the answer."""
        if message == Message.CHECK:
            text = check_request(payload)
            with memory_at_most(0, fresh=not self.answered):
                described = self.trainer.check(text, self.channel.send_notice)
            return partial(self.channel.send, Message.CHECKED, {"description": described})
        if message == Message.CATEGORIES:
            request = categories_request(payload, page_size=self.ring.page_size)
            with memory_at_most(request.max_memory, fresh=not self.answered):
                found = asdict(self.trainer.categories(request))
            return partial(self.channel.send, Message.COUNTED, found)
        if message == Message.TRAIN:
            # pages have the BLCKSZ of the server, which the ring was made for
            request, cpu = train_request(payload, page_size=self.ring.page_size)
            return self._train(request, cpu)
        if message == Message.EXPLAIN:
            wanted = explain_request(payload, page_size=self.ring.page_size)
            classes = len(wanted.training.classes or ())
            with memory_at_most(wanted.training.max_memory, fresh=not self.answered, classes=classes):
                explained = self.trainer.explain(wanted)
            return partial(self.channel.send, Message.EXPLAINED, explained)
        raise ProtocolError(f"a request was expected, not {message.name}")

    def _train(self, request: TrainRequest, backend_cpu: int) -> Callable[[], None]:
        started = time.perf_counter()
        counts: Mapping[str, Any] = {}
        outcome = "abandoned"
        try:
            result, counts = self._run_amended(request, backend_cpu)
            outcome = "converged" if counts["converged"] else "done"
            return partial(self.channel.send_result, result, counts, request.metadata)
        except (ConnectionError, EOFError):
            raise
        except StartAnew:
            outcome = "goes to a new session"
            raise
        except (Exception, GiveWay) as error:
            fields = error_fields(self._too_much() if isinstance(error, GiveWay) else error)
            outcome = f"{fields['sqlstate']} {fields['message']}"
            raise
        finally:
            log.info("%s", self._run_line(request, counts, time.perf_counter() - started, outcome))

    def _run_amended(self, request: TrainRequest, backend_cpu: int) -> tuple[TrainResult, dict[str, Any]]:
        """Run a training, again if only its rows show how they must be streamed."""
        notify = once(self.channel.send_notice)
        link = WorkerLink(self.channel)
        for attempt in range(MAX_ATTEMPTS):
            try:
                # once messages were sent, no other session can take over
                return self._run(request, backend_cpu, notify, link, fresh=attempt > 0 or not self.answered)
            except OutOfLine as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                request = error.amended(request)
                if request.part is not None and not request.part.number:
                    begin_again(link, request.centres)
        raise AssertionError("the last attempt returns or raises")

    def _run_line(self, request: TrainRequest, counts: Mapping[str, Any], seconds: float, outcome: str) -> str:
        """Return the log line of a run; values are quoted as JSON, so that names cannot forge other fields."""
        fields = {
            "backend": self.backend_pid,
            "caller": request.caller,
            "rule": request.rule,
            "source": request.relation.name,
            "on": request.machine,
            "epochs": counts.get("epochs"),
            "tuples": counts.get("tuples"),
            "loss": counts.get("loss"),
            "seconds": round(seconds, 3),
            "outcome": outcome,
        }
        return "run " + " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items() if value is not None)

    def _run(
        self, request: TrainRequest, backend_cpu: int, notify: Notify, link: WorkerLink, *, fresh: bool
    ) -> tuple[TrainResult, dict[str, Any]]:
        cache_bytes = self.limits.cache_bytes
        if request.max_memory:
            cache_bytes = min(cache_bytes, request.max_memory // 2)
        self.trainer.prepare(request.machine)
        if min(room_bytes(), request.max_memory or math.inf) < ROOM_WITH_SPARED:
            self.ring.release()  # spared memory counts towards the limit
        with memory_at_most(request.max_memory, fresh=fresh, classes=len(request.classes or ())):
            training = self.trainer.open(request, notify, link)
            if isinstance(training, Leading) and link.introduce(request) and request.centres != NO_CENTRES:
                begin_again(link, request.centres)  # those of a model to start from
            leads = isinstance(training, Leading)
            held_out = self.trainer.held_out(request) if request.held_out and not leads else None
            try:
                return run_epochs(
                    training,
                    request,
                    channel=self.channel,
                    ring=self.ring,
                    cache_bytes=cache_bytes,
                    temporary=self.limits.temporary,
                    backend_cpu=backend_cpu,
                    notify=notify,
                    held_out=held_out,
                )
            finally:
                self.ring.keep(0)
                if held_out is not None:
                    held_out.close()
                training.close()

    def _error(self, error: Exception) -> Callable[[], None]:
        fields = error_fields(error)
        if fields["sqlstate"] in {SqlState.INTERNAL, SqlState.SYSTEM_ERROR}:
            log.error("backend %d: request failed", self.backend_pid, exc_info=error)
        return partial(self.channel.send, Message.ERROR, fields)


def error_fields(error: Exception) -> dict[str, str]:
    """Return the SQLSTATE and texts of an error as the fields of an ERROR message."""
    if isinstance(error, TrainingError):
        return {"sqlstate": error.sqlstate, "message": error.message, "detail": error.detail, "hint": error.hint}
    if isinstance(error, ProtocolError):
        return {"sqlstate": "08P01", "message": str(error), "detail": "", "hint": ""}
    if isinstance(error, UsageError):
        return {"sqlstate": SqlState.INVALID_PARAMETER, "message": error.message, "detail": "", "hint": error.hint}
    if lacks_memory(error):
        return {
            "sqlstate": SqlState.OUT_OF_MEMORY,
            "message": "the worker does not have enough memory for this request",
            "detail": "",
            "hint": "Train on fewer columns, or with fewer sessions at once.",
        }
    full = [one for one in causes(error) if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT)]
    if full:
        return {
            "sqlstate": SqlState.DISK_FULL,
            "message": "the worker has no room left on its disk",
            "detail": f"{full[0]}.",
            "hint": "Free space in the --model-directory of the worker, or start it with a folder on another disk."
            if isinstance(full[0], NoFile)
            else "Free space in the --model-directory of the worker, or in $TMPDIR without one. With a higher "
            "--cache-limit, or with shuffle => false, it needs none."
            if isinstance(full[0], NoTemporaryFile)
            else "Free space in its cache ($XDG_CACHE_HOME, by default ~/.cache), or use machine => 'sim', "
            "which needs none.",
        }
    gone = [one for one in causes(error) if isinstance(one, NoFile | NoTemporaryFile)]
    if gone:
        return {
            "sqlstate": SqlState.IO_ERROR,
            "message": "the worker cannot create files in its --model-directory"
            + (", or in $TMPDIR without one" if isinstance(gone[0], NoTemporaryFile) else ""),
            "detail": f"{gone[0]}.",
            "hint": "Create the folder again, writable by the account of the worker, or start the worker with another.",
        }
    for one in causes(error):
        if isinstance(one, SetupError):
            return {"sqlstate": SqlState.SYSTEM_ERROR, "message": str(one), "detail": "", "hint": ""}
        if isinstance(one, ImportError):
            return {
                "sqlstate": SqlState.SYSTEM_ERROR,
                "message": f"the installation of the worker is incomplete: {one}",
                "detail": "",
                "hint": "Run make in a checkout, else install dana-db again; then restart the worker.",
            }
    return {
        "sqlstate": SqlState.INTERNAL,
        "message": f"the worker failed: {type(error).__name__}: {error}",
        "detail": "",
        "hint": "The worker's log has the details.",
    }
