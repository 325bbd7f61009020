"""The native consumer of the page ring: every page once and in order, sleep and wake, and memory that lies."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dana.worker.epochs import keep_what_fits
from dana.worker.protocol import ProtocolError
from dana.worker.ring import Ring
from tests.worker.producer import END, HEAD, HEADER, MAGIC, SEALS, Producer

CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
BELL = struct.pack("=IB", 0, ord("b"))


class Collector:
    """A sink that keeps the first bytes of each page."""

    def __init__(self, page_size: int, fail_at: int | None = None, pause: float = 0.0) -> None:
        self.numbers: list[int] = []
        self.calls = 0
        self._function = CONSUME(self._consume)
        self._page_size = page_size
        self._fail_at = fail_at
        self._pause = pause

    def take(self, feed: Callable[[int, int], tuple[int, int]]) -> tuple[int, int]:
        """What the ring's method feeds; the callback lives as long as this call."""
        return feed(ctypes.cast(self._function, ctypes.c_void_p).value or 0, 42)

    def _consume(self, context: int | None, address: int, count: int) -> int:
        assert context == 42
        self.calls += 1
        time.sleep(self._pause)
        for i in range(count):
            self.numbers.append(struct.unpack("=Q", ctypes.string_at(address + i * self._page_size, 8))[0])
            if self.numbers[-1] == self._fail_at:
                return 3
        return 0


def numbered(count: int, page_size: int) -> list[bytes]:
    return [struct.pack("=Q", n).ljust(page_size, b"x") for n in range(count)]


@contextmanager
def ringing(slots: int = 16, page_size: int = 8192) -> Iterator[tuple[Producer, Ring, socket.socket]]:
    """A producer, a consumer, and the producer's end of the socket."""
    ours, theirs = socket.socketpair()
    producer = Producer(lambda: theirs.sendall(BELL), slots, page_size)
    ring = Ring(memfd=producer.memfd, socket=ours.fileno())
    ring.reset()
    try:
        yield producer, ring, theirs
    finally:
        ring.close()
        ours.close()
        theirs.close()
        producer.close()


@pytest.mark.parametrize("page_size", [8192, 32768])
@pytest.mark.parametrize("count", [0, 1, 3, 15, 16, 17, 500])
def test_every_page_once_and_in_order(count: int, page_size: int) -> None:
    with ringing(16, page_size) as (producer, ring, _):
        thread = threading.Thread(target=producer.stream, args=(numbered(count, page_size),))
        thread.start()
        sink = Collector(page_size)
        assert sink.take(ring.stream) == (count, 0)
        thread.join()
        assert sink.numbers == list(range(count))
        assert ring.kept == 0


def test_kept_pages_are_replayed() -> None:
    with ringing() as (producer, ring, _):
        for count in (300, 10):
            ring.reset()
            ring.keep(count)
            thread = threading.Thread(target=producer.stream, args=(numbered(count, 8192),))
            thread.start()
            assert Collector(8192).take(ring.stream) == (count, 0)
            thread.join()
            for _ in range(3):
                sink = Collector(8192)
                assert sink.take(ring.replay) == (count, 0)
                assert sink.numbers == list(range(count))
        ring.keep(0)
        assert Collector(8192).take(ring.replay) == (0, 0)


def test_a_digest_is_of_all_pages_in_their_order() -> None:
    def digest(pages: list[bytes], slots: int = 16) -> int:
        with ringing(slots) as (producer, ring, _):
            thread = threading.Thread(target=producer.stream, args=(pages,))
            thread.start()
            Collector(8192).take(partial(ring.stream, digests=True))
            thread.join()
            return ring.digest

    pages = numbered(50, 8192)
    assert digest(pages) == digest(pages, slots=5) < 1 << 64
    turned = bytearray(pages[7])
    turned[15] ^= 0x80
    turned[8191] ^= 0x80  # signs of two numbers, the last bits of their words
    others = [pages[1::-1] + pages[2:], pages[:-1], [*pages[:7], bytes(turned), *pages[8:]]]
    assert len({digest(pages), *map(digest, others)}) == 4


