"""NumPy arrays into a table, through PostgreSQL's binary COPY.

In: arrays, one for each column. Out: a new table whose pages are all-visible from the start. It must not build SQL
text from values; names are quoted as identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from dana.errors import UsageError
from dana.storage.types import SCALARS

COLUMN_TYPES = {np.dtype(one.dtype): one.typname for one in SCALARS.values()}

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, length of the header's extension (COPY, binary format)
TRAILER = b"\xff\xff"
ROWS_AT_ONCE = 65_536


def create_table(connection: psycopg.Connection[Any], name: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Create the table ``name`` with ``columns`` in it, replacing one of that name.

    Parameters
    ----------
    connection
        Where; a transaction of its own.
    name
        Unqualified name of the table.
    columns
        One array of shape (rows,) for each column, of one of the types in `COLUMN_TYPES`.

    Raises
    ------
    UsageError
        An array of another type or length.
    """
    rows = _rows(columns)
    table = sql.Identifier(name)
    definitions = [
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(COLUMN_TYPES[array.dtype]))
        for column, array in columns.items()
    ]
    # in the transaction that made the table, FREEZE writes pages that are visible to everybody from the start
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(definitions)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary, FREEZE)").format(table)) as copy:
            copy.write(HEADER)
            for start in range(0, rows, ROWS_AT_ONCE):
                copy.write(_encode(columns, slice(start, start + ROWS_AT_ONCE)))
            copy.write(TRAILER)


def _rows(columns: Mapping[str, NDArray[Any]]) -> int:
    if not columns:
        raise UsageError("a table needs at least one column")
    for name, array in columns.items():
        if array.dtype not in COLUMN_TYPES:
            known = ", ".join(map(str, COLUMN_TYPES))
            raise UsageError(f"column {name} must be an array of {known}, not {array.dtype}")
    shapes = {array.shape for array in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise UsageError(f"columns must be vectors of one length, not of shapes {sorted(shapes)}")
    return int(next(iter(shapes))[0])


def _encode(columns: Mapping[str, NDArray[Any]], rows: slice) -> bytes:
    """Tuples in the binary COPY format: a count of fields, then each field's length and its big-endian value."""
    fields: list[tuple[str, Any]] = [("count", ">i2")]
    for index, array in enumerate(columns.values()):
        fields += [(f"length{index}", ">i4"), (f"value{index}", array.dtype.newbyteorder(">"))]
    first = next(iter(columns.values()))[rows]
    tuples = np.empty(len(first), dtype=fields)
    tuples["count"] = len(columns)
    for index, array in enumerate(columns.values()):
        tuples[f"length{index}"] = array.dtype.itemsize
        tuples[f"value{index}"] = array[rows]
    return tuples.tobytes()
