"""Bit fields of instruction words: one description from which encoders, decoders and documents are made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, get_type_hints


class EncodingError(ValueError):
    """A value that its field cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Unsigned bits `[offset, offset + width)` of a word."""

    name: str
    kind: type[int]
    offset: int
    width: int
    what: str


class Bits(NamedTuple):
    """What a class says of a member that is a field of its word: `name: Annotated[int, Bits(width, "what")]`."""

    width: int
    what: str


def layout(kind: type) -> tuple[Field, ...]:
    """Place the members of a class one after the other from bit 0 up."""
    placed = []
    offset = 0
    for name, hint in get_type_hints(kind, include_extras=True).items():
        (bits,) = hint.__metadata__
        placed.append(Field(name=name, kind=hint.__origin__, offset=offset, width=bits.width, what=bits.what))
        offset += bits.width
    return tuple(placed)


def pack(fields: tuple[Field, ...], record: object) -> int:
    """Encode what the members of the fields' names are, as an integer."""
    word = 0
    for field in fields:
        value = getattr(record, field.name)
        if not 0 <= value < 1 << field.width:
            raise EncodingError(f"{field.name} must be from 0 to {(1 << field.width) - 1}, not {value!r}")
        word |= value << field.offset
    return word


def unpack(fields: tuple[Field, ...], word: int) -> dict[str, Any]:
    """Decode an integer into its fields. Raises ValueError where one is of a kind that does not have the number."""
    return {field.name: field.kind(word >> field.offset & (1 << field.width) - 1) for field in fields}


def split(words: Iterable[int], parts: int) -> list[int]:
    """Words as `parts` words of 32 bits each, least significant first."""
    return [word >> 32 * k & 0xFFFFFFFF for word in words for k in range(parts)]


def joined(what: str, words: Iterable[int], parts: int) -> list[int]:
    """The inverse of `split`; an error says of what the words are."""
    flat = [int(word) for word in words]
    if len(flat) % parts:
        raise ValueError(f"{what} has a multiple of {parts} words, not {len(flat)}")
    return [sum(flat[at + k] << 32 * k for k in range(parts)) for at in range(0, len(flat), parts)]
