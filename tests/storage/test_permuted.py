"""Pages with the rows of other pages in a pseudo-random order: which order, which rows, in which memory."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dana.storage.builder import PageBuilder, build_pages, build_tuple
from dana.storage.columns import column_attribute
from dana.storage.parts import PartReader, build_part_pages
from dana.storage.permuted import (
    CHUNK_BYTES,
    FILE_BYTES,
    NO_MEMORY,
    NoTemporaryFile,
    PermutedPages,
    RowOrder,
    TemporaryFileLimit,
    anonymous,
    temporary_files,
)
from dana.storage.reader import read_page
from dana.storage.schema import TableSchema, Use

SIZES = (1024, 8192, 32768)
_SINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def keys(seed: int, rows: int) -> NDArray[np.uint64]:
    """The keys of rows, as the contract says (docs/language.md)."""

    def mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)

    steps = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed(mixed(np.array([seed % 2**64], np.uint64)) + steps)


def order_of(seed: int, rows: int) -> NDArray[np.intp]:
    return np.argsort(keys(seed, rows), kind="stable")


def schema_of(*names: str) -> TableSchema:
    return TableSchema(relation="t", attributes=tuple(column_attribute(name) for name in names))


def endless(size: int) -> Iterator[mmap.mmap]:
    while True:
        yield anonymous(size)


def permuted(
    pages: bytes, page_size: int, order: RowOrder, memory: Iterator[mmap.mmap] | None = None
) -> tuple[bytes, PermutedPages]:
    """The pages in another order, taken some at a time and read twice."""
    laid_out = PermutedPages(page_size=page_size, order=order, memory=memory or endless(1 << 20))
    function, context = laid_out.sink
    take, whole = _SINK(function), ctypes.create_string_buffer(pages, len(pages))
    count = len(pages) // page_size
    for first in range(0, count, 7):
        assert take(context, ctypes.addressof(whole) + first * page_size, min(7, count - first)) == 0
    once, again = collected(laid_out, page_size), collected(laid_out, page_size)
    assert once == again
    return once, laid_out


def collected(laid_out: PermutedPages, page_size: int) -> bytes:
    found = bytearray()

    def consume(_context: int | None, address: int, count: int) -> int:
        found.extend(ctypes.string_at(address, count * page_size))
        return 0

    sink = _SINK(consume)
    count, status = laid_out.feed(ctypes.cast(sink, ctypes.c_void_p).value or 0, 0)
    assert (count * page_size, status) == (len(found), 0)
    return bytes(found)


def rows_of(pages: bytes, page_size: int, schema: TableSchema, columns: Sequence[int]) -> tuple[list[list[float]], int]:
    uses = [Use(attribute=k, input="x", element=k, count=1) for k in columns]
    found, skipped = [], 0
    for first in range(0, len(pages), page_size):
        page = read_page(pages[first : first + page_size], schema, uses)
        found += [[float(value[0]) for value in row] for row in page.rows]
        skipped += page.skipped
    return found, skipped


@pytest.mark.parametrize("page_size", SIZES)
@pytest.mark.parametrize("rows", [0, 1, 2, 63, 1000, 5000])
@pytest.mark.parametrize("seed", [1, -7])
def test_rows_come_in_the_order_of_their_keys(page_size: int, rows: int, seed: int) -> None:
    schema = schema_of("a", "b")
    pages = build_pages(schema, [(k, -k) for k in range(rows)], page_size=page_size)
    made, _ = permuted(pages, page_size, RowOrder(seed=seed, used=(0, 1)))
    assert [row[0] for row in rows_of(made, page_size, schema, (0, 1))[0]] == order_of(seed, rows).tolist()
    assert len(made) == len(pages), "full pages"


def test_a_table_of_several_bins_has_the_same_order() -> None:
    schema = schema_of("a")
    rows = 400_000
    per_page = (8192 - 24) // 36
    stored = np.frombuffer(build_pages(schema, [(0,)] * per_page), np.uint8)
    pages = np.tile(stored, (-(-rows // per_page), 1))
    numbers = np.arange(len(pages) * per_page, dtype=np.float32).reshape(len(pages), per_page)
    for k in range(per_page):  # tuples lie from the end of the page downwards
        at = 8192 - 32 * (k + 1) + 24
        pages[:, at : at + 4] = numbers[:, k : k + 1].view(np.uint8)
    made, _ = permuted(pages.tobytes(), 8192, RowOrder(seed=3, used=(0,)))
    laid = np.frombuffer(made, np.uint8).reshape(-1, 8192)
    found = np.concatenate(
        [laid[:, 8192 - 32 * (k + 1) + 24 :][:, :4].copy().view(np.float32) for k in range(per_page)], axis=1
    ).reshape(-1)
    assert np.array_equal(found, order_of(3, numbers.size).astype(np.float32))


def test_rows_that_are_skipped_do_not_count_and_come_last() -> None:
    schema = schema_of("a", "b", "c")
    rows = [(k, None if k % 3 == 0 else k, None if k % 2 else k) for k in range(500)]
    complete = [row for row in rows if row[1] is not None]
    made, _ = permuted(build_pages(schema, rows), 8192, RowOrder(seed=5, used=(0, 1)))
    alone, _ = permuted(build_pages(schema, complete), 8192, RowOrder(seed=5, used=(0, 1)))
    found, skipped = rows_of(made, 8192, schema, (0, 1))
    assert skipped == len(rows) - len(complete)
    assert (found, 0) == rows_of(alone, 8192, schema, (0, 1))
    assert [row[0] for row in found] == [complete[k][0] for k in order_of(5, len(complete))]


def test_more_rows_that_are_skipped_than_one_bin_holds() -> None:
    """Before any row that trains, so that there is nothing to deal into several bins."""
    schema = schema_of("a", "b")
    page = build_pages(schema, [(k, None) for k in range(226)])
    complete = build_pages(schema, [(k, k) for k in range(100)])
    made, _ = permuted(page * 2000 + complete, 8192, RowOrder(seed=1, used=(0, 1)))
    found, _ = rows_of(made[:8192], 8192, schema, (0, 1))
    assert [row[0] for row in found] == order_of(1, 100).tolist()
    assert len(made) >= 2000 * 8192


def test_tuples_without_the_column_dead_ones_and_empty_pages() -> None:
    schema = schema_of("a", "b")
    builder = PageBuilder(8192)
    for k in range(100):
        builder.add(build_tuple(schema.attributes, (k, k), natts=1 if k % 10 == 0 else 2), 1 if k % 4 else 3)
        builder.add_pointer(0)
    page = builder.finish()
    made, _ = permuted(bytes(8192) + page + bytes(8192), 8192, RowOrder(seed=1, used=(1,)))
    kept = [k for k in range(100) if k % 4]
    whole = [k for k in kept if k % 10]
    found, skipped = rows_of(made, 8192, schema, (1,))
    assert [row[0] for row in found] == [whole[k] for k in order_of(1, len(whole))]
    assert skipped == len(kept) - len(whole)


def test_parts_of_a_row_stay_together() -> None:
    array = column_attribute("x", 1500)
    schema = TableSchema(relation="t", attributes=(array, column_attribute("y")), part=200)
    rows = [(np.full(1500, k), k) if k % 7 else (None, k) for k in range(300)]
    pages = build_part_pages(schema, rows, page_size=1024)
    made, _ = permuted(pages, 1024, RowOrder(seed=2, used=(1,), tuples=-(-1501 // 200)))
    reader = PartReader(schema, [Use(attribute=1, input="y", element=0, count=1)])
    found, skipped = [], 0
    for first in range(0, len(made), 1024):
        page = reader.read(made[first : first + 1024])
        found += [float(row[0][0]) for row in page.rows]
        skipped += page.skipped
    reader.finish()
    whole = [k for k in range(300) if k % 7]
    assert found == [whole[k] for k in order_of(2, len(whole))]
    assert skipped == 300 - len(whole)


def test_the_order_depends_on_no_memory(tmp_path: Path) -> None:
    schema = schema_of("a")
    pages = build_pages(schema, [(k,) for k in range(30000)])
    order = RowOrder(seed=9, used=(0,))
    expected, _ = permuted(pages, 8192, order)
    small = repeat(CHUNK_BYTES)
    assert permuted(pages, 8192, order, (anonymous(size) for size in small))[0] == expected
    assert permuted(pages, 8192, order, temporary_files(tmp_path))[0] == expected
    assert not list(tmp_path.iterdir())


def test_files_go_when_it_is_closed(tmp_path: Path) -> None:
    """Not when Python's collector finds the cycle."""
    gc.disable()
    try:
        _, laid_out = permuted(
            build_pages(schema_of("a"), [(1.0,)]), 8192, RowOrder(seed=1, used=(0,)), temporary_files(tmp_path)
        )
        assert str(tmp_path) in Path("/proc/self/maps").read_text()
        laid_out.close()
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    finally:
        gc.enable()


