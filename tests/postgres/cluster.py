"""A PostgreSQL server and a worker with the tests' trainer, whose processes a test may stop and kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from dana.server import cluster, installation, interpreter
from dana.server.account import Account, server_account
from dana.server.places import CHECKOUT
from tests.servers import initialise, install

HERE = Path(__file__).parent
READY_TIMEOUT = 60.0
GIGABYTE = 1 << 30

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "on",  # a killed backend must not take committed rows with it
    "autovacuum": "off",
    "shared_buffers": "768MB",
    "max_prepared_transactions": "5",
    "dana.ring_pages": "64",  # small streams come to its end
}

SANITIZED = json.loads(os.environ.get("DANA_TEST_SANITIZED", "{}"))
"""Environment of servers with an extension that was built with sanitizers (`test_sanitized_extension`)."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A server and a worker below one folder.

    Attributes
    ----------
    folder
        Data directory, sockets and logs.
    installation
        PostgreSQL with the extension.
    """

    folder: Path
    account: Account
    installation: installation.Installation
    python: interpreter.Interpreter
    library: Path
    worker_options: dict[str, Any] = field(default_factory=dict)
    _server: subprocess.Popen[bytes] | None = None
    _worker: subprocess.Popen[bytes] | None = None

    @property
    def major(self) -> int:
        return self.installation.major

    @property
    def worker_socket(self) -> Path:
        return self.folder / "w.sock"

    @property
    def log(self) -> str:
        """PostgreSQL's log so far."""
        return (self.folder / "server.log").read_text(errors="replace")

    @property
    def worker_log(self) -> str:
        return (self.folder / "worker.log").read_text(errors="replace")

    def dsn(self, user: str = "postgres") -> str:
        return f"host={self.folder} user={user} dbname=postgres"

    def connect(self, user: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A session in autocommit mode."""
        return psycopg.connect(self.dsn(user), autocommit=True, **options)

    def start(self) -> None:
        self.start_server()
        self.start_worker()
        with self.connect() as session:
            session.execute("CREATE EXTENSION IF NOT EXISTS dana")

    def start_server(self, **settings: str) -> None:
        command = cluster.server_command(self.installation, self.folder / "data", self.folder, self.worker_socket)
        for name, value in (SETTINGS | settings).items():
            command += ["-c", f"{name}={value}"]
        self._server = self._spawn(command, "server.log", SANITIZED)
        self._until(self._answers)

    def start_worker(self, **options: Any) -> None:
        chosen = {"cache_limit": GIGABYTE, "memory_limit": 4 * GIGABYTE, **self.worker_options, **options}
        arguments = [
            str(self.folder / "worker_main.py"),
            str(self.worker_socket),
            str(self.library),
            json.dumps(chosen),
        ]
        self._worker = self._spawn(
            [str(self.python.executable), *arguments], "worker.log", {**os.environ, **self.python.environment}
        )
        self._until(self.worker_socket.exists)

    def stop_worker(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._worker is not None:
            self._worker.send_signal(number)
            self._worker.wait(20)
            self._worker = None
            self.worker_socket.unlink(missing_ok=True)

    def configure(self, session: psycopg.Connection[Any], *settings: str) -> None:
        """Have these settings (``name = value``) in the whole server, instead of those of the last call."""
        session.execute("LOAD 'dana'")  # before 16 only a loaded library's settings can be set
        session.execute("ALTER SYSTEM RESET ALL")
        for setting in settings:
            session.execute(f"ALTER SYSTEM SET {setting}")
        session.execute("SELECT pg_reload_conf()")
        for setting in settings:
            name, value = setting.split(" = ")
            self._until(lambda name=name, value=value: session.execute(f"SHOW {name}").fetchone() == (value,))

    def ensure_worker(self) -> None:
        """Start the worker where a test ended it."""
        if self._worker is not None and self._worker.poll() is None and self.worker_socket.exists():
            return
        self.stop_worker(signal.SIGKILL)
        self.start_worker()

    def stop(self) -> None:
        self.stop_worker()
        self.stop_server()

    def stop_server(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(60)
            self._server = None

    def kill_server(self) -> None:
        """End the postmaster by SIGKILL; returns when no process of the server is left, so that another may start."""
        assert self._server is not None
        left = children(self._server.pid)
        self._server.kill()
        self._server.wait()
        self._server = None
        deadline = time.monotonic() + READY_TIMEOUT
        while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < deadline:
            time.sleep(0.01)

    @property
    def server_pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    @property
    def worker_pid(self) -> int:
        assert self._worker is not None
        return self._worker.pid

    def sessions(self) -> list[int]:
        """Process ids of the worker's sessions."""
        return children(self.worker_pid)

    def connecting_client(self) -> socket.socket:
        """A client that has asked to connect and does not wait for the answer."""
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.connect(str(self.worker_socket))
        return client

    def until_restarted(self, witness: psycopg.Connection[Any]) -> None:
        """Wait until the server, after a backend's crash, has ended a session and takes connections again."""
        # a moment after the crash it still takes them
        with suppress(psycopg.OperationalError):
            self._until(lambda: witness.execute("SELECT 1") is None)
        self._until(self._answers)

    def until_sessions(self, count: int) -> None:
        """Wait until the worker has so many sessions."""
        self._until(lambda: len(self.sessions()) == count)

    def kill_worker(self) -> None:
        """End the worker at once, and wait until its sessions have ended, too."""
        killed = [self.worker_pid, *self.sessions()]
        os.kill(self.worker_pid, signal.SIGKILL)
        self._until(lambda: not any(map(alive, killed)), (self._server, "server.log"))

    def _spawn(self, command: list[str], log: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(self.folder / log, "ab") as out:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env=dict(environment),
                **self.account.identity(),
            )

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def _until(self, condition: Any, *running: tuple[subprocess.Popen[bytes] | None, str]) -> None:
        """Wait for it, as long as processes run; by default both."""
        deadline = time.monotonic() + READY_TIMEOUT
        while not condition():
            for process, log in running or ((self._server, "server.log"), (self._worker, "worker.log")):
                if process is not None and process.poll() is not None:
                    raise RuntimeError((self.folder / log).read_text(errors="replace")[-3000:])
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} does not hold; logs are in {self.folder}")
            time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a thread of a process has not ended: each holds its sockets open, though the first is a zombie."""
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:
        with suppress(OSError):
            if Path(f"/proc/{pid}/task/{thread}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX":
                return True
    return False


def children(parent: int) -> list[int]:
    """Process ids of a process's children that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, rest = status.read_text().split(" (", 1)
            state, its_parent = rest.rsplit(") ", 1)[1].split()[:2]
            if int(its_parent) == parent and state != "Z":
                found.append(int(pid))
    return sorted(found)


