"""The worker: listens on a unix socket and gives every backend a process of its own.

In: a socket path and a trainer. Out: nothing; `serve` returns when it is told to stop. The listening process never
talks to a backend and never trains, so no request can take it down; a session's process takes down only itself.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dana.errors import SetupError
from dana.runtime.protocol import Channel
from dana.runtime.session import Limits, run_session
from dana.runtime.trainer import Trainer

log = logging.getLogger("dana.worker")

BACKLOG = 64
STOP_GRACE = 2.0
"""Seconds that sessions have between SIGTERM and SIGKILL when the worker stops."""

OOM_SCORE = 500
"""Added to a session's badness: short of memory, the kernel ends it and not PostgreSQL (proc(5), oom_score_adj)."""

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
        Bytes of private memory per session (RLIMIT_DATA); None: no limit.
    cache_limit
        Bytes of pages that a session keeps between epochs.
    idle_seconds
        A session without requests for this long ends; None: never.
    """

    socket_path: Path
    memory_limit: int | None = None
    cache_limit: int = 0
    idle_seconds: float | None = 600.0


def default_options(socket_path: Path) -> WorkerOptions:
    """Options for this machine: half of its memory per session, a quarter of it for kept pages."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return WorkerOptions(socket_path=socket_path, memory_limit=memory // 2, cache_limit=memory // 4)


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
    children: set[int] = set()
    with _listening(options.socket_path) as listener, _signals_as_events() as wakeup:
        # what is loaded now is shared with every session; without this the collector would touch, so copy, it all
        gc.collect()
        gc.freeze()
        log.info("listening on %s", options.socket_path)
        try:
            while True:
                ready, _, _ = select.select([listener.socket, wakeup], [], [])
                if wakeup in ready:
                    _read_signals(wakeup)
                    _reap(children)
                if listener.socket in ready:
                    child = _accept(listener, trainer, options)
                    if child is not None:
                        children.add(child)
        except _Stop:
            log.info("stopping, %d sessions", len(children))
        finally:
            _end(children)


def _accept(listener: _Listener, trainer: Trainer, options: WorkerOptions) -> int | None:
    """Start a session for the next connection; its process id."""
    try:
        connection, _ = listener.socket.accept()
    except OSError as error:  # the client gave up, or no descriptor is left
        log.warning("accept failed: %s", error)
        time.sleep(0.01)
        return None
    parent = os.getpid()
    # until the child has its own handlers, a signal to it would wake its parent
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = os.fork()
        if child == 0:
            _session_process(listener, connection, trainer, options, parent, mask)
        return child
    except OSError as error:
        log.error("no process for a session: %s", error)
        return None
    finally:
        connection.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _session_process(
    listener: _Listener,
    connection: socket.socket,
    trainer: Trainer,
    options: WorkerOptions,
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    status = 1
    try:
        listener.close()
        _confine(parent, options)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        limits = Limits(cache_bytes=options.cache_limit, idle_seconds=options.idle_seconds)
        run_session(Channel(connection), trainer, limits)
        status = 0
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
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold rows
    if options.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (options.memory_limit, options.memory_limit))


@contextmanager
def _listening(path: Path) -> Iterator[_Listener]:
    """A listening socket at ``path``, mode 0600; removed afterwards.

    A lock beside it tells a worker that runs from a socket that one left behind.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        lock = os.open(f"{path.name}.lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    except OSError as error:
        raise SetupError(f"cannot listen on {path}: {error.strerror}; its folder must exist and be writable") from None
    listener = _Listener(socket=socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), folder=folder, lock=lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"another worker listens on {path}; stop it first") from None
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
            path.unlink(missing_ok=True)
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


def _reap(children: set[int]) -> None:
    for child in list(children):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            children.discard(child)
            if os.WIFSIGNALED(status):
                log.warning("session %d was ended by %s", child, signal.Signals(os.WTERMSIG(status)).name)


def _end(children: set[int]) -> None:
    """End every session: politely, then at once."""
    for number, grace in ((signal.SIGTERM, STOP_GRACE), (signal.SIGKILL, STOP_GRACE)):
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child, number)
        deadline = time.monotonic() + grace
        while children and time.monotonic() < deadline:
            _reap(children)
            time.sleep(0.01)
