"""The worker: listens on a unix socket and gives every backend a process of its own.

In: a socket path and a trainer. Out: nothing; `serve` returns when it is told to stop. The listening process reads
nothing that a backend says and never trains, so no request can take it down; a session's process takes down only
itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import logging
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

from dana.errors import SetupError
from dana.simulator import large
from dana.training.contract import SqlState, Trainer, TrainingError
from dana.training.memory import least_bytes, machine_bytes, megabytes, room_bytes
from dana.worker.attendance import GIVE_WAY, Attendance
from dana.worker.messages import Message
from dana.worker.protocol import Channel
from dana.worker.session import Abandoned, Limits, error_fields, run_session
from dana.worker.sessions import Sessions
from hwgen.cache import CacheFolder
from hwgen.folders import ForeignFolder, open_folder

log = logging.getLogger("dana.worker")

BACKLOG = 64
STOP_GRACE = 2.0
"""Seconds that sessions have between SIGTERM and SIGKILL when the worker stops."""

OOM_SCORE = 500
"""Added to a session's badness: short of memory, the kernel ends it and not PostgreSQL (proc(5), oom_score_adj)."""

ROOM_SECONDS = 5.0
"""How long a connection waits for room: the session of a backend that was cancelled may take a moment to end."""

MAX_REFUSED = 64
"""Connections that are refused and may still read why."""

REFUSED_SECONDS = 5.0
"""How long they may take."""

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs.

    Attributes
    ----------
    socket_path
        Where it listens; the folder exists and belongs to this account.
    memory_limit
        Bytes of private memory per session (RLIMIT_DATA); by default half of what this machine, container or service
        has.
    total_memory
        Bytes of memory of all sessions together; by default three quarters of the same.
    cache_limit
        Bytes of pages that a session caches between epochs; by default a quarter.
    idle_seconds
        A session without requests for this long ends; None: never.
    max_sessions
        Sessions at a time; for one more, the one that idles longest ends. Backends read it next to the socket, and let
        no more requests in.
    model_directory
        Folder in whose files models lie that are too large for a session's memory; None: there is an error.
    caches
        Folders on disk that are swept of what killed sessions left.
    """

    socket_path: Path
    memory_limit: int = field(default_factory=lambda: machine_bytes() // 2)
    total_memory: int = field(default_factory=lambda: machine_bytes() * 3 // 4)
    cache_limit: int = field(default_factory=lambda: machine_bytes() // 4)
    idle_seconds: float | None = 600.0
    max_sessions: int = 64
    model_directory: Path | None = None
    caches: tuple[CacheFolder, ...] = ()


class _Stop(BaseException):
    """SIGTERM or SIGINT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listener:
    """The listening socket and the descriptors that belong to it; a session has no use for any of them."""

    socket: socket.socket
    folder: int
    lock: int

    def close(self) -> None:
        self.socket.close()
        os.close(self.folder)
        os.close(self.lock)


def serve(trainer: Trainer, options: WorkerOptions) -> None:
    """Listen until SIGTERM or SIGINT.

    Parameters
    ----------
    trainer
        Forked into every session, with whatever it has loaded.

    Raises
    ------
    SetupError
        Another worker listens there, or the socket cannot be made.
    """
    _check(options)
    sessions = Sessions(max_sessions=options.max_sessions, total_bytes=options.total_memory, caches=options.caches)
    refused = _Refused(options.max_sessions)
    waiting: list[tuple[socket.socket, float]] = []
    with _listening(options.socket_path, options.max_sessions) as listener, _signals_as_events() as wakeup:
        # what is loaded now is shared with every session; without this the collector would touch, so copy, it all
        gc.collect()
        gc.freeze()
        log.info("listening on %s", options.socket_path)
        try:
            while True:
                ready = _ready([listener.socket, wakeup, *refused.waiting], sessions.patience)
                if wakeup in ready:
                    _read_signals(wakeup)
                    sessions.reap()
                refused.look(ready)
                if listener.socket in ready and (connection := _accepted(listener)):
                    waiting.append((connection, time.monotonic() + ROOM_SECONDS))
                while waiting and sessions.room():
                    connection, _ = waiting.pop(0)
                    _start(
                        connection,
                        listener,
                        trainer,
                        options,
                        sessions,
                        (*refused.waiting, *map(itemgetter(0), waiting)),
                    )
                while waiting and waiting[0][1] < time.monotonic():
                    log.warning("rejected a session: %d are at work", options.max_sessions)
                    refused.add(waiting.pop(0)[0])
                sessions.watch()
        except _Stop:
            log.info("stopping, %d sessions", len(sessions))
        finally:
            sessions.end(STOP_GRACE)


def _check(options: WorkerOptions) -> None:
    """Raise where no session could do anything; all have the folder for models."""
    least = least_bytes()
    for name, limit in (("--memory-limit", options.memory_limit), ("--total-memory", options.total_memory)):
        if limit < least:
            raise SetupError(f"{name} of {megabytes(limit)} is less than the {megabytes(least)} that a session needs")
    if options.max_sessions < 1:
        raise SetupError(f"--max-sessions must be at least 1, not {options.max_sessions}")
    folder = options.model_directory
    try:
        large.keep_in(folder, room_bytes)
    except large.NoFile as error:
        what = error.__cause__ or error
        raise SetupError(
            f"no files in --model-directory: {what}; give a folder that this account alone may write"
        ) from None
    for cache in options.caches:
        try:
            cache.sweep()
        except OSError as error:
            log.warning("a cache is not used: %s", error)
    if folder is not None and large.lies_in_memory(folder):
        log.warning("--model-directory %s lies in memory (tmpfs), which it should spare: name one on a disk", folder)


