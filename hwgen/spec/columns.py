"""Column types, a row each, and column descriptors: what the unpacker does with a column that a Strider hands it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from hwgen.spec import numerics
from hwgen.spec.described import Described
from hwgen.spec.fields import Bits, layout, pack, unpack

WORD_U32 = 2
"""32-bit words of a descriptor in a Bundle and on the host port, least significant first."""

TYPE_BITS = 3

TABLE_BITS = 3
MAX_TABLES = (1 << TABLE_BITS) - 1
"""Maximum number of tables that watched columns can name."""


class ColumnType(Described):
    """How an element is stored on the page, before it becomes a binary32: code, text, NumPy type, conversion.

    C has the conversion under the same name behind `dn_`.
    """

    FLOAT4 = 0, "binary32; subnormals are flushed", "<f4", numerics.from_float32
    FLOAT8 = 1, "binary64, rounded once", "<f8", numerics.from_float64
    INT2 = 2, "16 bits, signed", "<i2", numerics.from_int16
    INT4 = 3, "32 bits, signed, rounded to nearest even", "<i4", numerics.from_int32
    INT8 = 4, "64 bits, signed, rounded to nearest even", "<i8", numerics.from_int64
    BOOL = 5, "a byte: 0.0 for zero, else 1.0", "u1", numerics.from_bool

    def __init__(
        self, code: int, text: str, dtype: str, convert: Callable[[npt.ArrayLike], npt.NDArray[np.float32]]
    ) -> None:
        super().__init__(code, text)
        self.dtype, self.convert = dtype, convert

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        """C's name of the NumPy type."""
        name = np.dtype(self.dtype).name
        return {"float32": "float", "float64": "double"}.get(name, f"{name}_t")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One descriptor."""

    count: Annotated[int, Bits(14, "elements, adjacent on the page")]
    row: Annotated[int, Bits(16, "row of the first element within the tuple's rows")]
    lane: Annotated[
        int,
        Bits(7, "lane of the first element; element e goes to lane (lane + e) mod lanes, row + (lane + e) div lanes"),
    ] = 0
    type: Annotated[ColumnType, Bits(TYPE_BITS, "ColumnType")]
    scalar: Annotated[int, Bits(1, "each element goes to every lane of a row of its own; `lane` is 0")] = 0
    first: Annotated[int, Bits(1, "first column of its tuple")] = 0
    last: Annotated[int, Bits(1, "last column of its tuple")] = 0
    follows: Annotated[int, Bits(1, "not first: comes directly after the column of the previous descriptor")] = 0
    table: Annotated[
        int, Bits(TABLE_BITS, "0, or the column is watched: number of the table in which its value chooses a row")
    ] = 0
    writes: Annotated[int, Bits(1, "watched: the tuple writes the row")] = 0

    def encode(self) -> int:
        return pack(FIELDS, self)

    @classmethod
    def decode(cls, word: int) -> Column:
        return cls(**unpack(FIELDS, word))

    def rows(self, lanes: int) -> int:
        """Rows of the tuple in which its elements go."""
        return max(1, self.count) if self.scalar else (self.lane + max(1, self.count) - 1) // lanes + 1

    def group(self, lanes: int, converters: int) -> int:
        """Elements that the unpacker writes in a cycle at most, to lanes from a multiple of their number on.

        Float4 fills a row. Other types are converted, as many elements as there are converters and a row of bytes
        holds.
        """
        if self.scalar or self.table:
            return 1
        return lanes if self.type is ColumnType.FLOAT4 else min(converters, 4 * lanes // self.type.bytes)

    def beats(self, lanes: int, converters: int) -> int:
        """Cycles that the unpacker takes to write the elements."""
        group = self.group(lanes, converters)
        return -(-(self.lane % group + self.count) // group)


FIELDS = layout(Column)
