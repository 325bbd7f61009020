"""Tables in files where memory holds an eighth of them: pages that the kernel reads, compared with the minimum.

Ratings of users and items, Zipf 1.0, in random order and in blocks of users and items. The reference is the cache of as
many pages that drops what is used again last (MIN: it knows what comes); LRU is shown too. Where this process may
make a control group of memory (version 1: root), an epoch runs in one; elsewhere LRU's pages are judged in the place of
the kernel's.
"""

from __future__ import annotations

import ctypes
import heapq
import mmap
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, main
from benchmarks.speed.simulator import feed
from benchmarks.speed.workload import compiled_rule, with_code
from dana.simulator import large
from dana.storage.columns import column_pages, column_schema

Trace = NDArray[np.int64]
"""Rows, or pages, in the order of their use."""

ROWS, RATINGS, SKEW = 1_000_000, 400_000, 1.0
BLOCKS = 16
"""Of users, and of items: two of them are in memory."""
SHARE = 8
"""Times the memory for pages that tables are."""
GROUPS = Path("/sys/fs/cgroup/memory")
PAGEOUT = 21
"""madvise(2), MADV_PAGEOUT."""
NO_HUGE_PAGES = 41
"""prctl(2), PR_SET_THP_DISABLE: what the kernel joins of other memory would be counted in the group."""
BOUNDS = {"in random order": 2.2, "in blocks": 1.8}
"""What the kernel comes to, with some room."""


def run() -> list[Figure]:
    """Two orders."""
    figures = []
    for order, bound in BOUNDS.items():
        pairs = _pairs(blocks=order == "in blocks")
        trace, held = _pages(pairs)
        twice = np.tile(trace, 2)  # of a later epoch
        best, lately = (count(twice, held) - count(trace, held) for count in (_missed_min, _missed_lru))
        found = _measured(pairs)
        kernel = "no group to run in" if found is None else f"the kernel {found[0] / RATINGS:.2f}, {found[1]:.0f} s"
        figures.append(
            Figure(
                what=f"{ROWS:,} + {ROWS:,} rows, Zipf {SKEW}, {order}",
                measured=f"pages read a rating: {kernel}; LRU {lately / RATINGS:.2f}",
                reference=f"MIN {best / RATINGS:.2f}",
                ratio=(lately if found is None else found[0]) / best,
                target=bound,
            )
        )
    return figures


def _pairs(*, blocks: bool) -> Trace:
    """Users and items, [RATINGS, 2]."""
    random = np.random.default_rng(0)
    weights = np.arange(1, ROWS + 1) ** -SKEW
    drawn = [random.permutation(ROWS)[random.choice(ROWS, RATINGS, p=weights / weights.sum())] for _ in range(2)]
    pairs = np.stack(drawn, axis=1)
    if blocks:
        user, item = (pairs * BLOCKS // ROWS).T
        # each other row of blocks backwards: the last block of items is there yet
        pairs = pairs[np.lexsort((np.where(user % 2, BLOCKS - item, item), user))]
    return pairs


def _pages(pairs: Trace) -> tuple[Trace, int]:
    """Pages in the order of their use, and how many are held: of factors, 64 bytes a row, and of biases, 4."""
    used, first = [], 0
    for size in (64, 4):
        for column in pairs.T:
            used.append(first + column * size // mmap.PAGESIZE)
            first += -(-ROWS * size // mmap.PAGESIZE)
    return np.stack(used, axis=1).reshape(-1), first // SHARE


def _missed_lru(trace: Trace, rows: int) -> int:
    """Misses of a cache that drops what was used least lately."""
    cached: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for row in trace.tolist():
        missed += row not in cached
        cached[row] = None
        cached.move_to_end(row)
        if len(cached) > rows:
            cached.popitem(last=False)
    return missed


def _missed_min(trace: Trace, rows: int) -> int:
    """Misses of a cache that drops what is used again last."""
    again = np.full(len(trace), len(trace))
    last: dict[int, int] = {}
    for k in range(len(trace) - 1, -1, -1):
        again[k] = last.get(int(trace[k]), len(trace))
        last[int(trace[k])] = k
    cached: dict[int, int] = {}  # row: when it is used again
    heap: list[tuple[int, int]] = []
    missed = 0
    for row, then in zip(trace.tolist(), again.tolist(), strict=True):
        if row not in cached:
            missed += 1
            while len(cached) >= rows:
                latest, other = heapq.heappop(heap)
                if cached.get(other) == -latest:
                    del cached[other]
        cached[row] = then
        heapq.heappush(heap, (-then, row))
    return missed


def _measured(pairs: Trace) -> tuple[int, float] | None:
    """Pages that the kernel reads in an epoch, and seconds; None: there is no such group.

    In a process of its own, which ends with its group.
    """
    if not (GROUPS / "memory.limit_in_bytes").exists() or not os.access(GROUPS, os.W_OK):
        return None
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_epoch, pairs).result()


def _epoch(pairs: Trace) -> tuple[int, float]:
    ctypes.CDLL(None).prctl(NO_HUGE_PAGES, 1, 0, 0, 0)
    y = np.random.default_rng(1).standard_normal(RATINGS)
    columns = {"i": pairs[:, 0], "j": pairs[:, 1], "y": y}
    floats = {name: values.astype(np.float32) for name, values in columns.items()}
    heap, hyper = column_pages(floats), {"m": ROWS, "n": ROWS}
    request, design = compiled_rule("lrmf", column_schema(floats, "bench"), pages=len(heap), hyper=hyper)
    maps: list[mmap.mmap] = []
    make = large._mapped
    large._mapped = lambda folder, size: (maps.append(make(folder, size)), maps[-1])[1]
    large.LARGE = 1 << 20  # biases, too
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # /tmp may be memory
        large.keep_in(Path(folder))
        machine = with_code(request, design)

        def epoch() -> None:
            machine.begin_epoch()
            feed(machine.sink_again, heap)
            if machine.end_epoch().tuples != RATINGS or not machine.proved:
                raise RuntimeError("the simulator stopped, or its code is wrong")

        for one in maps[1:]:  # the first was a trial of the folder
            np.frombuffer(one, np.float32)[:] = 0.01
        epoch()
        with _group() as limit:
            for one in maps[1:]:
                one.flush()
                one.madvise(PAGEOUT)
            limit(sum(map(len, maps)) // SHARE)
            epoch()
            before = _read()
            epoch()
            return tuple(now - then for now, then in zip(_read(), before, strict=True))  # type: ignore[return-value]


@contextmanager
def _group() -> Iterator[Callable[[int], object]]:
    """This process in a group of its own, whose memory can be limited."""
    group = GROUPS / f"dana-bench-{os.getpid()}"
    group.mkdir()
    home = GROUPS / next(line.partition(":memory:/")[2] for line in _lines("/proc/self/cgroup") if ":memory:" in line)
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield lambda size: (group / "memory.limit_in_bytes").write_text(str(size))
    finally:
        (group / "memory.limit_in_bytes").write_text("-1")
        (home / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):
            group.rmdir()


def _read() -> tuple[int, float]:
    """Pages that came from the disk for this process, and the time."""
    size = next(int(line.split()[1]) for line in _lines("/proc/self/io") if line.startswith("read_bytes"))
    return size // mmap.PAGESIZE, os.times().elapsed


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


if __name__ == "__main__":
    main(run)
