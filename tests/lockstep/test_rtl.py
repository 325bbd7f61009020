"""Interpreter = simulator = RTL: models bit for bit in all three, cycles exactly in the last two."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from dana.compiler.target import DoesNotFit
from dana.simulator import Simulator
from hwgen.harness import RtlMachine
from hwgen.spec.config import MachineConfig
from hwgen.spec.load import held
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
    scalars_case,
    shares_rows,
    side_by_side_case,
    tables_case,
)
from tests.lockstep.rules import loss_rule
from tests.scale import multiplied, sampled, scaled

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
        striders=4,
        link_bytes=32,
        index_depth=16,
        watch_depth=32,
        divide_interval=9,
        converters=16,
        pause=1,
        **{**DEPTHS, "scratch_depth": 3984, "tuple_depth": 336},
    ),
    "records": MachineConfig(
        threads=2,
        striders=2,
        link_bytes=32,
        index_depth=16,
        watch_depth=32,
        record_depth=32,
        record_latency=11,
        converters=8,
        **DEPTHS,
    ),
    "threads": MachineConfig(
        threads=2,
        clusters=2,
        striders=3,
        queue_depth=4,
        link_bytes=128,
        link_latency=7,
        link_rate=40_900,
        page_size=16384,
        index_depth=2,
        divide_interval=3,
        converters=4,
        **DEPTHS,
    ),
}
"""Every interval between two quotients; of 1, which has the most stages, in the machine with the fewest units."""
RANDOM = 8
"""Random cases for each machine, as many as its Verilator build takes to pay off."""


MANY_WORDS = 1 << 13
"""So many are cleared, over a board's bus, in the time that a new board takes, whose memories are zeros."""


def cases_of(name: str) -> list[Case]:
    """Cases of every kind."""
    config = MACHINES[name]

    def made(kind: str, count: int, make: Callable[[random.Random, MachineConfig], Case]) -> list[Case]:
        return [make(random.Random(f"{name} {kind}{seed}"), config) for seed in range(scaled(count))]

    cases = [
        random_case(random.Random(f"{name} {seed}"), config, rough=seed % 2 == 1) for seed in range(scaled(RANDOM))
    ]
    cases += made("network ", 2, network_case)
    cases += made("loss ", 2, lambda rng, config: network_case(rng, config, loss_rule))
    cases += made("axes ", 1, axes_case)
    cases += made("elements ", 2, elements_case)
    cases += made("phases ", 3, phases_case)
    scalars = made("scalars ", 3, scalars_case)
    assert any(shares_rows(case) for case in scalars)
    cases += scalars
    cases += made("counting ", 2, counting_case)
    if config.index_depth:
        cases += made("row states ", 1, row_states_case)
        cases += made("chosen ", 2, chosen_case)
        cases += made("tables ", 4, tables_case)
    if config.watch_depth:
        cases += _side_by_side(name, config)
    return cases + made("parts ", 1, parts_case)


@pytest.mark.parametrize("name", sampled(MACHINES, "records", "threads"))
def test_models_and_cycles(name: str) -> None:
    config = MACHINES[name]
    rtl, simulator = RtlMachine(config), Simulator(config)
    for case in [*cases_of(name), _out_of_place(name, config, simulator)]:
        simulated = run(case, simulator)
        assert_same(simulated, interpret(case), case.source)
        assert_same(run(case, rtl), simulated, case.source)
        if held(case.bundle).rows * config.lanes > MANY_WORDS:
            rtl = RtlMachine(config)


def _side_by_side(name: str, config: MachineConfig) -> list[Case]:
    """Cases whose batches are cut; of rules that another machine would have to run."""
    cases: list[Case] = []
    seeds = itertools.count()
    while len(cases) < multiplied(8):
        seed = next(seeds)
        rng = random.Random(f"{name} side by side {seed}")
        try:
            case = side_by_side_case(rng, config, rough=seed % 4 == 3, judges=seed % 4 == 2)
        except DoesNotFit:
            continue
        cases += [case] if case.bundle.cut else []
    assert bool(config.record_depth) == any(case.bundle.tables for case in cases)
    assert any(not case.binding.graph.updates for case in cases)
    return cases


def _out_of_place(name: str, config: MachineConfig, simulator: Simulator) -> Case:
    """The first case that ends in TUPLE_PARTS."""
    for seed in itertools.count():
        case = parts_case(random.Random(f"{name} misplaced {seed}"), config, rough=True)
        fault = run(case, simulator).fault
        if fault is not None and fault[0] is Fault.TUPLE_PARTS:
            return case
    raise AssertionError


@pytest.mark.parametrize("name", sampled(MACHINES, "records", "threads"))
def test_models_under_a_stalling_link(name: str) -> None:
    config = MACHINES[name]
    for seed in range(multiplied(2)):
        case = random_case(random.Random(f"{name} stalls {seed}"), config, rough=True)
        stalled = run(case, RtlMachine(config, stall_seed=seed + 1))
        stalled.counters.clear()  # cycles are the link's
        assert_same(stalled, interpret(case), case.source)
    if config.record_depth:
        for seed, case in enumerate(_side_by_side(name, config)[:3]):
            stalled = run(case, RtlMachine(config, stall_seed=seed + 1))
            stalled.counters.clear()
            assert_same(stalled, interpret(case), case.source)
    case = parts_case(random.Random(f"{name} stalled parts"), config)
    stalled = run(case, RtlMachine(config, stall_seed=7))
    stalled.counters.clear()
    assert_same(stalled, interpret(case), case.source)
