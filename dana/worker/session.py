"""One backend's session in the worker: answers its requests until it hangs up.

In: a connection and a trainer. Out: answers on the connection. It runs in a process of its own, so that a crash or a
runaway allocation ends one training; it must never run a rule's text, and must not outlive the backend.
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
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from dana.errors import UsageError, causes
from dana.simulator.large import NoFile
from dana.training.contract import Json, OutOfLine, SqlState, Trainer, TrainingError, TrainRequest, TrainResult
from dana.training.memory import StartAnew, lacks_memory, megabytes, memory_at_most, room_bytes
from dana.worker.attendance import GIVE_WAY, Attendance
from dana.worker.epochs import run_epochs
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
"""server_version_num of the releases whose pages and protocol are known."""

HANGUP_GRACE = 2.0
"""Seconds between the first, polite interruption of an abandoned request and the end of the process."""

SPARING_SECONDS = 10.0
"""An idle session gives the memory back that it spares for its next training."""

ROOM_BESIDE_SPARED = 2 << 30
"""A request that is bound to less gets what is spared as well."""

GREETING_SECONDS = 60.0
"""What connects and does not greet for so long is no backend."""

FIRST_REQUEST_SECONDS = 60.0
"""Least time for a new session's first request: a backend connects because it has one, so it is slow then, not idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use.

    Attributes
    ----------
    cache_bytes
        Largest table, in bytes of pages, that is cached in memory between epochs.
    total_bytes
        Memory of all the worker's sessions together; the listening process sees to it.
    idle_seconds
        A session without requests for this long ends; the backend connects anew when it needs one. None: never.
    """

    cache_bytes: int
    total_bytes: int
    idle_seconds: float | None


class Abandoned(BaseException):
    """The backend hung up in the middle of a request; BaseException, so that no trainer swallows it."""


class GiveWay(BaseException):
    """All sessions together hold too much memory, and this one most; BaseException for the same reason."""


class _WholeMessages(Channel):
    """A channel of which no signal cuts a message short: the backend would take what follows for the rest of it."""

    sending = False
    gives_way = False
    """Told to give way: nothing more is sent, even where the exception was lost in a callback."""

    def send(self, message: Message, fields: Json, raw: Sequence[bytes | memoryview] | None = None) -> None:
        self.sending = True
        try:
            if not self.gives_way:
                super().send(message, fields, raw)
        finally:
            self.sending = False
        if self.gives_way:
            raise GiveWay


def run_session(connection: socket.socket, trainer: Trainer, limits: Limits, attendance: Attendance) -> None:
    """Answer a backend until it hangs up, idles too long, or is to make room for another.

    Raises
    ------
    EOFError, ConnectionError
        The backend hung up while it was greeted.
    """
    channel = _WholeMessages(connection)
    if channel.peer_uid() != os.geteuid():
        log.warning("refused a connection of uid %d", channel.peer_uid())
        return
    connection.settimeout(GREETING_SECONDS)
    try:
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
        log.warning("refused a session: %s", error)
        channel.send(Message.ERROR, error_fields(ProtocolError(str(error))))
        return
    connection.settimeout(None)
    channel.send(Message.WELCOME, {"release": RELEASE, "pid": os.getpid()})
    session = _Session(
        channel=channel, trainer=trainer, limits=limits, attendance=attendance, ring=ring, backend_pid=hello.pid
    )
    with suppress(Abandoned), _interrupted_by_hangup(channel.fileno()):
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
def _interrupted_by_hangup(descriptor: int) -> Iterator[None]:
    """Raise `Abandoned` in the main thread when the backend hangs up; end the process if that does not help.

    A compiler pass or a hardware simulation does not look at the socket; this thread does.
    """
    main = threading.main_thread().ident
    assert main is not None

    def abandon(_signal: int, _frame: object) -> None:
        raise Abandoned

    def watch() -> None:
        poller = select.poll()
        poller.register(descriptor, select.POLLRDHUP)
        poller.poll()
        signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(HANGUP_GRACE)
        log.warning("the request did not end after its backend did; ending the process")
        os._exit(1)

    signal.signal(signal.SIGTERM, abandon)
    try:
        threading.Thread(target=watch, name="hangup", daemon=True).start()  # which may raise it already
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@dataclass(slots=True, kw_only=True)
class _Session:
    channel: _WholeMessages
    trainer: Trainer
    limits: Limits
    attendance: Attendance
    ring: Ring
    backend_pid: int
    answered: int = 0
    """Requests so far."""
    busy: bool = False
    """Whether it may be told to give way."""

    def run(self) -> None:
        signal.signal(GIVE_WAY, self._give_way)
        while self._readable():
            try:
                message, payload = self.channel.receive()
                self._reply(self._answer_or_give_way(message, payload))
            except (ConnectionError, EOFError):
                return
            except (StartAnew, GiveWay):
                self.attendance.idle()
                break
            except Exception as error:
                self.ring.release()  # what is spared may have been what was missing
                self._reply(self._error(error))
                if isinstance(error, FrameError):
                    break
            self.answered += 1
        with suppress(ConnectionError):  # a request that is on its way is for the next session
            self.channel.send(Message.BYE, {})

    def _readable(self) -> bool:
        seconds = self.limits.idle_seconds
        if not self.answered and seconds is not None:
            seconds = max(seconds, FIRST_REQUEST_SECONDS)
        channel, ended = self.channel.fileno(), self.attendance.fileno()
        waited_for = [channel, ended] if self.answered else [channel]
        brief = SPARING_SECONDS if seconds is None else min(seconds, SPARING_SECONDS)
        ready, _, _ = select.select(waited_for, [], [], brief)
        if not ready:
            self.ring.release()
            ready, _, _ = select.select(waited_for, [], [], None if seconds is None else seconds - brief)
        return ready == [channel] and (not self.answered or self.attendance.busy())

    def _give_way(self, _signal: int, _frame: object) -> None:
        if self.busy:
            self.channel.gives_way = True
            if not self.channel.sending:
                raise GiveWay

    def _reply(self, send: Callable[[], None]) -> None:
        """Idle, and then send: the backend that has its answer may make room for the next session at once."""
        self.attendance.idle()
        send()

    def _answer_or_give_way(self, message: Message, payload: bytearray | memoryview) -> Callable[[], None]:
        try:
            self.busy = True
            return self._answer(message, payload)
        except GiveWay as due:  # and then the session ends, as the listening process told it, and frees all that it has
            raise self._too_much() from due
        finally:
            self.busy = self.channel.gives_way = False

    def _too_much(self) -> TrainingError:
        return TrainingError(
            f"all sessions of the worker together need more memory than its --total-memory of "
            f"{megabytes(self.limits.total_bytes)}",
            sqlstate=SqlState.OUT_OF_MEMORY,
            detail="This session held the most.",
            hint="Let fewer trainings run at once (dana.max_runs), or start the worker with a higher --total-memory.",
        )

    def _answer(self, message: Message, payload: bytearray | memoryview) -> Callable[[], None]:
        """Do what a request asks for; what comes back sends the answer."""
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
            try:
                result, counts = self._run(request, backend_cpu, fresh=not self.answered)
            except OutOfLine:
                # only a page itself tells that a value is not in it, or is no number; the backend sees to both, and to
                # NULLs, where it makes frames of the rows
                rows = replace(request, relation=replace(request.relation, rows=True), nulls="skip")
                result, counts = self._run(rows, backend_cpu, fresh=True)  # what was sent already ties it to us
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

    def _run_line(self, request: TrainRequest, counts: Mapping[str, Any], seconds: float, outcome: str) -> str:
        """A run in the log: names with values, texts quoted as JSON does, so that a name is not more than a name."""
        fields = {
            "backend": self.backend_pid,
            "caller": request.caller,
            "rule": request.rule,
            "source": request.relation.name,
            "on": request.backend,
            "epochs": counts.get("epochs"),
            "tuples": counts.get("tuples"),
            "loss": counts.get("loss"),
            "seconds": round(seconds, 3),
            "outcome": outcome,
        }
        return "run " + " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items() if value is not None)

    def _run(self, request: TrainRequest, backend_cpu: int, *, fresh: bool) -> tuple[TrainResult, dict[str, Any]]:
        cache_bytes = self.limits.cache_bytes
        if request.max_memory:
            cache_bytes = min(cache_bytes, request.max_memory // 2)
        self.trainer.prepare(request.backend)
        if min(room_bytes(), request.max_memory or math.inf) < ROOM_BESIDE_SPARED:
            self.ring.release()  # all memory counts, also what was spared
        with memory_at_most(request.max_memory, fresh=fresh, classes=len(request.classes or ())):
            training = self.trainer.open(request, self.channel.send_notice)
            held_out = self.trainer.held_out(request) if request.held_out else None
            try:
                return run_epochs(
                    training,
                    request,
                    channel=self.channel,
                    ring=self.ring,
                    cache_bytes=cache_bytes,
                    backend_cpu=backend_cpu,
                    notify=self.channel.send_notice,
                    held_out=held_out,
                )
            finally:
                self.ring.keep(0)
                if held_out is not None:
                    held_out.close()
                training.close()

    def _error(self, error: Exception) -> Callable[[], None]:
        fields = error_fields(error)
        if fields["sqlstate"] == SqlState.INTERNAL:
            log.error("backend %d: request failed", self.backend_pid, exc_info=error)
        return partial(self.channel.send, Message.ERROR, fields)


def error_fields(error: Exception) -> dict[str, str]:
    """SQLSTATE and texts of the SQL error that ``error`` becomes."""
    if isinstance(error, TrainingError):
        return {"sqlstate": error.sqlstate, "message": error.message, "detail": error.detail, "hint": error.hint}
    if isinstance(error, ProtocolError):
        return {"sqlstate": "08P01", "message": str(error), "detail": "", "hint": ""}
    if isinstance(error, UsageError):
        return {"sqlstate": SqlState.INVALID_PARAMETER, "message": error.message, "detail": "", "hint": error.hint}
    if lacks_memory(error):
        return {
            "sqlstate": SqlState.OUT_OF_MEMORY,
            "message": "the worker has not enough memory for this request",
            "detail": "",
            "hint": "Train on fewer columns, or with fewer sessions at once.",
        }
    full = [one for one in causes(error) if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT)]
    if full:
        return {
            "sqlstate": SqlState.DISK_FULL,
            "message": "the worker has no room left on its disk",
            "detail": f"{full[0]}.",
            "hint": "Make room in the folder of the worker's --model-directory, or start it with one on another disk."
            if isinstance(full[0], NoFile)
            else "Make room where its cache lies ($XDG_CACHE_HOME, else ~/.cache), or train with backend => 'sim', "
            "which needs none.",
        }
    gone = [one for one in causes(error) if isinstance(one, NoFile)]
    if gone:
        return {
            "sqlstate": SqlState.IO_ERROR,
            "message": "the worker cannot make files in the folder of its --model-directory",
            "detail": f"{gone[0]}.",
            "hint": "Make the folder again, writable by the worker's account, or start the worker with another.",
        }
    return {
        "sqlstate": SqlState.INTERNAL,
        "message": f"the worker failed: {type(error).__name__}: {error}",
        "detail": "",
        "hint": "The worker's log has the details.",
    }
