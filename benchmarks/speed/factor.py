"""Rules of factors and embeddings compared with numba code: ns a row, cycles of the machine.

The simulator unpacks heap pages and adds the loss up; the references (`benchmarks.peers.factors`) get finished arrays.
Rows are random, 1,000 categories to a column, or so many that no cache holds the models; a pass each, in turn, of one
core. The epochs measured are later ones of a training, so their cycles are known from the first. The times of `lrmf`
depend on values: its first epochs, in which cycles are counted, are measured too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, main
from benchmarks.peers import factors
from benchmarks.peers.learners import Learner
from benchmarks.speed.learners import compared

ROWS, COUNT = 100_000, 1000
FAR_ROWS, FAR = 2_000_000, 5_000_000
ASKED = 1.5


def run() -> list[Figure]:
    """Measure."""
    random = np.random.default_rng(0)
    i, j = random.integers(0, COUNT, (2, ROWS))
    pairs = np.stack([i, j], axis=1)
    y = random.standard_normal(ROWS).astype(np.float32)
    x = random.standard_normal((ROWS, 2)).astype(np.float32)
    liked = (y > 0).astype(np.float32)
    of_pairs = {"i": i, "j": j}
    rated = {**of_pairs, "y": y}
    cases: tuple[tuple[str, str, Mapping[str, NDArray[Any]], Learner], ...] = (
        ("lrmf, rank 10, first epochs", "lrmf", rated, factors.factors(pairs, y, COUNT, COUNT)),
        ("lrmf, rank 10", "lrmf", rated, factors.factors(pairs, y, COUNT, COUNT)),
        ("bpr, rank 10", "bpr", of_pairs, factors.ranking(pairs, COUNT, COUNT)),
        ("word2vec, 50, 5 samples", "word2vec", of_pairs, factors.words(pairs, COUNT)),
        ("fm, 2 columns, rank 10", "fm", rated, factors.machine(pairs, y, COUNT)),
        ("autoint, 2 columns of 8", "autoint", {**of_pairs, "y": liked}, factors.attention(pairs, liked, COUNT)),
        (
            "dlrm, 2 columns of 8, 2 numbers", "dlrm", {"c": pairs, "x": x, "y": liked},
            factors.recommender(pairs, x, liked, COUNT),
        ),
    )  # fmt: skip
    return [
        *(
            compared(what, rule, columns, {"numba": other}, target=ASKED, first="first" in what)
            for what, rule, columns, other in cases
        ),
        _far(),
    ]


def _far() -> Figure:
    """Ratings of rows that are in no cache."""
    random = np.random.default_rng(0)
    pairs = random.integers(0, FAR, (FAR_ROWS, 2))
    y = random.standard_normal(FAR_ROWS).astype(np.float32)
    columns = {"i": pairs[:, 0], "j": pairs[:, 1], "y": y}
    return compared(
        f"lrmf, rank 10, 2 x {FAR:,} rows", "lrmf", columns, {"numba": factors.factors(pairs, y, FAR, FAR)},
        target=ASKED, hyper={"m": FAR, "n": FAR}, repeats=3,
    )  # fmt: skip


if __name__ == "__main__":
    main(run)
