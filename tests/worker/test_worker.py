"""The worker's processes, without a server: who may talk to it, and how it starts, lasts and ends."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dana.trainer.memory import machine_bytes
from dana.worker.messages import Message
from dana.worker.process import WorkerOptions
from dana.worker.protocol import RELEASE
from tests.postgres.cluster import alive
from tests.postgres.worker_main import HANGS
from tests.worker.producer import Producer, train_fields, with_raw

ROOT = Path(__file__).parents[2]
HELLO = {
    "release": RELEASE,
    "block_size": 8192,
    "server_version": 180000,
    "pid": 1,
    "encoding": "UTF8",
}
PATIENCE = 120.0
"""Seconds: on a loaded machine, a worker compiles for longer than a minute."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tally") / "tally.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(ROOT / "tests/postgres/tally.c")], check=True)
    return path


Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def starter(library: Path, folder: Path) -> Iterator[Start]:
    """Starts workers with the tests' trainer; `path` is the socket. They end with this."""
    started: list[subprocess.Popen[str]] = []

    def run(path: Path, wait: bool = True, **options: Any) -> subprocess.Popen[str]:
        chosen = {"cache_limit": 1 << 30, **options}
        program = ROOT / "tests/postgres/worker_main.py"
        command = [sys.executable, str(program), str(path), str(library), json.dumps(chosen)]
        worker = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(worker)
        if wait:
            assert worker.stderr is not None
            assert "listening" in worker.stderr.readline()
        return worker

    yield run
    for worker in started:
        worker.kill()
        worker.wait()
        if worker.stderr is not None:
            worker.stderr.close()


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Start]:
    with starter(library, tmp_path) as run:
        yield run


