"""The golden comparison itself: it notices a difference and a missing file, and only --update-golden writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden


def make(folder: Path, *, update: bool = False) -> Golden:
    return Golden(folder=folder, name="case[a b/c]", update=update)


def test_missing_file_fails_and_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no golden file"):
        make(tmp_path)("text")
    assert list(tmp_path.iterdir()) == []


def test_update_then_compare(tmp_path: Path) -> None:
    make(tmp_path, update=True)("text")
    make(tmp_path)("text\n")
    with pytest.raises(AssertionError, match="differs from"):
        make(tmp_path)("other")
    assert [p.name for p in tmp_path.iterdir()] == ["case-a-b-c.txt"]


def test_fixture_derives_the_path_from_the_test(golden: Golden) -> None:
    here = Path(__file__).parent
    assert golden.path() == here / "golden" / "golden" / "fixture_derives_the_path_from_the_test.txt"
