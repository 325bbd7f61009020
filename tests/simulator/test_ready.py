"""Clocks of batches that are cut: tuples whose columns are ready, worked out at once, beside entry by entry."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.speed.side_by_side import LOSS, RULE, SCHEMA
from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dsl import compile_rule
from hwgen.spec.counters import EpochCounters
from tests.simulator.test_walk import with_holes

ROWS = 3000


@pytest.mark.parametrize("users", [6000, 30, 1])
@pytest.mark.parametrize(
    "design",
    [
        {},
        {"queue_depth": 256},
        {"striders": 1},
        {"striders": 8, "record_depth": 0},
        {"link_latency": 3000, "record_depth": 0},
        {"clusters": 16},
    ],
)
@pytest.mark.parametrize("holes", [0.0, 0.1, 0.6])
def test_ready_tuples_take_what_their_entries_take(users: int, design: dict[str, int], holes: float) -> None:
    rng = np.random.default_rng(users)
    pages = build_pages(SCHEMA, [(int(rng.integers(users)), int(rng.integers(1000)), 1.0) for _ in range(ROWS)])
    drawn = random.Random(users)
    pages = b"".join(with_holes(drawn, pages[at : at + 8192], holes) for at in range(0, len(pages), 8192))
    bundle = default_bundle(bind(compile_rule(RULE + LOSS).hdfg, SCHEMA), SCHEMA, max_tuples=ROWS, design=design)

    def trained(*, plain: bool) -> EpochCounters:
        simulator = Simulator(bundle.config, plain=plain)
        try:
            simulator.load(bundle)
            return simulator.run_epoch(pages)
        finally:
            simulator.close()

    assert trained(plain=False) == trained(plain=True)
