"""Sends and receives the messages between a PostgreSQL backend and its worker.

It converts between bytes of a socket and the types of `dana.trainer.contract`. `dana.worker.messages` defines the
messages and their layout.
"""

from __future__ import annotations

import array
import codecs
import itertools
import json
import math
import os
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.predictor.centres import NO_CENTRES, Centres
from dana.simulator import large
from dana.storage.layout import ALIGNMENTS
from dana.trainer.contract import (
    EpochReport,
    ExplainRequest,
    Json,
    Notice,
    Relation,
    TrainRequest,
    TrainResult,
)
from dana.worker.conform import Mismatch, conform
from dana.worker.messages import FRAME_HEADER, MAX_MESSAGE, MAX_REQUEST, WITH_RAW, Message, aligned

RELEASE = version("dana-db")
"""Extension and worker must be of this release."""

JOINED = 1 << 20
"""Size of a message from which sending its pieces separately is cheaper than joining them, bytes."""

MAX_STATE = MAX_MESSAGE - JOINED
"""Size of the state in a checkpoint, bytes."""

MAX_DEPTH = 64
"""Maximum nesting of JSON in a message; the extension accepts less in an argument."""

_BRACKETS, _QUOTED = re.compile(rb"[][{}]"), re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
# "=": the byte order of the host without padding, as the C structure has none
_HEADER = struct.Struct("=IB")
_LONG = WITH_RAW | {Message.EXCHANGE, Message.RESUME}
assert _HEADER.size == FRAME_HEADER
_LENGTH = struct.Struct("=I")
# struct ucred of unix(7): process, user, group
_PEER = struct.Struct("=iII")


class ProtocolError(Exception):
    """The peer violated the protocol."""


class FrameError(ProtocolError):
    """The header of a message is malformed, so the start of the next message is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of a backend.

    Attributes
    ----------
    release
        Release of the extension.
    block_size
        BLCKSZ, bytes.
    server_version
        server_version_num.
    pid
        Process id of the backend.
    encoding
        Encoding of the database, by its name in PostgreSQL.
    """

    release: str
    block_size: int
    server_version: int
    pid: int
    encoding: str


