"""A folder with a byte limit: what goes first, and what killed processes leave."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hwgen.cache import BLOCK, CacheFolder

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
