"""Rules of factors and embeddings beside what a user would write in numba: ns a row, cycles of the machine.

The simulator unpacks heap pages, adds the loss up and counts cycles; the references (`dana.peers.factors`) get finished
arrays. Rows are random, 1,000 categories to a column; a pass each, in turn, of one core.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bench.measure import Figure, interleaved_medians, main
from bench.simulator import feed
from bench.workload import compiled_rule, with_code
from dana.peers import factors
from dana.peers.learners import Learner
from dana.storage.columns import column_pages, column_schema

ROWS, COUNT = 100_000, 1000
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
    return [
        _beside("lrmf, rank 10", "lrmf", {**of_pairs, "y": y}, factors.factors(pairs, y, COUNT, COUNT)),
        _beside("bpr, rank 10", "bpr", of_pairs, factors.ranking(pairs, COUNT, COUNT)),
        _beside("word2vec, 50, 5 samples", "word2vec", of_pairs, factors.words(pairs, COUNT)),
        _beside("fm, 2 columns, rank 10", "fm", {**of_pairs, "y": y}, factors.machine(pairs, y, COUNT)),
        _beside("autoint, 2 columns of 8", "autoint", {**of_pairs, "y": liked}, factors.attention(pairs, liked, COUNT)),
        _beside(
            "dlrm, 2 columns of 8, 2 numbers", "dlrm", {"c": pairs, "x": x, "y": liked},
            factors.recommender(pairs, x, liked, COUNT),
        ),
    ]  # fmt: skip


def _beside(what: str, rule: str, columns: Mapping[str, NDArray[np.generic]], other: Learner) -> Figure:
    columns = {name: np.asarray(values, np.float32) for name, values in columns.items()}
    schema, heap = column_schema(columns, "bench"), column_pages(columns)
    request, design = compiled_rule(rule, schema, pages=len(heap), label="y" if "y" in columns else None)
    machine = with_code(request, design)
    cycles: list[int] = []

    def epoch() -> None:
        machine.begin_epoch()
        feed(machine.sink, heap)
        found = machine.end_epoch()
        if found.tuples != ROWS or machine.differs:
            raise RuntimeError("the simulator stopped, or its code is wrong")
        cycles.append(found.cycles)

    try:
        ours, theirs = interleaved_medians((epoch, other.train), repeats=9, clock=time.thread_time)
    finally:
        machine.close()
    return Figure(
        what=what,
        measured=f"{ours / ROWS * 1e9:.0f} ns a row, {cycles[-1] / ROWS:.0f} cycles",
        reference=f"numba {theirs / ROWS * 1e9:.0f}",
        ratio=ours / theirs,
        target=ASKED,
        at_most=True,
    )


if __name__ == "__main__":
    main(run)
