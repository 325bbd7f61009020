"""Memory that ends before a page that no process may read, so that a read beyond its end is a crash."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(data: bytes) -> NDArray[np.uint8]:
    """A copy of data that may be written; the byte after its last one cannot be read."""
    whole = -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, whole + mmap.PAGESIZE), dtype=np.uint8)
    if _LIBC.mprotect(ctypes.c_void_p(memory.ctypes.data + whole), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = memory[whole - len(data) : whole]
    copy[:] = np.frombuffer(data, dtype=np.uint8)
    return copy
