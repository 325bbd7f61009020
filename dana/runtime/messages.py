"""Messages between a PostgreSQL backend and its worker: the table of them, and the header of the C.

Both ends run on one machine under one account, so integers are in the machine's own byte order. Both ends are of one
release: they compare when they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Type byte of a message."""

    HELLO = ord("H")
    CHECK = ord("C")
    CATEGORIES = ord("K")
    TRAIN = ord("T")
    EXPLAIN = ord("P")
    WELCOME = ord("h")
    CHECKED = ord("c")
    COUNTED = ord("k")
    EXPLAINED = ord("p")
    DESIGN = ord("d")
    HELD_OUT = ord("o")
    AGAIN = ord("a")
    EPOCH = ord("e")
    NOTICE = ord("n")
    RESULT = ord("r")
    ERROR = ord("x")
    BYE = ord("z")
    BELL = ord("b")


_SAYS: Mapping[Message, str] = {
    Message.HELLO: "to the worker: release, block_size, server_version, pid, encoding; carries the ring's memfd",
    Message.CHECK: "to the worker: rule source to be checked",
    Message.CATEGORIES: "to the worker: what TRAIN has; of which columns is the largest number to be known?",
    Message.TRAIN: "to the worker: a training: its rule, relation, arguments; raw: weights that it starts from",
    Message.EXPLAIN: "to the worker: a training that is not to be, in `training`, and device, search, rows, last",
    Message.WELCOME: "answer to HELLO: release, pid",
    Message.CHECKED: "answer to CHECK",
    Message.COUNTED: "answer to CATEGORIES: their names",
    Message.EXPLAINED: "answer to EXPLAIN: numbers, and lines for people",
    Message.DESIGN: "the rule compiled: stream the first epoch's pages, or frames; once more: begin anew",
    Message.HELD_OUT: "before DESIGN: stream the rows that are left out for a test, as frames",
    Message.AGAIN: "stream the pages once more, under the same snapshot",
    Message.EPOCH: "an epoch ended",
    Message.NOTICE: "something that the user should see",
    Message.RESULT: "the trained model; raw: its weights, and its predictor",
    Message.ERROR: "the request failed; ends it",
    Message.BYE: "the session idled and ends; whatever comes now is not read",
    Message.BELL: "both ways, empty: look at the ring",
}
WITH_RAW = frozenset({Message.TRAIN, Message.RESULT})


def aligned(length: int) -> int:
    """Where raw bytes begin behind so much of JSON and its length: floats may be used where they lie."""
    return length + -length % 4


def header() -> str:
    """The text of `native/messages.h`."""
    raw = " and ".join(f"DANA_MSG_{one.name}" for one in Message if one in WITH_RAW)
    members = "".join(f"\tDANA_MSG_{one.name} = '{chr(one)}', /* {_SAYS[one]} */\n" for one in Message)
    numbers = "".join(f"#define DANA_{name} {value}u /* {says} */\n" for name, (value, says) in _NUMBERS.items())
    return f"""\
/* What dana/runtime/messages.py says, in C. Written by python -m dana.generated. */
#ifndef DANA_MESSAGES_H
#define DANA_MESSAGES_H

/*
 * A message on the socket:
 *
 *   +----------------+------+-------------------------------+
 *   | length: uint32 | type | payload: `length` bytes       |
 *   +----------------+------+-------------------------------+
 *
 * The payload is JSON in UTF-8; that of {raw} is a uint32 with the JSON's length, the JSON,
 * zeros up to a multiple of four bytes, and raw bytes.
 */
{numbers}
enum dana_message
{{
{members}}};

#endif
"""
