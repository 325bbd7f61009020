"""Messages, and what a worker makes of a peer that breaks their contract."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import threading
from typing import Any

import numpy as np
import pytest

from dana.trainer.contract import Level, Notice, Parameter, TrainResult
from dana.trainer.memory import least_bytes
from dana.worker.messages import MAX_MESSAGE, MAX_REQUEST, Message
from dana.worker.protocol import Channel, ProtocolError, categories_request, decode, train_request
from tests.worker.producer import TRAIN_OPTIONS, train_fields, with_raw


@pytest.fixture
def pair() -> Any:
    """A channel, and the raw socket at its other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(code: int, payload: bytes) -> bytes:
    return struct.pack("=IB", len(payload), code) + payload


def read(peer: socket.socket) -> tuple[int, bytes]:
    length, code = struct.unpack("=IB", peer.recv(5, socket.MSG_WAITALL))
    return code, peer.recv(length, socket.MSG_WAITALL)


def test_messages_in_pieces_and_bells_between(pair: Any) -> None:
    channel, peer = pair
    sent = frame(Message.BELL, b"") + frame(Message.CHECK, b'{"text":"x"}') + frame(Message.BELL, b"")
    for i in range(len(sent)):
        peer.sendall(sent[i : i + 1])
    assert channel.receive() == (Message.CHECK, b'{"text":"x"}')
    peer.sendall(frame(Message.TRAIN, b""))
    assert channel.receive() == (Message.TRAIN, b"")


@pytest.mark.parametrize(
    ("sent", "error", "says"),
    [
        (b"", EOFError, "closed"),
        (b"\0\0", EOFError, "closed"),
        (frame(Message.CHECK, b"12345")[:-1], EOFError, "closed"),
        (frame(ord("?"), b""), ProtocolError, "0x3f is unknown"),
        (struct.pack("=IB", MAX_REQUEST + 1, Message.CHECK), ProtocolError, "more than"),
        (struct.pack("=IB", MAX_MESSAGE + 1, Message.TRAIN), ProtocolError, "more than"),
    ],
)
def test_broken_frames(pair: Any, sent: bytes, error: type[Exception], says: str) -> None:
    channel, peer = pair
    peer.sendall(sent)
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(error, match=says):
        channel.receive()


