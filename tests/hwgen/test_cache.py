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

from hwgen.cache import BLOCK, CacheFolder, ForeignFolder

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def aged(cache: CacheFolder, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(cache.path / name, (then, then))


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path / "cache", limit=3 * BLOCK)
    for age, name in ((30, "a"), (20, "b"), (10, "c")):
        cache.write(name, b"x" * BLOCK)
        aged(cache, name, age)
    assert cache.read("a") == b"x" * BLOCK, "read, so used"
    cache.write("d", b"y")
    assert names(cache.path) == ["a", "c", "d"]
    assert cache.made("c", lambda folder, lock: pytest.fail("it is there")) == cache.path / "c"
    cache.write("e", b"z")
    assert names(cache.path) == ["c", "d", "e"]
    assert cache.read("a") is None


def test_what_is_larger_than_the_limit(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=BLOCK)
    cache.write("a", b"x")
    cache.write("b", b"x" * (BLOCK + 1))
    assert names(tmp_path) == ["a"]
    CacheFolder(path=tmp_path / "none", limit=0).write("a", b"x")
    assert not (tmp_path / "none").exists()


def foreign(cache: CacheFolder) -> Iterator[Callable[[], object]]:
    """All that one can do with it."""
    yield lambda: cache.made("a", lambda folder, lock: pytest.fail("nothing is made there"))
    yield lambda: cache.made("new", lambda folder, lock: pytest.fail("nothing is made there"))
    yield lambda: cache.read("a")
    yield lambda: cache.write("new", b"x")
    yield cache.sweep


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write(tmp_path: Path, mode: int) -> None:
    """What lies there may be anybody's; it may be code."""
    cache = CacheFolder(path=tmp_path / "cache", limit=1 << 20)
    cache.path.mkdir()
    (cache.path / "a").write_bytes(b"x")
    cache.path.chmod(mode)
    for call in foreign(cache):
        with pytest.raises(ForeignFolder, match=f"must be writable for its owner alone, but its mode is {mode:04o}"):
            call()
    assert names(cache.path) == ["a"]
    cache.path.chmod(0o755)
    assert cache.read("a") == b"x"
    (cache.path / "a").chmod(0o666)
    for call in (lambda: cache.read("a"), lambda: cache.made("a", lambda folder, lock: folder)):
        with pytest.raises(ForeignFolder, match=r"/a must be writable for its owner alone, but its mode is 0666"):
            call()


def test_what_is_made_is_its_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path / "dana" / "cache", limit=1 << 20)
    before = os.umask(0)
    try:
        cache.write("a", b"x")
        cache.made("b", lambda folder, lock: Path(shutil.copy(cache.path / "a", folder)))
        (tmp_path / "c").write_bytes(b"x")
        cache.made("c", lambda folder, lock: Path(shutil.copy(tmp_path / "c", folder)))
    finally:
        os.umask(before)
    assert {f"{(cache.path / name).stat().st_mode & 0o777:o}" for name in "abc"} == {"644"}
    assert f"{cache.path.stat().st_mode & 0o777:o}" == "700"
    assert cache.read("a") == b"x"


def test_a_folder_of_another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheFolder(path=tmp_path / "cache", limit=1 << 20)
    cache.write("a", b"x")
    there = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: there + 1)
    for call in foreign(cache):
        with pytest.raises(
            ForeignFolder, match=f"the account that uses it, user {there + 1}, but it is user {there}'s"
        ):
            call()
    assert names(cache.path) == ["a"]


def test_what_was_asked_for_lately_can_still_be_opened(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=0, spare_seconds=60)

    def make(folder: Path, lock: int) -> Path:
        (folder / "new").write_bytes(b"x")
        return folder / "new"

    assert cache.made("a", make).read_bytes() == b"x"
    assert cache.made("b", make).exists()
    assert names(tmp_path) == ["a", "b"]
    aged(cache, "a", 61)
    assert cache.sweep()
    assert names(tmp_path) == ["b"]


def test_one_process_makes_what_several_want(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=1 << 20)
    made: list[str] = []

    def make(folder: Path, lock: int) -> Path:
        made.append("once")
        time.sleep(0.1)
        assert names(folder) == []
        (folder / "new").write_bytes(b"x")
        return folder / "new"

    threads = [threading.Thread(target=cache.made, args=("a", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["once"]
    assert names(tmp_path) == ["a"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    cache = CacheFolder(path=tmp_path, limit=1 << 20)

    def make(folder: Path, lock: int) -> Path:
        (folder / "half").write_bytes(b"x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.made("a", make)
    assert names(tmp_path) == []


def test_what_killed_processes_leave_is_swept(tmp_path: Path) -> None:
    text = (
        "import os, sys, time; from pathlib import Path; from hwgen.cache import CacheFolder\n"
        "def make(folder, lock):\n"
        "    (folder / 'half').mkdir()\n"
        "    print('there', flush=True)\n"
        "    time.sleep(3600)\n"
        "CacheFolder(path=Path(sys.argv[1]), limit=1 << 20).made('a', make)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        cache = CacheFolder(path=tmp_path, limit=1 << 20)
        assert not cache.sweep(), "it is at work"
        assert names(tmp_path) == ["build-a", "build-a.lock"]
        process.send_signal(signal.SIGKILL)
    assert cache.sweep()
    assert names(tmp_path) == []
