"""The consumer of the page ring: maps and checks it, and feeds its pages to a native sink.

Pages are passed to a C function in place, and optionally copied for later epochs. The loops are in ``native/ring.c``;
the content of pages is not interpreted.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import mmap
import os
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache

from dana.errors import SetupError
from dana.storage.permuted import anonymous
from dana.worker.protocol import ProtocolError

# "DNARING1" in the memory of a little-endian host; native/wire.h has the same number
MAGIC = 0x31474E4952414E44
HEADER_BYTES = 4096
PAGE_SIZES = tuple(1 << k for k in range(10, 16))
LEAST_SLOTS = 4
_HEADER = struct.Struct("=QII")
SPARED_BYTES = 256 << 20
"""Memory of kept pages that is retained for the next training, bytes. The first access to a page costs as much as
copying it, and thirty times as much if the hypervisor has to provide it."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""Required seals: a read after the producer shrank the file would raise SIGBUS."""


class Outcome(IntEnum):
    """Reason why feeding stopped; enum dana_outcome of ring.c."""

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
        ("at_once", ctypes.c_uint32),
        ("uncounted", ctypes.c_int32),
        ("digest", ctypes.c_uint64),
        ("digests", ctypes.c_int32),
    )


@cache
def _library() -> ctypes.CDLL:
    found = importlib.util.find_spec("dana.worker._ring")
    if found is None or found.origin is None:
        raise SetupError("the native part of the ring is missing: run make in a checkout, else install dana-db again")
    library = ctypes.CDLL(found.origin)
    consumer, pointer = ctypes.POINTER(_Consumer), ctypes.c_void_p
    library.dana_ring_reset.argtypes = (pointer,)
    library.dana_ring_reset.restype = None
    library.dana_ring_beat.argtypes = (pointer,)
    library.dana_ring_beat.restype = None
    library.dana_ring_stream.argtypes = (consumer, pointer, pointer)
    library.dana_ring_replay.argtypes = (consumer, pointer, pointer, ctypes.c_uint64)
    return library


def _discard() -> tuple[int, int]:
    """Return a sink that ignores its pages."""
    return ctypes.cast(_library().dana_ring_discard, ctypes.c_void_p).value or 0, 0


