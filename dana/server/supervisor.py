"""The process that keeps PostgreSQL and the worker running.

In: a `Plan` as JSON on the command line. Out: both programs as children, restarted (the worker) or waited for (the
server), and a state file. It runs as the server's account, detached from whoever started it, and holds an exclusive
lock for as long as it lives, so that "is it running" never depends on a process number that was reused. It must not
import anything beyond the standard library: it stays in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}

FAST_SHUTDOWN = signal.SIGINT  # postgres(1): disconnect the sessions and stop
IMMEDIATE_SHUTDOWN = signal.SIGQUIT

SHORTEST_WORKER_LIFE = 10.0
"""Seconds; a worker that ends sooner is restarted with a growing delay."""
LONGEST_DELAY = 5.0
LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run and where to write.

    Attributes
    ----------
    server, worker
        Command lines.
    data
        PostgreSQL's data directory.
    lock, state, worker_socket, server_log, worker_log
        Files; the state and the socket that an earlier run left behind are removed.
    build
        Digest of the running code, for the state file.
    """

    server: list[str]
    worker: list[str]
    data: str
    lock: str
    state: str
    worker_socket: str
    server_log: str
    worker_log: str
    build: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the state file holds while the supervisor lives; the defaults are those without a file.

    Process numbers, how many workers in a row ended within `SHORTEST_WORKER_LIFE`, and the plan's ``build``.
    """

    supervisor: int | None = None
    server: int | None = None
    worker: int | None = None
    failures: int = 0
    build: str = ""


class Supervisor:
    """Runs one `Plan` until a signal to stop or the end of the server."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._worker: subprocess.Popen[bytes] | None = None
        self._worker_started = 0.0
        self._worker_due = 0.0
        self._delay = 0.0
        self._failures = 0

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, or until the server ends by itself."""
        stop_orphan(Path(self._plan.data))
        server = _spawn(self._plan.server, self._plan.server_log, FAST_SHUTDOWN)
        stopping = False
        while server.poll() is None and not stopping:
            # the worker before the state file: a client that finds the state may connect at once
            self._tend_worker()
            self._write_state(server.pid)
            # sigtimedwait rejects a negative time
            wait = min(max(0.01, self._worker_due - time.monotonic()), LONGEST_WAIT)
            # the signals are blocked, so that none arrives between the check and the wait and is lost
            received = signal.sigtimedwait(SIGNALS, wait)
            stopping = received is not None and received.si_signo != signal.SIGCHLD
        # sessions first: a training that is under way ends as an error of its own statement
        _end(server, FAST_SHUTDOWN, IMMEDIATE_SHUTDOWN, timeout=30.0)
        if self._worker is not None:
            _end(self._worker, signal.SIGTERM, signal.SIGKILL, timeout=5.0)
            _end_group(self._worker.pid)
        Path(self._plan.state).unlink(missing_ok=True)

    def _tend_worker(self) -> None:
        now = time.monotonic()
        if self._worker is not None and self._worker.poll() is not None:
            lived = now - self._worker_started
            short = lived < SHORTEST_WORKER_LIFE
            self._delay = min(LONGEST_DELAY, 2 * self._delay + 0.05) if short else 0.0
            self._failures = self._failures + 1 if short else 0
            _note(self._plan.worker_log, f"worker ended with {self._worker.returncode} after {lived:.1f} s")
            # its sessions are its group, and hold memory until they end
            _end_group(self._worker.pid)
            self._worker = None
            self._worker_due = now + self._delay
        if self._worker is None and now >= self._worker_due:
            self._worker = _spawn(self._plan.worker, self._plan.worker_log, signal.SIGTERM)
            self._worker_started = now
            self._worker_due = float("inf")  # SIGCHLD reports its end

    def _write_state(self, server: int) -> None:
        worker = self._worker.pid if self._worker is not None else None
        state = State(
            supervisor=os.getpid(), server=server, worker=worker, failures=self._failures, build=self._plan.build
        )
        path = Path(self._plan.state)
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(asdict(state)))
        part.replace(path)  # atomic: a reader never sees half a file


def stop_orphan(data: Path) -> None:
    """End a server on ``data`` that outlived its supervisor, and remove a stale pid file.

    PostgreSQL does not start while the pid file names any live process of the same account.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return
    # the process number may have been reused since: the command line says what it is
    if not _is_server(pid, data):
        pid_file.unlink(missing_ok=True)
        return
    os.kill(pid, FAST_SHUTDOWN)
    deadline = time.monotonic() + 30.0
    while _is_server(pid, data):
        if time.monotonic() > deadline:
            os.kill(pid, IMMEDIATE_SHUTDOWN)
        time.sleep(0.02)


def _is_server(pid: int, data: Path) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return arguments[0].endswith(b"postgres") and os.fsencode(data) in arguments


def _spawn(command: list[str], log: str, signal_at_my_death: signal.Signals) -> subprocess.Popen[bytes]:
    # before the fork: if this process ends first, getppid() in the child returns that of its new parent
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signal_at_my_death), 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if os.getppid() != parent:  # it ended before prctl
            os._exit(1)

    with open(log, "ab") as out:
        # this process has one thread, so preexec_fn is safe
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            preexec_fn=prepare,
            start_new_session=True,
        )


def _end(child: subprocess.Popen[bytes], gentle: int, firm: int, timeout: float) -> None:
    if child.poll() is None:
        child.send_signal(gentle)
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.send_signal(firm)
            child.wait()


def _end_group(leader: int) -> None:
    """Kill what a worker left behind: the processes of its trainings."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _note(log: str, text: str) -> None:
    with open(log, "a") as out:
        out.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} supervisor: {text}\n")


def plan_to_json(plan: Plan) -> str:
    """Text that `main` reads."""
    return json.dumps(asdict(plan))


def main() -> int:
    """Take the lock, detach, run.

    Returns 0 in the process that was started, once the lock is held; 3 if another supervisor has it.
    """
    plan = Plan(**json.loads(sys.argv[1]))
    lock = os.open(plan.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    # only the holder of the lock removes files: another supervisor may still be writing them
    for stale in (plan.state, plan.worker_socket):  # here, for we are the account
        Path(stale).unlink(missing_ok=True)
    # before the fork: a SIGTERM to the child before it waits for signals would be lost
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if os.fork() != 0:
        return 0  # the lock lives on in the child
    os.setsid()  # Ctrl-C in the terminal of the starter must not reach the server
    log = os.open(plan.worker_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)  # lets go of the pipe that the starter reads until we have detached
    Supervisor(plan).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
