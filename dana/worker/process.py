"""The worker: listens on a Unix socket and forks a session process for every backend.

The listening process reads no data from backends and does not train, so a request cannot crash it; a crash of a session
ends only that session.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import logging
import os
import re
import resource
import select
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

from dana.errors import SetupError
from dana.simulator import large
from dana.trainer.contract import SqlState, Trainer, TrainingError
from dana.trainer.memory import least_bytes, machine_bytes, megabytes, room_bytes
from dana.worker.activity import GIVE_WAY, Activity
from dana.worker.messages import Message
from dana.worker.protocol import Channel
from dana.worker.session import Abandoned, Limits, error_fields, run_session
from dana.worker.sessions import Sessions
from hwgen.cache import CacheFolder
from hwgen.folders import ForeignFolder, open_folder

log = logging.getLogger("dana.worker")

BACKLOG = 64
MAX_NAME = 75
"""Maximum length of a socket's file name, bytes: the kernel limits a path to 107, and it is bound through /proc."""
STOP_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for sessions when the worker stops."""

OOM_SCORE = 500
"""oom_score_adj of sessions (proc(5)): under memory pressure the kernel ends them before PostgreSQL."""

ROOM_SECONDS = 5.0
"""Seconds that a connection waits for a free session: that of a cancelled backend may take a moment to end."""

MAX_REJECTED = 64
"""Maximum number of rejected connections that are kept open until they have read the error."""

REJECTED_SECONDS = 5.0
"""Seconds after which a rejected connection is closed."""

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker.

    Attributes
    ----------
    socket_path
        Path of the socket; the folder must exist and belong to this account.
    memory_limit
        Bytes of private memory per session (RLIMIT_DATA); by default half of the memory of the host, container or
        service.
    total_memory
        Bytes of memory of all sessions together; by default three quarters.
    cache_limit
        Bytes of pages that a session keeps between epochs; by default a quarter.
    idle_seconds
        Idle time after which a session ends; None: never.
    max_sessions
        Maximum number of sessions; if it is reached, the session that has been idle longest ends. Backends read the
        number from a file next to the socket and limit their requests accordingly.
    model_directory
        Folder for files with models that exceed the memory of a session, and with rows that exceed `cache_limit`; None:
        such models are an error, and such rows go to ``$TMPDIR``.
    caches
        Folders on disk from which files of killed sessions are removed.
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
    """The listening socket and its descriptors, which a session closes."""

    socket: socket.socket
    folder: int
    lock: int

    def close(self) -> None:
        self.socket.close()
        os.close(self.folder)
        os.close(self.lock)


def serve(trainer: Trainer, options: WorkerOptions, load_ahead: Callable[[], None] = lambda: None) -> None:
    """Listen until SIGTERM or SIGINT.

    Parameters
    ----------
    trainer
        Inherited by every session, with all modules that it has imported.
    load_ahead
        Called once, before the first session: imports what most sessions need.

    Raises
    ------
    SetupError
        Another worker listens on the socket, or the socket cannot be created.
    """
    _check(options)
    sessions = Sessions(max_sessions=options.max_sessions, total_bytes=options.total_memory, caches=options.caches)
    rejected = _Rejected(options.max_sessions)
    waiting: list[tuple[socket.socket, float]] = []
    with _listening(options.socket_path, options.max_sessions) as listener, _signals_as_events() as wakeup:
        log.info("listening on %s", options.socket_path)
        # connections wait meanwhile: sessions without it would need other memory than later ones
        load_ahead()
        _freeze()
        try:
            while True:
                ready = _ready([listener.socket, wakeup, *rejected.waiting], sessions.timeout)
                if wakeup in ready:
                    _read_signals(wakeup)
                    sessions.reap()
                rejected.look(ready)
                if listener.socket in ready and (connection := _accepted(listener)):
                    waiting.append((connection, time.monotonic() + ROOM_SECONDS))
                # in this order: `room` may end an idle session, which only a waiting connection justifies
                while waiting and sessions.room():
                    connection, _ = waiting.pop(0)
                    _start(
                        connection,
                        listener,
                        trainer,
                        options,
                        sessions,
                        (*rejected.waiting, *map(itemgetter(0), waiting)),
                    )
                while waiting and waiting[0][1] < time.monotonic():
                    log.warning("rejected a session: %d are at work", options.max_sessions)
                    rejected.add(waiting.pop(0)[0])
                sessions.watch()
        except _Stop:
            log.info("stopping, %d sessions", len(sessions))
        finally:
            sessions.end(STOP_GRACE)


def _freeze() -> None:
    # otherwise the garbage collector of each session would write to, and so copy, all shared pages
    gc.collect()
    gc.freeze()


def _check(options: WorkerOptions) -> None:
    """Raise SetupError if no session could work with the options; open the folder for models."""
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
            f"no files in --model-directory: {what}; it must be a folder that only this account can write"
        ) from None
    temporary = os.environ.get("TMPDIR", "")
    if folder is None and temporary and not (os.path.isdir(temporary) and os.access(temporary, os.W_OK | os.X_OK)):
        log.warning("$TMPDIR is %s, which is not a folder that this account can write: large tables fail", temporary)
    for cache in options.caches:
        try:
            cache.sweep()
        except OSError as error:
            log.warning("a cache is not used: %s", error)
    if folder is not None and large.lies_in_memory(folder):
        log.warning("--model-directory %s lies in memory (tmpfs) and saves none; use a folder on disk", folder)


def _ready(sockets: list[socket.socket], timeout: float | None) -> set[socket.socket]:
    # select() does not support descriptors from 1024 on
    poller = select.poll()
    by_number = {one.fileno(): one for one in sockets}
    for number in by_number:
        poller.register(number, select.POLLIN)
    return {by_number[number] for number, _ in poller.poll(None if timeout is None else 1000 * timeout)}


class _Rejected:
    """Connections that received an error instead of a session.

    They are kept open for a while: otherwise the backend could fail while sending and never read the error.
    """

    def __init__(self, max_sessions: int) -> None:
        self.waiting: dict[socket.socket, float] = {}
        self._error = TrainingError(
            "too many sessions for the worker",
            sqlstate=SqlState.TOO_MANY_CONNECTIONS,
            detail=f"All {max_sessions} sessions are busy.",
            hint="Let fewer trainings run at once (dana.max_runs), or start the worker with a higher --max-sessions.",
        )

    def add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with suppress(OSError):
            Channel(connection).send(Message.ERROR, error_fields(self._error))
        self.waiting[connection] = time.monotonic() + REJECTED_SECONDS

    def look(self, ready: set[socket.socket]) -> None:
        for connection, deadline in list(self.waiting.items()):
            ended = time.monotonic() > deadline or len(self.waiting) > MAX_REJECTED
            if connection in ready:
                try:
                    # what it sends is discarded; no byte means that it has closed
                    ended = ended or not connection.recv(4096)
                except BlockingIOError:
                    pass
                except OSError:
                    ended = True
            if ended:
                del self.waiting[connection]
                connection.close()


def _accepted(listener: _Listener) -> socket.socket | None:
    """Return the next connection; None if accepting it failed."""
    try:
        return listener.socket.accept()[0]
    except OSError as error:  # the client disconnected, or there are no descriptors left
        log.warning("accept failed: %s", error)
        # without descriptors the connection stays ready, and the loop would spin
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
    """Fork a session for a connection; `others` are closed in the session."""
    try:
        activity = Activity()
    except OSError as error:
        log.error("no descriptors for a session: %s", error)
        connection.close()
        return
    parent = os.getpid()
    # until the child has its own handlers, a signal to it would wake its parent or terminate it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, GIVE_WAY))
    try:
        child = os.fork()
        if child == 0:
            listener.close()
            for other in others:
                other.close()
            # the child must not end its parent's other sessions
            sessions.forget()
            _session_process(connection, trainer, options, activity, parent, mask)
        sessions.add(child, activity)
    except OSError as error:
        log.error("no process for a session: %s", error)
        activity.close_session_ends()
        activity.close()
    finally:
        connection.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _session_process(
    connection: socket.socket,
    trainer: Trainer,
    options: WorkerOptions,
    activity: Activity,
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    status = 1
    try:
        activity.close_listener_ends()
        _confine(parent, options)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        limits = Limits(
            cache_bytes=options.cache_limit,
            total_bytes=options.total_memory,
            idle_seconds=options.idle_seconds,
            temporary=options.model_directory,
        )
        run_session(connection, trainer, limits, activity)
        status = 0
    except (EOFError, ConnectionError, Abandoned):
        status = 0  # the backend was cancelled or has exited
    # also SystemExit: nothing ends a session without a line in the log
    except BaseException:
        log.exception("session failed")
    finally:
        # not sys.exit, which would run finally blocks and atexit functions of the parent
        logging.shutdown()
        os._exit(status)


def _confine(parent: int, options: WorkerOptions) -> None:
    """Limit the effect of a session process on other processes."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the listening process ends the session
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(GIVE_WAY, signal.SIG_IGN)
    # a group of its own, so that compilers that it starts end with it
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would contain rows
    resource.setrlimit(resource.RLIMIT_DATA, (options.memory_limit, options.memory_limit))