@pytest.mark.parametrize("payload", [b"", b"[]", b"3", b"{", b'{"a":"\xff"}', b"[" * 100_000, b'{"a":1}x'])
def test_payloads_that_are_no_objects(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(payload)


@pytest.mark.parametrize("missing", ["rule", "text", "relation", "options", "cpu", "warm_start_from", "role"])
def test_requests_without_a_field(missing: str) -> None:
    request = train_fields()
    asked, cpu = train_request(with_raw(request), page_size=8192)
    assert (asked.text, asked.features, asked.hyper, cpu) == ("rule", None, {}, -1)
    del request[missing]
    with pytest.raises(ProtocolError, match=missing):
        train_request(with_raw(request), page_size=8192)


START = [
    {"name": "w", "shape": [2, 3], "offset": 0, "size": 6},
    {"name": "b", "shape": [], "offset": 6, "size": 1},
]


@pytest.mark.parametrize("rule", ["", "r", "ru", "rul"])  # the weights are aligned, whatever stands before them
def test_weights_to_start_from(rule: str) -> None:
    weights = np.arange(7, dtype=np.float32)
    request = train_fields(rule=rule, warm_start_from={"parameters": START, "features": ["x", "y"]})
    asked, _ = train_request(with_raw(request, weights.tobytes()), page_size=8192)
    assert asked.warm_start_from is not None
    assert {name: values.tolist() for name, values in asked.warm_start_from.items()} == {
        "w": weights[:6].reshape(2, 3).tolist(),
        "b": 6.0,
    }
    assert all(values.flags.aligned for values in asked.warm_start_from.values())
    known = categories_request(json.dumps(request).encode(), page_size=8192).warm_start_from
    assert known is not None
    assert [values.shape for values in known.values()] == [(2, 3), ()]
    assert asked.warm_start_features == ("x", "y")


@pytest.mark.parametrize("raw", [b"", bytes(24), bytes(27)])
def test_fewer_weights_than_were_announced(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not have the weights"):
        train_request(
            with_raw(train_fields(warm_start_from={"parameters": START, "features": ["x", "y"]}), raw), page_size=8192
        )


@pytest.mark.parametrize("payload", [b"", b"\1\0", b"\xff\0\0\0{}"])
def test_requests_that_end_too_early(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        train_request(payload, page_size=8192)


def test_weights_that_there_is_no_room_for(pair: Any) -> None:
    """They pass, and the next message is read."""
    channel, peer = pair
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    sent = frame(Message.TRAIN, bytes(200_000_000)) + frame(Message.CHECK, b"{}")
    sender = threading.Thread(target=peer.sendall, args=(sent,))
    resource.setrlimit(resource.RLIMIT_DATA, (least_bytes() + (32 << 20), limits[1]))
    try:
        sender.start()
        with pytest.raises(MemoryError):
            channel.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert channel.receive() == (Message.CHECK, b"{}")
    sender.join()


def test_what_the_extension_does_not_read_comes_by_its_name() -> None:
    for name in TRAIN_OPTIONS.keys() - {"classes"}:
        request = train_fields(options={key: value for key, value in TRAIN_OPTIONS.items() if key != name})
        with pytest.raises(ProtocolError, match=name):
            train_request(with_raw(request), page_size=8192)
    with pytest.raises(ProtocolError, match="colour"):
        train_request(with_raw(train_fields(options={**TRAIN_OPTIONS, "colour": "red"})), page_size=8192)


def test_attributes_that_this_release_does_not_have() -> None:
    relation = {"name": "t", "pages": 1, "rows": False, "attributes": [{"number": 1, "colour": "red"}]}
    with pytest.raises(ProtocolError, match="colour"):
        train_request(with_raw(train_fields(relation=relation)), page_size=8192)


def test_values_that_json_does_not_have(pair: Any) -> None:
    channel, peer = pair
    channel.send(
        Message.EPOCH,
        {
            "a": float("nan"),
            "b": [float("inf"), -float("inf")],
            "c": np.float32(0.5),
            "d": np.int64(3),
            "e": "x\0\ud800",
        },
    )
    code, payload = read(peer)
    assert code == Message.EPOCH
    assert json.loads(payload) == {"a": "NaN", "b": ["Infinity", "-Infinity"], "c": 0.5, "d": 3, "e": "x\ufffd?"}


@pytest.mark.parametrize(
    ("encoding", "arrives"),
    [("UTF8", "π é ä"), ("LATIN1", "? é ä"), ("WIN1253", "π ? ?"), ("SQL_ASCII", "π é ä"), ("MULE_INTERNAL", "? ? ?")],
)
def test_text_for_databases_in_other_encodings(pair: Any, encoding: str, arrives: str) -> None:
    channel, peer = pair
    channel.limit_text_to(encoding)
    channel.send_notice(Notice(level=Level.NOTICE, message="π é ä"))
    assert json.loads(read(peer)[1]) == {"level": "notice", "message": arrives, "hint": ""}


@pytest.mark.parametrize("predictor", [None, b"", b"\1\2\3"])
def test_results(pair: Any, predictor: bytes | None) -> None:
    channel, peer = pair
    parameters = [
        Parameter(name="w", values=np.arange(6, dtype=np.float32).reshape(2, 3).T),
        Parameter(name="b", values=np.array(np.nan, dtype=np.float32)),
    ]
    channel.send_result(
        TrainResult(parameters=parameters, predictor=predictor, modelled_seconds=None, metadata={"k": 1}),
        {"epochs": 2},
        {"l": 2},
    )
    code, payload = read(peer)
    (length,) = struct.unpack_from("=I", payload)
    fields = json.loads(payload[4 : 4 + length])
    raw = payload[4 + length + -length % 4 :]
    assert code == Message.RESULT
    assert fields["parameters"] == [
        {"name": "w", "shape": [3, 2], "offset": 0, "size": 6},
        {"name": "b", "shape": [], "offset": 6, "size": 1},
    ]
    assert (fields["weights_bytes"], fields["predictor_bytes"]) == (28, None if predictor is None else len(predictor))
    assert np.frombuffer(raw[:24], dtype="<f4").tolist() == [0, 3, 1, 4, 2, 5]
    assert raw[28:] == (predictor or b"")


def test_hello_carries_one_descriptor(pair: Any) -> None:
    channel, peer = pair
    hello = {"release": "1", "block_size": 8192, "server_version": 180004, "pid": 7, "encoding": "UTF8", "later": 1}
    memfd = os.memfd_create("ring")
    sent = frame(Message.HELLO, json.dumps(hello).encode())
    socket.send_fds(peer, [sent[:5]], [memfd])
    peer.sendall(sent[5:])
    received, descriptor = channel.receive_hello()
    assert (received.server_version, received.pid) == (180004, 7)
    assert os.fstat(descriptor).st_ino == os.fstat(memfd).st_ino
    os.close(descriptor)
    peer.sendall(sent)
    with pytest.raises(ProtocolError, match="one descriptor"):
        channel.receive_hello()
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(peer, [frame(Message.TRAIN, b"{}")], [memfd])
    with pytest.raises(ProtocolError, match="a hello"):
        channel.receive_hello()
    assert len(os.listdir("/proc/self/fd")) == before, "a refused descriptor is closed"
    os.close(memfd)


def test_a_hello_with_two_descriptors_is_refused_and_neither_is_kept(pair: Any) -> None:
    """There is room for a second one where the first one's is rounded up."""
    channel, peer = pair
    memfds = [os.memfd_create("ring"), os.memfd_create("another")]
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(peer, [frame(Message.HELLO, b"{}")], memfds)
    with pytest.raises(ProtocolError, match="one descriptor"):
        channel.receive_hello()
    assert len(os.listdir("/proc/self/fd")) == before
    for memfd in memfds:
        os.close(memfd)
