"""Memory that ends before a page that no process may read, so that a read beyond its end is a crash."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

_LIBC = ctypes.CDLL(None, use_errno=True)
_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def guarded(data: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy of data that may be written; the byte after its last one cannot be read."""
    given = np.frombuffer(data, dtype=np.uint8)
    whole = -(-given.size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, whole + mmap.PAGESIZE), dtype=np.uint8)
    if _LIBC.mprotect(ctypes.c_void_p(memory.ctypes.data + whole), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = memory[whole - given.size : whole]
    copy[:] = given
    return copy


def consumed(function: int, context: int, pages: bytes | NDArray[np.uint8], page_size: int = 8192) -> int:
    """The status of a sink that was given pages, which are gone now."""
    memory = guarded(pages)
    return int(_CONSUME(function)(context, memory.ctypes.data, memory.size // page_size))