def test_threads_get_many_pages_at_a_time() -> None:
    """As many as a sink takes some milliseconds for; another training begins with few again."""
    with ringing(64, 1024) as (producer, ring, _):
        for _ in range(2):
            ring.reset()
            ring.keep(6000)
            thread = threading.Thread(target=producer.stream, args=(numbered(6000, 1024),))
            thread.start()
            assert Collector(1024).take(ring.stream) == (6000, 0)
            thread.join()
            counts: list[int] = []
            function = CONSUME(lambda context, address, count: counts.append(count) or 0)  # noqa: B023
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            assert ring.replay(address, 0) == (6000, 0)
            assert counts[0] == 64
            assert max(counts) > 512
            del counts[:]
            assert ring.replay(address, 0) == (6000, 0)
            assert counts[0] > 512


def test_a_slow_sink_gets_few_pages_at_a_time() -> None:
    """So that a cancel is noticed in between."""
    with ringing(64, 1024) as (producer, ring, _):
        ring.keep(640)
        thread = threading.Thread(target=producer.stream, args=(numbered(640, 1024),))
        thread.start()
        assert Collector(1024).take(ring.stream) == (640, 0)
        thread.join()
        sink = Collector(1024, pause=0.006)
        assert sink.take(ring.replay) == (640, 0)
        assert sink.calls == 10


@pytest.mark.parametrize("room", [10, 100])
def test_uncounted_pages_are_kept_where_they_fit(room: int) -> None:
    with ringing() as (producer, ring, _):
        ring.keep(room, uncounted=True)
        thread = threading.Thread(target=producer.stream, args=(numbered(60, 8192),))
        thread.start()
        sink = Collector(8192)
        assert sink.take(ring.stream) == (60, 0)
        thread.join()
        assert sink.numbers == list(range(60))
        assert ring.kept == (60 if room == 100 else 0)


def test_what_was_outgrown_is_given_back_at_once() -> None:
    """Not when the training ends: the pages behind it may take long."""
    with ringing() as (producer, ring, _):
        held: list[bool] = []

        class Watching(Collector):
            def _consume(self, context: int | None, address: int, count: int) -> int:
                held.append(private_memory() > before + (16 << 20))
                return super()._consume(context, address, count)

        thread = threading.Thread(target=producer.stream, args=(numbered(4200, 8192),))
        before = private_memory()
        ring.keep(4096, uncounted=True)
        thread.start()
        assert Watching(8192).take(ring.stream) == (4200, 0)
        thread.join()
        assert held[0]
        assert not held[-1]


def test_memory_stays_for_the_next_training() -> None:
    """It is touched once: a page that is touched for the first time costs as much as copying it."""
    with ringing() as (producer, ring, _):

        def train(count: int) -> int:
            """Keep a stream; how many pages the kernel had to find (getrusage)."""
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            ring.reset()
            ring.keep(count)
            thread = threading.Thread(target=producer.stream, args=(pages[:count],))
            thread.start()
            assert Collector(8192).take(ring.stream) == (count, 0)
            thread.join()
            assert ring.kept == count
            ring.keep(0)
            assert ring.kept == 0
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        pages = numbered(3000, 8192)
        private = private_memory()
        train(3000)
        assert private_memory() > private + (20 << 20)
        assert train(2900) < 100
        ring.release()
        assert private_memory() < private + (4 << 20)
        assert Collector(8192).take(ring.replay) == (0, 0)


def private_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))) << 10


