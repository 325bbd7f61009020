"""A board's registers and memory as files of Linux that can be mapped.

In: paths. Out: the two sides of a `Board`. Files of this kind are `/dev/uio0`, `/dev/xdma0_user` and a PCI device's
`resource0` for registers; `/dev/udmabuf0`, `/dev/mem` and `resource2` for pages and records. It knows no register.
"""

import fcntl
import mmap
import os
import time
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.driver.errors import BoardError

LOOK_SECONDS = 0.0005
"""Seconds between two reads of a status: shorter than an epoch, longer than an access over PCIe."""


def _mapped(path: str | os.PathLike[str], offset: int, size: int) -> tuple[mmap.mmap, int]:
    """The mapping, and the file's descriptor."""
    what = f"{Path(path)}, {size} bytes from {offset:#x} on,"
    if offset % mmap.ALLOCATIONGRANULARITY:
        raise BoardError(f"{what} must begin at a multiple of {mmap.ALLOCATIONGRANULARITY:#x} to be mapped")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
        try:
            return mmap.mmap(descriptor, size, offset=offset), descriptor
        except BaseException:
            os.close(descriptor)
            raise
    except (OSError, ValueError) as error:
        raise BoardError(f"{what} must be open to reading, writing and mapping, but is not: {error}") from None


def _words(mapped: mmap.mmap) -> memoryview:
    # items go as 32 bits, a copy of many in any width; an array of ctypes loads what it is about to overwrite
    return memoryview(mapped).cast("B").cast("I")


class MappedRegisters:
    """Registers in a file, which is locked: a board has one driver.

    Depending on the processor, an access that the board rejects is not noticed, or ends the process with a bus error.

    Parameters
    ----------
    path, offset
        Where the map begins. It is mapped as far as it is used, since its size depends on the machine.

    Raises
    ------
    BoardError
        The file cannot be mapped, here or in an access further up, or another process drives the board.
    """

    def __init__(self, path: str | os.PathLike[str], *, offset: int = 0) -> None:
        self._path, self._offset = path, offset
        mapped, descriptor = _mapped(path, offset, mmap.PAGESIZE)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BoardError(f"{path} must not be in use by another driver, but is: {error}") from None
        self._words = _words(mapped)

    def read(self, address: int, count: int) -> npt.NDArray[np.uint32]:
        self._reach(address + count)
        return np.array([self._words[address + k] for k in range(count)], dtype=np.uint32)

    def write(self, address: int, words: npt.NDArray[np.uint32]) -> None:
        self._reach(address + words.size)
        for k, word in enumerate(words.ravel().tolist()):
            self._words[address + k] = word

    def wait(self) -> None:
        time.sleep(LOOK_SECONDS)

    def _reach(self, end: int) -> None:
        """Map words up to `end`, if fewer are mapped."""
        if end > len(self._words):
            # as large as a map can be: a power of two
            mapped, descriptor = _mapped(self._path, self._offset, 4 << (end - 1).bit_length())
            os.close(descriptor)
            self._words = _words(mapped)


class MappedPages:
    """Memory for pages in a file.

    Parameters
    ----------
    path, offset, size
        Where it is for us.
    base
        Address of its first byte on the board's bus.

    Raises
    ------
    BoardError
        The file cannot be mapped.
    """

    def __init__(self, path: str | os.PathLike[str], *, base: int, size: int, offset: int = 0) -> None:
        self.base, self.size = base, size
        self._map, descriptor = _mapped(path, offset, size)
        os.close(descriptor)

    def write(self, offset: int, data: memoryview) -> None:
        self._map[offset : offset + len(data)] = data


class MappedRecords(MappedPages):
    """A record memory in a file; parameters and errors are those of `MappedPages`."""

    def read(self, offset: int, count: int) -> bytes:
        return self._map[offset : offset + count]


class WrittenPages:
    """Memory for pages behind a file that is written at the bus's addresses, such as `/dev/xdma0_h2c_0`.

    Parameters
    ----------
    path
        The file.
    base, size
        Where the memory is on the board's bus, and in the file.

    Raises
    ------
    BoardError
        The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, base: int, size: int) -> None:
        self.base, self.size = base, size
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BoardError(f"{path} must be open to writing, but is not: {error}") from None
        weakref.finalize(self, os.close, self._descriptor)

    def write(self, offset: int, data: memoryview) -> None:
        while data:
            try:
                written = os.pwrite(self._descriptor, data, self.base + offset)
            except OSError as error:
                raise BoardError(f"{len(data)} bytes must go to {self.base + offset:#x}, but: {error}") from None
            if written == 0:
                raise BoardError(f"{len(data)} bytes must go to {self.base + offset:#x}, but none went")
            offset, data = offset + written, data[written:]