def test_memory_that_is_used_up(tmp_path: Path) -> None:
    schema = schema_of("a")
    pages = build_pages(schema, [(k,) for k in range(30000)])
    whole = ctypes.create_string_buffer(pages, len(pages))
    laid_out = PermutedPages(page_size=8192, order=RowOrder(seed=1, used=(0,)), memory=iter([anonymous(CHUNK_BYTES)]))
    function, context = laid_out.sink
    assert _SINK(function)(context, ctypes.addressof(whole), len(pages) // 8192) == NO_MEMORY == errno.ENOMEM
    laid_out.check()
    laid_out.close()
    laid_out.close()
    missing = PermutedPages(
        page_size=8192, order=RowOrder(seed=1, used=(0,)), memory=temporary_files(tmp_path / "none")
    )
    function, context = missing.sink
    assert _SINK(function)(context, ctypes.addressof(whole), 1) == NO_MEMORY
    with pytest.raises(NoTemporaryFile, match=f"no file for {FILE_BYTES:,} bytes of rows: No such file"):
        missing.check()


def test_a_missing_folder_of_temporary_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(NoTemporaryFile, match="No such file"):
        next(temporary_files(None))


def test_the_files_have_a_limit(tmp_path: Path) -> None:
    files = temporary_files(tmp_path, FILE_BYTES + CHUNK_BYTES + 4096)
    assert [len(next(files)), len(next(files))] == [FILE_BYTES, CHUNK_BYTES + 4096]
    with pytest.raises(TemporaryFileLimit):
        next(files)


@pytest.mark.parametrize(
    ("at", "value"),
    [(12, 30000), (14, 20), (16, 9000), (24, 4 | 1 << 15 | 30 << 17), (24, 8188 | 1 << 15 | 30 << 17)],
    ids=["lower", "upper", "special", "unaligned pointer", "pointer off the page"],
)
def test_pages_that_contradict_themselves_are_left_to_the_machine(at: int, value: int) -> None:
    schema = schema_of("a")
    page = bytearray(build_pages(schema, [(k,) for k in range(10)]))
    page[at : at + 4] = value.to_bytes(4, "little") if at == 24 else value.to_bytes(2, "little") + page[at + 2 : at + 4]
    made, laid_out = permuted(bytes(page), 8192, RowOrder(seed=1, used=(0,)))
    assert laid_out.damaged
    assert not made
