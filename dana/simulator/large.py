"""Memory for models: the process's own, or files that the kernel pages in and out.

In: a number of floats; once for the process, a folder. Out: zeros, the first at the beginning of a cache line. A file
has no name, so nobody else opens it and nothing is left of it when the process ends, however it does. It knows no
model.
"""

import errno
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dana.simulator.layout import LANES

Floats = NDArray[np.float32]

LARGE = 1 << 24
"""Bytes from which on an array lies in a file."""

_folder: Path | None = None


class NoRoom(OSError):
    """The folder's disk is full."""


class TooLarge(MemoryError):
    """There is no memory for an array that a file would hold."""


def keep_in(folder: Path | None) -> None:
    """Have arrays that are made from now on, and are large, lie in files of a folder; None: in memory.

    Raises
    ------
    OSError
        Files cannot be made there, or not be mapped.
    """
    global _folder
    if folder is not None:
        _mapped(folder, mmap.PAGESIZE)
    _folder = folder


def zeros(count: int) -> Floats:
    """So many floats.

    Raises
    ------
    NoRoom
        The folder's disk is full.
    TooLarge, MemoryError
        There is not enough memory.
    """
    if _folder is not None and 4 * count >= LARGE:
        return np.frombuffer(_mapped(_folder, 4 * count), np.float32)
    try:
        array = np.zeros(count + LANES, np.float32)
    except MemoryError as error:
        raise TooLarge(str(error)) if 4 * count >= LARGE else error from None
    first = -array.ctypes.data % (4 * LANES) // 4
    return array[first : first + count]


def _mapped(folder: Path, size: int) -> mmap.mmap:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        try:
            # a page that is written and has no room on the disk would end the process (SIGBUS)
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NoRoom(error.errno, f"no room for {size:,} bytes of a model", str(folder)) from error
        mapped = mmap.mmap(file.fileno(), size)
    mapped.madvise(mmap.MADV_RANDOM)  # rows are in no order: read ahead would be read in vain
    return mapped
