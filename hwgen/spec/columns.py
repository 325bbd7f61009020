"""Column descriptors: what the unpacker does with a column that a Strider hands it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum

from hwgen.spec.fields import layout, pack, unpack

WORD_U32 = 2
"""32-bit words of a descriptor in a Bundle and on the host port, least significant first."""


class ColumnType(IntEnum):
    """How an element is stored on the page (little-endian), before it becomes a binary32."""

    FLOAT4 = 0
    """binary32; subnormals are flushed"""
    FLOAT8 = 1
    """binary64, rounded once"""
    INT2 = 2
    """16 bits, signed"""
    INT4 = 3
    """32 bits, signed, rounded to nearest even"""
    INT8 = 4
    """64 bits, signed, rounded to nearest even"""
    BOOL = 5
    """a byte: 0.0 for zero, else 1.0"""

    @property
    def bytes(self) -> int:
        return (4, 8, 2, 4, 8, 1)[self]


FIELDS = layout(
    ("count", 14, "elements, adjacent on the page"),
    ("row", 16, "row of the first element within the tuple's rows"),
    ("lane", 7, "lane of the first element; element e goes to lane (lane + e) mod lanes, row + (lane + e) div lanes"),
    ("type", 3, "ColumnType"),
    ("scalar", 1, "count is 1 and the element goes to every lane of its row"),
    ("first", 1, "first column of its tuple"),
    ("last", 1, "last column of its tuple"),
    ("follows", 1, "not first: comes right behind the column of the descriptor before this one"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One descriptor; see `FIELDS`."""

    count: int
    row: int
    lane: int = 0
    type: ColumnType
    scalar: int = 0
    first: int = 0
    last: int = 0
    follows: int = 0

    def encode(self) -> int:
        return pack(FIELDS, asdict(self))

    @classmethod
    def decode(cls, word: int) -> Column:
        values = unpack(FIELDS, word)
        return cls(type=ColumnType(values.pop("type")), **values)

    def beats(self, lanes: int) -> int:
        """Cycles that the unpacker takes to write the elements.

        Adjacent float4 values go a row at a time; other types, which need conversion, one element at a time.
        """
        if self.type is ColumnType.FLOAT4 and not self.scalar:
            return -(-(self.lane + self.count) // lanes)
        return self.count
