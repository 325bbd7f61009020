"""Arrays arrive in a table as they were, on pages that are visible to everybody."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.session.tables import COLUMN_TYPES, ROWS_AT_ONCE, Fixed, _encode, create_table

Session = psycopg.Connection[Any]


def every_type(rows: int) -> dict[str, NDArray[Any]]:
    """One column of each type, with the extremes in it."""
    random = np.random.default_rng(rows)
    columns: dict[str, NDArray[Any]] = {}
    for dtype, name in COLUMN_TYPES.items():
        if dtype.kind == "b":
            values: NDArray[Any] = random.random(rows) < 0.5
        elif dtype.kind == "i":
            limits = np.iinfo(dtype.str)
            values = random.integers(limits.min, limits.max, rows, dtype=dtype, endpoint=True)
            values[:2] = limits.min, limits.max
        else:
            values = random.standard_normal(rows).astype(dtype)
            values[:2] = np.finfo(dtype.str).max, np.finfo(dtype.str).smallest_subnormal
        columns[name] = values
    return columns


def test_every_type_comes_back(connection: Session) -> None:
    columns = every_type(1000)
    create_table(connection, "of every type", columns)
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute('SELECT * FROM "of every type"').fetchall()
        types = [cursor.connection.adapters.types[column.type_code].name for column in cursor.description or ()]
    assert types == list(COLUMN_TYPES.values())
    for column, (name, array) in zip(zip(*rows, strict=True), columns.items(), strict=True):
        assert np.array(column, dtype=array.dtype).tobytes() == array.tobytes(), name


def test_more_rows_than_one_block(connection: Session) -> None:
    numbers = np.arange(ROWS_AT_ONCE + 7, dtype=np.int32)
    create_table(connection, "many", {"i": numbers})
    row = connection.execute("SELECT count(*), min(i), max(i), sum(i) FROM many").fetchone()
    assert row == (len(numbers), 0, numbers[-1], int(numbers.sum(dtype=np.int64)))


def test_numbers_without_nulls_are_written_once() -> None:
    """Two times their bytes are allocated, with a NULL four: no mask of bytes is made to remove padding by."""
    peaks = []
    for valid in (True, False):
        columns = [Fixed("real", np.ones(1000, dtype=np.bool_), np.ones(1000, dtype=np.float32)) for _ in range(50)]
        columns[-1].valid[0] = valid
        tracemalloc.start()
        (block,) = _encode(columns, slice(0, 1000))
        peaks.append(tracemalloc.get_traced_memory()[1] / len(block))
        tracemalloc.stop()
        assert len(block) == 1000 * (2 + 50 * 8) - (0 if valid else 4)
    assert peaks[0] < 2.1
    assert peaks[1] > 2.9


def test_no_rows(connection: Session) -> None:
    create_table(connection, "none", {"x": np.empty(0, dtype=np.float32)})
    assert connection.execute("SELECT count(*) FROM none").fetchone() == (0,)


def test_a_table_of_that_name_is_replaced(connection: Session) -> None:
    create_table(connection, "twice", {"x": np.zeros(3, dtype=np.float32)})
    create_table(connection, "twice", {"y": np.ones(2, dtype=np.float64)})
    assert connection.execute("SELECT y FROM twice").fetchall() == [(1.0,), (1.0,)]


def test_names_are_names_not_sql(connection: Session) -> None:
    name = 'x"); DROP TABLE twice; --'
    create_table(connection, name, {'y" int, "z': np.zeros(1, dtype=np.float32)})
    found = connection.execute(
        "SELECT attname FROM pg_attribute JOIN pg_class c ON attrelid = c.oid WHERE attnum > 0 AND relname = %s",
        (name,),
    )
    assert found.fetchall() == [('y" int, "z',)]


def test_pages_are_all_visible_from_the_start(connection: Session) -> None:
    create_table(connection, "visible", {"x": np.zeros(5000, dtype=np.float32)})
    connection.commit()
    try:
        connection.execute("ANALYZE visible")
        # the file may be longer: PostgreSQL extends it by many empty pages at once
        row = connection.execute("SELECT count(DISTINCT (ctid::text::point)[0]) FROM visible").fetchone()
        marked = connection.execute("SELECT relallvisible FROM pg_class WHERE relname = 'visible'").fetchone()
        assert row is not None
        assert row[0] > 10
        assert marked == row
    finally:
        connection.execute("DROP TABLE visible")
        connection.commit()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one column"),
        ({"x": np.zeros(2, dtype=np.complex64)}, r"column x must be an array of .*, not complex64"),
        ({"x": np.zeros(2, dtype=np.float32), "y": np.zeros(3, dtype=np.float32)}, "of one length"),
        ({"x": np.zeros((2, 2), dtype=np.float32)}, "must be vectors"),
    ],
)
def test_what_is_no_table_is_refused_before_anything_is_dropped(
    connection: Session, columns: dict[str, NDArray[Any]], message: str
) -> None:
    create_table(connection, "safe", {"x": np.zeros(1, dtype=np.float32)})
    with pytest.raises(UsageError, match=message):
        create_table(connection, "safe", columns)
    assert connection.execute("SELECT count(*) FROM safe").fetchone() == (1,)
