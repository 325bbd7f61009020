"""Pages with the rows of other pages in a pseudo-random order.

In: pages in heap order, through a native sink; which rows a machine skips. Out: heap pages with copies of the same
tuples, to any number of sinks. With m the finaliser of splitmix64, row k of the rows that train, counted from 0 in heap
order, has the key m(m(seed) + (k + 1) · 0x9e3779b97f4a7c15), modulo 2^64. Rows come in ascending order of their keys,
then those that are skipped. So the order depends on neither pages nor memory. The work is done in
``native/permute.c``.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from dana.errors import SetupError

CHUNK_BYTES = (1 << 19) + 320
"""Unit of memory, CHUNK of permute.c."""

FILE_BYTES = 64 << 20
"""Bytes by which a file grows."""

NO_MEMORY = errno.ENOMEM
"""Status of the sink, and of `feed`, when the memory of the caller is used up."""


class TemporaryFileLimit(Exception):
    """The rows need more bytes in files than the caller permits."""


class NoTemporaryFile(OSError):
    """No file can be created for the rows: the disk is full, or the folder is missing or not writable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """A pseudo-random order of the rows of a table.

    Attributes
    ----------
    seed
        Chooses the order.
    used
        Attributes in use, counted from 0: a row is skipped if one of them is NULL.
    tuples
        Number of tuples of a row: more than one for a row in parts.
    """

    seed: int
    used: tuple[int, ...]
    tuples: int = 1


class _Outcome(IntEnum):
    """enum outcome of permute.c."""

    FINISHED = 0
    AGAIN = 1
    SINK_FAILED = 2


_MORE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))


@cache
def _library() -> ctypes.CDLL:
    found = importlib.util.find_spec("dana.storage._permute")
    if found is None or found.origin is None:
        raise SetupError("the native part of storage is missing: run make in a checkout, else install dana-db again")
    library = ctypes.CDLL(found.origin)
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    library.dana_permutation_new.argtypes = (number, ctypes.c_uint64, pointer, number, number, _MORE)
    library.dana_permutation_new.restype = pointer
    library.dana_permutation_feed.argtypes = (pointer, pointer, pointer)
    library.dana_permutation_rewind.argtypes = library.dana_permutation_free.argtypes = (pointer,)
    library.dana_permutation_rewind.restype = library.dana_permutation_free.restype = None
    library.dana_permutation_fed.argtypes = library.dana_permutation_status.argtypes = (pointer,)
    library.dana_permutation_fed.restype = ctypes.c_uint64
    library.dana_permutation_damaged.argtypes = (pointer,)
    library.dana_permutation_damaged.restype = ctypes.c_bool
    return library


class PermutedPages:
    """The rows of a table in another order, for any number of passes.

    Parameters
    ----------
    page_size
        Bytes of a page.
    order
        The order of the rows.
    memory
        Yields memory, each time at least `CHUNK_BYTES` at a multiple of 8; it is asked when the memory before is used
        up. In addition to the tuples, up to 32 MB of chunks are partly filled.

    Raises
    ------
    MemoryError
        There is no memory for an empty table.
    """

    def __init__(self, *, page_size: int, order: RowOrder, memory: Iterator[mmap.mmap]) -> None:
        self._memory = memory
        self._held: list[mmap.mmap] = []
        self._error: BaseException | None = None
        self._more = _MORE(self._take_memory)
        used = (ctypes.c_uint16 * len(order.used))(*order.used)
        seed = order.seed % (1 << 64)
        made = _library().dana_permutation_new(page_size, seed, used, len(order.used), order.tuples, self._more)
        if not made:
            raise MemoryError("no room for an order of rows")
        self._permutation: int = made
        self._finalizer = weakref.finalize(self, _library().dana_permutation_free, made)

    @property
    def sink(self) -> tuple[int, int]:
        """Addresses of the native function that takes the pages in heap order, and of its context."""
        address = ctypes.cast(_library().dana_permutation_take, ctypes.c_void_p).value
        assert address is not None
        return address, self._open()

    @property
    def damaged(self) -> bool:
        """Whether a page contradicted itself; neither it nor later pages were taken."""
        return bool(_library().dana_permutation_damaged(self._open()))

    def check(self) -> None:
        """Raise the error of `memory` that ended the sink with `NO_MEMORY`, if there was one."""
        if self._error is not None:
            raise self._error

    def feed(self, function: int, context: int) -> tuple[int, int]:
        """Feed all pages to a sink; return their number, and 0 or the status of the sink that ended the pass.

        Raises
        ------
        MemoryError
            The memory is used up; or the error of `memory`.
        """
        library, permutation = _library(), self._open()
        library.dana_permutation_rewind(permutation)
        # Python runs signal handlers between the calls
        while (outcome := library.dana_permutation_feed(permutation, function, context)) == _Outcome.AGAIN:
            pass
        if outcome == NO_MEMORY:
            self.check()
            raise MemoryError("no room for the rows in another order")
        status = library.dana_permutation_status(permutation) if outcome == _Outcome.SINK_FAILED else 0
        return int(library.dana_permutation_fed(permutation)), int(status)

    def close(self) -> None:
        """Free the memory; idempotent."""
        self._finalizer()
        # a suspended generator holds the file that it yielded last, and `_more` makes this object a cycle: without this
        # an idle session would keep 64 MB of disk until Python's collector runs
        self._memory = iter(())
        self._held.clear()

    def _open(self) -> int:
        if not self._finalizer.alive:
            raise ValueError("these pages are closed")
        return self._permutation

    def _take_memory(self, address: ctypes._Pointer[ctypes.c_void_p]) -> int:
        try:
            one = next(self._memory, None)
        except BaseException as error:  # no exception passes through C
            self._error = error
            return 0
        if one is None:
            return 0
        self._held.append(one)
        address[0] = ctypes.addressof(ctypes.c_char.from_buffer(one))
        return len(one)


def temporary_files(folder: Path | None, limit: int | None = None) -> Iterator[mmap.mmap]:
    """Yield memory of files without a name: no other process can open them, and they disappear with this one.

    Parameters
    ----------
    folder
        The folder of the files; None: that of temporary files, ``$TMPDIR``.
    limit
        Bytes of all files together; None: no limit.

    Raises
    ------
    TemporaryFileLimit
        The files have reached the limit.
    NoTemporaryFile
        The folder gives no file, or the disk is full.
    """
    left = sys.maxsize if limit is None else limit
    while left >= CHUNK_BYTES:
        size = min(FILE_BYTES, left)
        left -= size
        try:
            # by itself, tempfile takes another folder where this one is missing
            with tempfile.TemporaryFile(dir=folder or os.environ.get("TMPDIR") or None, buffering=0) as file:
                # a page that is written and has no room on the disk would end the process (SIGBUS)
                os.posix_fallocate(file.fileno(), 0, size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            what = f"no file for {size:,} bytes of rows: {error.strerror or error}"
            raise NoTemporaryFile(error.errno or errno.EACCES, what, str(folder or "$TMPDIR")) from error
        yield mapped
    raise TemporaryFileLimit


def anonymous(size: int) -> mmap.mmap:
    """Return memory of the process.

    Raises
    ------
    MemoryError
        There is not enough.
    """
    try:
        # private, so that it counts for RLIMIT_DATA as all memory of a session does
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no room for {size} bytes") from error
    with suppress(OSError):  # only advice; an error on kernels without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