def _ready(sockets: list[socket.socket], patience: float | None) -> set[socket.socket]:
    # not select(), which knows no descriptor from 1024 on
    poller = select.poll()
    by_number = {one.fileno(): one for one in sockets}
    for number in by_number:
        poller.register(number, select.POLLIN)
    return {by_number[number] for number, _ in poller.poll(None if patience is None else 1000 * patience)}


class _Refused:
    """Connections that got an error in place of a session, until they have read it.

    To close one at once would fail what the backend is sending, and it would not look for what we said.
    """

    def __init__(self, max_sessions: int) -> None:
        self.waiting: dict[socket.socket, float] = {}
        self._error = TrainingError(
            "too many sessions for the worker",
            sqlstate=SqlState.TOO_MANY_CONNECTIONS,
            detail=f"Each of its {max_sessions} sessions is at work.",
            hint="Let fewer trainings run at once (dana.max_runs), or start the worker with a higher --max-sessions.",
        )

    def add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with suppress(OSError):
            Channel(connection).send(Message.ERROR, error_fields(self._error))
        self.waiting[connection] = time.monotonic() + REFUSED_SECONDS

    def look(self, ready: set[socket.socket]) -> None:
        for connection, deadline in list(self.waiting.items()):
            ended = time.monotonic() > deadline or len(self.waiting) > MAX_REFUSED
            if connection in ready:
                try:
                    ended = ended or not connection.recv(4096)
                except BlockingIOError:
                    pass
                except OSError:
                    ended = True
            if ended:
                del self.waiting[connection]
                connection.close()


def _accepted(listener: _Listener) -> socket.socket | None:
    """The next connection, if there is one."""
    try:
        return listener.socket.accept()[0]
    except OSError as error:  # the client gave up, or no descriptor is left
        log.warning("accept failed: %s", error)
        time.sleep(0.01)
        return None


def _start(
    connection: socket.socket,
    listener: _Listener,
    trainer: Trainer,
    options: WorkerOptions,
    sessions: Sessions,
    others: Sequence[socket.socket],
) -> None:
    """Start a session for a connection; it lets go of the others."""
    try:
        attendance = Attendance()
    except OSError as error:
        log.error("no descriptors for a session: %s", error)
        connection.close()
        return
    parent = os.getpid()
    # until the child has its own handlers, a signal to it would wake its parent, or end it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, GIVE_WAY))
    try:
        child = os.fork()
        if child == 0:
            listener.close()
            for other in others:
                other.close()
            sessions.forget()
            _session_process(connection, trainer, options, attendance, parent, mask)
        sessions.add(child, attendance)
    except OSError as error:
        log.error("no process for a session: %s", error)
        attendance.left_to_session()
        attendance.close()
    finally:
        connection.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _session_process(
    connection: socket.socket,
    trainer: Trainer,
    options: WorkerOptions,
    attendance: Attendance,
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    status = 1
    try:
        attendance.left_to_listener()
        _confine(parent, options)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        limits = Limits(
            cache_bytes=options.cache_limit, total_bytes=options.total_memory, idle_seconds=options.idle_seconds
        )
        run_session(connection, trainer, limits, attendance)
        status = 0
    except (EOFError, ConnectionError, Abandoned):
        status = 0  # the backend was cancelled or has ended, which is no error
    except BaseException:
        log.exception("session failed")
    finally:
        # not sys.exit: the parent's finally blocks and atexit functions are not ours
        logging.shutdown()
        os._exit(status)


def _confine(parent: int, options: WorkerOptions) -> None:
    """Bound what a session's process can do to others."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the listening process, which ends us
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(GIVE_WAY, signal.SIG_IGN)
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold rows
    resource.setrlimit(resource.RLIMIT_DATA, (options.memory_limit, options.memory_limit))


@contextmanager
def _listening(path: Path, max_sessions: int) -> Iterator[_Listener]:
    """A listening socket at ``path``, mode 0600; removed afterwards.

    A lock next to it tells a worker that runs from a socket that one left behind. In that file stands how many
    sessions there may be: as many requests the backends let in at a time (pg_extension/src/limits/turns.c).
    """
    try:
        folder = open_folder(path.parent)
        lock = os.open(f"{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except ForeignFolder as error:
        raise SetupError(f"cannot listen on {path}: {error}") from None
    except OSError as error:
        raise SetupError(f"cannot listen on {path}: {error.strerror}; its folder must exist and be writable") from None
    listener = _Listener(socket=socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), folder=folder, lock=lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"another worker listens on {path}; stop it first") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % max_sessions, 0)
        # under another name first: where the socket is, somebody listens
        unready = f"{path.name}.new"
        with suppress(FileNotFoundError):
            os.unlink(unready, dir_fd=folder)
        mask = os.umask(0o177)
        try:
            # through the folder's descriptor: the kernel bounds a socket's path to 107 bytes, not a folder's
            listener.socket.bind(f"/proc/self/fd/{folder}/{unready}")
            listener.socket.listen(BACKLOG)
            os.rename(unready, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise SetupError(f"cannot listen on {path}: {error.strerror}") from None
        finally:
            os.umask(mask)
        try:
            yield listener
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
    finally:
        listener.close()


@contextmanager
def _signals_as_events() -> Iterator[socket.socket]:
    """A socket that becomes readable when SIGCHLD, SIGTERM or SIGINT arrives."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in _SIGNALS}
    descriptor = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _read_signals(wakeup: socket.socket) -> None:
    with suppress(BlockingIOError):
        while numbers := wakeup.recv(256):
            if signal.SIGTERM in numbers or signal.SIGINT in numbers:
                raise _Stop
