"""A cache of rows on the chip, which no machine has: how often it would miss, and what it would save of the bytes.

Ratings of two tables of factors with their rows in external record memory. Each rating reads and writes a row of
either; a row that is not in the cache is fetched, and another one stored. Misses of the row that was used least lately
(LRU), of the one that is used again last (MIN: Belady 1966, which knows what comes), and of the hottest rows, which
stay. Caches are fully associative; the ratio is MIN's bytes to those without a cache.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, main

RECORD = 128
"""Bytes of a record of `lrmf`, rank 10: two rows of 16 lanes."""
RATINGS = 400_000

Trace = NDArray[np.int64]
"""Rows in the order of their use; those of the second table are numbered behind the first's."""


def run() -> list[Figure]:
    """Orders, skews and sizes."""
    figures = []
    for users, items, skew, order, rows in (
        (6_000, 4_000, 0.8, "random order", 1024),
        (6_000, 4_000, 0.8, "random order", 4096),
        (6_000, 4_000, 0.8, "sorted by user", 1024),
        (500_000, 500_000, 1.0, "random order", 16_384),
        (500_000, 500_000, 1.0, "random order", 65_536),
    ):
        trace = _trace(users, items, skew, by_user=order != "random order")
        missed = (count(trace, rows) / len(trace) for count in (missed_min, missed_lru, missed_hottest))
        best, lately, hottest = missed
        figures.append(
            Figure(
                what=f"{rows:,} of {users:,} + {items:,} rows, Zipf {skew}, {order}",
                measured=f"misses: MIN {best:.1%}, LRU {lately:.1%}, the hottest stay {hottest:.1%}",
                reference=f"{best * 4 * RECORD:.0f} of {4 * RECORD} bytes a rating",
                ratio=best,
                target=1.0,
                at_most=True,
            )
        )
    return figures


def _trace(users: int, items: int, skew: float, *, by_user: bool) -> Trace:
    random = np.random.default_rng(0)
    chosen = []
    for count in (users, items):
        weights = np.arange(1, count + 1) ** -skew
        chosen.append(random.permutation(count)[random.choice(count, RATINGS, p=weights / weights.sum())])
    order = np.argsort(chosen[0], kind="stable") if by_user else np.arange(RATINGS)
    return np.stack([chosen[0][order], users + chosen[1][order]], axis=1).reshape(-1)


def missed_lru(trace: Trace, rows: int) -> int:
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


def missed_min(trace: Trace, rows: int) -> int:
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


def missed_hottest(trace: Trace, rows: int) -> int:
    """Misses of a cache of the rows that are used most often, each of which is fetched once."""
    counts = np.sort(np.unique(trace, return_counts=True)[1])
    return int(counts[:-rows].sum()) + min(rows, len(counts))


if __name__ == "__main__":
    main(run)
