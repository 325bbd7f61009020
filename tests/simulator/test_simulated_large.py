"""Arrays in files: what is left of them, who may read them, and what a full disk is."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dana.simulator import large

COUNT = large.LARGE // 4


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    large.keep_in(None)


def mapped() -> list[str]:
    """Lines of what this process maps of files that have no name any more."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("(deleted)")]


def private_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def test_files_without_names(tmp_path: Path) -> None:
    before, private = mapped(), private_bytes()
    large.keep_in(tmp_path)
    array = large.zeros(COUNT)
    array += 1.5
    assert private_bytes() - private < large.LARGE // 2, "no memory of the process's own"
    assert not os.listdir(tmp_path)
    (line,) = set(mapped()) - set(before)
    assert line.split()[1] == "rw-s"
    assert str(tmp_path) in line
    span = line.split()[0]
    status = os.stat(f"/proc/self/map_files/{span}") if os.geteuid() == 0 else None
    assert status is None or (status.st_mode & 0o777, status.st_blocks * 512 >= large.LARGE) == (0o600, True)
    assert array.sum() == 1.5 * COUNT
    del array
    assert mapped() == before


def test_small_arrays_and_those_of_other_processes_lie_in_memory(tmp_path: Path) -> None:
    before = mapped()
    arrays = [large.zeros(COUNT)]
    large.keep_in(tmp_path)
    arrays.append(large.zeros(COUNT - 1))
    assert mapped() == before
    assert not any(one.ctypes.data % 64 for one in arrays), "a vector is a cache line"
    assert not any(one.any() for one in arrays)


def test_what_fits_lies_in_memory(tmp_path: Path) -> None:
    before = mapped()
    large.keep_in(tmp_path, lambda: 2 * large.LARGE)
    first = large.zeros(COUNT)
    assert mapped() == before
    second = large.zeros(COUNT + 1)
    assert len(mapped()) == len(before) + 1
    assert (first.sum(), second.sum()) == (0, 0)


def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    with pytest.raises(large.NoFile, match="No such file or directory"):
        large.keep_in(tmp_path / "none")
    before = mapped()
    assert large.zeros(COUNT).size == COUNT
    assert mapped() == before


def test_a_full_disk_is_an_error_before_anything_is_written() -> None:
    """A file system in memory rejects what is larger than itself at once, and writes nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        disk = Path(folder)
        large.keep_in(disk)
        status = os.statvfs(disk)
        before, free = mapped(), status.f_bavail
        with pytest.raises(large.NoFile, match="No space left") as raised:
            large.zeros(status.f_blocks * status.f_frsize // 4 + COUNT)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(disk))
        assert mapped() == before, "a failed allocation takes nothing"
        assert abs(os.statvfs(disk).f_bavail - free) * status.f_frsize < large.LARGE
        assert large.zeros(COUNT).sum() == 0


def test_a_folder_that_lies_in_memory() -> None:
    assert large.lies_in_memory(Path("/dev/shm"))
    assert not large.lies_in_memory(Path("/proc"))
