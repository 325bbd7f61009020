"""Columns into a table, through PostgreSQL's binary COPY.

In: columns, as arrays or as `dana.session.frames` makes them of a data frame. Out: a new table with pages that are
all-visible from the start. It must not build SQL text from values; names are quoted as identifiers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import DTypeLike, NDArray
from psycopg import sql

from dana.errors import UsageError
from dana.storage.types import SCALARS

COLUMN_TYPES = {np.dtype(one.dtype): one.typname for one in SCALARS.values()}

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, length of the header's extension (COPY, binary format)
TRAILER = b"\xff\xff"
ROWS_AT_ONCE = 4096
"""So few that they stay in a processor's cache, and the server reads them while the next ones are encoded."""
BYTES_AT_ONCE = 1 << 24
"""Of rows padded to one width: bounds how many rows one long text widens."""

NAMEDATALEN = 64  # pg_config_manual.h: PostgreSQL truncates longer names, so two may collide
COUNT, LENGTH = 2, 4  # bytes of a row's count of fields, and of a field's length


@dataclass(frozen=True, slots=True)
class Fixed:
    """Values of one width.

    Attributes
    ----------
    type
        SQL's name of the column's type.
    valid
        False where it is NULL.
    values
        Vector of numbers, which are turned to big-endian, or of raw bytes (``V``), which are not.
    """

    type: str
    valid: NDArray[np.bool_]
    values: np.ndarray

    def take(self, places: np.ndarray) -> Fixed:
        """The column of the values at these places; NULL at those below 0."""
        # index -1 reads the last value, which `places >= 0` makes NULL
        return Fixed(self.type, self.valid[places] & (places >= 0), self.values[places])


@dataclass(frozen=True, slots=True)
class Varying:
    """Values of many lengths, such as texts.

    Attributes
    ----------
    type, valid
        As `Fixed` has them.
    data
        The bytes of all values.
    begins, lengths
        Where in them each value is; NULLs have no length.
    """

    type: str
    valid: NDArray[np.bool_]
    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def take(self, places: np.ndarray) -> Varying:
        """The column of the values at these places; NULL at those below 0."""
        valid = self.valid[places] & (places >= 0)
        return Varying(self.type, valid, self.data, self.begins[places], np.where(valid, self.lengths[places], 0))


Column = Fixed | Varying


