"""A folder of files that can be made again: a byte limit, the least recently used go first, nothing half-made is left.

In: names, and what makes their files. Out: the files, as bytes or as paths. Several processes may use one folder, and
each may be killed at any moment. It knows nothing of what it holds, and executes none of it.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUILD: Final = "build-"
"""Begins the names of folders in which files are being made, and of their locks."""

LOCK: Final = ".lock"
"""Ends the name of the file that is locked as long as somebody works in the folder of otherwise the same name."""

BLOCK: Final = 4096
"""Bytes of disk that a file takes come in such blocks, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """A cache on disk.

    Attributes
    ----------
    path
        The folder; made with mode 0700 when the first file is.
    limit
        Bytes that its finished files may take together.
    spare_seconds
        What was used so lately stays, though the limit be passed: somebody may be about to open it by its path.
    """

    path: Path
    limit: int
    spare_seconds: float = 0.0

    def read(self, name: str) -> bytes | None:
        """What the file holds, which is now the most recently used; None where there is none."""
        path = self.path / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        _touch(path)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file; one that is larger than the limit is not made.

        Raises
        ------
        OSError
            As files do; nothing is left then.
        """
        if len(data) <= self.limit:
            with self._working(name) as (work, _):
                (work / name).write_bytes(data)
                os.replace(work / name, self.path / name)
            self._trim()

    def made(self, name: str, make: Callable[[Path, int], Path]) -> Path:
        """The file, made once, however many processes want it: the others wait for the first.

        Parameters
        ----------
        make
            Gets an empty folder, and a descriptor that processes which work there must inherit: as long as one of them
            has it, the folder is taken for theirs. Returns the finished file, which is moved here.
        """
        path = self.path / name
        if not path.is_file():
            with self._working(name) as (work, lock):
                if not path.is_file():
                    os.replace(make(work, lock), path)
            self._trim()
        _touch(path)
        return path

    def sweep(self) -> bool:
        """Remove what killed processes were making, and what is over the limit; whether nothing is being made now."""
        for lock in self.path.glob(f"{BUILD}*{LOCK}"):
            with suppress(BlockingIOError, FileNotFoundError):  # somebody is at work, or has just ended
                descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is(descriptor, lock):
                        _remove(lock)
                finally:
                    os.close(descriptor)
        self._trim()
        return not any(self.path.glob(f"{BUILD}*{LOCK}"))

    @contextmanager
    def _working(self, name: str) -> Iterator[tuple[Path, int]]:
        """An empty folder for what will have this name, and its lock: the kernel gives it back when its holders end."""
        lock = self.path / f"{BUILD}{name}{LOCK}"
        descriptor = self._locked(lock)
        try:
            work = lock.with_suffix("")
            shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
            work.mkdir(mode=0o700)
            yield work, descriptor
        finally:
            _remove(lock)
            os.close(descriptor)

    def _locked(self, lock: Path) -> int:
        # a file, not the folder: that could not be locked where the cache lies on NFS
        while True:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is(descriptor, lock):  # else who had it removed it, and the next one's is another
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _trim(self) -> None:
        """Remove the least recently used until the rest is within the limit."""
        found: list[tuple[float, int, str]] = []
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed it
                    if not entry.name.startswith(BUILD) and not entry.is_dir(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        found.append((stat.st_mtime, -(-stat.st_size // BLOCK) * BLOCK, entry.path))
        total = sum(size for _, size, _ in found)
        now = time.time()
        for used, size, path in sorted(found):
            if total <= self.limit:
                return
            if 0 <= now - used < self.spare_seconds:
                continue
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


def _is(descriptor: int, path: Path) -> bool:
    """Whether this open file is still the one at the path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _remove(lock: Path) -> None:
    """Remove a folder and its lock, which is ours: the lock last, or another's folder could go with it."""
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)


def _touch(path: Path) -> None:
    with suppress(OSError):  # a folder that others fill and that we only read
        os.utime(path)
