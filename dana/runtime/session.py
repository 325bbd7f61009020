"""One backend's session in the worker: answers its requests until it hangs up.

In: a connection and a trainer. Out: answers on the connection. It runs in a process of its own, so that a crash or a
runaway allocation ends one training; it must never run a rule's text, and must not outlive the backend.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from dana.errors import UsageError
from dana.runtime.epochs import run_epochs
from dana.runtime.protocol import (
    RELEASE,
    Channel,
    Hello,
    Message,
    ProtocolError,
    decode,
    explain_request,
    train_request,
)
from dana.runtime.ring import Ring
from dana.runtime.trainer import OutOfLine, SqlState, Trainer, TrainingError, TrainRequest, TrainResult

log = logging.getLogger("dana.worker")

SUPPORTED_SERVERS = range(14_00_00, 19_00_00)
"""server_version_num of the releases whose pages and protocol are known."""

HANGUP_GRACE = 2.0
"""Seconds between the first, polite interruption of an abandoned request and the end of the process."""


FIRST_REQUEST_SECONDS = 60.0
"""Least time for a new session's first request: a backend connects because it has one, so it is slow then, not idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use.

    Attributes
    ----------
    cache_bytes
        Largest table, in bytes of pages, that is kept in memory between epochs.
    idle_seconds
        A session without requests for this long ends; the backend connects anew when it needs one. None: never.
    """

    cache_bytes: int
    idle_seconds: float | None


class Abandoned(BaseException):
    """The backend hung up in the middle of a request; BaseException, so that no trainer swallows it."""


def run_session(channel: Channel, trainer: Trainer, limits: Limits) -> None:
    """Answer a backend until it hangs up or idles too long."""
    if channel.peer_uid() != os.geteuid():
        log.warning("refused a connection of uid %d", channel.peer_uid())
        return
    try:
        hello, memfd = channel.receive_hello()
        try:
            _check_hello(hello)
            channel.limit_text_to(hello.encoding)
            ring = Ring(memfd=memfd, socket=channel.fileno())
        finally:
            os.close(memfd)
    except EOFError:
        return
    except (ProtocolError, ValueError, OSError) as error:
        log.warning("refused a session: %s", error)
        channel.send(Message.ERROR, error_fields(ProtocolError(str(error))))
        return
    channel.send(Message.WELCOME, {"release": RELEASE, "pid": os.getpid()})
    session = _Session(channel=channel, trainer=trainer, limits=limits, ring=ring, backend_pid=hello.pid)
    with _interrupted_by_hangup(channel.fileno()):
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
    threading.Thread(target=watch, name="hangup", daemon=True).start()
    try:
        yield
    except Abandoned:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@dataclass(slots=True, kw_only=True)
class _Session:
    channel: Channel
    trainer: Trainer
    limits: Limits
    ring: Ring
    backend_pid: int
    asked: bool = False
    """Whether a request has come."""

    def run(self) -> None:
        while self._readable():
            try:
                message, payload = self.channel.receive()
            except (EOFError, ConnectionError):
                return
            try:
                self._answer(message, payload)
            except (ConnectionError, EOFError):
                return
            except Exception as error:
                self.ring.keep(0)
                self._send_error(error)
                if isinstance(error, ProtocolError):
                    return
        with suppress(ConnectionError):  # a request that is on its way is for the next session
            self.channel.send(Message.BYE, {})

    def _readable(self) -> bool:
        seconds = self.limits.idle_seconds
        if seconds is not None and not self.asked:
            seconds = max(seconds, FIRST_REQUEST_SECONDS)
        ready, _, _ = select.select([self.channel.fileno()], [], [], seconds)
        self.asked = True
        return bool(ready)

    def _answer(self, message: Message, payload: bytes) -> None:
        if message == Message.CHECK:
            fields = decode(payload)
            self.channel.send(
                Message.CHECKED, {"description": self.trainer.check(str(fields["text"]), self.channel.send_notice)}
            )
        elif message == Message.TRAIN:
            request, cpu = train_request(payload, page_size=self.ring.page_size)
            self._train(request, cpu)
        elif message == Message.EXPLAIN:
            wanted = explain_request(payload, page_size=self.ring.page_size)
            with _memory_at_most(wanted.training.max_memory):
                explained = self.trainer.explain(wanted)
            self.channel.send(Message.EXPLAINED, explained)
        else:
            raise ProtocolError(f"a request was expected, not {message.name}")

    def _train(self, request: TrainRequest, backend_cpu: int) -> None:
        started = time.perf_counter()
        counts: Mapping[str, Any] = {}
        outcome = "abandoned"
        try:
            try:
                result, counts = self._run(request, backend_cpu)
            except OutOfLine:
                # only a page itself tells that a value is not in it; with frames it does not matter
                rows = replace(request, relation=replace(request.relation, rows=True))
                result, counts = self._run(rows, backend_cpu)
            self.channel.send_result(result, counts, request.metadata)
            outcome = "converged" if counts["converged"] else "done"
        except (ConnectionError, EOFError):
            raise
        except Exception as error:
            fields = error_fields(error)
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

    def _run(self, request: TrainRequest, backend_cpu: int) -> tuple[TrainResult, dict[str, Any]]:
        cache_bytes = self.limits.cache_bytes
        if request.max_memory:
            cache_bytes = min(cache_bytes, request.max_memory // 2)
        with _memory_at_most(request.max_memory):
            training = self.trainer.open(request, self.channel.send_notice)
            try:
                return run_epochs(
                    training,
                    request,
                    channel=self.channel,
                    ring=self.ring,
                    cache_bytes=cache_bytes,
                    backend_cpu=backend_cpu,
                )
            finally:
                self.ring.keep(0)
                training.close()

    def _send_error(self, error: Exception) -> None:
        fields = error_fields(error)
        if fields["sqlstate"] == SqlState.INTERNAL:
            log.error("backend %d: request failed", self.backend_pid, exc_info=error)
        self.channel.send(Message.ERROR, fields)


@contextmanager
def _memory_at_most(limit: int) -> Iterator[None]:
    """Bound this process's private memory, below what the worker bounds it to; 0: leave it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limit:
        bound = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def error_fields(error: Exception) -> dict[str, str]:
    """SQLSTATE and texts of the SQL error that ``error`` becomes."""
    if isinstance(error, TrainingError):
        return {"sqlstate": error.sqlstate, "message": error.message, "detail": error.detail, "hint": error.hint}
    if isinstance(error, ProtocolError):
        return {"sqlstate": "08P01", "message": str(error), "detail": "", "hint": ""}
    if isinstance(error, UsageError):
        return {"sqlstate": SqlState.INVALID_PARAMETER, "message": error.message, "detail": "", "hint": error.hint}
    if isinstance(error, MemoryError):
        return {
            "sqlstate": "53200",
            "message": "the worker ran out of memory for this training",
            "detail": "",
            "hint": "Train on fewer columns, raise dana.max_memory, or start the worker with a higher --memory-limit.",
        }
    return {
        "sqlstate": SqlState.INTERNAL,
        "message": f"the worker failed: {type(error).__name__}: {error}",
        "detail": "",
        "hint": "The worker's log has the details.",
    }