def create_table(
    connection: psycopg.Connection,
    name: str | Sequence[str],
    columns: Mapping[str, np.ndarray | Column],
    *,
    replace: bool = True,
    temporary: bool = False,
    in_row: bool = False,
) -> int:
    """Create the table ``name`` with ``columns`` in it.

    Parameters
    ----------
    connection
        Where; a transaction of its own.
    name
        Name of the table, or schema and name, as they are: no quotes.
    columns
        One for each column of the table: what `dana.session.frames` made, or an array of shape (rows,) of one of the
        types in `COLUMN_TYPES`, in which nothing is NULL.
    replace
        Whether a table of that name is dropped first.
    temporary
        Whether the table goes when the session ends.
    in_row
        Arrays lie in their rows (STORAGE PLAIN); else PostgreSQL moves what is longer than 2 KB out of line.

    Returns
    -------
    int
        Rows.

    Raises
    ------
    UsageError
        An array of another type or length; a name that the server would cut or reject.
    """
    made = {column: _checked(column, values) for column, values in columns.items()}
    rows = _rows(made)
    parts = [checked_name("table", part) for part in ([name] if isinstance(name, str) else name)]
    # qualified: a permanent table may have the same name
    table = sql.Identifier(*(["pg_temp", *parts] if temporary and len(parts) == 1 else parts))
    kind = sql.SQL("TEMPORARY TABLE" if temporary else "TABLE")
    definitions = [
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(values.type)) for column, values in made.items()
    ]
    # in the transaction that made the table, FREEZE writes pages that are all-visible from the start
    with connection.transaction(), connection.cursor() as cursor, _utf8(connection):
        # in one transaction, so that other sessions see the old table or the new one
        if replace:
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        cursor.execute(sql.SQL("CREATE {} {} ({})").format(kind, table, sql.SQL(", ").join(definitions)))
        for column, values in made.items():
            if in_row and values.type.endswith("[]"):
                plain = sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET STORAGE PLAIN")
                cursor.execute(plain.format(table, sql.Identifier(column)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary, FREEZE)").format(table)) as copy:
            copy.write(HEADER)
            for start in range(0, rows, ROWS_AT_ONCE):
                for block in _encode(list(made.values()), slice(start, min(start + ROWS_AT_ONCE, rows))):
                    copy.write(block)
            copy.write(TRAILER)
    return rows


def checked_name(what: str, name: str) -> str:
    """The name of a column or table, which PostgreSQL can hold as it is.

    Raises
    ------
    UsageError
        It is empty or too long (PostgreSQL would truncate it), or has a character that PostgreSQL cannot store: libpq
        ends a name at a NUL, and half of a surrogate pair has no encoding in UTF-8.
    """
    size = len(name.encode(errors="replace"))
    if not 0 < size < NAMEDATALEN:
        raise UsageError(f"the name of a {what} must have 1 to {NAMEDATALEN - 1} bytes, not {size}: {name!r}")
    wrong = next((one for one in name if one == "\0" or "\ud800" <= one <= "\udfff"), None)
    if wrong is not None:
        raise UsageError(f"the name of a {what} must not have the character U+{ord(wrong):04X}: {name!r}")
    return name


def _checked(name: str, values: np.ndarray | Column) -> Column:
    checked_name("column", name)
    if isinstance(values, Column):
        return values
    if values.dtype not in COLUMN_TYPES:
        known = ", ".join(map(str, COLUMN_TYPES))
        raise UsageError(f"column {name} must be an array of {known}, not {values.dtype}")
    return Fixed(COLUMN_TYPES[values.dtype], np.ones(values.shape, dtype=np.bool_), values)


def _rows(columns: Mapping[str, Column]) -> int:
    if not columns:
        raise UsageError("a table needs at least one column")
    shapes = {column.valid.shape for column in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise UsageError(f"columns must be vectors of one length, not of shapes {sorted(shapes)}")
    return int(next(iter(shapes))[0])


@contextmanager
def _utf8(connection: psycopg.Connection) -> Iterator[None]:
    """Set the client's encoding to UTF-8 for the block: binary COPY reads texts in it."""
    if connection.info.encoding == "utf-8":
        yield
        return
    # not SHOW: with SQL_ASCII psycopg returns texts as bytes
    # read before it is set; set_config(…, true) lasts until the transaction ends
    former = connection.pgconn.parameter_status(b"client_encoding") or b""
    setting = "SELECT pg_catalog.set_config('client_encoding', %s, true)"  # of the transaction
    connection.execute(setting, ("UTF8",))
    yield
    connection.execute(setting, (former.decode(),))


def _encode(columns: Sequence[Column], rows: slice) -> Iterator[bytes]:
    """Tuples in the binary COPY format: a count of fields, then each field's length and its big-endian value.

    All rows are written at one width, each field as wide as its longest value; then the padding is removed.
    """
    widths = [
        column.values.dtype.itemsize if isinstance(column, Fixed) else int(column.lengths[rows].max(initial=0))
        for column in columns
    ]
    width, count = COUNT + sum(LENGTH + each for each in widths), rows.stop - rows.start
    # halved, so that one long text does not widen thousands of rows
    if width * count > BYTES_AT_ONCE and count > 1:
        middle = rows.start + count // 2
        yield from _encode(columns, slice(rows.start, middle))
        yield from _encode(columns, slice(middle, rows.stop))
        return
    padded = np.zeros((count, width), dtype=np.uint8)
    # without NULLs and texts there is no padding, and removing none would take most of the time
    full = all(isinstance(column, Fixed) and column.valid[rows].all() for column in columns)
    used = np.ones((0 if full else count, width), dtype=np.bool_)
    # every tuple of a binary COPY begins with its number of fields, an int16
    _field(padded, 0, ">i2")[:] = len(columns)
    at = COUNT
    for column, room in zip(columns, widths, strict=True):
        valid = column.valid[rows]
        begin, end = at + LENGTH, at + LENGTH + room
        if isinstance(column, Fixed):
            lengths: NDArray[np.int64] | int = room
            if room:
                values = column.values[rows]
                _field(padded, begin, values.dtype.newbyteorder(">"))[:] = values
                if not full:
                    used[:, begin:end] = valid[:, None]
        else:
            lengths = column.lengths[rows]
            inside = np.arange(room) < lengths[:, None]
            used[:, begin:end] = inside
            padded[:, begin:end][inside] = _gather(column, rows)
        _field(padded, at, ">i4")[:] = np.where(valid, lengths, -1)  # a length of -1 is NULL (COPY, binary format)
        at = end
    yield (padded if full else padded[used]).tobytes()


def _field(rows: NDArray[np.uint8], at: int, dtype: DTypeLike) -> np.ndarray:
    """A view of the bytes at the same offset in each row."""
    return np.ndarray(len(rows), dtype=dtype, buffer=rows.data, offset=at, strides=rows.strides[:1])


def _gather(column: Varying, rows: slice) -> NDArray[np.uint8]:
    """The bytes of these rows' values, one after the other."""
    begins, lengths = column.begins[rows], column.lengths[rows]
    ends = np.cumsum(lengths)
    # values that follow one another, as after loading, are a slice and need no index for each byte
    if np.array_equal(begins[1:], (begins + lengths)[:-1]):
        return column.data[begins[0] : begins[0] + ends[-1]]
    places = np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1])
    return np.take(column.data, places)