class Ring:
    """Consumer of a page ring.

    Parameters
    ----------
    memfd
        Descriptor of the memory of the ring; it may be closed afterwards.
    socket
        Descriptor of the connection to the backend, on which bells are exchanged.

    Raises
    ------
    OSError
        The descriptor is not a memory file.
    ValueError
        The memory is not sealed, or its header is wrong.
    """

    def __init__(self, *, memfd: int, socket: int) -> None:
        # without the seals the other side could shrink the file, and a read behind its end is a SIGBUS
        if fcntl.fcntl(memfd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError("the ring's memory must be sealed against shrinking and growing")
        size = os.fstat(memfd).st_size
        if size < HEADER_BYTES:
            raise ValueError("the ring's memory is shorter than its header")
        # shared and writable, the default: the consumer writes its index and its sleeping flag there
        self._memory = mmap.mmap(memfd, size)
        # copied once: the other side can still write to the memory
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
        """Use the memory of the ring for pages of another size, starting with the next stream.

        Raises
        ------
        ValueError
            Too few pages of this size fit.
        """
        slots = self.page_size * self.slots // page_size
        if page_size not in PAGE_SIZES or slots < LEAST_SLOTS:
            raise ValueError(f"a ring of {self.slots} pages has no room for {LEAST_SLOTS} of {page_size} bytes")
        self._consumer.slots, self._consumer.page_size = slots, page_size

    @property
    def laid_out(self) -> int:
        """Bytes of a page, as last laid out."""
        return int(self._consumer.page_size)

    @property
    def kept(self) -> int:
        """Number of pages kept from the last stream."""
        return self._kept

    def close(self) -> None:
        """Unmap the ring and drop the kept pages."""
        self.release()
        self._consumer.ring = None
        self._memory.close()

    def beat(self) -> None:
        """Show the producer that this process runs."""
        if self._consumer.ring is not None:
            _library().dana_ring_beat(self._consumer.ring)

    def reset(self) -> None:
        """Empty the ring. Call it before requesting a stream, while the producer does not access the ring."""
        self._must_be_open()
        # indices are reset by one side alone, and only while the other waits for the request
        _library().dana_ring_reset(self._consumer.ring)

    def keep(self, pages: int, *, uncounted: bool = False) -> None:
        """Allocate memory to keep the pages of the next stream; 0: drop the kept pages and keep none.

        With ``uncounted`` the stream may have more pages; then none is kept.

        Raises
        ------
        MemoryError
            There is not enough memory.
        """
        self._drop()
        if not pages:
            return
        cache = self._reserve(pages * self._consumer.page_size)
        self._consumer.cache = _address(cache)
        self._consumer.cache_pages = pages
        self._consumer.uncounted = uncounted

    def lend(self, size: int) -> mmap.mmap:
        """Return the memory of kept pages, at least `size` bytes, for another use until the next `keep`.

        Raises
        ------
        MemoryError
            There is not enough memory.
        """
        self._drop()
        return self._reserve(size)

    def _reserve(self, size: int) -> mmap.mmap:
        if self._cache is None or len(self._cache) < size:
            self.release()
            self._cache = anonymous(size)
        return self._cache

    @property
    def digest(self) -> int:
        """Hash of all bytes of the last stream with ``digests``."""
        return int(self._consumer.digest)

    def stream(self, function: int, context: int, *, digests: bool = False) -> tuple[int, int]:
        """Feed one stream of pages to a sink.

        Parameters
        ----------
        function, context
            Addresses of ``int function(void *context, const uint8_t *pages, size_t n_pages)`` and of its context.
        digests
            Hash the pages, too.

        Returns
        -------
        tuple[int, int]
            Number of pages fed, and 0 or the non-zero status of the sink that ended feeding.

        Raises
        ------
        ConnectionResetError
            The backend disconnected.
        ProtocolError
            The backend violated the protocol.
        """
        self._consumer.digest, self._consumer.digests = 0, digests
        fed, status = self._feed(_library().dana_ring_stream, function, context)
        self._kept = fed if self._consumer.cache is not None else 0
        return fed, status

    def drain(self) -> None:
        """Discard the rest of a stream after its sink failed, and the pages kept from it; raises as `stream`."""
        self._drop()
        # _loop and not _feed, which would start a new stream: this one continues
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
        while outcome is Outcome.CALL_AGAIN:  # Python runs signal handlers between the calls
            outcome = Outcome(loop(ctypes.byref(consumer), function, context, *more))
            if consumer.cache is None and consumer.cache_pages:  # more pages came than fit
                self.release()
        match outcome:
            case Outcome.HUNG_UP:
                raise ConnectionResetError("the backend closed the connection")
            case Outcome.UNEXPECTED:
                raise ProtocolError("a message arrived while pages were due")
            case Outcome.MISBEHAVED:
                raise ProtocolError("the producer moved the ring's indices further than the ring allows")
        return consumer.fed, consumer.status

    def _must_be_open(self) -> None:
        if self._consumer.ring is None:
            raise ValueError("this ring is closed")

    def _drop(self) -> None:
        """Drop the kept pages; retain up to `SPARED_BYTES` of memory."""
        self._consumer.cache = None
        self._consumer.at_once = 0  # another training may take longer for a page
        self._consumer.cache_pages = self._kept = 0
        if self._cache is not None and len(self._cache) > SPARED_BYTES:
            self.release()

    def release(self) -> None:
        """Drop the kept pages and free their memory."""
        self._consumer.cache = None
        self._consumer.cache_pages = self._kept = 0
        if self._cache is not None:
            self._cache.close()
            self._cache = None


def _address(memory: mmap.mmap) -> int:
    """Return the address of a mapping, valid until it is closed."""
    # the temporary object is freed at once; a lasting export would keep mmap.close() from working
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
