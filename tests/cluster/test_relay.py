"""Silence of a shard: it counts from when it was asked, and ends every wait."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from dana.cluster import relay
from dana.cluster.relay import _Peer, _Relay
from dana.cluster.shards import ShardError


class _Wire:
    """What a peer needs of libpq, over a socket."""

    def __init__(self) -> None:
        self.end, self.other = socket.socketpair()
        self.socket = self.end.fileno()
        self._read = b""

    def consume_input(self) -> None:
        self._read += self.end.recv(99)

    def get_copy_data(self, _: int) -> tuple[int, bytes]:
        data, self._read = self._read, b""
        return len(data), data


@pytest.fixture
def wires() -> Iterator[list[_Wire]]:
    made = [_Wire(), _Wire()]
    yield made
    for wire in made:
        wire.end.close()
        wire.other.close()


@pytest.mark.parametrize(("timeout", "answers"), [(30.0, True), (0.02, False)])
def test_a_shard_is_silent_from_when_it_was_asked(
    wires: list[_Wire], timeout: float, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LOOK_MS", 5)
    looks: list[float] = []

    class Shard(SimpleNamespace):
        number = 1

        @property
        def timeout(self) -> float:
            looks.append(timeout)
            return timeout

    sessions: list[Any] = [SimpleNamespace(pgconn=wire) for wire in wires]
    shard: Any = Shard()
    leader, peer = _Peer(session=sessions[0], shard=None), _Peer(session=sessions[1], shard=shard)
    carried = _Relay(leader, [peer])
    carried._poll.register(peer.pgconn.socket, select.POLLIN)
    peer.heard = time.monotonic() - 1000  # the leader was at work since
    if not answers:
        with pytest.raises(ShardError, match=r"no message within 0\.02 s"):
            carried._collect([peer])
        return

    def answer() -> None:
        while not looks:  # until it was looked for
            time.sleep(0.001)
        wires[1].other.send(b"here")

    thread = threading.Thread(target=answer)
    thread.start()
    assert carried._collect([peer]) == {peer: b"here"}
    thread.join()


class _Named(SimpleNamespace):
    def __str__(self) -> str:
        return f"shard {self.number}"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([b"M1234", b"M12", b"M34"], "shard 1: .*: its sums have 4 bytes, those of shard 2 2"),
        ([b"M12", b"M", b"M34"], "shard 2: .*: its sums have 0 bytes, those of shard 1 2"),
        ([b"M12", b"A", b"A12"], "shard 1: .*: it sent a message b'M', shard 2 b'A'"),
        ([b"A", None, b"M"], "shard 3: .*: it sent a message b'M', shard 1 b'A'"),
        ([b"X", b"X", b"X"], "shard 1: .*: it sent a message b'X'"),
    ],
)
def test_the_shard_that_is_out_of_step_is_named(
    said: list[bytes | None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Any] = [SimpleNamespace(pgconn=SimpleNamespace(socket=number)) for number in range(4)]
    shards: list[Any] = [None, *(_Named(number=number) for number in (1, 2, 3))]
    leader, *peers = [_Peer(session=session, shard=shard) for session, shard in zip(sessions, shards, strict=True)]
    carried = _Relay(leader, peers)
    monkeypatch.setattr(carried, "_collect", lambda peers: dict(zip(peers, said, strict=True)))
    with pytest.raises(ShardError, match=f"^{message}$") as failed:
        carried._answers()
    assert failed.value.sqlstate == "08P01"


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


COPY_DONE = _message(b"c")
ERROR = _message(b"E", b"SERROR\0VERROR\0C57014\0Mno more\0\0")


# a process of its own: libpq's wait holds the interpreter's lock
SERVER = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
client, _ = listening.accept()
for answer in sys.argv[1:]:
    client.recv(9999)
    client.sendall(bytes.fromhex(answer))
time.sleep(10)
"""


@contextmanager
def _talking_to(said: bytes) -> Iterator[Any]:
    """A session with a server that begins to copy, says this and is silent; it ends if it is waited for."""
    answers = [_message(b"R", bytes(4)) + _message(b"Z", b"I"), _message(b"W", bytes(3)) + said]
    command = [sys.executable, "-c", SERVER, *(one.hex() for one in answers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        given = f"host=127.0.0.1 port={server.stdout.readline()} user=u sslmode=disable gssencmode=disable"
        try:
            with closing(psycopg.connect(given, autocommit=True)) as session:
                session.pgconn.nonblocking = 1
                began = time.monotonic()
                yield session
                assert time.monotonic() - began < 8
        finally:
            server.kill()


def _run(peer: _Peer) -> None:
    peer.begin("CALL")
    while True:
        peer.read()
        assert list(peer.messages()) == []


@pytest.mark.parametrize(
    ("said", "found"), [(COPY_DONE, r"no message within 0\.2 s"), (ERROR, "no more")], ids=["end", "error"]
)
def test_a_shard_that_does_not_end_its_statement(said: bytes, found: str) -> None:
    with _talking_to(said) as session:
        shard: Any = SimpleNamespace(number=1, timeout=0.2, session=session)
        peer = _Peer(session=session, shard=shard)
        with pytest.raises(ShardError, match=found):
            _run(peer)


def test_ctrl_c_ends_the_wait_for_a_result() -> None:
    """Also if the kernel gives the signal to another thread, as it may."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a Java machine of other tests may have taken it
    with _talking_to(COPY_DONE) as session:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with pytest.raises(KeyboardInterrupt):
                _run(_Peer(session=session, shard=None))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
