"""A folder with a byte limit: what goes first, and what killed processes leave."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwgen.cache import BLOCK, CacheFolder
from hwgen.folders import ForeignFolder

ROOT = Path(__file__).parents[2]


A, B, C, D, E, NEW = (f"{letter * 64}.x" for letter in "abcdef")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def aged(cache: CacheFolder, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(cache.path / name, (then, then))


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path / "cache", limit=3 * BLOCK)
    for age, name in ((30, A), (20, B), (10, C)):
        cache.write(name, b"x" * BLOCK)
        aged(cache, name, age)
    assert cache.read(A) == b"x" * BLOCK, "read, so used"
    cache.write(D, b"y")
    assert names(cache.path) == [A, C, D]
    assert cache.made(C, lambda folder, lock: pytest.fail("it is there")) == cache.path / C
    cache.write(E, b"z")
    assert names(cache.path) == [C, D, E]
    assert cache.read(A) is None


def test_what_is_larger_than_the_limit(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=BLOCK)
    cache.write(A, b"x")
    cache.write(B, b"x" * (BLOCK + 1))
    assert names(tmp_path) == [A]
    CacheFolder(path=tmp_path / "none", limit=0).write(A, b"x")
    assert not (tmp_path / "none").exists()


def foreign(cache: CacheFolder) -> Iterator[Callable[[], object]]:
    """All that one can do with it."""
    yield lambda: cache.made(A, lambda folder, lock: pytest.fail("nothing is made there"))
    yield lambda: cache.made(NEW, lambda folder, lock: pytest.fail("nothing is made there"))
    yield lambda: cache.read(A)
    yield lambda: cache.write(NEW, b"x")
    yield cache.sweep


@pytest.mark.parametrize("mode", [0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write(tmp_path: Path, mode: int) -> None:
    """What lies there may be anybody's; it may be code."""
    cache = CacheFolder(path=tmp_path / "cache", limit=1 << 20)
    cache.path.mkdir()
    (cache.path / A).write_bytes(b"x")
    cache.path.chmod(mode)
    for call in foreign(cache):
        with pytest.raises(ForeignFolder, match=f"must be writable for its owner alone, but its mode is {mode:04o}"):
            call()
    assert names(cache.path) == [A]
    cache.path.chmod(0o755)
    assert cache.read(A) == b"x"
    (cache.path / A).chmod(0o666)
    for call in (lambda: cache.read(A), lambda: cache.made(A, lambda folder, lock: folder)):
        with pytest.raises(ForeignFolder, match=r"/a{64}.x must be writable for its owner alone, but its mode is 0666"):
            call()


def test_what_is_made_is_its_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path / "dana" / "cache", limit=1 << 20)
    before = os.umask(0)
    try:
        cache.write(A, b"x")
        cache.made(B, lambda folder, lock: Path(shutil.copy(cache.path / A, folder)))
        (tmp_path / "c").write_bytes(b"x")
        cache.made(C, lambda folder, lock: Path(shutil.copy(tmp_path / "c", folder)))
    finally:
        os.umask(before)
    assert {f"{(cache.path / name).stat().st_mode & 0o777:o}" for name in (A, B, C)} == {"644"}
    assert f"{cache.path.stat().st_mode & 0o777:o}" == "700"
    assert cache.read(A) == b"x"


def test_a_folder_of_another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheFolder(path=tmp_path / "cache", limit=1 << 20)
    cache.write(A, b"x")
    there = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: there + 1)
    for call in foreign(cache):
        with pytest.raises(
            ForeignFolder, match=f"the account that uses it, user {there + 1}, but it is user {there}'s"
        ):
            call()
    assert names(cache.path) == [A]


def test_what_was_asked_for_lately_can_still_be_opened(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=0, spare_seconds=60)

    def make(folder: Path, lock: int) -> Path:
        (folder / "new").write_bytes(b"x")
        return folder / "new"

    assert cache.made(A, make).read_bytes() == b"x"
    assert cache.made(B, make).exists()
    assert names(tmp_path) == [A, B]
    aged(cache, A, 61)
    assert cache.sweep()
    assert names(tmp_path) == [B]


def test_one_process_makes_what_several_want(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=1 << 20)
    made: list[str] = []

    def make(folder: Path, lock: int) -> Path:
        made.append("once")
        time.sleep(0.1)
        assert names(folder) == []
        (folder / "new").write_bytes(b"x")
        return folder / "new"

    threads = [threading.Thread(target=cache.made, args=(A, make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["once"]
    assert names(tmp_path) == [A]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=1 << 20)

    def make(folder: Path, lock: int) -> Path:
        (folder / "half").write_bytes(b"x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.made(A, make)
    assert names(tmp_path) == []


def test_what_killed_processes_leave_is_swept(tmp_path: Path) -> None:
    text = (
        "import os, sys, time; from pathlib import Path; from hwgen.cache import CacheFolder\n"
        "def make(folder, lock):\n"
        "    (folder / 'half').mkdir()\n"
        "    print('there', flush=True)\n"
        "    time.sleep(3600)\n"
        "CacheFolder(path=Path(sys.argv[1]), limit=1 << 20).made('a' * 64 + '.x', make)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        cache = CacheFolder(path=tmp_path, limit=1 << 20)
        assert not cache.sweep(), "it is at work"
        assert names(tmp_path) == [f"build-{A}", f"build-{A}.lock"]
        process.send_signal(signal.SIGKILL)
    assert cache.sweep()
    assert names(tmp_path) == []


def test_a_lock_that_another_process_has_taken_since_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / f"build-{A}.lock"
    lock.touch(0o600)

    def replaced(descriptor: int, how: int) -> None:
        lock.unlink()
        lock.touch(0o600)

    with monkeypatch.context() as patched:
        patched.setattr("hwgen.cache.fcntl.flock", replaced)
        assert not CacheFolder(path=tmp_path, limit=1 << 20).sweep()
    assert names(tmp_path) == [lock.name]


def test_only_names_of_the_cache_are_removed(tmp_path: Path) -> None:
    """A folder that was given by mistake loses nothing."""
    for name in ("notes.txt", "build-notes", "build-notes.lock", "build-.lock", A.upper(), f"{A}~", f"{A[:-2]}.tar.gz"):
        (tmp_path / name).write_text("mine")
    (tmp_path / B).symlink_to("notes.txt")
    (tmp_path / C).mkdir()
    there = names(tmp_path)
    assert CacheFolder(path=tmp_path, limit=0).sweep()
    assert names(tmp_path) == there
    with pytest.raises(ValueError, match="the name of a cached file must match"):
        CacheFolder(path=tmp_path, limit=1 << 20).write("notes.txt", b"")
    with pytest.raises(OSError, match="symbolic links"):
        CacheFolder(path=tmp_path, limit=1 << 20).read(B)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / f"build-{A}.lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        CacheFolder(path=tmp_path, limit=1 << 20).write(A, b"x")
    assert not target.exists()
