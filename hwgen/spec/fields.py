"""Bit fields of instruction words: one description from which encoders, decoders and documents are made."""

from collections.abc import Mapping
from dataclasses import dataclass


class EncodingError(ValueError):
    """A value that its field cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Unsigned bits `[offset, offset + width)` of a word."""

    name: str
    offset: int
    width: int
    what: str


def layout(*fields: tuple[str, int, str]) -> tuple[Field, ...]:
    """Place (name, width, what) one after the other from bit 0 up."""
    placed = []
    offset = 0
    for name, width, what in fields:
        placed.append(Field(name=name, offset=offset, width=width, what=what))
        offset += width
    return tuple(placed)


def pack(fields: tuple[Field, ...], values: Mapping[str, int]) -> int:
    """Encode `values`, one for each field, as an integer."""
    word = 0
    for field in fields:
        value = values[field.name]
        if not 0 <= value < 1 << field.width:
            raise EncodingError(f"{field.name} must be from 0 to {(1 << field.width) - 1}, not {value!r}")
        word |= value << field.offset
    return word


def unpack(fields: tuple[Field, ...], word: int) -> dict[str, int]:
    """Decode an integer into its fields."""
    return {field.name: word >> field.offset & (1 << field.width) - 1 for field in fields}
