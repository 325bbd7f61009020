"""Pages built from columns at once are those that the builder makes a row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dana.errors import UsageError
from dana.storage.builder import build_pages
from dana.storage.columns import MAX_COLUMNS, column_pages, column_schema


@pytest.mark.parametrize("page_size", [8192, 32768])
@pytest.mark.parametrize(("width", "rows"), [(1, 1), (1, 500), (2, 226), (5, 333), (54, 100), (1600, 7)])
def test_equal_to_the_builder_s(width: int, rows: int, page_size: int) -> None:
    random = np.random.default_rng(width)
    columns = {f"c{k}": random.standard_normal(rows).astype(np.float32) for k in range(width)}
    schema = column_schema(columns)
    expected = build_pages(schema, list(zip(*columns.values(), strict=True)), page_size=page_size)
    pages = column_pages(columns, page_size=page_size)
    assert pages.shape == (len(expected) // page_size, page_size)
    assert pages.tobytes() == expected


@pytest.mark.parametrize("page_size", [8192, 32768])
def test_arrays_are_the_builder_s_unpacked(page_size: int) -> None:
    random = np.random.default_rng(5)
    columns = {
        "a": random.standard_normal(77).astype(np.float32),
        "x": random.standard_normal((77, 6)).astype(np.float32),
        "u": random.standard_normal((77, 251)).astype(np.float32),
        "y": random.standard_normal(77).astype(np.float32),
    }
    rows = list(zip(*columns.values(), strict=True))
    expected = build_pages(column_schema(columns), rows, page_size=page_size, short=False)
    assert column_pages(columns, page_size=page_size).tobytes() == expected


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match="from 1 to 1600 columns, not 1601"):
        column_schema({f"c{k}": np.zeros(1) for k in range(MAX_COLUMNS + 1)})
    unequal: dict[str, np.ndarray] = {"a": np.zeros(2), "b": np.zeros(3)}
    for columns in ({}, {"a": np.zeros(0)}, {"a": np.zeros((3, 0))}, unequal, {"a": np.zeros((2, 2, 2))}):
        with pytest.raises(UsageError, match="columns must be vectors or matrices of one length"):
            column_pages(columns)
    with pytest.raises(UsageError, match="more than a page of 512 holds"):
        column_pages({f"c{k}": np.zeros(1) for k in range(200)}, page_size=512)