def test_larger_pages_in_the_same_memory() -> None:
    with ringing(64, 8192) as (producer, ring, _):
        ring.lay_out(32768)
        producer.page_size, producer.slots = 32768, 16
        thread = threading.Thread(target=producer.stream, args=(numbered(90, 32768),))
        thread.start()
        sink = Collector(32768)
        assert sink.take(ring.stream) == (90, 0)
        thread.join()
        assert sink.numbers == list(range(90))
        for size in (4096 * 3, 65536):
            with pytest.raises(ValueError, match="no room"):
                ring.lay_out(size)
    with (
        ringing(8, 8192) as (_, ring, _),
        pytest.raises(ValueError, match="a ring of 8 pages has no room for 4 of 32768"),
    ):
        ring.lay_out(32768)


@pytest.mark.parametrize("kept", [False, True])
def test_what_follows_a_failure_can_be_let_pass(kept: bool) -> None:
    with ringing() as (producer, ring, _):
        ring.keep(200 if kept else 0)
        thread = threading.Thread(target=producer.stream, args=(numbered(200, 8192),))
        thread.start()
        assert Collector(8192, fail_at=30).take(ring.stream)[1] == 3
        time.sleep(0.3)  # the producer fills what was given back before the sink failed
        ring.drain()
        thread.join()
        ring.reset()
        ring.keep(0)
        thread = threading.Thread(target=producer.stream, args=(numbered(50, 8192),))
        thread.start()
        sink = Collector(8192)
        assert sink.take(ring.stream) == (50, 0)
        thread.join()
        assert sink.numbers == list(range(50))


def test_more_pages_than_announced() -> None:
    with ringing() as (producer, ring, _):
        ring.keep(9)
        producer.stream(numbered(10, 8192))
        with pytest.raises(ProtocolError, match="further"):
            Collector(8192).take(ring.stream)


@pytest.mark.parametrize("kept", [False, True])
def test_a_failing_sink_ends_the_stream(kept: bool) -> None:
    with ringing() as (producer, ring, _):
        ring.keep(12 if kept else 0)
        producer.stream(numbered(12, 8192))
        sink = Collector(8192, fail_at=5)
        fed, status = sink.take(ring.stream)
        assert status == 3
        assert fed <= 5
        assert sink.numbers == list(range(6))


def test_sleeps_until_a_bell() -> None:
    """The consumer sleeps without burning a processor, and goes on when it is rung."""
    with ringing() as (producer, ring, _):
        sink = Collector(8192)
        thread = threading.Thread(target=sink.take, args=(ring.stream,))
        before = time.process_time()
        thread.start()
        time.sleep(0.4)
        assert time.process_time() - before < 0.2
        producer.stream(numbered(8, 8192))
        thread.join(10)
        assert not thread.is_alive()
        assert sink.numbers == list(range(8))


def test_rings_the_producer() -> None:
    """A sleeping producer is woken when a quarter of the ring is free, not for every page."""
    with ringing() as (producer, ring, peer):
        producer.stream(numbered(16, 8192), group=16)
        struct.pack_into("=I", producer.memory, 192, 1)
        Collector(8192).take(ring.stream)
        peer.settimeout(5)
        assert peer.recv(100) == BELL
        assert struct.unpack_from("=I", producer.memory, 192) == (0,)


def test_random_paces() -> None:
    rng = random.Random(5)
    for _ in range(15):
        slots = rng.choice([4, 5, 16, 64])
        with ringing(slots) as (producer, ring, _):
            count = rng.randrange(200)
            pause = rng.choice([0, 0.0002])

            pages = numbered(count, 8192)
            thread = threading.Thread(target=producer.stream, args=(pages, rng.choice([1, 3]), pause))
            thread.start()
            sink = Collector(8192, pause=rng.choice([0, 0.0003]))
            assert sink.take(ring.stream) == (count, 0)
            thread.join()
            assert sink.numbers == list(range(count))


def test_hang_up_while_waiting() -> None:
    with ringing() as (_, ring, peer):
        threading.Timer(0.1, peer.close).start()
        with pytest.raises(ConnectionResetError):
            Collector(8192).take(ring.stream)


