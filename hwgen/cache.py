"""A folder of files that can be made again: a byte limit, the least recently used go first, nothing half-made is left.

In: names, and what makes their files. Out: the files, as bytes or as paths. Several processes may use one folder, and
each may be killed at any moment. It knows nothing of what it holds, and executes none of it.
"""

from __future__ import annotations

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
"""Begins the names of folders in which files are being made."""

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
        for work in self.path.glob(f"{BUILD}*"):
            with suppress(OSError):  # somebody is at work there, or has just ended
                descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(work, ignore_errors=True)
                finally:
                    os.close(descriptor)
        self._trim()
        return not any(self.path.glob(f"{BUILD}*"))

    @contextmanager
    def _working(self, name: str) -> Iterator[tuple[Path, int]]:
        """An empty folder for what will have this name, and its lock: the kernel gives it back when its holders end."""
        work = self.path / f"{BUILD}{name}"
        descriptor = self._locked(work)
        try:
            for left in work.iterdir():  # of a process that was killed
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield work, descriptor
        finally:
            shutil.rmtree(work, ignore_errors=True)
            os.close(descriptor)

    def _locked(self, work: Path) -> int:
        while True:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileExistsError):
                work.mkdir(mode=0o700)
            try:
                descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # who had the lock before us removed the folder when it was done
                if os.path.samestat(os.fstat(descriptor), work.stat()):
                    return descriptor
            except FileNotFoundError:
                pass
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
                    if not entry.is_dir(follow_symlinks=False):
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


def _touch(path: Path) -> None:
    with suppress(OSError):  # a folder that others fill and that we only read
        os.utime(path)
