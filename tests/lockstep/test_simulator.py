"""Interpreter = simulator, bit for bit, over random rules, tables and machines."""

from __future__ import annotations

import os
import random

import pytest

from dana.simulator import Simulator
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import assert_same, interpret, random_case, run

SCALE = int(os.environ.get("DANA_TEST_SCALE", "1"))


def random_config(rng: random.Random) -> MachineConfig:
    clusters = rng.choice([1, 1, 2, 4, 8])
    return MachineConfig(
        threads=rng.choice([1, 2, 4, 8]),
        clusters=clusters,
        striders=rng.choice([1, 2, 3, 4, 8]),
        page_size=rng.choice([8192, 8192, 16384, 32768]),
        scratch_depth=4096,
        tuple_depth=rng.choice([64, 256, 2048]),
        strider_depth=8192,
        descriptor_depth=1024,
        index_depth=rng.choice([0, 0, 2, 64]),
        queue_depth=rng.choice([2, 4, 16]),
        link_bytes=rng.choice([8, 16, 64]),
        link_latency=rng.choice([1, 10, 200]),
    )


@pytest.mark.parametrize("seed", range(150 * SCALE))
def test_models_are_bit_identical(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng, random_config(rng))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)
