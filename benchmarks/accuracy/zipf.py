"""Made tables of categories, as frequent as Zipf's law has them: pairs that occur, and rows with a label.

In: nothing; the seed is fixed. Out: features, which are numbers of categories from 0 and perhaps numbers; labels. The
label of a pair is 1 if it occurred, and 0 for as many pairs drawn at random: a ranking must separate the two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Raw = tuple[NDArray[np.float64], NDArray[np.float64]]
COUNTS = (150, 60, 12, 4)
"""Categories of each column of `clicks` and `grades`."""


def frequent(count: int, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Categories by Zipf's law, the most frequent 0."""
    share = 1 / np.arange(1, count + 1)
    return random.choice(count, rows, p=share / share.sum())


def with_others(pairs: NDArray[np.int64], count: int, random: np.random.Generator) -> Raw:
    """Pairs, and as many that never occurred: the same first numbers, with random second ones."""
    occurred = set(map(tuple, pairs.tolist()))
    others = np.stack([random.permutation(pairs[:, 0]), random.integers(0, count, len(pairs))], axis=1)
    others = others[[tuple(pair) not in occurred for pair in others.tolist()]]
    return np.concatenate([pairs, others]).astype(np.float64), np.repeat([1.0, 0.0], [len(pairs), len(others)])


def purchases() -> Raw:
    """Users and items of six kinds: a user buys mostly of two of them."""
    random = np.random.default_rng(1)
    users, items = random.integers(0, 300, 40_000), frequent(200, 40_000, random)
    likes = random.integers(0, 6, (300, 2))
    bought = (likes[users] == (items % 6)[:, None]).any(axis=1) | (random.random(40_000) < 0.05)
    return with_others(np.unique(np.stack([users, items], axis=1)[bought], axis=0), 200, random)


def neighbours() -> Raw:
    """Words of ten subjects, neighbours mostly of one."""
    random = np.random.default_rng(2)
    pairs = np.stack([frequent(200, 60_000, random), frequent(200, 60_000, random)], axis=1)
    pairs = pairs[(pairs[:, 0] % 10 == pairs[:, 1] % 10) | (random.random(60_000) < 0.02)]
    return with_others(pairs, 200, random)


def _rows(seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64], np.random.Generator]:
    """Categories, and a score of them and of their pairs."""
    random = np.random.default_rng(seed)
    rows = np.stack([frequent(count, 20_000, random) for count in COUNTS], axis=1)
    each = [random.normal(0, 0.7, (count, 4))[rows[:, t]] for t, count in enumerate(COUNTS)]
    alone = sum(random.normal(0, 0.5, count)[rows[:, t]] for t, count in enumerate(COUNTS))
    pairs = sum((each[s] * each[t]).sum(axis=1) for s in range(len(COUNTS)) for t in range(s))
    return rows, np.asarray(alone + pairs), random


def grades() -> Raw:
    """A number for four categories."""
    rows, score, random = _rows(3)
    return rows.astype(np.float64), 3 + score + 0.5 * random.standard_normal(len(rows))


def clicks() -> Raw:
    """Whether a click follows, by four categories and three numbers."""
    rows, score, random = _rows(4)
    x = random.standard_normal((len(rows), 3)) * [1, 10, 100]
    score = 1.5 * score + x @ [1, -0.05, 0.003]
    return np.concatenate([rows, x], axis=1), (random.random(len(rows)) < 1 / (1 + np.exp(-score))).astype(np.float64)


def clicked_categories() -> Raw:
    """Whether a click follows, by the categories alone."""
    features, label = clicks()
    return features[:, : len(COUNTS)], label


DATA: dict[str, Callable[[], Raw]] = {
    "purchases": purchases,
    "neighbours": neighbours,
    "grades": grades,
    "clicks": clicks,
    "clicks by category": clicked_categories,
}
