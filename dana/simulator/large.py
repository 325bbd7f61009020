"""Memory for models: the process's own, or files that the kernel pages in and out.

In: a number of floats; once for the process, a folder. Out: zeros, the first at the beginning of a cache line. A file
has no name, so no other process can open it and it disappears when the process ends. It knows no
model.
"""

import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dana.simulator.layout import LANES
from hwgen.folders import open_folder

Floats = NDArray[np.float32]

LARGE = 1 << 24
"""Size from which an array is kept in a file, bytes."""


def none_at_all() -> float:
    """Room for nothing."""
    return 0


_folder: Path | None = None
_room = none_at_all
_asked = 0


class NoFile(OSError):
    """No file can be created: the disk is full, or the folder is missing or writable by other accounts."""


def keep_in(folder: Path | None, room: Callable[[], float] = none_at_all) -> None:
    """Have large arrays that are made from now on lie in files where memory is short.

    Parameters
    ----------
    folder
        Of the files, as `hwgen.folders.open_folder` opens it; None: all lie in memory.
    room
        Bytes that the process may take yet: an array of at most half of them lies in memory, which is faster by what
        pages of 2 MB save.

    Raises
    ------
    NoFile
        Files cannot be made there, or not be mapped.
    """
    global _folder, _room
    if folder is not None:
        # one page at once, so that a wrong folder ends the start of the worker and not a training
        _mapped(folder, mmap.PAGESIZE)
    _folder, _room = folder, room


def lies_in_memory(folder: Path) -> bool:
    """Whether the file system of a folder is in memory (tmpfs)."""
    device = folder.stat().st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == f"{os.major(device)}:{os.minor(device)}":
            # the type of the file system follows a hyphen, after a variable number of fields (proc(5))
            return fields[fields.index("-") + 1] in ("tmpfs", "ramfs")
    return False


def asked() -> int:
    """How many arrays, of those that a file would hold, memory was asked for."""
    return _asked


def zeros(count: int) -> Floats:
    """So many floats.

    Raises
    ------
    NoFile
        The folder gives none.
    MemoryError
        There is not enough memory.
    """
    global _asked
    # 8 bytes: a float may take half of the room
    if _folder is not None and 4 * count >= LARGE and 8 * count > _room():
        return np.frombuffer(_mapped(_folder, 4 * count), np.float32)
    # counted for the hint of an error: such an array could have lain in a file
    _asked += _folder is None and 4 * count >= LARGE
    # NumPy aligns to 16 bytes only; LANES floats more leave room to begin at a cache line
    array = np.zeros(count + LANES, np.float32)
    first = -array.ctypes.data % (4 * LANES) // 4
    return array[first : first + count]


def _mapped(folder: Path, size: int) -> mmap.mmap:
    try:
        # by descriptor, so that the checked folder is the one that is used
        opened = open_folder(folder)
        try:
            with tempfile.TemporaryFile(dir=f"/proc/self/fd/{opened}", buffering=0) as file:
                # a page that is written and has no room on the disk would end the process (SIGBUS)
                os.posix_fallocate(file.fileno(), 0, size)
                # the mapping outlives the descriptor, and the file its name
                mapped = mmap.mmap(file.fileno(), size)
        finally:
            os.close(opened)
    except OSError as error:
        what = f"no file for {size:,} bytes of a model: {error.strerror or error}"
        raise NoFile(error.errno or errno.EACCES, what, str(folder)) from error
    mapped.madvise(mmap.MADV_RANDOM)  # rows are in no order: read ahead would be read in vain
    return mapped
