"""Interpreter = simulator, bit for bit, over random rules, tables and machines."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from dana.simulator import Simulator
from tests.lockstep.cases import assert_same, interpret, network_case, random_case, run
from tests.lockstep.machines import random_config

SCALE = int(os.environ.get("DANA_TEST_SCALE", "1"))


@pytest.mark.parametrize("seed", range(150 * SCALE))
def test_models_are_bit_identical(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng, random_config(rng))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


def test_rough_tables_give_the_same_model_or_the_same_fault() -> None:
    faults = 0
    for seed in range(80 * SCALE):
        rng = random.Random(f"rough {seed}")
        case = random_case(rng, random_config(rng), rough=True)
        found = run(case, Simulator(case.bundle.config))
        assert_same(found, interpret(case), case.source)
        faults += found.fault is not None
    assert 5 * SCALE < faults < 40 * SCALE


def test_work_that_threads_share() -> None:
    shared = 0
    for seed in range(16 * SCALE):
        rng = random.Random(f"network {seed}")
        config = replace(random_config(rng), threads=rng.choice([2, 4, 8]), clusters=1, tuple_depth=256)
        case = network_case(rng, config)
        assert_same(run(case, Simulator(config)), interpret(case), case.source)
        shared += any(instruction.op.chooses for instruction in case.bundle.program)
    assert shared > 12 * SCALE