class Channel:
    """A connection that carries messages.

    Parameters
    ----------
    connection
        A connected, blocking unix stream socket; the channel owns it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._replace = ""
        self._escape = True

    def fileno(self) -> int:
        """Descriptor of the socket."""
        return self._socket.fileno()

    def peer_uid(self) -> int:
        """User id of the peer process, as reported by the kernel (SO_PEERCRED)."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        return int(_PEER.unpack(credentials)[1])

    def limit_text_to(self, encoding: str) -> None:
        """Replace characters that a database in ``encoding`` cannot store by '?'; by default all of Unicode is sent.

        SQL_ASCII stores arbitrary bytes. For it, UTF-8 is sent without escapes: PostgreSQL does not convert
        escaped characters to SQL_ASCII.
        """
        self._escape = encoding != "SQL_ASCII"
        self._replace = "" if encoding in ("UTF8", "SQL_ASCII") else _python_codec(encoding)

    def receive(self) -> tuple[Message, bytearray | memoryview]:
        """Receive the next message; bells are skipped.

        Raises
        ------
        EOFError
            The peer disconnected.
        ProtocolError
            The type is unknown, or the payload is too long for it.
        MemoryError, NoFile
            There is no memory for the payload, which was discarded.
        """
        while True:
            message, payload, _ = self._receive(0)
            if message != Message.BELL:
                return message, payload

    def receive_hello(self) -> tuple[Hello, int]:
        """Receive the first message, a hello, and its descriptor, which the caller closes."""
        message, payload, descriptors = self._receive(1)
        try:
            if message != Message.HELLO or len(descriptors) != 1:
                raise ProtocolError(f"a hello with one descriptor was expected, not {message.name} with {descriptors}")
            fields = decode(payload)
            with _all_fields():
                hello: Hello = conform(
                    Hello, {name: fields.get(name, default) for name, default in _HELLO_DEFAULTS.items()}, "greeting"
                )
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return hello, descriptors[0]

    def _receive(self, descriptors: int) -> tuple[Message, bytearray | memoryview, list[int]]:
        received: list[int] = []
        head = b""
        while len(head) < _HEADER.size:
            if descriptors:
                space = socket.CMSG_SPACE(descriptors * array.array("i").itemsize)
                part, ancillary, _, _ = self._socket.recvmsg(_HEADER.size - len(head), space, socket.MSG_CMSG_CLOEXEC)
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        received += array.array("i", data[: len(data) - len(data) % 4]).tolist()
            else:  # the kernel closes descriptors that a peer sends with a later message
                part = self._socket.recv(_HEADER.size - len(head))
            if not part:
                raise EOFError("the backend closed the connection")
            head += part
        length, code = _HEADER.unpack(head)
        try:
            message = Message(code)
        except ValueError:
            raise FrameError(f"message type {code:#04x} is unknown in release {RELEASE}") from None
        most = MAX_MESSAGE if message in _LONG else MAX_REQUEST
        # before memory is allocated: the length is the peer's
        if length > most:
            raise FrameError(f"{message.name} has {length} bytes, more than {most}")
        try:
            payload = _room(length)
        except (MemoryError, large.NoFile):
            # read to its end, so that the next message begins where a message does
            for start in range(0, length, JOINED):
                self._fill(bytearray(min(JOINED, length - start)))
            raise
        self._fill(payload)
        return message, payload, received

    def _fill(self, buffer: bytearray | memoryview) -> None:
        view = memoryview(buffer)
        while view:
            n = self._socket.recv_into(view)
            if n == 0:
                raise EOFError("the backend closed the connection")
            view = view[n:]

    def send(self, message: Message, fields: Json, raw: Sequence[bytes | memoryview] | None = None) -> None:
        """Send a message; `raw` are the raw bytes of a type that has them."""
        text = self._written(fields)
        if raw is not None:
            text = (_LENGTH.pack(len(text)) + text).ljust(aligned(_LENGTH.size + len(text)), b"\0")
        length = len(text) + sum(len(one) for one in raw or ())
        pieces = [_HEADER.pack(length, message) + text, *(raw or ())]
        # a small message is one write, which wakes the backend once
        for piece in [b"".join(pieces)] if length < JOINED else pieces:
            self._socket.sendall(piece)

    def exchange(self, said: bytes) -> bytes:
        """Say something to the other parts of a training; return their answer."""
        return self._ask(Message.EXCHANGE, said)

    def load(self) -> bytes:
        """Ask for the state that was saved before; b"" if there is none."""
        return self._ask(Message.RESUME)

    def save(self, epoch: int, state: bytes) -> None:
        """Have the backend save the state after an epoch; it is not waited for."""
        if len(state) > MAX_STATE:
            raise UsageError(
                f"the state of the training has {len(state) >> 20} MB, and a checkpoint at most {MAX_STATE >> 20}",
                hint="Train without resume.",
            )
        self.send(Message.CHECKPOINT, {"epoch": epoch}, [state])

    def _ask(self, kind: Message, said: bytes = b"") -> bytes:
        self._socket.sendall(_HEADER.pack(len(said), kind) + said)
        message, payload = self.receive()
        if message is not kind:
            raise ProtocolError(f"an answer to {kind.name} was expected, not {message.name}")
        return bytes(payload)

    def _written(self, fields: Json) -> bytes:
        """Encode fields as JSON. The first attempt avoids converting each value, which would take as long again."""
        try:
            text = json.dumps(fields, allow_nan=False, separators=(",", ":"))
            if "\\u" not in text:  # the escape of non-ASCII characters and NUL
                return text.encode()
        except (TypeError, ValueError):  # a NumPy or non-finite number
            pass
        plain = self._plain(fields)
        return json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=self._escape).encode()

    def send_notice(self, notice: Notice) -> None:
        """Send a notice."""
        self.send(Message.NOTICE, asdict(notice))

    def send_epoch(self, epoch: int, report: EpochReport, *, seconds: float) -> None:
        """Send the report of an epoch; ``seconds`` is its wall time."""
        self.send(Message.EPOCH, {"epoch": epoch, "seconds": seconds, **asdict(report)})

    def send_result(self, result: TrainResult, fields: Json, metadata: Json) -> None:
        """Send the result of a training; ``fields`` are counts of the worker, ``metadata`` is from the caller."""
        values = (np.ascontiguousarray(one.values, dtype=np.float32) for one in result.parameters)
        weights = [one.reshape(-1).view(np.uint8).data for one in values]
        offsets = itertools.accumulate((one.values.size for one in result.parameters), initial=0)
        described = {
            **fields,
            "parameters": [
                {"name": one.name, "shape": list(one.values.shape), "offset": offset, "size": one.values.size}
                for one, offset in zip(result.parameters, offsets, strict=False)
            ],
            "weights_bytes": sum(map(len, weights)),
            "predictor_bytes": None if result.predictor is None else len(result.predictor),
            "modelled_seconds": result.modelled_seconds,
            "metadata": {**result.metadata, **metadata},
        }
        self.send(Message.RESULT, described, [*weights, result.predictor or b""])

    def _plain(self, value: Any) -> Any:
        """Convert a value to JSON types: non-finite numbers as PostgreSQL spells them, NUL characters replaced."""
        if isinstance(value, str):
            if value.isascii() and "\0" not in value:
                return value
            # jsonb rejects NUL (22P05), which a label or a file name of Python can hold
            text = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
            text = text.encode("utf-8", "replace").decode()
            return text.encode(self._replace, "replace").decode(self._replace) if self._replace else text
        if isinstance(value, dict):
            return {self._plain(str(key)): self._plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        return value

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


_HELLO_DEFAULTS: dict[str, Any] = {"release": "", "block_size": 0, "server_version": 0, "pid": 0, "encoding": "UTF8"}


def _python_codec(encoding: str) -> str:
    """Return the Python codec of an encoding of PostgreSQL; ASCII if there is none."""
    try:
        return codecs.lookup(encoding.replace("WIN", "cp")).name
    except LookupError:
        return "ascii"


def _room(length: int) -> bytearray | memoryview:
    """Allocate a buffer for a payload, in a file if it is as large as a large model."""
    if length < large.LARGE:
        return bytearray(length)
    # floats of 4 bytes, so that the weights in the payload are aligned
    return large.zeros(-(-length // 4)).data.cast("B")[:length]


def decode(payload: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Decode a JSON object from the extension, with finite numbers and texts that PostgreSQL can store.

    Raises
    ------
    ProtocolError
        The payload is not such an object.
    UsageError
        It has a number that is not finite.
    """
    encoded = bytes(payload)  # a memoryview cannot be decoded
    _check_nesting(encoded)
    try:
        text = encoded.decode()  # json.loads would also accept UTF-16, which _check_nesting() cannot read
        value = json.loads(text, parse_constant=_NotFinite.found, parse_float=_finite)
    except _NotFinite:
        json.loads(text, object_pairs_hook=_require_finite)
        raise UsageError("numbers of a request must be finite") from None
    except ValueError as error:
        raise ProtocolError(f"the payload is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"the payload must be a JSON object, not {type(value).__name__}")
    _check_texts(value)
    return value


class _NotFinite(Exception):
    """The payload has a NaN or an infinity: an argument of a function may be one."""

    @classmethod
    def found(cls, constant: str) -> float:
        raise cls(constant)


def _require_finite(pairs: list[tuple[str, Any]]) -> None:
    """Raise UsageError with the name of the first argument that is not finite."""
    for name, value in pairs:
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f'argument "{name}" must be a finite number, not {value}')


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return number


def _check_nesting(text: bytes) -> None:
    """Raise ProtocolError for more than MAX_DEPTH levels, before a parser recurses as deep as Python lets it."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKETS.findall(_QUOTED.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ProtocolError(f"the payload's JSON is nested more than {MAX_DEPTH} levels deep")


def _check_texts(value: Json) -> None:
    """Raise ProtocolError for a character that PostgreSQL cannot store."""
    if isinstance(value, dict):
        for key, one in value.items():
            _check_texts(key)
            _check_texts(one)
    elif isinstance(value, list):
        for one in value:
            _check_texts(one)
    elif isinstance(value, str) and ("\0" in value or _SURROGATE.search(value)):
        raise ProtocolError(f"the payload holds a text with a NUL or half a character: {value[:20]!a}")


def check_request(payload: bytes | bytearray | memoryview) -> str:
    """Decode a CHECK message to the text of the rule; raises as `decode`."""
    with _all_fields():
        return str(conform(str, decode(payload)["text"], "text"))


def train_request(payload: bytes | bytearray | memoryview, *, page_size: int) -> tuple[TrainRequest, int]:
    """Decode a TRAIN message to the request and the CPU of the backend (-1: unknown).

    Raises
    ------
    ProtocolError
        A field or weights are missing.
    """
    try:
        (length,) = _LENGTH.unpack_from(payload)
        # a view of the payload: a large model must not be copied
        weights = np.frombuffer(payload, np.float32, offset=aligned(_LENGTH.size + length))
    except (struct.error, ValueError) as error:
        raise _no_weights(str(error)) from None
    return _training(decode(payload[_LENGTH.size : _LENGTH.size + length]), page_size, weights)


def categories_request(payload: bytes | bytearray | memoryview, *, page_size: int) -> TrainRequest:
    """Decode a CATEGORIES message; raises as `train_request`."""
    return _training(decode(payload), page_size)[0]


def explain_request(payload: bytes | bytearray | memoryview, *, page_size: int) -> ExplainRequest:
    """Decode an EXPLAIN message.

    Raises
    ------
    ProtocolError
        A field is missing or has another type.
    """
    fields = decode(payload)
    with _all_fields():
        training = conform(Json, fields.pop("training"), "training")
        names = ("page_rows", "page_pointers")
        rows, pointers = (conform(tuple[int, ...] | None, fields.pop(name), name) for name in names)
        request: ExplainRequest = conform(
            ExplainRequest, {**fields, "layout": None, "training": _training(training, page_size)[0]}, "request"
        )
    if rows is None or pointers is None:
        return request
    if len(rows) != len(pointers):
        raise ProtocolError(
            f"{len(rows)} counts of rows and {len(pointers)} of line pointers are not of the same pages"
        )
    return replace(request, layout=tuple(zip(rows, pointers, strict=True)))


@contextmanager
def _all_fields() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise ProtocolError(f"the message lacks {error}") from None
    except Mismatch as error:
        raise ProtocolError(f"the message has a field of another kind: {error}") from None


def _training(fields: Json, page_size: int, weights: NDArray[np.float32] | None = None) -> tuple[TrainRequest, int]:
    """Convert fields to a request and the CPU; `weights` are those of the model to start from, if available."""
    with _all_fields():
        # options that the extension does not interpret, by the names of the arguments of dana_train()
        options = {**conform(Json, fields["options"], "options")}
        options |= {name: options[name] or {} for name in ("hyper", "design")}
        start: _Start | None = conform(_Start | None, fields["warm_start_from"], "warm_start_from")
        request: TrainRequest = conform(
            TrainRequest,
            {
                "rule": fields["rule"],
                "text": fields["text"],
                "relation": {**conform(Json, fields["relation"], "relation"), "page_size": page_size},
                "machine": fields["machine"],
                "nulls": fields["nulls"],
                "warm_start_from": None if start is None else _models(start.parameters, weights),
                "warm_start_features": () if start is None else start.features,
                "centres": NO_CENTRES if start is None or start.centres is None else start.centres,
                "held_out": fields["held_out"],
                "validates": fields["validates"],
                "largest": fields.get("largest", {}),
                "metadata": fields["metadata"],
                "max_epochs": fields["max_epochs"],
                "max_memory": fields["max_memory"],
                "temp_file_limit": fields["temp_file_limit"],
                "part": fields.get("part"),
                "device": fields["device"],
                "caller": f"{fields['role']}@{fields['database']}",
                **options,
            },
            "request",
        )
        cpu: int = conform(int, fields["cpu"], "cpu")
    _check_relation(request.relation)
    return request, cpu


def _check_relation(relation: Relation) -> None:
    for one in relation.attributes:
        # pg_attribute.h: attlen is an int16, -1 for varlena and -2 for cstring
        if one.align not in ALIGNMENTS or not -2 <= one.length < 1 << 15 or (one.array_length or 0) < 0:
            raise ProtocolError(f"column {one.name!r} has a layout that PostgreSQL does not have: {one}")
    if (relation.pages or 0) < 0:
        raise ProtocolError(f"the number of pages must be at least 0, not {relation.pages}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """Description of a model to start from, as sent by `Channel.send_result`."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    parameters: tuple[_Parameter, ...]
    features: tuple[str, ...]
    centres: Centres | None = None


def _models(parameters: Sequence[_Parameter], weights: NDArray[np.float32] | None) -> dict[str, NDArray[np.float32]]:
    """Return the parameters of a stored model by name; without weights, zeros of their shapes."""
    models = {}
    for one in parameters:
        # the shape is checked before it is used: NumPy would allocate what a peer claims
        if not 0 <= one.size == math.prod(one.shape) <= MAX_MESSAGE or min(one.shape, default=0) < 0 or one.offset < 0:
            raise _no_weights(f"{one.name} of shape {one.shape} has {one.size} numbers from {one.offset}")
        if weights is None:
            # only the shape is needed, and a broadcast zero takes no memory
            models[one.name] = np.broadcast_to(np.float32(0), one.shape)
            continue
        values = weights[one.offset :][: one.size]
        if values.size != one.size:
            raise _no_weights(f"{one.name} of shape {one.shape} has {values.size} numbers")
        models[one.name] = values.reshape(one.shape)
    return models


def _no_weights(why: str) -> ProtocolError:
    return ProtocolError(f"the request does not have the weights of the model to start from: {why}")