def _require_socket(path: Path, folder: int) -> None:
    """Raise SetupError if something other than a socket, which a killed worker leaves, has the name of the new one."""
    for name in (path.name, f"{path.name}.new"):
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                place = path.with_name(name)
                raise SetupError(
                    f"cannot listen on {path}: {place} exists and is not a socket; remove it or name another"
                )


@contextmanager
def _listening(path: Path, max_sessions: int) -> Iterator[_Listener]:
    """Listen on a socket at ``path`` with mode 0600, and remove it afterwards.

    A lock file next to it distinguishes a running worker from a socket that was left behind. The file contains the
    maximum number of sessions, to which backends limit their requests (pg_extension/src/limits/turns.c).
    """
    if not 0 < len(os.fsencode(path.name)) <= MAX_NAME:
        raise SetupError(f"cannot listen on {path}: the name of a socket must have 1 to {MAX_NAME} bytes")
    try:
        folder = open_folder(path.parent)
        _require_socket(path, folder)
        # O_NOFOLLOW: the file is truncated below, which a link could turn on another file
        lock = os.open(f"{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except ForeignFolder as error:
        raise SetupError(f"cannot listen on {path}: {error}") from None
    except OSError as error:
        fix = f"remove the link {path}.lock" if error.errno == errno.ELOOP else "its folder must exist and be writable"
        raise SetupError(f"cannot listen on {path}: {error.strerror}; {fix}") from None
    listener = _Listener(socket=socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), folder=folder, lock=lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"another worker listens on {path}; stop it first") from None
        # the name may be that of another program's lock file, such as that of uv
        if not stat.S_ISREG(os.fstat(lock).st_mode) or not re.fullmatch(rb"(\d+\n)?", os.pread(lock, 32, 0)):
            raise SetupError(
                f"cannot listen on {path}: {path}.lock exists, and no worker wrote it; remove it or name another socket"
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % max_sessions, 0)
        # bind under a temporary name, so that the socket never exists without a listener
        unready = f"{path.name}.new"
        with suppress(FileNotFoundError):
            os.unlink(unready, dir_fd=folder)
        # the socket gets its mode when it is bound: a chmod afterwards would leave a moment in between
        mask = os.umask(0o177)
        try:
            # use the descriptor of the folder, because the kernel limits the path of a socket to 107 bytes
            listener.socket.bind(f"/proc/self/fd/{folder}/{unready}")
            listener.socket.listen(BACKLOG)
            # a rename is atomic: clients see the old socket or one that listens
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
    """Yield a socket that is readable after SIGCHLD, SIGTERM or SIGINT."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    # handlers that do nothing are needed: without one of Python's, a signal does not reach the wakeup descriptor
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
