"""Messages between a PostgreSQL backend and its worker: the table of them, and the header of the C.

Both ends run on one machine under one account, so integers are in the machine's own byte order. Both ends are of one
release: they compare when they meet.
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
    """Type byte of a message, and what it says."""

    says: str

    def __new__(cls, code: int | str, says: str = "") -> Message:
        """A row of the table."""
        number = code if isinstance(code, int) else ord(code)
        member = int.__new__(cls, number)
        member._value_, member.says = number, says
        return member

    HELLO = "H", "to the worker: release, block_size, server_version, pid, encoding; carries the ring's memfd"
    CHECK = "C", "to the worker: rule source to be checked"
    CATEGORIES = "K", "to the worker: what TRAIN has but for weights; of which columns are the numbers to be looked at?"
    TRAIN = "T", "to the worker: a training: its rule, relation, arguments; raw: weights that it starts from"
    EXPLAIN = "P", "to the worker: a training that is not to be, in `training`, and device, search, rows, last"
    WELCOME = "h", "answer to HELLO: release, pid"
    CHECKED = "c", "answer to CHECK"
    COUNTED = "k", "answer to CATEGORIES: columns to find the largest number of, choosing rows, and those also below 0"
    EXPLAINED = "p", "answer to EXPLAIN: numbers, and lines for people"
    DESIGN = "d", "the rule compiled: stream the first epoch's pages, or frames; once more: begin anew"
    HELD_OUT = "o", "before DESIGN: stream the rows that are left out for a test, as frames"
    AGAIN = "a", "stream the pages once more, under the same snapshot"
    EPOCH = "e", "an epoch ended"
    NOTICE = "n", "something that the user should see"
    RESULT = "r", "the trained model; raw: its weights, and its predictor"
    ERROR = "x", "the request failed; ends it"
    BYE = "z", "the session idled and ends; whatever comes now is not read"
    BELL = "b", "both ways, empty: look at the ring"


WITH_RAW = frozenset({Message.TRAIN, Message.RESULT})


def aligned(length: int) -> int:
    """Where raw bytes begin behind so much of JSON and its length: floats may be used where they lie."""
    return length + -length % 4


def header() -> str:
    """The text of `native/messages.h`."""
    raw = " and ".join(f"DANA_MSG_{one.name}" for one in Message if one in WITH_RAW)
    members = "".join(f"\tDANA_MSG_{one.name} = '{chr(one)}', /* {one.says} */\n" for one in Message)
    numbers = "".join(f"#define DANA_{name} {value}u /* {says} */\n" for name, (value, says) in _NUMBERS.items())
    return f"""\
/* What dana/worker/messages.py says, in C. Written by python -m dana.generated. */
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
