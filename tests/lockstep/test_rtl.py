"""Interpreter = simulator = RTL: models bit for bit in all three, cycles exactly in the last two."""

from __future__ import annotations

import itertools
import os
import random

import pytest

from dana.simulator import Simulator
from hwgen.harness import RtlMachine
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault
from tests.lockstep.cases import (
    Case,
    assert_same,
    axes_case,
    chosen_case,
    counting_case,
    elements_case,
    interpret,
    network_case,
    parts_case,
    phases_case,
    random_case,
    row_states_case,
    run,
    tables_case,
)
from tests.lockstep.rules import loss_rule

SCALE = int(os.environ.get("DANA_TEST_SCALE", "1"))

DEPTHS = {
    "program_depth": 1024,
    "scratch_depth": 4096,
    "tuple_depth": 512,
    "strider_depth": 8192,
    "descriptor_depth": 1024,
}
MACHINES = {
    "smallest": MachineConfig(
        striders=1, queue_depth=2, link_bytes=8, link_latency=4, ultra=7, divide_interval=1, **DEPTHS
    ),
    "two clusters": MachineConfig(
        clusters=2,
        striders=2,
        link_bytes=32,
        index_depth=16,
        divide_interval=9,
        **{**DEPTHS, "scratch_depth": 3984, "tuple_depth": 336},
    ),
    "threads": MachineConfig(
        threads=4, striders=3, queue_depth=4, link_bytes=64, link_latency=7, link_rate=40_900, index_depth=2, **DEPTHS
    ),
    "wide": MachineConfig(
        threads=2, clusters=4, striders=4, link_bytes=128, page_size=16384, divide_interval=3, **DEPTHS
    ),
}
"""Every interval between two quotients; of 1, which has the most stages, in the machine with the fewest units."""
CASES = 12
"""Cases for each machine, as many as its Verilator build takes to pay off."""


@pytest.mark.parametrize("name", MACHINES)
def test_models_and_cycles(name: str) -> None:
    config = MACHINES[name]
    rtl, simulator = RtlMachine(config), Simulator(config)
    cases = [random_case(random.Random(f"{name} {seed}"), config, rough=seed % 2 == 1) for seed in range(CASES * SCALE)]
    cases += [network_case(random.Random(f"{name} network {seed}"), config) for seed in range(2 * SCALE)]
    cases += [network_case(random.Random(f"{name} loss {seed}"), config, loss_rule) for seed in range(2 * SCALE)]
    cases += [axes_case(random.Random(f"{name} axes {seed}"), config) for seed in range(SCALE)]
    cases += [elements_case(random.Random(f"{name} elements {seed}"), config) for seed in range(2 * SCALE)]
    cases += [phases_case(random.Random(f"{name} phases {seed}"), config) for seed in range(3 * SCALE)]
    cases += [counting_case(random.Random(f"{name} counting {seed}"), config) for seed in range(2 * SCALE)]
    if config.index_depth:
        cases += [row_states_case(random.Random(f"{name} row states {seed}"), config) for seed in range(SCALE)]
        cases += [chosen_case(random.Random(f"{name} chosen {seed}"), config) for seed in range(2 * SCALE)]
        cases += [tables_case(random.Random(f"{name} tables {seed}"), config) for seed in range(4 * SCALE)]
    cases += [parts_case(random.Random(f"{name} parts {seed}"), config) for seed in range(SCALE)]
    cases.append(_out_of_place(name, config, simulator))
    for case in cases:
        simulated = run(case, simulator)
        assert_same(simulated, interpret(case), case.source)
        assert_same(run(case, rtl), simulated, case.source)


def _out_of_place(name: str, config: MachineConfig, simulator: Simulator) -> Case:
    """The first case that ends in TUPLE_PARTS."""
    for seed in itertools.count():
        case = parts_case(random.Random(f"{name} misplaced {seed}"), config, rough=True)
        fault = run(case, simulator).fault
        if fault is not None and fault[0] is Fault.TUPLE_PARTS:
            return case
    raise AssertionError


@pytest.mark.parametrize("name", MACHINES)
def test_models_under_a_stalling_link(name: str) -> None:
    config = MACHINES[name]
    for seed in range(2 * SCALE):
        case = random_case(random.Random(f"{name} stalls {seed}"), config, rough=True)
        stalled = run(case, RtlMachine(config, stall_seed=seed + 1))
        stalled.counters.clear()  # cycles are the link's
        assert_same(stalled, interpret(case), case.source)
    case = parts_case(random.Random(f"{name} stalled parts"), config)
    stalled = run(case, RtlMachine(config, stall_seed=7))
    stalled.counters.clear()
    assert_same(stalled, interpret(case), case.source)
