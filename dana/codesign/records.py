"""Contents of a machine's record memory before the first training: the start values of the rule's models.

In: a Bundle of the compiler's with tables. Out: rows of records, or the memory's image as a stream. Where records lie
is in `docs/machine.md`, "Records".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.start import start_block
from hwgen.spec.bundle import Bundle, Symbol

AT_ONCE = 1 << 22
"""Bytes of the image that are made at a time, or a record's."""


def record_image(bundle: Bundle) -> Iterator[bytes]:
    """The image, a piece after another, from the first table's beginning to the last one's end."""
    lanes = bundle.config.lanes
    for number, table in enumerate(bundle.tables, 1):
        shift = table.shift(lanes)
        count = max(1, AT_ONCE >> shift)
        for first in range(0, table.records, count):
            some = start_rows(bundle, number, first, min(count, table.records - first))
            # a record is padded to a power of two bytes, so that its address is a shift of its number
            gap = (1 << shift) // (4 * lanes) - table.rows
            yield np.pad(some, ((0, 0), (0, gap), (0, 0))).astype("<u4").tobytes()
        # the next table begins at a multiple of RECORD_BOUNDARY (`Table.size`)
        yield bytes(table.size(lanes) - (table.records << shift))


def start_of(symbol: Symbol) -> Init:
    """How a model in a table starts."""
    start = symbol.start
    assert start is not None, "only models in tables have one"
    return Init(kind=InitKind(start.kind), first=start.first, second=start.second, seed=start.seed, narrow=start.narrow)


def start_rows(bundle: Bundle, table: int, first: int, count: int) -> NDArray[np.uint32]:
    """Bit patterns of `count` records of a table from `first` on, shape [count, rows, lanes]."""
    rows = np.zeros((count, bundle.tables[table - 1].rows, bundle.config.lanes), dtype=np.float32)
    for symbol in bundle.symbols:
        if symbol.table == table:
            size = int(np.prod(symbol.shape[1:], dtype=np.int64))
            values = start_block(start_of(symbol), symbol.name, first * size, count * size).reshape(
                count, *symbol.shape[1:]
            )
            own = symbol.place(values, bundle.config.lanes).reshape(count, -1, bundle.config.lanes)
            rows[:, symbol.row : symbol.row + own.shape[1]] = own
    return rows.view(np.uint32)