@pytest.fixture(scope="module")
def path(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Socket of a worker for tests of single sessions, which leave it as it was."""
    folder = tmp_path_factory.mktemp("worker")
    with starter(library, folder) as run:
        run(folder / "w")
        yield folder / "w"


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE)
    folder = os.open(path.parent, os.O_RDONLY)
    client.connect(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    return client


def frame(message: int, fields: Any) -> bytes:
    payload = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return struct.pack("=IB", len(payload), message) + payload


def read(client: socket.socket) -> tuple[int, Any]:
    head = client.recv(5, socket.MSG_WAITALL)
    if len(head) < 5:
        return 0, None
    length, code = struct.unpack("=IB", head)
    return code, json.loads(client.recv(length, socket.MSG_WAITALL) or b"null")


def greeted(path: Path) -> tuple[socket.socket, Producer, int]:
    """A session: the socket, its ring, and the session's process id."""
    client = connected(path)
    ring = Producer(lambda: client.sendall(frame(Message.BELL, b"")))
    hello = frame(Message.HELLO, HELLO)
    socket.send_fds(client, [hello[:5]], [ring.memfd])
    client.sendall(hello[5:])
    code, welcome = read(client)
    assert (code, welcome["release"]) == (Message.WELCOME, RELEASE)
    return client, ring, welcome["pid"]


def hung_up(client: socket.socket) -> bool:
    """Whether the worker closed the connection, having read all of it or not."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def check(client: socket.socket, **rule: Any) -> tuple[int, Any]:
    client.sendall(frame(Message.CHECK, {"text": json.dumps(rule)}))
    return read(client)


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (frame(Message.HELLO, {**HELLO, "release": "0.1"}), f"is of release '0.1', this worker of {RELEASE}"),
        (frame(Message.HELLO, {**HELLO, "release": 3}), "greeting.release must be of type str, not int"),
        (frame(Message.HELLO, {"protocol": 3}), "the extension is of release ''"),
        (frame(Message.HELLO, {**HELLO, "server_version": 190000}), "outside 14 to 18"),
        (frame(Message.HELLO, {**HELLO, "server_version": None}), "greeting.server_version must be of type int"),
        (frame(Message.HELLO, b"[]"), "must be a JSON object"),
        (frame(Message.CHECK, {}), "a hello with one descriptor was expected"),
        (frame(ord("G"), b"ET / HTTP/1.1"), "unknown"),
        (struct.pack("=IB", 0xFFFFFFFF, ord("H")), "more than"),
    ],
)
def test_greetings_that_are_refused(path: Path, hello: bytes, says: str) -> None:
    client = connected(path)
    ring = Producer(lambda: None)
    socket.send_fds(client, [hello[:5]], [ring.memfd])
    client.sendall(hello[5:])
    code, answer = read(client)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "08P01")
    assert says in answer["message"]
    assert hung_up(client)
    client.close()
    ring.close()
    client, ring, _ = greeted(path)
    assert check(client)[0] == Message.CHECKED
    client.close()
    ring.close()


@pytest.mark.parametrize("descriptors", [0, 1])
def test_memory_that_is_no_ring(path: Path, descriptors: int) -> None:
    client = connected(path)
    hello = frame(Message.HELLO, HELLO)
    with open("/dev/null") as nothing:
        socket.send_fds(client, [hello[:5]], [nothing.fileno()] * descriptors)
    client.sendall(hello[5:])
    assert read(client)[1]["sqlstate"] == "08P01"
    client.close()


@pytest.mark.parametrize("request_", [frame(Message.HELLO, HELLO), frame(Message.EPOCH, {}), frame(Message.TRAIN, {})])
def test_requests_out_of_place(path: Path, request_: bytes) -> None:
    client, ring, _ = greeted(path)
    client.sendall(request_)
    assert read(client)[1]["sqlstate"] == "08P01"
    assert check(client)[0] == Message.CHECKED, "the request has ended, not the session"
    client.close()
    ring.close()


def test_a_message_that_has_no_end(path: Path) -> None:
    """Where the next one begins is unknown: the session ends, and says so to a request that crosses this."""
    client, ring, _ = greeted(path)
    client.sendall(struct.pack("=IB", 0xFFFFFFFF, Message.CHECK))
    assert read(client)[1]["sqlstate"] == "08P01"
    assert read(client) == (Message.BYE, {})
    assert hung_up(client)
    client.close()
    ring.close()


def test_a_connection_waits_for_room(start: Start, tmp_path: Path) -> None:
    """The session of a backend that was cancelled takes a moment to end."""
    path = tmp_path / "w"
    start(path, max_sessions=1)
    assert path.with_name("w.lock").read_text() == "1\n", "the backends know how many requests there may be"
    first, ring, _ = greeted(path)
    ask(first, on_check="hang")
    client = connected(path)
    hello = frame(Message.HELLO, HELLO)
    socket.send_fds(client, [hello[:5]], [ring.memfd])
    client.sendall(hello[5:])
    assert select.select([client], [], [], 0.3)[0] == []
    first.close()
    assert read(client)[0] == Message.WELCOME
    client.close()
    ring.close()


def test_one_session_takes_no_other_down(path: Path) -> None:
    first, ring, pid = greeted(path)
    other, other_ring, other_pid = greeted(path)
    assert pid != other_pid
    assert check(first, on_check="abort") == (0, None)
    assert check(other)[0] == Message.CHECKED
    until(lambda: not alive(pid))
    for each in (first, other, ring, other_ring):
        each.close()
    until(lambda: not alive(other_pid))


def test_a_runaway_allocation_is_an_error(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    start(path, memory_limit=1 << 30)
    client, ring, pid = greeted(path)
    code, answer = check(client, on_check="allocate")
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200")
    assert check(client)[0] == Message.CHECKED
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert f"Max data size             {1 << 30}" in limits
    assert "Max core file size        0" in limits
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) >= 500
    client.close()
    ring.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_worker(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "w"
    worker = start(path, STOP_GRACE=0.3)
    sessions = [greeted(path) for _ in range(3)]
    sessions[0][0].sendall(frame(Message.CHECK, {"text": '{"on_check": "hang"}'}))
    sessions[1][0].sendall(frame(Message.CHECK, {"text": '{"on_check": "stop"}'}))
    until(lambda: Path(f"/proc/{sessions[1][2]}/stat").read_text().rsplit(") ", 1)[1][0] == "T")
    worker.send_signal(number)
    worker.wait(PATIENCE)
    until(lambda: not any(alive(pid) for _, _, pid in sessions))
    assert path.exists() == (number == signal.SIGKILL)
    for client, ring, _ in sessions:
        assert hung_up(client)
        client.close()
        ring.close()


def test_hang_up_in_the_middle(path: Path) -> None:
    """A session ends when its backend does, whatever it is doing."""
    client, ring, pid = greeted(path)
    client.sendall(frame(Message.CHECK, {"text": '{"on_check": "hang"}'}))
    time.sleep(0.1)
    client.close()
    until(lambda: not alive(pid))
    ring.close()


def test_one_worker_for_a_socket(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    first = start(path)
    second = start(path, wait=False)
    assert second.wait(PATIENCE) != 0
    assert second.stderr is not None
    assert "another worker listens on" in second.stderr.read()
    first.kill()
    first.wait()
    assert path.is_socket(), "left behind"
    start(path)
    client, ring, _ = greeted(path)
    client.close()
    ring.close()


def test_only_a_socket_is_replaced(start: Start, tmp_path: Path) -> None:
    """A file in the place of the socket, of the one that is made first, or of the lock, is kept, and so is a link."""
    notes = tmp_path / "notes"
    notes.write_text("precious")
    (tmp_path / "link").symlink_to(notes)
    (tmp_path / "w.new").write_text("precious")
    (tmp_path / "uv.lock").write_text("precious")
    os.mkfifo(tmp_path / "pipe.lock")
    for name, says in (
        ("notes", "is not a socket"),
        ("link", "is not a socket"),
        ("w", "w.new exists"),
        ("uv", "uv.lock exists, and no worker wrote it"),
        ("pipe", "pipe.lock exists, and no worker wrote it"),
        ("n" * 90, "75"),
    ):
        worker = start(tmp_path / name, wait=False)
        assert worker.wait(PATIENCE) != 0
        assert worker.stderr is not None
        assert says in worker.stderr.read()
    assert notes.read_text() == (tmp_path / "uv.lock").read_text() == "precious"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "notes", "pipe.lock", "uv.lock", "w.new"]


def test_a_path_longer_than_a_sockets(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    path = folder / "worker.sock"
    start(path)
    client, ring, _ = greeted(path)
    assert path.stat().st_mode & 0o777 == 0o600
    client.close()
    ring.close()


def test_no_folder(start: Start, tmp_path: Path) -> None:
    worker = start(tmp_path / "nowhere" / "w", wait=False)
    assert worker.wait(PATIENCE) != 0
    assert worker.stderr is not None
    assert "its folder must exist" in worker.stderr.read()


def test_an_idle_session_says_that_it_ends(start: Start, tmp_path: Path) -> None:
    """So that a backend whose request crosses this knows that nobody has looked at it."""
    path = tmp_path / "w.sock"
    start(path, idle_seconds=0.1)
    client, ring, _ = greeted(path)
    assert check(client)[0] == Message.CHECKED
    assert read(client) == (Message.BYE, {})
    assert hung_up(client)
    client.close()
    ring.close()


def ask(client: socket.socket, **rule: Any) -> None:
    client.sendall(frame(Message.CHECK, {"text": json.dumps(rule)}))


def test_all_sessions_together_have_a_limit(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    start(path, total_memory=600 << 20)
    sessions = [greeted(path) for _ in range(3)]
    ask(sessions[0][0], on_check="hang")
    for client, _, _ in sessions[1:]:
        ask(client, on_check="hoard")
    clients = [client for client, _, _ in sessions]
    (ended,), _, _ = select.select(clients, [], [], PATIENCE)
    code, answer = read(ended)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200")
    assert "--total-memory of 600 MB" in answer["message"]
    assert "dana.max_runs" in answer["hint"]
    assert read(ended) == (Message.BYE, {}), "a new session begins with nothing"
    assert hung_up(ended)
    position = clients.index(ended)
    assert position != 0, "not who holds little"
    until(lambda: not alive(sessions[position][2]))
    time.sleep(0.5)
    assert [alive(pid) for _, _, pid in sessions] == [k != position for k in range(3)]
    for client, ring, _ in sessions:
        client.close()
        ring.close()


def test_who_does_not_give_way_is_killed(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    worker = start(path, total_memory=300 << 20, GIVE_WAY_GRACE=0.5)
    other, other_ring, _ = greeted(path)
    client, ring, pid = greeted(path)
    ask(client, on_check="hoard for good")
    assert read(client) == (0, None)
    until(lambda: not alive(pid))
    assert check(other)[0] == Message.CHECKED
    for each in (client, ring, other, other_ring):
        each.close()
    log = ended_log(worker)
    assert "has to give way" in log
    assert "does not give way" in log


@pytest.mark.parametrize("message", [Message.TRAIN, Message.CATEGORIES, Message.EXPLAIN])
def test_each_request_has_the_limit_that_comes_with_it(path: Path, message: Message) -> None:
    client, ring, _ = greeted(path)
    training = train_fields(max_memory=1 << 20)
    explain = {"training": training, "device": None, "search": False, "rows": 3, "last": None}
    explain |= {"page_rows": None, "page_pointers": None}
    given = {Message.TRAIN: with_raw(training), Message.CATEGORIES: training, Message.EXPLAIN: explain}
    client.sendall(frame(message, given[message]))
    code, answer = read(client)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200"), answer
    assert answer["message"].startswith("dana.max_memory of 1 MB is less than")
    client.close()
    ring.close()


def ended_log(worker: subprocess.Popen[str]) -> str:
    worker.terminate()
    assert worker.stderr is not None
    log = worker.stderr.read()
    worker.wait(PATIENCE)
    return log


def test_limits_are_finite_by_default(tmp_path: Path) -> None:
    default = WorkerOptions(socket_path=tmp_path / "w")
    assert default.cache_limit < default.memory_limit < default.total_memory < machine_bytes()
    assert default.max_sessions < 1000
    unit = (ROOT / "pg_extension" / "dana-worker.service").read_text().splitlines()
    assert "OOMPolicy=continue" in unit, "one session that the kernel ends must not end the others"
    assert "MemoryDenyWriteExecute=yes" not in unit, "a rule becomes machine code at run time"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_exposes_little() -> None:
    unit = ROOT / "pg_extension" / "dana-worker.service"
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=10", str(unit)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout.splitlines()[-1]


@pytest.mark.parametrize("option", ["memory_limit", "total_memory"])
def test_limits_below_what_a_session_needs(start: Start, tmp_path: Path, option: str) -> None:
    worker = start(tmp_path / "w", wait=False, **{option: 64 << 20})
    assert worker.wait(PATIENCE) != 0
    assert worker.stderr is not None
    assert "of 64 MB is less than the" in worker.stderr.read()


def test_a_folder_for_models_that_takes_none(start: Start, tmp_path: Path) -> None:
    worker = start(tmp_path / "w", wait=False, model_directory=str(tmp_path / "none"))
    assert worker.wait(PATIENCE) != 0
    assert worker.stderr is not None
    said = worker.stderr.read()
    assert "no files in --model-directory: [Errno 2] No such file or directory" in said
    assert str(tmp_path / "none") in said


def test_a_folder_for_models_that_lies_in_memory(start: Start, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        worker = start(tmp_path / "w", wait=False, model_directory=folder)
        assert worker.stderr is not None
        assert f"--model-directory {folder} lies in memory (tmpfs)" in worker.stderr.readline()


@pytest.mark.parametrize("option", ["--model-directory", "socket"])
def test_folders_that_other_accounts_can_change(start: Start, tmp_path: Path, option: str) -> None:
    """Models of other sessions would lie there, or another's socket."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "writable").mkdir()
    (tmp_path / "writable").chmod(0o777)
    for name, said in (
        ("link", "must be a folder, not a symbolic link"),
        ("writable", "must be writable for its owner alone"),
    ):
        if option == "socket":
            worker = start(tmp_path / name / "w", wait=False)
        else:
            worker = start(tmp_path / "w", wait=False, model_directory=str(tmp_path / name))
        assert worker.wait(PATIENCE) != 0
        assert worker.stderr is not None
        assert f"{tmp_path / name} {said}" in (text := worker.stderr.read()), text
    assert not list((tmp_path / "folder").iterdir()) + list((tmp_path / "writable").iterdir())


def test_a_session_that_has_grown_leaves_requests_to_a_new_one(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    start(path, memory_limit=400 << 20)
    client, ring, _ = greeted(path)
    code, answer = check(client, on_check="leak")
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200")
    assert "400 MB of the worker's --memory-limit" in answer["message"]
    assert check(client) == (Message.BYE, {})
    client.close()
    ring.close()


def test_sessions_have_a_number(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "w"
    start(path, max_sessions=2, ROOM_SECONDS=2.0)
    first, second = greeted(path), greeted(path)
    for client, _, _ in (first, second):
        assert check(client)[0] == Message.CHECKED
    third = greeted(path)
    assert read(first[0]) == (Message.BYE, {}), "who idled longest makes room"
    assert hung_up(first[0])
    until(lambda: not alive(first[2]))
    for client, _, _ in (second, third):
        ask(client, on_check="hang")
    until(lambda: all(Path(f"/proc/{pid}/comm").read_text() == f"{HANGS}\n" for _, _, pid in (second, third)))
    refused = connected(path)
    hello = frame(Message.HELLO, HELLO)
    socket.send_fds(refused, [hello[:5]], [third[1].memfd])
    refused.sendall(hello[5:])
    code, answer = read(refused)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53300")
    assert answer["message"] == "too many sessions for the worker"
    assert "--max-sessions" in answer["hint"]
    refused.close()
    second[0].close()
    until(lambda: not alive(second[2]))
    fourth = greeted(path)
    assert check(fourth[0])[0] == Message.CHECKED
    for client, ring, _ in (first, second, third, fourth):
        client.close()
        ring.close()


def test_a_session_that_was_not_asked_anything_yet_is_not_idle(start: Start, tmp_path: Path) -> None:
    """Its backend connected because it has a request."""
    path = tmp_path / "w"
    start(path, max_sessions=1, ROOM_SECONDS=0.5)
    client, ring, _ = greeted(path)
    refused = connected(path)
    assert read(refused)[1]["sqlstate"] == "53300"
    assert check(client)[0] == Message.CHECKED
    for each in (client, ring, refused):
        each.close()


@pytest.mark.parametrize("said", [0, 5, None], ids=["nothing", "half a greeting", "a greeting"])
def test_a_backend_that_goes_away_while_it_connects(start: Start, tmp_path: Path, said: int | None) -> None:
    """A timeout, say; that is no error, and nothing for the log."""
    path = tmp_path / "w"
    worker = start(path)
    worker.send_signal(signal.SIGSTOP)
    client = connected(path)
    ring = Producer(lambda: None)
    if said != 0:
        hello = frame(Message.HELLO, HELLO)[:said]
        socket.send_fds(client, [hello], [ring.memfd])
    client.close()
    ring.close()
    worker.send_signal(signal.SIGCONT)
    client, ring, pid = greeted(path)
    client.close()
    ring.close()
    until(lambda: not alive(pid))
    log = ended_log(worker)
    assert "Traceback" not in log, log
    assert len(log.splitlines()) == 1, log


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_session_started_ends_with_it(path: Path, killed: bool) -> None:
    client, ring, pid = greeted(path)
    assert check(client, on_check="spawn")[0] == Message.CHECKED
    started = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(started) == 1
    if killed:
        os.kill(pid, signal.SIGKILL)
    client.close()
    until(lambda: not any(alive(one) for one in (pid, *started)))
    ring.close()


def test_the_compiler_is_loaded_before_the_first_session(tmp_path: Path) -> None:
    """As `dana start` starts the worker: its sessions inherit LLVM."""
    command = [sys.executable, "-m", "dana.cli", "worker", "--socket", str(tmp_path / "w")]
    worker = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while "llvmlite" not in Path(f"/proc/{worker.pid}/maps").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        worker.terminate()
        worker.wait()
