"""Silence of a shard counts from when it was asked: until then it has nothing to say."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

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
