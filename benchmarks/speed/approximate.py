"""What the literature changes in a factor model to save work: its cost in loss, and what it would save here.

Blocks (Marius, OSDI 2021): ratings go by block of users and block of items, so that a memory of two blocks is enough.
Stale rows (Slipstream, SC 2024): rows that an epoch changed least are read and not written, until all are again every
fourth epoch. No machine has either; both are rule `lrmf` written in numba, 20 epochs, judged on the fifth of the
ratings that were left out. Ratings are made, by Zipf's law, or MovieLens where ``$DANA_DATA`` has it. The ratio is the
difference of the root mean square errors, in deviations, to the same in random order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.movielens import FILE, FILES
from benchmarks.measure import Figure, main
from benchmarks.peers.factors import standardised
from benchmarks.peers.learners import Floats, first_factors
from benchmarks.speed.rows import RECORD

EPOCHS, RANK, TOGETHER = 20, 10, 16
BLOCKS = (4, 8, 16)
SHARES = (0.25, 0.4)
"""Of the updates, those that stale rows would have had."""
WHOLE, EVERY = 4, 4
"""Epochs at first, and one of so many, in which every row is written."""
ASKED = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings in random order: numbers of users and items, shape (rows, 2), and what they are."""

    name: str
    pairs: NDArray[np.int64]
    y: Floats
    counts: tuple[int, int]

    @property
    def learnt(self) -> int:
        """So many ratings are trained on, those behind them judged."""
        return len(self.y) * 4 // 5


def run() -> list[Figure]:
    """Blocks of several sizes, and several shares of stale rows."""
    figures = []
    for ratings in _tables():
        start = np.arange(ratings.learnt)
        plain, _ = _trained(ratings, start)
        together = _together(ratings, start)
        for blocks in BLOCKS:
            order = _in_blocks(ratings, blocks)
            error, _ = _trained(ratings, order)
            figures.append(
                _figure(
                    f"{blocks} × {blocks} blocks, {ratings.name}", error, plain,
                    f"{_fetched(ratings, blocks) * 2 * RECORD / ratings.learnt:.0f} of {4 * RECORD} bytes a rating; "
                    f"{_together(ratings, order):.1f} of {TOGETHER} side by side, random {together:.1f}",
                )
            )  # fmt: skip
        for share in SHARES:
            error, skipped = _trained(ratings, start, share)
            figures.append(_figure(f"stale rows, {ratings.name}", error, plain, f"{skipped:.0%} of updates not made"))
    return figures


def _figure(what: str, error: float, plain: float, saved: str) -> Figure:
    return Figure(
        what=what,
        measured=f"error {error:.4f}; {saved}",
        reference=f"{plain:.4f} in random order",
        ratio=error - plain,
        target=ASKED,
        at_most=True,
    )


def _tables() -> Iterator[Ratings]:
    random = np.random.default_rng(0)
    counts, rows = (6_000, 4_000), 300_000
    weights = [np.arange(1, count + 1) ** -0.8 for count in counts]
    pairs = np.stack(
        [
            random.permutation(count)[random.choice(count, rows, p=weight / weight.sum())]
            for count, weight in zip(counts, weights, strict=True)
        ],
        axis=1,
    )
    users, items = (random.normal(0, size, (count, 5)) for count, size in zip(counts, (0.5, 0.7), strict=True))
    own, other = (random.normal(0, size, count) for count, size in zip(counts, (0.4, 0.5), strict=True))
    i, j = pairs.T
    y = own[i] + other[j] + (users[i] * items[j]).sum(axis=1) + random.normal(0, 0.8, rows)
    yield Ratings(name="Zipf 0.8", pairs=pairs, y=standardised(y.astype(np.float32))[0], counts=counts)
    file = Path(os.environ.get("DANA_DATA", ".")) / FILE
    if file.exists():
        features, stars = FILES["movielens 100k"][1](file)
        order = random.permutation(len(stars))
        pairs = features[order].astype(np.int64)
        most = pairs.max(axis=0) + 1
        y = standardised(stars[order].astype(np.float32))[0]
        yield Ratings(name="MovieLens", pairs=pairs, y=y, counts=(int(most[0]), int(most[1])))


