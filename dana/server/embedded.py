"""The embedded PostgreSQL server with its worker: start, find, stop.

In: a folder and a major version. Out: a running server with the extension in it, and its connection string.
It must not outlive its folder, open a TCP port, or write outside the folder (but for sockets, where the folder's
path is too long for one). Two processes may call it at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dana.errors import SetupError, UsageError
from dana.server import cluster, installation, interpreter, supervisor
from dana.server.account import Account, server_account
from dana.server.places import CHECKOUT, default_root, socket_folder
from dana.worker.conform import Mismatch, conform
from hwgen.folders import ForeignFolder, open_folder

WORKER = ("-m", "dana.cli", "worker")
"""Arguments of an interpreter."""

START_TIMEOUT = 60.0
MAX_FAILURES = 3
"""Starts of a worker that ends at once; further ones would not help."""

STOP_TIMEOUT = 60.0

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A handle on one embedded server, without open resources.

    Attributes
    ----------
    root
        Folder of all that belongs to embedded servers: installations, and one folder for each major version.
    major
        PostgreSQL's major version, 16 or 18.
    account
        Account that the server runs as.
    """

    root: Path
    major: int
    account: Account

    @classmethod
    def at(cls, root: Path | None = None, major: int = installation.DEFAULT_MAJOR) -> Self:
        """Handle on the server below ``root`` (`default_root` if None), running or not."""
        if major not in installation.MAJORS:
            known = " and ".join(map(str, installation.MAJORS))
            raise UsageError(f"the embedded server has PostgreSQL {known}, not {major}")
        account = server_account()
        root = default_root(account) if root is None else Path(os.path.abspath(root))
        return cls(root=root, major=major, account=account)

    @classmethod
    def start(
        cls, root: Path | None = None, major: int = installation.DEFAULT_MAJOR, *, progress: Progress = _silent
    ) -> Self:
        """Make sure that the server below ``root`` runs, of this version of the code, and return a handle on it.

        Parameters
        ----------
        root
            Folder to keep it in; created where it is missing. None is `default_root`.
        major
            PostgreSQL's major version.
        progress
            Called with a phrase before each step that takes time.

        Raises
        ------
        SetupError
            Something on this machine is missing or does not work; the message names it, with the end of the log.
        """
        server = cls.at(root, major)
        server._make_folders()
        with server._exclusive(), server._room():
            build = _build_key(major)
            # under the lock, so that no other process sees a server between its launch and CREATE EXTENSION
            if server.is_running:
                if server._state().build == build:
                    return server
                progress("restarting the server with the new code")
                server._stop()
            installed = installation.prepare(server.root, major, progress=progress)
            python = interpreter.worker_interpreter(server.root, server.account, major, progress)
            progress("starting the server and the worker")
            # before the launch: the supervisor starts the data directory it finds
            cluster.initialise(installed, server._folder / "data", server.account)
            server._launch(installed, python, build)
            server._wait_until_ready()
            server._create_extension()
        return server

    def stop(self) -> bool:
        """Stop the server and the worker; False where they were not running."""
        if not self._folder.exists():
            return False
        with self._exclusive():
            return self._stop()

    @property
    def is_running(self) -> bool:
        """Whether the supervisor lives: it holds a lock for as long as it does."""
        try:
            lock = self.account.open(self._folder, "alive.lock")
        except FileNotFoundError:
            return False
        try:
            # shared: two checks at once must not take each other for the supervisor
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        # closing the descriptor releases a lock that was got
        finally:
            os.close(lock)
        return False

    @property
    def dsn(self) -> str:
        """Connection string for libpq, psycopg and psql; the superuser on the default database."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(host=str(self._sockets), user=cluster.SUPERUSER, dbname=cluster.DATABASE)

    @property
    def worker_socket(self) -> Path:
        """Unix socket on which the worker listens."""
        return self._sockets / "worker.sock"

    @property
    def worker_pid(self) -> int | None:
        """Process number of the worker; None between its end and its restart."""
        return self._state().worker

    @property
    def server_pid(self) -> int | None:
        """Process number of the postmaster."""
        return self._state().server

    @property
    def server_log(self) -> Path:
        """PostgreSQL's log."""
        return self._folder / "log" / "postgresql.log"

    @property
    def worker_log(self) -> Path:
        """The worker's log."""
        return self._folder / "log" / "worker.log"

    def program(self, name: str) -> Path:
        """Path of one of PostgreSQL's programs (``psql``, ``pg_dump`` …) in the server's installation."""
        return installation.installed_below(self.root, self.major).program(name)

    @property
    def _folder(self) -> Path:
        return self.root / str(self.major)

    @property
    def _sockets(self) -> Path:
        return socket_folder(self._folder / "run", self.account)

    def _make_folders(self) -> None:
        try:
            umask = os.umask(0o022)  # one of 077 must not keep the account out of a folder made here
            try:
                os.close(open_folder(self.root, make=0o755))
            finally:
                os.umask(umask)
            if self.account.switched and not self.account.can("x", self.root):
                raise SetupError(
                    f"the server runs as account {self.account.name}, which cannot enter {self.root}; "
                    "set DANA_HOME to a folder below one that every account may enter (0755), such as /var/cache/dana"
                )
            self.account.make_private(self._folder)
            self.account.make_inside(self._folder / "log")
        except ForeignFolder as error:
            raise SetupError(f"cannot use the server's folder: {error}, and set DANA_HOME to it") from None
        except OSError as error:
            raise SetupError(
                f"cannot make the folder {self.root}: {error.strerror}; set DANA_HOME to a folder of your own"
            ) from None

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One process at a time starts or stops the server; the others wait."""
        # not in the account's folder: root must not follow a path that the account can change
        root = open_folder(self.root)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(f"start-{self.major}.lock", flags, 0o600, dir_fd=root)
        finally:
            os.close(root)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """Name the folder where the disk is full; the system's error names the file that is copied."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise SetupError(
                f"no space left for the server's files, about 600 MB, in {self.root}; set DANA_HOME to another folder"
            ) from None

    def _state(self) -> supervisor.State:
        try:
            read = json.loads(self.account.read(self._folder, "state.json"))
            state: supervisor.State = conform(supervisor.State, read, "state.json")
            # kill(1) takes others as groups of processes
            if any(pid is not None and pid < 1 for pid in (state.supervisor, state.server, state.worker)):
                raise Mismatch("a number of a process is at least 1")
        except FileNotFoundError:
            return supervisor.State()
        except (ValueError, RecursionError, Mismatch) as error:
            raise SetupError(
                f"{self._folder / 'state.json'} is not as the server's supervisor wrote it: {error}; end the process "
                f"that holds {self._folder / 'alive.lock'} (fuser names it), remove the file, and run dana start"
            ) from None
        return state

    def _launch(self, installed: installation.Installation, python: interpreter.Interpreter, build: str) -> None:
        data = self._folder / "data"
        plan = supervisor.Plan(
            server=cluster.server_command(installed, data, self._sockets, self.worker_socket),
            worker=[str(python.executable), *WORKER, "--socket", str(self.worker_socket)],
            data=str(data),
            lock=str(self._folder / "alive.lock"),
            state=str(self._folder / "state.json"),
            worker_socket=str(self.worker_socket),
            server_log=str(self.server_log),
            worker_log=str(self.worker_log),
            build=build,
        )
        command = [str(python.executable), "-m", "dana.server.supervisor", supervisor.plan_to_json(plan)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env=self._environment() | python.environment,
            check=False,
            **self.account.identity(),
        )
        if done.returncode != 0:
            raise SetupError(f"the supervisor ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _environment(self) -> dict[str, str]:
        """Variables for the children: none that would point PostgreSQL or another account elsewhere."""
        if self.account.switched:
            cache = self._folder / "cache"
            self.account.make_inside(cache)
            kept = {
                name: os.environ[name] for name in ("PATH", "LANG", "CXX", "CC", "DANA_COMPILED") if name in os.environ
            }
            return kept | {"HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
        # PG*: libpq's variables would point initdb and psql elsewhere; MAKE*: flags of an outer make
        return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "MAKE", "MFLAGS"))}

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with contextlib.suppress(FileNotFoundError):
                # its last line is "ready" once connections are accepted (PostgreSQL's miscadmin.h, PM_STATUS_READY)
                pid_file = self.account.read(self._folder, "data/postmaster.pid")
                if pid_file.rstrip().endswith("ready") and self.worker_socket.exists():
                    return
            what = ""
            if not self.is_running:
                what = "ended at once"
            elif self._state().failures >= MAX_FAILURES:
                what = f"are not ready: the worker ended {MAX_FAILURES} times"
            elif time.monotonic() > deadline:
                what = f"were not ready within {START_TIMEOUT:.0f} s"
            if what:
                logs = self._logs()  # before the stop adds to them
                self._stop()
                raise SetupError(f"the server and its worker {what}\n{logs}")
            time.sleep(0.02)

    def _logs(self) -> str:
        return "\n".join(f"{log}:\n{self._tail(log)}" for log in (self.server_log, self.worker_log))

    def _tail(self, log: Path, lines: int = 15) -> str:
        try:
            return "\n".join(self.account.read(self._folder, f"log/{log.name}").splitlines()[-lines:])
        except FileNotFoundError:
            return "(empty)"

    def _create_extension(self) -> None:
        import psycopg

        from dana.server.extension import ensure_extension

        # not in the account's folder, like the lock
        stamp = self.root / f"script-{self.major}.key"
        key = installation.script_key(CHECKOUT / "pg_extension")
        changed = not stamp.exists() or stamp.read_text() != key
        # the stamp is written last: after a crash before it, the script is compared again
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            ensure_extension(connection, script_changed=changed)
        stamp.write_text(key)

    def _stop(self) -> bool:
        if not self.is_running:
            return False
        deadline = time.monotonic() + STOP_TIMEOUT
        asked: int | None = None
        while self.is_running:
            pid = self._state().supervisor
            if pid is not None and asked is None:
                asked = pid
                self._end(pid)
            if time.monotonic() > deadline:
                what = f"process {asked} still runs" if asked is not None else "no process is named in state.json"
                raise SetupError(
                    f"the server below {self._folder} does not stop: {what} after {STOP_TIMEOUT:.0f} s\n{self._logs()}"
                )
            time.sleep(0.02)
        return True

    def _end(self, pid: int) -> None:
        """Send SIGTERM to the supervisor, with the account's rights: a file of the account's names the process."""
        try:
            # not os.kill as root: the file may name any process
            self.account.run('kill -TERM "$1"', str(pid))
        except SetupError as error:
            if self.is_running:  # else it ended by itself in the meantime
                reason = str(error).rpartition(": ")[2]
                raise SetupError(
                    f"cannot stop the server below {self._folder}: signalling its supervisor, process {pid}, "
                    f"as account {self.account.name}: {reason}; "
                    "run dana stop as the user that started it, in the same container"
                ) from None


def _build_key(major: int) -> str:
    """Digest of what a running server was started from: the extension's sources, and the packages by size and time."""
    parts = (installation.sources_key(CHECKOUT / "pg_extension"), str(major), interpreter.packages_key())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
