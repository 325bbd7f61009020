"""What frames look like for rows of any length."""

from __future__ import annotations

import pytest

from dana.server.places import CHECKOUT
from dana.storage.builder import PageBuilder, build_tuple
from dana.storage.frames import MAX_PARTS, PAGE_SIZES, Frames, RowTooLong, frame_layout
from dana.storage.parts import most_values
from tests.storage.parts import part_attribute


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_the_smallest_page_that_holds_a_row_whole(size: int) -> None:
    longest = max(n for n in range(size // 4) if frame_layout("t", [n]) == Frames(page_size=size))
    PageBuilder(size).add(build_tuple([part_attribute("x", longest)], [[0.0] * longest]))
    assert frame_layout("t", [longest + 1]) != Frames(page_size=size)
    if size == PAGE_SIZES[-1]:
        assert f"{longest:,} numbers in one array" in (CHECKOUT / "docs" / "sql-reference.md").read_text()


def test_rows_that_no_page_holds() -> None:
    """Parts as long as their pages; pages as large as costs next to nothing."""
    for numbers, size in ((9_001, 8192), (20_001, 16384), (100_001, 32768), (10_000_000, 32768)):
        frames = frame_layout("t", [numbers - 1, 0])
        assert frames == Frames(page_size=size, part=most_values(size))
        taken = -(-numbers // frames.part) * size
        assert taken <= 1.05 * min(-(-numbers // most_values(other)) * other for other in PAGE_SIZES)


def test_rows_that_are_too_long() -> None:
    most = MAX_PARTS * most_values(PAGE_SIZES[-1])
    assert frame_layout("t", [most]).part
    with pytest.raises(RowTooLong, match=f"has {most + 1:,} numbers in use, more than the {most:,} of 4096 frames"):
        frame_layout("t", [most, 0])
