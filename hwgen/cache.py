"""A folder of files that can be made again: a byte limit, the least recently used go first, nothing half-made is left.

In: names, and what makes their files. Out: the files, as bytes or as paths. Several processes may use one folder, and
each may be killed at any moment. It knows nothing of what it holds, and executes none of it. Since others do execute
what they find here, nothing is taken from a folder, or a file, that another account may have made.
"""

import fcntl
import os
import shutil
import stat
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


class ForeignFolder(PermissionError):
    """A cache that others than its user fill; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """A cache on disk."""

    path: Path
    """The folder; made with mode 0700 when the first file is. One that is another account's, or that others may write,
    is a `ForeignFolder`, whatever is done with it."""
    limit: int
    """Bytes that its finished files may take together."""
    spare_seconds: float = 0.0
    """What was used so lately stays, though the limit be passed: somebody may be about to open it by its path."""

    def read(self, name: str) -> bytes | None:
        """What the file holds, which is now the most recently used; None where there is none."""
        path = self.path / name
        self._require_own()
        try:
            with path.open("rb") as file:
                _require_own(path, os.fstat(file.fileno()))
                data = file.read()
        except FileNotFoundError:
            return None
        _touch(path)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, unless it is larger than the limit. OSError as files have it: nothing is left."""
        if len(data) <= self.limit:
            with self._working(name) as (work, _):
                (work / name).write_bytes(data)
                self._take(work / name, name)
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
        self._require_own()
        if not path.is_file():
            with self._working(name) as (work, lock):
                if not path.is_file():
                    self._take(make(work, lock), name)
            self._trim()
        with suppress(FileNotFoundError):  # it goes as soon as the next one comes
            _require_own(path, path.stat())
        _touch(path)
        return path

    def sweep(self) -> bool:
        """Remove what killed processes were making, and what is over the limit; whether nothing is being made now."""
        self._require_own()
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

    def _take(self, file: Path, name: str) -> None:
        """A finished file, which is its owner's alone, whatever umask it was made under."""
        file.chmod(stat.S_IMODE(file.stat().st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
        os.replace(file, self.path / name)

    def _require_own(self) -> None:
        with suppress(FileNotFoundError):
            _require_own(self.path, self.path.stat())

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
            self._require_own()
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
                        its = entry.stat(follow_symlinks=False)
                        found.append((its.st_mtime, -(-its.st_size // BLOCK) * BLOCK, entry.path))
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


def _require_own(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise ForeignFolder(
            f"{path} must belong to the account that uses it, user {os.geteuid()}, but it is user {found.st_uid}'s: "
            "remove it, or set XDG_CACHE_HOME to a folder of this account's own"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ForeignFolder(
            f"{path} must be writable for its owner alone, but its mode is {stat.S_IMODE(found.st_mode):04o}: "
            "remove it if others may have put something there, else chmod go-w"
        )


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
