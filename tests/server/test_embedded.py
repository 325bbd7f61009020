"""The embedded server's life: started once however often it is asked for, stopped whole, found again after anything."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from dana.errors import SetupError
from dana.server import installation
from dana.server.cluster import settings
from dana.server.embedded import EmbeddedServer
from dana.server.installation import DEFAULT_MAJOR, MAJORS
from tests.servers import install

PATIENCE = 120.0


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` holds within `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ask(server: EmbeddedServer, query: str) -> object:
    """First value of a query's first row."""
    with psycopg.connect(server.dsn) as session:
        row = session.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def pid_of(value: int | None) -> int:
    """A process number that must be there."""
    assert value is not None
    return value


def listens(path: Path) -> bool:
    """Whether somebody accepts connections on a unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def test_it_runs_the_version_asked_for_with_the_extension_and_a_worker(server: EmbeddedServer) -> None:
    assert server.is_running
    assert str(ask(server, "SHOW server_version")).startswith(f"{server.major}.")
    assert ask(server, "SELECT extname FROM pg_extension WHERE extname = 'dana'") == "dana"
    assert ask(server, "SHOW dana.socket_path") == str(server.worker_socket)
    assert listens(server.worker_socket)
    assert lives(pid_of(server.worker_pid))


def test_its_settings_are_those_of_the_table(server: EmbeddedServer) -> None:
    for name, value in settings(server.major).items():
        assert ask(server, f"SHOW {name}") == value


def test_it_is_private(server: EmbeddedServer) -> None:
    assert ask(server, "SHOW listen_addresses") == ""
    for path in (server.worker_socket.parent, server.server_log.parent.parent / "data"):
        found = path.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (server.account.uid, 0o700)


def test_no_process_of_it_is_root_s(server: EmbeddedServer) -> None:
    for pid in (server.server_pid, server.worker_pid):
        assert os.stat(f"/proc/{pid_of(pid)}").st_uid == server.account.uid != 0


def test_starting_again_is_finding_it(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # as it was started, whatever an editor has saved since
    monkeypatch.setattr("dana.server.embedded._build_key", lambda major: server._state().build)
    before = server.server_pid
    assert EmbeddedServer.start(server.root, server.major) == server
    assert server.server_pid == before


def test_stopping_ends_every_process_and_keeps_the_data(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    with psycopg.connect(server.dsn, autocommit=True) as session:
        session.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    processes = [pid_of(server.server_pid), pid_of(server.worker_pid)]
    assert server.stop()
    assert not server.is_running
    assert [pid for pid in processes if lives(pid)] == []
    assert not server.worker_socket.exists()
    assert not server.stop()
    assert ask(EmbeddedServer.start(own_root), "SELECT answer FROM kept") == 42


def test_stopping_does_not_wait_for_sessions(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    with psycopg.connect(server.dsn) as session:
        session.execute("SELECT 1")
        assert server.stop()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")


def test_a_home_with_a_line_feed_is_named_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANA_HOME", "/tmp/a\nb")
    with pytest.raises(SetupError, match=r"^\$DANA_HOME is /tmp/a\\nb: name a folder without control characters$"):
        EmbeddedServer.at()


@pytest.mark.parametrize("gone", [True, False], ids=["another namespace's", "another account's"])
def test_a_server_that_cannot_be_signalled_is_an_error_at_once(own_root: Path, gone: bool) -> None:
    """The lock is held, but the process is not to be seen, as from another container, or belongs to another account."""
    server = EmbeddedServer.at(own_root)
    with open(own_root / "18" / "alive.lock", "w") as lock, subprocess.Popen(["true"]) as ended:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended.wait()
        others = (int(one.name) for one in Path("/proc").glob("[0-9]*") if one.stat().st_uid != server.account.uid)
        foreign = ended.pid if gone else next(others, None)
        if foreign is None:
            pytest.skip("every process that is visible here belongs to this account, so it may signal them all")
        (own_root / "18" / "state.json").write_text(json.dumps({"supervisor": foreign}))
        for name in ("alive.lock", "state.json"):
            os.chown(own_root / "18" / name, server.account.uid, server.account.gid)
        reason = "No such process" if gone else "(Operation not permitted|Permission denied)"
        with pytest.raises(
            SetupError, match=rf"cannot stop .*process {foreign}, as account .*: {reason}; run dana stop as"
        ):
            server.stop()
        assert server.is_running
        (own_root / "18" / "state.json").unlink()


@pytest.mark.parametrize(
    "damaged", [b"\xff\xfe", b"[" * 300_000, b"[]", b'{"supervisor": "x"}', b'{"supervisor": -1}', b'{"worker": 0}']
)
def test_a_damaged_state_file_is_named(own_root: Path, damaged: bytes) -> None:
    server = EmbeddedServer.at(own_root)
    file = own_root / "18" / "state.json"
    with open(own_root / "18" / "alive.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.write_bytes(damaged)
        for name in ("alive.lock", "state.json"):
            os.chown(own_root / "18" / name, server.account.uid, server.account.gid)
        for call in (server.stop, lambda: EmbeddedServer.start(own_root)):
            with pytest.raises(SetupError, match=f"^{file} is not as .*; end the process that holds .*alive.lock "):
                call()
        file.unlink()


def test_a_worker_that_dies_is_replaced(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    first = pid_of(server.worker_pid)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: server.worker_pid not in (None, first) and listens(server.worker_socket))
    assert f"worker ended with {-signal.SIGKILL}" in server.worker_log.read_text()
    assert ask(server, "SELECT 1") == 1


def test_nothing_outlives_a_killed_supervisor_and_the_next_start_works(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    processes = [pid_of(server.server_pid), pid_of(server.worker_pid)]
    os.kill(pid_of(server._state().supervisor), signal.SIGKILL)
    assert eventually(lambda: not any(map(lives, processes)))
    assert not server.is_running
    assert ask(EmbeddedServer.start(own_root), "SELECT 1") == 1


def test_a_killed_server_ends_the_worker_too(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    worker = pid_of(server.worker_pid)
    os.kill(pid_of(server.server_pid), signal.SIGKILL)
    assert eventually(lambda: not server.is_running and not lives(worker))
    assert ask(EmbeddedServer.start(own_root), "SELECT 1") == 1


def test_a_pid_file_that_names_somebody_else_s_process_does_not_keep_it_from_starting(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    data = server.server_log.parent.parent / "data"
    pid_file = data / "postmaster.pid"
    text = pid_file.read_text()
    assert server.stop()
    stranger = subprocess.Popen(["sleep", "600"], **server.account.identity())
    try:
        pid_file.write_text(text.replace(text.split("\n", 1)[0], str(stranger.pid), 1))
        os.chown(pid_file, server.account.uid, server.account.gid)
        assert ask(EmbeddedServer.start(own_root), "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_two_processes_that_start_it_at_once_get_one_server(own_root: Path) -> None:
    shutil.rmtree(own_root / str(DEFAULT_MAJOR))  # one of them runs initdb
    code = (
        "import sys; from pathlib import Path; from dana.server.embedded import EmbeddedServer\n"
        "print(EmbeddedServer.start(Path(sys.argv[1])).server_pid)"
    )
    command = [sys.executable, "-c", code, str(own_root)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {starter.communicate()[0].strip() for starter in starters}
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    assert answers == {str(EmbeddedServer.at(own_root).server_pid)}


def test_a_server_that_cannot_start_says_why(own_root: Path) -> None:
    server = EmbeddedServer.start(own_root)
    assert server.stop()
    configuration = server.server_log.parent.parent / "data" / "postgresql.conf"
    configuration.write_text(configuration.read_text() + "no_such_setting = 1\n")
    with pytest.raises(SetupError, match="no_such_setting"):
        EmbeddedServer.start(own_root)
    assert not server.is_running


def test_a_worker_that_never_starts_is_an_error_with_its_last_words(
    own_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dana.server.embedded.WORKER", ("-c", "raise SystemExit('no such module')"))
    with pytest.raises(SetupError, match=r"the worker ended 3 times\n(.|\n)*no such module"):
        EmbeddedServer.start(own_root)
    assert not EmbeddedServer.at(own_root).is_running


def test_a_umask_does_not_keep_the_account_out_of_new_folders(server_root: Path) -> None:
    server = EmbeddedServer.at(server_root / "new" / "home")
    umask = os.umask(0o077)
    try:
        server._make_folders()
    finally:
        os.umask(umask)
    assert server.account.can("x", server.root)
    assert stat.S_IMODE((server.root / "18" / "log").stat().st_mode) == 0o700


def test_a_full_disk_names_the_folder(server_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "libllvmlite.so")

    monkeypatch.setattr(installation, "prepare", prepare)
    with pytest.raises(SetupError, match=rf"^no space left .* in {server_root}; set DANA_HOME to another folder$"):
        EmbeddedServer.start(server_root)


def test_a_home_that_cannot_be_made_is_named(server_root: Path) -> None:
    (server_root / "file").touch()
    with pytest.raises(SetupError, match=r"cannot make the folder \S+/file/home: Not a directory; set DANA_HOME"):
        EmbeddedServer.start(server_root / "file" / "home")


def test_a_path_too_long_for_a_socket_is_no_obstacle(own_root: Path) -> None:
    root = own_root / ("deep" * 30)
    root.mkdir()
    install(root, MAJORS[-1])
    server = EmbeddedServer.start(root)
    try:
        assert ask(server, "SELECT 1") == 1
        assert server.worker_socket.parent.parent == Path("/tmp")
        assert listens(server.worker_socket)
    finally:
        server.stop()
        for left in server.worker_socket.parent.iterdir():
            left.unlink()
        server.worker_socket.parent.rmdir()


def test_new_code_restarts_it(own_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = EmbeddedServer.start(own_root)
    before = server.server_pid
    monkeypatch.setattr("dana.server.embedded._build_key", lambda major: "another")
    said: list[str] = []
    assert EmbeddedServer.start(own_root, progress=said.append).server_pid != before
    assert said[0] == "restarting the server with the new code"
