"""The worker's end of the page ring: maps it, checks it, and has its pages fed to a native sink.

In: the ring's memory file and the socket to the backend. Out: pages, handed to a C function in place, and kept for
later epochs where that is asked. The loops are in ``native/ring.c``; no page is looked at here.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import mmap
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import cache

from dana.errors import SetupError

MAGIC = 0x31474E4952414E44
HEADER_BYTES = 4096
PAGE_SIZES = tuple(1 << k for k in range(10, 16))
LEAST_SLOTS = 4
_HEADER = struct.Struct("=QII")
SPARED_BYTES = 256 << 20
"""Memory of kept pages that stays for the next training: a page that is touched for the first time costs the kernel as
much as copying it, and where the machine's host has to find it, thirty times as much."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""A producer that could shrink the file would turn a read into SIGBUS."""


class Outcome(IntEnum):
    """Why feeding stopped; enum dana_outcome of ring.c."""

    FINISHED = 0
    SINK_FAILED = 1
    HUNG_UP = 2
    CALL_AGAIN = 3
    UNEXPECTED = 4
    MISBEHAVED = 5


class _Consumer(ctypes.Structure):
    """struct dana_consumer of ring.c."""

    _fields_ = (
        ("ring", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("cache_pages", ctypes.c_uint64),
        ("fed", ctypes.c_uint64),
        ("slots", ctypes.c_uint32),
        ("page_size", ctypes.c_uint32),
        ("socket", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("uncounted", ctypes.c_int32),
    )


@cache
def _library() -> ctypes.CDLL:
    found = importlib.util.find_spec("dana.worker._ring")
    if found is None or found.origin is None:
        raise SetupError("the ring's native part is not built: install the package with a C compiler at hand")
    library = ctypes.CDLL(found.origin)
    consumer, pointer = ctypes.POINTER(_Consumer), ctypes.c_void_p
    library.dana_ring_reset.argtypes = (pointer,)
    library.dana_ring_reset.restype = None
    library.dana_ring_stream.argtypes = (consumer, pointer, pointer)
    library.dana_ring_replay.argtypes = (consumer, pointer, pointer, ctypes.c_uint64)
    return library


def _discard() -> tuple[int, int]:
    """A sink that looks at nothing."""
    return ctypes.cast(_library().dana_ring_discard, ctypes.c_void_p).value or 0, 0


class Ring:
    """Consumer's end of a page ring.

    Parameters
    ----------
    memfd
        Descriptor of the ring's memory; it may be closed afterwards.
    socket
        Descriptor of the connection to the backend; bells arrive and leave here.

    Raises
    ------
    OSError
        The descriptor is not a memory file.
    ValueError
        The memory is not sealed, or its header does not describe it.
    """

    def __init__(self, *, memfd: int, socket: int) -> None:
        if fcntl.fcntl(memfd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError("the ring's memory must be sealed against shrinking and growing")
        size = os.fstat(memfd).st_size
        if size < HEADER_BYTES:
            raise ValueError("the ring's memory is shorter than its header")
        self._memory = mmap.mmap(memfd, size)
        magic, self.page_size, self.slots = _HEADER.unpack_from(self._memory)
        fits = self.slots * self.page_size + HEADER_BYTES == size
        if magic != MAGIC or self.page_size not in PAGE_SIZES or self.slots < LEAST_SLOTS or not fits:
            self._memory.close()
            raise ValueError("the ring's header does not describe its memory")
        self._cache: mmap.mmap | None = None
        self._kept = 0
        self._consumer = _Consumer(
            ring=_address(self._memory), slots=self.slots, page_size=self.page_size, socket=socket
        )

    def lay_out(self, page_size: int) -> None:
        """Use the ring's memory for pages of another size, from the next stream on.

        Raises
        ------
        ValueError
            The ring has room for too few of them.
        """
        slots = self.page_size * self.slots // page_size
        if page_size not in PAGE_SIZES or slots < LEAST_SLOTS:
            raise ValueError(f"a ring of {self.slots} pages has no room for {LEAST_SLOTS} of {page_size} bytes")
        self._consumer.slots, self._consumer.page_size = slots, page_size

    @property
    def kept(self) -> int:
        """Pages kept from the last stream."""
        return self._kept

    def close(self) -> None:
        """Unmap the ring and drop the kept pages."""
        self.release()
        self._consumer.ring = None
        self._memory.close()

    def reset(self) -> None:
        """Empty the ring, before the message that asks for a stream: until then the producer does not touch it."""
        self._must_be_open()
        _library().dana_ring_reset(self._consumer.ring)

    def keep(self, pages: int, *, uncounted: bool = False) -> None:
        """Make room to keep the pages of the next stream (0: keep none, and drop what is kept).

        With ``uncounted`` there may come more, and then none is kept.

        Raises
        ------
        MemoryError
            There is no room.
        """
        self._drop()
        if not pages:
            return
        size = pages * self._consumer.page_size
        if self._cache is None or len(self._cache) < size:
            self.release()
            try:
                self._cache = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except (OSError, OverflowError) as error:
                raise MemoryError(f"no room to keep {pages} pages in {size} bytes") from error
            with suppress(OSError):  # advice only, for fewer page faults; a kernel without huge pages refuses it
                self._cache.madvise(mmap.MADV_HUGEPAGE)
        self._consumer.cache = _address(self._cache)
        self._consumer.cache_pages = pages
        self._consumer.uncounted = uncounted

    def stream(self, function: int, context: int) -> tuple[int, int]:
        """Feed one stream of pages to a sink.

        Parameters
        ----------
        function, context
            Addresses of ``int function(void *context, const uint8_t *pages, size_t n_pages)`` and of its state.

        Returns
        -------
        tuple[int, int]
            Pages fed, and 0 or the sink's non-zero status, which ended the feeding.

        Raises
        ------
        ConnectionResetError
            The backend hung up.
        ValueError
            The producer broke the protocol.
        """
        fed, status = self._feed(_library().dana_ring_stream, function, context)
        self._kept = fed if self._consumer.cache is not None else 0
        return fed, status

    def drain(self) -> None:
        """Let the rest of a stream pass whose sink failed, and drop what is kept of it; raises as `stream`."""
        self._drop()
        self._loop(_library().dana_ring_stream, *_discard())

    def replay(self, function: int, context: int) -> tuple[int, int]:
        """Feed the kept pages to a sink; like `stream`."""
        return self._feed(_library().dana_ring_replay, function, context, self._kept)

    def _feed(self, loop: Callable[..., int], function: int, context: int, *more: int) -> tuple[int, int]:
        self._must_be_open()
        if not function:
            raise ValueError("the sink's function must not be NULL")
        self._consumer.fed = 0
        return self._loop(loop, function, context, *more)

    def _loop(self, loop: Callable[..., int], function: int, context: int, *more: int) -> tuple[int, int]:
        consumer = self._consumer
        consumer.status = 0
        outcome = Outcome.CALL_AGAIN
        while outcome is Outcome.CALL_AGAIN:  # signal handlers run between the calls
            outcome = Outcome(loop(ctypes.byref(consumer), function, context, *more))
            if consumer.cache is None and consumer.cache_pages:  # outgrown
                self.release()
        match outcome:
            case Outcome.HUNG_UP:
                raise ConnectionResetError("the backend closed the connection")
            case Outcome.UNEXPECTED:
                raise ValueError("a message arrived while pages were due")
            case Outcome.MISBEHAVED:
                raise ValueError("the producer moved the ring's indices further than the ring allows")
        return consumer.fed, consumer.status

    def _must_be_open(self) -> None:
        if self._consumer.ring is None:
            raise ValueError("this ring is closed")

    def _drop(self) -> None:
        """Keep no page; memory stays for the next ones where it is little."""
        self._consumer.cache = None
        self._consumer.cache_pages = self._kept = 0
        if self._cache is not None and len(self._cache) > SPARED_BYTES:
            self.release()

    def release(self) -> None:
        """Keep no page, and no memory for pages."""
        self._consumer.cache = None
        self._consumer.cache_pages = self._kept = 0
        if self._cache is not None:
            self._cache.close()
            self._cache = None


def _address(memory: mmap.mmap) -> int:
    """Where a mapping begins; good until it is closed."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
