"""The messages between a PostgreSQL backend and its worker, and the C header generated from them.

Both ends run on one host under one account, so integers are in host byte order. They must be of the same release, which
they compare when they connect.
"""

from __future__ import annotations

from enum import IntEnum

FRAME_HEADER = 5
MAX_REQUEST = 64 << 20
MAX_MESSAGE = 1000 << 20

_NUMBERS = {
    "FRAME_HEADER": (FRAME_HEADER, "bytes before a payload"),
    "MAX_REQUEST": (MAX_REQUEST, "bytes of JSON that a worker accepts"),
    "MAX_MESSAGE": (MAX_MESSAGE, "bytes of a payload with raw bytes; below MaxAllocSize"),
}


class Message(IntEnum):
    """Type byte of a message, and its description."""

    says: str

    def __new__(cls, code: int | str, says: str = "") -> Message:
        """Create a member from its type byte and description."""
        number = code if isinstance(code, int) else ord(code)
        member = int.__new__(cls, number)
        member._value_, member.says = number, says
        return member

    HELLO = "H", "to the worker: release, block_size, server_version, pid, encoding; carries the ring's memfd"
    CHECK = "C", "to the worker: the text of a rule to check"
    CATEGORIES = "K", "to the worker: TRAIN without weights; asks for the columns to examine"
    TRAIN = "T", "to the worker: a training with rule, relation and arguments; raw: initial weights"
    EXPLAIN = "P", "to the worker: a training to explain, in `training`, and device, search, rows, last"
    WELCOME = "h", "answer to HELLO: release, pid"
    CHECKED = "c", "answer to CHECK"
    COUNTED = (
        "k",
        "answer to CATEGORIES: columns that need their largest number, that choose rows, that may be negative",
    )
    EXPLAINED = "p", "answer to EXPLAIN: numbers, and formatted lines"
    DESIGN = "d", "the rule is compiled: stream the pages or frames of the first epoch; a second one starts over"
    HELD_OUT = "o", "before DESIGN: stream the held-out rows as frames"
    AGAIN = "a", "stream the pages again, under the same snapshot"
    EPOCH = "e", "an epoch ended"
    EXCHANGE = "j", "both ways, bytes alone: what the parts of a training on several servers say to each other"
    RESUME = "s", "both ways: asks for the checkpoint of a training; answered with its state, or with no bytes"
    CHECKPOINT = "w", "the state after an epoch; raw: bytes that only the trainer reads"
    NOTICE = "n", "a message to the user"
    RESULT = "r", "the trained model; raw: its weights and predictor"
    ERROR = "x", "the request failed; ends the request"
    BYE = "z", "the session was idle and ends; later requests are not read"
    BELL = "b", "both ways, empty: look at the ring"


WITH_RAW = frozenset({Message.TRAIN, Message.CHECKPOINT, Message.RESULT})


def aligned(length: int) -> int:
    """Return the offset of raw bytes after `length` bytes, aligned so that floats can be used in place."""
    return length + -length % 4


def header() -> str:
    """Return the text of `native/messages.h`."""
    *some, last = (f"DANA_MSG_{one.name}" for one in Message if one in WITH_RAW)
    members = "".join(f"\tDANA_MSG_{one.name} = '{chr(one)}', /* {one.says} */\n" for one in Message)
    numbers = "".join(f"#define DANA_{name} {value}u /* {says} */\n" for name, (value, says) in _NUMBERS.items())
    return f"""\
/* Declarations of dana/worker/messages.py. Written by python -m dana.generated. */
#ifndef DANA_MESSAGES_H
#define DANA_MESSAGES_H

/*
 * A message on the socket:
 *
 *   +----------------+------+-------------------------------+
 *   | length: uint32 | type | payload: `length` bytes       |
 *   +----------------+------+-------------------------------+
 *
 * The payload is JSON in UTF-8. Exceptions: {", ".join(some)} and {last}
 * have a uint32 with the length of the JSON, the JSON, zeros up to a multiple of four bytes, and raw bytes;
 * DANA_MSG_EXCHANGE and DANA_MSG_RESUME have bytes that only trainers read.
 */
{numbers}
enum dana_message
{{
{members}}};

#endif
"""
