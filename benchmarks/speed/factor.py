"""Rules of factors and embeddings compared with numba code: ns a row, cycles of the machine.

The simulator unpacks heap pages and adds the loss up; the references (`benchmarks.peers.factors`) get finished arrays.
Rows
are random, 1,000 categories to a column, or so many that no cache holds the models; a pass each, in turn, of one core.
Epochs are a training's later ones, whose cycles are known from the first; of `lrmf`, whose times depend on values,
first epochs are measured, too, in which cycles are counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, interleaved_medians, main
from benchmarks.peers import factors
from benchmarks.peers.learners import Learner
from benchmarks.speed.simulator import feed
from benchmarks.speed.workload import compiled_rule, with_code
from dana.storage.columns import column_pages, column_schema

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
    return [
        _beside("lrmf, rank 10, first epochs", "lrmf", rated, factors.factors(pairs, y, COUNT, COUNT), first=True),
        _beside("lrmf, rank 10", "lrmf", rated, factors.factors(pairs, y, COUNT, COUNT)),
        _far(),
        _beside("bpr, rank 10", "bpr", of_pairs, factors.ranking(pairs, COUNT, COUNT)),
        _beside("word2vec, 50, 5 samples", "word2vec", of_pairs, factors.words(pairs, COUNT)),
        _beside("fm, 2 columns, rank 10", "fm", {**of_pairs, "y": y}, factors.machine(pairs, y, COUNT)),
        _beside("autoint, 2 columns of 8", "autoint", {**of_pairs, "y": liked}, factors.attention(pairs, liked, COUNT)),
        _beside(
            "dlrm, 2 columns of 8, 2 numbers", "dlrm", {"c": pairs, "x": x, "y": liked},
            factors.recommender(pairs, x, liked, COUNT),
        ),
    ]  # fmt: skip


def _far() -> Figure:
    """Ratings of rows that are in no cache."""
    random = np.random.default_rng(0)
    pairs = random.integers(0, FAR, (FAR_ROWS, 2))
    y = random.standard_normal(FAR_ROWS).astype(np.float32)
    columns = {"i": pairs[:, 0], "j": pairs[:, 1], "y": y}
    other = factors.factors(pairs, y, FAR, FAR)
    return _beside(f"lrmf, rank 10, 2 x {FAR:,} rows", "lrmf", columns, other, hyper={"m": FAR, "n": FAR}, repeats=3)


def _beside(
    what: str,
    rule: str,
    columns: Mapping[str, NDArray[np.generic]],
    other: Learner,
    *,
    first: bool = False,
    hyper: Mapping[str, int] = MappingProxyType({}),
    repeats: int = 9,
) -> Figure:
    columns = {name: np.asarray(values, np.float32) for name, values in columns.items()}
    schema, heap, rows = column_schema(columns, "bench"), column_pages(columns), len(next(iter(columns.values())))
    label = "y" if "y" in columns else None
    request, design = compiled_rule(rule, schema, pages=len(heap), label=label, hyper=hyper)
    machine = with_code(request, design)
    cycles: list[int] = []

    def epoch() -> None:
        machine.begin_epoch()
        feed(machine.sink if first else machine.sink_again, heap)
        found = machine.end_epoch()
        if found.tuples != rows or machine.differs:
            raise RuntimeError("the simulator stopped, or its code is wrong")
        cycles.append(found.cycles)

    try:
        ours, theirs = interleaved_medians((epoch, other.train), repeats=repeats, clock=time.thread_time)
    finally:
        machine.close()
    return Figure(
        what=what,
        measured=f"{ours / rows * 1e9:.0f} ns a row, {cycles[-1] / rows:.0f} cycles",
        reference=f"numba {theirs / rows * 1e9:.0f}",
        ratio=ours / theirs,
        target=ASKED,
    )


if __name__ == "__main__":
    main(run)
