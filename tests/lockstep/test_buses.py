"""Pages over several buses: models and cycles are the simulator's, and no bus that is late changes a model."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dana.simulator import Simulator
from hwgen.driver import Board, BoardError
from hwgen.harness import RtlMachine
from hwgen.harness.board import RtlBoard
from hwgen.harness.build import verilog_of
from hwgen.spec import aperture, load
from hwgen.spec.board import PAGE_BASES, BoardRegion, BoardRegister, BoardStatus, part_bytes, slot_bytes
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault
from tests.lockstep.cases import Case, assert_same, interpret, parts_case, random_case, run
from tests.scale import multiplied

DEPTHS = {"program_depth": 1024, "scratch_depth": 4096, "strider_depth": 8192, "descriptor_depth": 1024}
MACHINES = {
    2: MachineConfig(clusters=4, striders=3, link_bytes=256, link_latency=4, **DEPTHS),
    4: MachineConfig(clusters=8, striders=5, link_bytes=512, link_rate=401_000, page_size=16384, **DEPTHS),
}
BUSES = [2, pytest.param(4, marks=pytest.mark.exhaustive)]


def _filled(buses: int) -> Case:
    """A case of several pages."""
    rng = random.Random(f"filled {buses}")
    while True:
        case = random_case(rng, MACHINES[buses])
        if len(case.pages) >= 4 * MACHINES[buses].page_size:
            return case


@pytest.mark.parametrize("buses", BUSES)
def test_models_and_cycles(buses: int) -> None:
    config = MACHINES[buses]
    assert config.buses == buses
    rtl, simulator = RtlMachine(config), Simulator(config)
    cases = [random_case(random.Random(f"buses {seed}"), config, rough=seed % 2 == 1) for seed in range(multiplied(4))]
    for case in [*cases, parts_case(random.Random("parts"), config), _filled(buses)]:
        simulated = run(case, simulator)
        assert_same(simulated, interpret(case), case.source)
        assert_same(run(case, rtl), simulated, case.source)


@pytest.mark.parametrize("buses", BUSES)
def test_a_bus_that_is_ahead_waits_for_the_others(buses: int) -> None:
    case = _filled(buses)
    for seed in range(multiplied(3)):
        stalled = run(case, RtlMachine(MACHINES[buses], stall_seed=seed))
        stalled.counters.clear()  # cycles are the link's
        assert_same(stalled, interpret(case), case.source)


@pytest.mark.parametrize("buses", BUSES)
def test_a_table_streams_through_the_parts_of_a_memory(buses: int) -> None:
    """And after trainings that were stopped while the buses had brought different numbers of beats."""
    config, case = MACHINES[buses], _filled(buses)
    rtl = RtlBoard(verilog_of(config), config, memory_bytes=3 * config.page_size + 100)
    driver = Board(rtl, rtl.pages)
    simulator = Simulator(config)
    simulator.load(case.bundle)
    for _ in range(2):
        counters = simulator.run_epoch(case.pages)
    for seed in range(multiplied(3)):
        rtl.stall(160, seed)
        driver.load(case.bundle)
        with pytest.raises(BoardError, match="was stopped"):
            driver.train(case.pages, epochs=1000, seconds=0.0)
        driver.load(case.bundle)
        found = driver.train(case.pages, epochs=2)
        assert found.counters.tuples == counters.tuples
        for symbol in case.bundle.of_kind("model"):
            rows = symbol.row, symbol.rows(config.lanes)
            np.testing.assert_array_equal(driver.read_rows(*rows), simulator.read_rows(*rows))


@pytest.mark.parametrize("buses", BUSES)
def test_an_error_of_the_last_bus_is_the_training_s(buses: int) -> None:
    config, case = MACHINES[buses], _filled(buses)
    size = 1 << 30
    rtl = RtlBoard(verilog_of(config), config, memory_bytes=size)
    driver = Board(rtl, rtl.pages)
    driver.load(case.bundle)
    count = len(case.pages) // config.page_size
    part = part_bytes(config, size)
    driver.train(case.pages, epochs=1)
    driver.load(case.bundle)
    # from one slot before its memory on
    blocks = dict(load.training_blocks(case.bundle, pages=count, epochs=1, base=rtl.pages.base, part=part))
    last = aperture.address(BoardRegion.BOARD, PAGE_BASES[buses - 1])
    blocks[last] = blocks[last] - np.array([slot_bytes(config), 0], dtype=np.uint32)
    for address, words in blocks.items():
        rtl.write(address, words)
    while (status := int(rtl.read(aperture.address(BoardRegion.BOARD, BoardRegister.STATUS), 1)[0])) & BoardStatus.BUSY:
        rtl.wait()
    assert Fault(status >> 8 & 0xFF) is Fault.BUS
    failed = rtl.read(aperture.address(BoardRegion.BOARD, BoardRegister.FAILED_PAGE), 1)
    assert failed.tolist() == [0]