def _blocks_of(ratings: Ratings, blocks: int) -> NDArray[np.int64]:
    """Of each rating that is trained on, shape (rows, 2)."""
    return ratings.pairs[: ratings.learnt] * blocks // np.asarray(ratings.counts)


def _in_blocks(ratings: Ratings, blocks: int) -> NDArray[np.int64]:
    """Ratings by block of users, and to and fro by block of items, of which each keeps one for the next."""
    users, items = _blocks_of(ratings, blocks).T
    return np.argsort(users * blocks + np.where(users % 2, blocks - 1 - items, items), kind="stable")


def _fetched(ratings: Ratings, blocks: int) -> float:
    """Rows that an epoch fetches into a memory of two blocks, as many as it stores."""
    users, items = ratings.counts
    return users + items / blocks * (blocks * (blocks - 1) + 1)


def _together(ratings: Ratings, order: NDArray[np.int64]) -> float:
    """Ratings that a machine takes side by side: so many, or up to the first that shares a row with one of them."""
    batches, seen, size = 1, set[tuple[int, int]](), 0
    for pair in ratings.pairs[order].tolist():
        rows = set(enumerate(pair))
        if size == TOGETHER or rows & seen:
            batches, seen, size = batches + 1, set(), 0
        seen |= rows
        size += 1
    return len(order) / batches


def _trained(ratings: Ratings, order: NDArray[np.int64], share: float = 0) -> tuple[float, float]:
    """Error of the ratings left out, and the share of the updates that were not made."""
    step = _epoch()
    models = [*first_factors(ratings.counts), *(np.zeros(count, np.float32) for count in ratings.counts)]
    pairs, y = ratings.pairs[order], ratings.y[order]
    uses = [np.bincount(pairs[:, k], minlength=count) for k, count in enumerate(ratings.counts)]
    written = [np.ones(count, np.bool_) for count in ratings.counts]
    skipped = 0
    for epoch in range(EPOCHS):
        whole = epoch < WHOLE or (epoch - WHOLE) % EVERY == 0
        if whole:
            written = [np.ones_like(one) for one in written]
        before = [one.copy() for one in models[:2]]
        skipped += step(*models, *written, pairs, y)
        if share and whole and epoch >= WHOLE - 1:
            changes = [
                np.linalg.norm(now - old, axis=1) / np.maximum(np.linalg.norm(old, axis=1), 1e-9)
                for now, old in zip(models, before, strict=False)
            ]
            least = np.argsort(np.concatenate(changes))
            stale = np.cumsum(np.concatenate(uses)[least]) <= share * 2 * len(y)
            kept = np.ones(len(least), np.bool_)
            kept[least[stale]] = False
            written = [kept[: ratings.counts[0]], kept[ratings.counts[0] :]]
    u, v, a, b = models
    i, j = ratings.pairs[ratings.learnt :].T
    missed = a[i] + b[j] + (u[i] * v[j]).sum(axis=1) - ratings.y[ratings.learnt :]
    return float(np.sqrt(np.mean(missed**2))), skipped / (2 * len(y) * EPOCHS)


def _epoch() -> Any:
    import numba

    rate, penalty = np.float32(0.02), np.float32(0.05)

    @numba.njit(fastmath=True)
    def epoch(u, v, a, b, left, right, pairs, y):  # type: ignore[no-untyped-def]
        skipped = 0
        for row in range(len(y)):
            i, j = pairs[row, 0], pairs[row, 1]
            error = a[i] + b[j] - y[row]
            for k in range(RANK):
                error += u[i, k] * v[j, k]
            for k in range(RANK):
                one, other = u[i, k], v[j, k]
                if left[i]:
                    u[i, k] = one - rate * (error * other + penalty * one)
                if right[j]:
                    v[j, k] = other - rate * (error * one + penalty * other)
            if left[i]:
                a[i] -= rate * (error + penalty * a[i])
            if right[j]:
                b[j] -= rate * (error + penalty * b[j])
            skipped += (not left[i]) + (not right[j])
        return skipped

    return epoch


if __name__ == "__main__":
    main(run)
