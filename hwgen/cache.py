"""A folder of files that can be made again: a byte limit, the least recently used go first, nothing half-made is left.

In: names, and what makes their files. Out: the files, as bytes or as paths. Several processes may use one folder, and
each may be killed at any moment. It knows nothing of what it holds, and executes none of it. Since others do execute
what they find here, nothing is taken from a folder, or a file, that another account may have made; and since it removes
files, it removes only names that it made itself, in a folder that it has open.
"""

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwgen.folders import open_folder, require_own

NAME: Final = re.compile(r"(?:[0-9a-f]{32}){1,2}\.[a-z]{1,8}")
"""Names of files: a digest of everything that the file is made from (16 or 32 bytes), and its kind."""

BUILD: Final = "build-"
"""Begins the names of folders in which files are being made, and of their locks."""

LOCK: Final = ".lock"
"""Ends the name of the file that is locked while a process works in the folder of otherwise the same name."""

BLOCK: Final = 4096
"""Bytes of disk that a file takes come in such blocks, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """A cache on disk.

    Every use of a folder that other accounts can fill or exchange is a `hwgen.folders.ForeignFolder`.
    """

    path: Path
    """The folder, as `hwgen.folders.open_folder` opens it; made with mode 0700 when the first file is."""
    limit: int
    """Bytes that its finished files may take together."""
    spare_seconds: float = 0.0
    """What was used so lately stays, even beyond the limit: a process may be about to open it by its path."""

    def read(self, name: str) -> bytes | None:
        """What the file holds, which is now the most recently used; None where there is none."""
        try:
            with self._opened() as folder, open(_checked(name), "rb", opener=_inside(folder)) as file:
                require_own(self.path / name, os.fstat(file.fileno()))
                data = file.read()
                _touch(name, folder)
        except FileNotFoundError:
            return None
        return data

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, unless it is larger than the limit. OSError as files have it: nothing is left."""
        if len(data) <= self.limit:
            with self._opened(make=True) as folder:
                with self._working(folder, name) as (work, _):
                    (work / name).write_bytes(data)
                    _take(folder, work / name, name)
                self._trim(folder)

    def made(self, name: str, make: Callable[[Path, int], Path]) -> Path:
        """The file, made once, however many processes want it: the others wait for the first.

        Parameters
        ----------
        make
            Gets an empty folder, and a descriptor that processes which work there must inherit: as long as one of them
            has it, the folder is in use. Returns the finished file, which is moved here.
        """
        with self._opened(make=True) as folder:
            if not _is_file(folder, _checked(name)):
                with self._working(folder, name) as (work, lock):
                    if not _is_file(folder, name):
                        _take(folder, make(work, lock), name)
                self._trim(folder)
            with suppress(FileNotFoundError):  # it goes as soon as the next one comes
                require_own(self.path / name, os.stat(name, dir_fd=folder, follow_symlinks=False))
            _touch(name, folder)
        return self.path / name

    def sweep(self) -> bool:
        """Remove what killed processes were making, and what is over the limit; whether nothing is being made now."""
        try:
            with self._opened() as folder:
                for lock in _locks(folder):
                    with suppress(BlockingIOError, FileNotFoundError):  # a process is at work, or has just ended
                        descriptor = _open_lock(folder, lock, os.O_RDWR)
                        try:
                            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            if _is(descriptor, folder, lock):
                                _remove(folder, lock)
                        finally:
                            os.close(descriptor)
                self._trim(folder)
                return not _locks(folder)
        except FileNotFoundError:
            return True

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        folder = open_folder(self.path, make=0o700 if make else None)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _working(self, folder: int, name: str) -> Iterator[tuple[Path, int]]:
        """An empty folder for what will have this name, and its lock: the kernel gives it back when its holders end."""
        lock = f"{BUILD}{_checked(name)}{LOCK}"
        descriptor = _locked(folder, lock)
        try:
            work = lock.removesuffix(LOCK)
            shutil.rmtree(work, ignore_errors=True, dir_fd=folder)  # of a process that was killed
            os.mkdir(work, 0o700, dir_fd=folder)
            yield self.path / work, descriptor
        finally:
            _remove(folder, lock)
            os.close(descriptor)

    def _trim(self, folder: int) -> None:
        """Remove the least recently used until the rest is within the limit."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed it
                    if NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        its = entry.stat(follow_symlinks=False)
                        found.append((its.st_mtime, -(-its.st_size // BLOCK) * BLOCK, entry.name))
        total = sum(size for _, size, _ in found)
        now = time.time()
        for used, size, name in sorted(found):
            if total <= self.limit:
                return
            if 0 <= now - used < self.spare_seconds:
                continue
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            total -= size


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"the name of a cached file must match {NAME.pattern}, not {name!r}")
    return name


def _inside(folder: int) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _is_file(folder: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _take(folder: int, file: Path, name: str) -> None:
    """A finished file, which only its owner may write, even if the umask it was made under let others."""
    file.chmod(stat.S_IMODE(file.stat().st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    os.replace(file, name, dst_dir_fd=folder)


def _locks(folder: int) -> list[str]:
    """Names of the locks, each one of a name that the cache makes."""
    return [
        name
        for name in os.listdir(folder)
        if name.startswith(BUILD)
        and name.endswith(LOCK)
        and NAME.fullmatch(name.removeprefix(BUILD).removesuffix(LOCK))
    ]


def _open_lock(folder: int, lock: str, flags: int) -> int:
    return os.open(lock, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)


def _locked(folder: int, lock: str) -> int:
    # a file, not the folder: that could not be locked where the cache lies on NFS
    while True:
        descriptor = _open_lock(folder, lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is(descriptor, folder, lock):  # else the process that had it removed it, and the next one's is another
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is(descriptor: int, folder: int, name: str) -> bool:
    """Whether this open file is still the one of the name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    return False


def _remove(folder: int, lock: str) -> None:
    """Remove a folder and its lock, which is ours: the lock last, or another's folder could go with it."""
    shutil.rmtree(lock.removesuffix(LOCK), ignore_errors=True, dir_fd=folder)
    with suppress(FileNotFoundError):
        os.unlink(lock, dir_fd=folder)


def _touch(name: str, folder: int) -> None:
    with suppress(OSError):  # a file that is gone, or a file system that may only be read
        os.utime(name, dir_fd=folder, follow_symlinks=False)