def installed_server(root: Path, major: int) -> installation.Installation:
    """PostgreSQL with the extension: our own, or one that ``make test`` and ``check-headers`` fetched, copied."""
    if major in installation.MAJORS:
        install(root, major)
        return installation.prepare(root, major)
    found = sorted((CHECKOUT / "build" / "postgresql").glob(f"{major}/*/bin/postgres"), key=_version)
    if not found:
        raise FileNotFoundError(f"PostgreSQL {major} is not there; run: make -C pg_extension check-headers")
    target = root / f"binaries-{major}"
    compiled = CHECKOUT / "build" / f"check{major}"
    if compiled.is_dir():  # make compiles what is older than its source
        shutil.copytree(compiled, target.with_name(f"{target.name}-build"))
    return installation.adopt(found[-1].parents[1], target, major)


def _version(postgres: Path) -> list[int]:
    """Numbers of ``15/postgresql-15.10.0-…/bin/postgres``: 15.10 is newer than 15.9."""
    return [int(number) for number in re.findall(r"\d+", postgres.parents[1].name)]


@contextmanager
def running_cluster(root: Path, major: int, name: str) -> Iterator[Cluster]:
    """A cluster that runs.

    Parameters
    ----------
    root
        Folder that every account can enter; installations in it are shared.
    major
        PostgreSQL's major version.
    name
        Of the cluster's own folder below ``root``.
    """
    account = server_account()
    installed = installed_server(root, major)
    python = interpreter.worker_interpreter(root, account, major)
    library = root / "tally.so"
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "tally.c")], check=True)
        library.chmod(0o755)
    folder = root / name
    account.make_private(folder)
    shutil.copy(HERE / "worker_main.py", folder)
    (folder / "worker_main.py").chmod(0o644)
    shutil.chown(folder / "worker_main.py", account.uid, account.gid)
    initialise(installed, folder / "data", account)
    made = Cluster(folder=folder, account=account, installation=installed, python=python, library=library)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@contextmanager
def whole_server(root: Path, major: int) -> Iterator[tuple[installation.Installation, str]]:
    """A server of any version with the extension and the worker that users run; its installation and its address."""
    installed = installed_server(root, major)
    account = server_account()
    python = interpreter.worker_interpreter(root, account, major)
    place = root / "run"
    account.make_private(place)
    initialise(installed, place / "data", account)
    worker_socket = place / "worker.sock"
    environment = {"PATH": os.environ["PATH"], "HOME": str(place)}
    # the system's libpq, which postgres_fdw of these servers finds otherwise, may be too old for it
    libraries = {"LD_LIBRARY_PATH": str(installed.prefix / "lib")}
    worker = [str(python.executable), "-m", "dana.cli", "worker", "--socket", str(worker_socket)]
    processes = [
        subprocess.Popen(command, cwd="/", env=environment | further, stderr=subprocess.DEVNULL, **account.identity())
        for command, further in (
            (cluster.server_command(installed, place / "data", place, worker_socket), libraries),
            (worker, python.environment),
        )
    ]
    try:
        dsn = f"host={place} user={cluster.SUPERUSER} dbname={cluster.DATABASE}"
        deadline = time.monotonic() + READY_TIMEOUT
        while not (worker_socket.exists() and answers(dsn)):
            assert time.monotonic() < deadline, "the server and its worker were not ready"
            time.sleep(0.1)
        yield installed, dsn
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
