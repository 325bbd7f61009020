"""A peer that lies: stands between backends and a worker, and changes one message of a conversation.

Run under the server's account: ``liar.py LISTEN WORKER PLAN``. PLAN is a file of JSON: the direction ("to worker" or
"to backend"), the number of the message there, counted since the file last changed, and a seed. A message with raw
bytes is a length, its JSON, zeros, the rest.
"""

from __future__ import annotations

import array
import json
import os
import random
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

WITH_RAW = b"Tr"
VALUES = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "7",
        '"x"',
        '""',
        "[]",
        "{}",
        "[null]",
        '{"a": 1}',
        "2147483648",
        "-9223372036854775809",
    ),
    *(
        "1e308",
        "1e400",
        "1" + "0" * 400,
        "1" + "0" * 5000,
        "NaN",
        "Infinity",
        '"NaN"',
        '"\\ud800"',
        '"\\u0000"',
        '"\\ud83d\\ude00"',
    ),
    *("0.5", '"d"', "[" * 70 + "]" * 70, "[" * 9000 + "]" * 9000, '"' + "y" * 100_000 + '"', '{"a": 1, "a": "b"}'),
)
HOLE = '"a hole in this text"'


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a JSON value."""
    found = [path]
    for key, one in (
        value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    ):
        found += places(one, (*path, key))
    return found


def changed_json(text: bytes, chance: random.Random) -> bytes:
    """A member that is gone, new, or another value."""
    value = json.loads(text)
    *path, last = chance.choice([one for one in places(value) if one] or [("a",)])
    parent = value
    for key in path:
        parent = parent[key]
    deed = chance.randrange(8)
    if deed == 0:
        del parent[last]
    elif deed == 1 and isinstance(parent, dict):
        parent["one too many"] = 1
    else:
        parent[last] = json.loads(HOLE)
    return json.dumps(value).replace(HOLE, chance.choice(VALUES)).encode()


def changed(kind: bytes, payload: bytes, chance: random.Random) -> list[bytes]:
    """The frames that stand for a message."""
    deed = chance.randrange(12)
    if deed == 0:
        return [struct.pack("=I", 0xFFFFFFFF) + kind]
    if deed == 1:
        return [frame(bytes([chance.randrange(256)]), payload)]
    if deed == 2:
        return [frame(kind, payload[: chance.randrange(len(payload) + 1)])]
    if deed == 3 and payload:
        at = chance.randrange(len(payload))
        return [frame(kind, payload[:at] + bytes([chance.randrange(256)]) + payload[at + 1 :])]
    if deed == 4:
        return [frame(kind, b"")]
    if kind not in WITH_RAW:
        return [frame(kind, changed_json(payload, chance))]
    (length,) = struct.unpack_from("=I", payload)
    rest = payload[4 + length + -(4 + length) % 4 :]
    text = payload[4 : 4 + length] if deed == 5 else changed_json(payload[4 : 4 + length], chance)
    head = chance.choice((0, len(text) + 1, 0xFFFFFFF0)) if deed == 5 else len(text)
    return [frame(kind, struct.pack("=I", head) + text + bytes(-(4 + len(text)) % 4) + rest)]


def frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("=I", len(payload)) + kind + payload


class Liar:
    """One direction of one connection; all count the messages of a plan."""

    lock = threading.Lock()
    plan: Any = None
    counts: dict[str, int]

    @classmethod
    def lies(cls, direction: str, path: Path) -> random.Random | None:
        """Chance for this message, if it is the one to be changed."""
        with cls.lock:
            plan = json.loads(path.read_text())
            if plan != cls.plan:
                cls.plan, cls.counts = plan, {}
            count = cls.counts[direction] = cls.counts.get(direction, 0) + 1
            return random.Random(plan["seed"]) if (direction, count) == (plan["direction"], plan["number"]) else None


def forward(source: socket.socket, target: socket.socket, direction: str, plan: Path) -> None:
    """Pass on messages, and the descriptors that come with them, until one side has enough."""
    try:
        while True:
            head, ancillary, _, _ = source.recvmsg(5, socket.CMSG_SPACE(4))
            descriptors = [n for _, _, data in ancillary for n in array.array("i", data)]
            head += source.recv(5 - len(head), socket.MSG_WAITALL) if head else b""
            if len(head) < 5:
                break
            length, kind = struct.unpack("=I", head[:4])[0], head[4:]
            payload = source.recv(length, socket.MSG_WAITALL) if length else b""
            # bells come and go with the time
            chance = Liar.lies(direction, plan) if kind not in b"bH" else None
            frames = changed(kind, payload, chance) if chance else [head + payload]
            for one in frames:
                if descriptors:
                    socket.send_fds(target, [one[:5]], descriptors)
                    one = one[5:]
                target.sendall(one)
            for number in descriptors:
                os.close(number)
    except OSError:
        pass
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def main(listen: str, worker: str, plan: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{listen}.new")
        listener.listen()
        os.rename(f"{listen}.new", listen)
        while True:
            backend, _ = listener.accept()
            session = socket.socket(socket.AF_UNIX)
            session.connect(worker)
            for ends in ((backend, session, "to worker"), (session, backend, "to backend")):
                threading.Thread(target=forward, args=(*ends, Path(plan)), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
