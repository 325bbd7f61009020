"""What carries messages between the parts of a training: the channels to their backends, and the client in between.

A message to the client is a byte for what it is, then bytes that only the other parts read; the client sends bytes
alone. `dana.cluster.relay` is the other end, or pg_extension/src/calls/relay.c in the session that leads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dana.trainer.contract import TrainRequest
from dana.worker.protocol import Channel, ProtocolError

INTRODUCTION, COMMAND, ANSWER, MERGES, ALIVE = b"I", b"C", b"A", b"M", b"L"
"""What a message is: the columns of the leader, a command of it, a follower's answer, what a follower merged; that a
follower is at work, which is all of the message."""

LENGTH = 8
"""Bytes of the length before each of several answers; little-endian."""


def listed(answers: Sequence[bytes]) -> bytes:
    """Return answers as one message."""
    return b"".join(one for answer in answers for one in (len(answer).to_bytes(LENGTH, "little"), answer))


def unlisted(message: bytes) -> list[bytes]:
    """Return the answers of `listed`; ProtocolError if it is another message."""
    found, place = [], 0
    while place < len(message):
        length = int.from_bytes(message[place : place + LENGTH], "little")
        found.append(message[place + LENGTH :][:length])
        place += LENGTH + length
    if place != len(message):
        raise ProtocolError("a part of the training sent a list of answers that is cut off")
    return found


class WorkerLink:
    """The link of a session; implements `dana.trainer.parts.Link`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._introduced = False

    def introduce(self, request: TrainRequest) -> bool:
        """Say, once, what the leader decided about the columns; the followers then begin. Whether it was said now."""
        first = not self._introduced
        if first:
            self._introduced = True
            encoded = request.metadata
            said = {
                "classes": request.classes,
                "features": encoded.get("features", request.features),
                "preprocess": encoded.get("preprocess"),
            }
            self._channel.exchange(INTRODUCTION + json.dumps(said).encode())
        return first

    def lead(self, command: bytes) -> list[bytes]:
        """See `Link.lead`."""
        return unlisted(self._channel.exchange(COMMAND + command))

    def follow(self, answer: bytes) -> bytes:
        """See `Link.follow`."""
        return self._channel.exchange(ANSWER + answer)

    def join(self, merges: bytes) -> bytes:
        """See `Link.join`."""
        return self._channel.exchange(MERGES + merges)