def test_hang_up_during_replay() -> None:
    with ringing() as (producer, ring, peer):
        ring.keep(200)
        thread = threading.Thread(target=producer.stream, args=(numbered(200, 8192),))
        thread.start()
        Collector(8192).take(ring.stream)
        thread.join()
        peer.close()
        with pytest.raises(ConnectionResetError):
            Collector(8192).take(ring.replay)


def test_another_message_while_waiting() -> None:
    with ringing() as (_, ring, peer):
        peer.sendall(struct.pack("=IB", 0, ord("T")))
        with pytest.raises(ProtocolError, match="a message arrived"):
            Collector(8192).take(ring.stream)


def test_indices_that_lie() -> None:
    with ringing() as (producer, ring, _):
        struct.pack_into("=QQ", producer.memory, HEAD, 17, 17)  # END is behind it: it would be taken for 17 pages
        with pytest.raises(ProtocolError, match="further"):
            Collector(8192).take(ring.stream)
        ring.reset()
        assert struct.unpack_from("=Q", producer.memory, END) == ((1 << 64) - 1,)


class Told(Exception):
    """Raised by a signal handler."""


def test_signals_are_heard() -> None:
    def tell(_number: int, _frame: object) -> None:
        raise Told

    before = signal.signal(signal.SIGUSR1, tell)
    try:
        with ringing() as (_, ring, peer):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(Told):
                Collector(8192).take(ring.stream)
            assert peer.fileno() >= 0
    finally:
        signal.signal(signal.SIGUSR1, before)


def memory(*, length: int = HEADER + 16 * 8192, seals: int = SEALS, header: bytes | None = None) -> int:
    memfd = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, length)
    os.pwrite(memfd, struct.pack("=QII", MAGIC, 8192, 16) if header is None else header, 0)
    if seals:
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
    return memfd


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"seals": 0}, "sealed"),
        ({"seals": fcntl.F_SEAL_GROW}, "sealed"),
        ({"seals": fcntl.F_SEAL_SHRINK}, "sealed"),
        ({"length": 4095, "header": b""}, "shorter"),
        ({"length": HEADER + 15 * 8192}, "describe"),
        ({"header": struct.pack("=QII", MAGIC + 1, 8192, 16)}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 8191, 16)}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 0, 16)}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 0, 16), "length": HEADER}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 12288, 16), "length": HEADER + 16 * 12288}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 8192, 0xFFFFFFFF)}, "describe"),
        ({"header": struct.pack("=QII", MAGIC, 32768, 3), "length": HEADER + 3 * 32768}, "describe"),
    ],
)
def test_memory_that_lies(lie: dict[str, Any], says: str) -> None:
    memfd = memory(**lie)
    try:
        with pytest.raises(ValueError, match=says):
            Ring(memfd=memfd, socket=0)
    finally:
        os.close(memfd)


def test_memory_that_is_none() -> None:
    with open("/dev/null") as nothing, pytest.raises(OSError, match="Invalid argument"):
        Ring(memfd=nothing.fileno(), socket=0)


def test_after_close() -> None:
    producer = Producer(lambda: None)
    ring = Ring(memfd=producer.memfd, socket=0)
    ring.close()
    ring.close()
    for call in (lambda: ring.stream(1, 1), lambda: ring.replay(1, 1), ring.reset):
        with pytest.raises(ValueError, match="closed"):
            call()
    producer.close()


def test_a_part_of_the_room_is_better_than_none() -> None:
    """Nobody knows how many frames come: where the memory for as many as might is not there, half of it, and so on."""
    with ringing() as (producer, ring, _):
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (private_memory() + (64 << 20), hard))
        try:
            keep_what_fits(ring, 1 << 30)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        thread = threading.Thread(target=producer.stream, args=(numbered(200, 8192),))
        thread.start()
        assert Collector(8192).take(ring.stream) == (200, 0)
        thread.join()
        assert ring.kept == 200
