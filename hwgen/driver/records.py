"""Tables of records in a board's record memory, as the driver puts and gets them.

In: a memory that the board's second AXI4 master reads and writes; a Bundle; rows of lanes. Out: rows of lanes. Where
records lie is in `docs/machine.md`, "Records". It knows no register.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hwgen.driver.errors import BoardError
from hwgen.spec.bundle import RECORD_BOUNDARY, Bundle

AT_ONCE = 1 << 24
"""Bytes that are moved at a time, or a record's."""


class RecordMemory(Protocol):
    """Memory that the board's second AXI4 master reads and writes."""

    base: int
    """Address of its first byte on that bus, a multiple of 4,096."""
    size: int
    """Bytes."""

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from there on, as the board left them."""

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes there; the board sees them when this returns."""


def sparse_image(bundle: Bundle, rows: Mapping[int, bytes] = MappingProxyType({})) -> Iterator[bytes]:
    """An image of a Bundle's tables, a piece after another: zeros but for some rows of lanes.

    `rows`: by their numbers, counted from the first table's beginning.
    """
    size, width = bundle.table_offsets[-1], 4 * bundle.config.lanes
    numbers = sorted(rows)
    for at in range(0, size, AT_ONCE):
        piece = bytearray(min(AT_ONCE, size - at))
        within = range(bisect_left(numbers, at // width), bisect_left(numbers, (at + len(piece)) // width))
        for number in (numbers[k] for k in within):
            start = number * width - at
            piece[start : start + width] = rows[number]
        yield bytes(piece)


class Tables:
    """A Bundle's tables; BoardError if there is no memory for them, or too little."""

    def __init__(self, memory: RecordMemory | None, bundle: Bundle) -> None:
        self._bundle = bundle
        self._size = bundle.table_offsets[-1]
        self._memory = memory
        if memory is None:
            if self._size:
                raise BoardError("the Bundle's tables need a record memory, but the board was opened without one")
            return
        if memory.base % RECORD_BOUNDARY:
            raise BoardError(
                f"the record memory must begin at a multiple of {RECORD_BOUNDARY:#x} on the board's bus, "
                f"not at {memory.base:#x}"
            )
        if self._size > memory.size:
            raise BoardError(
                f"the record memory must hold the Bundle's tables, {self._size} bytes, but it has {memory.size}"
            )

    @property
    def base(self) -> int:
        """Address of the first table on the board's bus."""
        return 0 if self._memory is None else self._memory.base

    def fill(self, image: Iterable[bytes]) -> None:
        """Put an image there, a piece after another, from the first table's beginning to the last one's end.

        ValueError where it has another size; what fits is written then.
        """
        at = 0
        for piece in image:
            if at + len(piece) <= self._size:
                self._reached.write(at, memoryview(piece))
            at += len(piece)
        if at != self._size:
            raise ValueError(f"an image of the Bundle's tables must have {self._size} bytes, not {at}")

    def write_rows(self, table: int, row: int, rows: npt.NDArray[np.uint32]) -> None:
        """Rows of all records, see `Board.write_rows`."""
        own = rows.reshape(-1, self._each(table, row, len(rows)), rows.shape[1])
        for first, at, words in self._pieces(table):
            words[:, row : row + own.shape[1]] = own[first : first + len(words)]
            self._reached.write(at, memoryview(words.tobytes()))

    def read_rows(self, table: int, row: int, count: int) -> npt.NDArray[np.uint32]:
        """Rows of all records, see `Board.read_rows`; shape [count, lanes]."""
        each = self._each(table, row, count)
        found = [words[:, row : row + each] for _, _, words in self._pieces(table)]
        return np.concatenate(found).reshape(count, -1).astype(np.uint32)

    def _each(self, table: int, row: int, count: int) -> int:
        """Rows of each record."""
        tables = self._bundle.tables
        if not 1 <= table <= len(tables):
            raise ValueError(f"the Bundle must have a table {table} in the record memory; it has {len(tables)}")
        records, rows = tables[table - 1].records, tables[table - 1].rows
        each, rest = divmod(count, records)
        if rest or not (row >= 0 and 1 <= each <= rows - row):
            raise ValueError(
                f"rows of table {table} must be rows of all its {records} records, which have {rows} rows each, "
                f"not {count} from {row} on"
            )
        return each

    def _pieces(self, number: int) -> Iterator[tuple[int, int, npt.NDArray[np.uint32]]]:
        """Number of a first record, where it lies, and the words of some, shape [records, rows with gaps, lanes]."""
        table, start = self._bundle.tables[number - 1], self._bundle.table_offsets[number - 1]
        lanes = self._bundle.config.lanes
        shift = table.shift(lanes)
        some = max(1, AT_ONCE >> shift)
        for first in range(0, table.records, some):
            at, count = start + (first << shift), min(some, table.records - first)
            words = np.frombuffer(self._reached.read(at, count << shift), dtype="<u4")
            yield first, at, words.reshape(count, -1, lanes).copy()

    @property
    def _reached(self) -> RecordMemory:
        assert self._memory is not None
        return self._memory
