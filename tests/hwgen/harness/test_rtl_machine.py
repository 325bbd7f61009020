"""The whole machine on its board: loading, reading back, faults, ends that are not good ends.

That models and cycles are the simulator's is shown in tests/lockstep; here is what a driver of a board relies on.
"""

from __future__ import annotations

import pydoc
import random
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

from dana.compiler import bind, compile_bundle
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from dsl import compile_rule
from hwgen.driver import BoardError, MachineHang
from hwgen.harness import RtlMachine
from hwgen.spec import aperture, cycles, load, registers
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import ConfigError, MachineConfig
from hwgen.spec.engine import Instruction, Opcode, Section
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault
from tests.assembly.engine import assemble
from tests.compiler.test_compiler_stages import LOGISTIC
from tests.hwgen.engine.programs import random_bundle, random_tuples
from tests.oracles.machine import section_length
from tests.simulator.bundles import fed, row_pages
from tests.storage.schemas import attribute

CONFIG = MachineConfig(
    scratch_depth=256,
    tuple_depth=256,
    striders=2,
    strider_depth=512,
    program_depth=128,
    queue_depth=4,
    link_bytes=16,
    index_depth=8,
)
FEATURES = 11
SCHEMA = TableSchema(
    relation="t", attributes=(*(attribute(f"x{k}", "real") for k in range(FEATURES)), attribute("y", "real"))
)


def rule(**changes: object) -> Bundle:
    bundle = compile_bundle(bind(compile_rule(LOGISTIC).hdfg, SCHEMA), SCHEMA, max_tuples=10_000, config=CONFIG)
    return replace(bundle, **changes)  # type: ignore[arg-type]


def table(rows: int, seed: int = 0) -> bytes:
    rng = random.Random(seed)
    values = [[*(rng.gauss(0, 1) for _ in range(FEATURES)), float(rng.randint(0, 1))] for _ in range(rows)]
    return build_pages(SCHEMA, values, page_size=CONFIG.page_size)


def pair() -> tuple[RtlMachine, Simulator]:
    return RtlMachine(CONFIG), Simulator(CONFIG)


def everything(machine: RtlMachine | Simulator) -> np.ndarray:
    return machine.read_rows(0, CONFIG.scratch_depth)


@pytest.mark.parametrize("later", range(5))
def test_a_stop_wins_over_a_start_before_it(later: int) -> None:
    """However soon it comes: nothing runs, and the next epoch is like any other."""
    rtl, simulator = pair()
    pages = table(3)
    for machine in (rtl, simulator):
        machine.load(rule())
    status, command = (aperture.address(BoardRegion.BOARD, k) for k in (BoardRegister.STATUS, BoardRegister.COMMAND))
    for address, words in load.training_blocks(rule(), pages=1, epochs=9, base=rtl.rtl.pages.base):
        rtl.rtl.write(address, words)
    for _ in range(later):
        assert rtl.rtl.read(status, 1)[0] & BoardStatus.BUSY
    rtl.rtl.write(command, np.array([Command.STOP], dtype=np.uint32))
    rtl.load(rule())
    assert not rtl.rtl.read(status, 1)[0] & BoardStatus.BUSY
    assert rtl.run_epoch(pages) == simulator.run_epoch(pages)
    np.testing.assert_array_equal(everything(rtl), everything(simulator))


@pytest.mark.parametrize("latency", [cycles.READER_LATENCY + 1, cycles.READER_LATENCY + 2, 25, 26, 300, 3000])
def test_the_link_is_as_late_as_the_contract_says(latency: int) -> None:
    config = replace(CONFIG, link_latency=latency)
    rtl, simulator = RtlMachine(config), Simulator(config)
    for machine in (rtl, simulator):
        machine.load(rule(config=config))
    for rows in (1, 600):
        pages = table(rows)
        assert rtl.run_epoch(pages) == simulator.run_epoch(pages)


def test_a_row_is_read_as_it_was_written() -> None:
    machine = RtlMachine(CONFIG)
    machine.load(rule())
    rows = np.random.default_rng(1).integers(0, 1 << 32, (CONFIG.scratch_depth - 3, CONFIG.lanes), dtype=np.uint32)
    machine.write_rows(3, rows)
    np.testing.assert_array_equal(machine.read_rows(3, len(rows)), rows)
    np.testing.assert_array_equal(machine.read_rows(0, 3), rule().image[:3])


def test_the_whole_scratchpad_is_the_simulators_after_an_epoch() -> None:
    rtl, simulator = pair()
    pages = table(200)
    for machine in (rtl, simulator):
        machine.load(rule())
    for _ in range(3):
        assert rtl.run_epoch(pages) == simulator.run_epoch(pages)
    np.testing.assert_array_equal(everything(rtl), everything(simulator))


def test_loading_again_forgets_what_was_there() -> None:
    machine = RtlMachine(CONFIG)
    machine.load(rule())
    machine.run_epoch(table(50))
    machine.load(rule())
    image = rule().image
    np.testing.assert_array_equal(machine.read_rows(0, len(image)), image)
    assert not machine.read_rows(len(image), CONFIG.scratch_depth - len(image)).any()


def test_nothing_stays_of_programs_that_write_everywhere() -> None:
    """Stacks of the merge and rows chosen by data among it; the rows are those that the driver clears."""
    rng = np.random.default_rng(8)
    machine, image = RtlMachine(CONFIG), rule().image
    cleared = set()
    for _ in range(6):
        bundle = fed(random_bundle(rng, CONFIG, batch=int(rng.choice([1, 20])), size=20))
        # the program writes behind its image
        bundle = replace(bundle, image=bundle.image[: len(bundle.image) // 4])
        assert load.held(bundle).rows > len(bundle.image)
        machine.load(bundle)
        machine.run_epoch(row_pages(random_tuples(rng, bundle, 40), CONFIG))
        cleared.add(load.held(bundle).rows)
        machine.load(rule())
        found = everything(machine)
        np.testing.assert_array_equal(found[: len(image)], image)
        assert not found[len(image) :].any()
    assert len(cleared) > 2
    machine.write_rows(CONFIG.scratch_depth - 1, np.ones((1, CONFIG.lanes), dtype=np.uint32))
    machine.load(rule())
    assert not everything(machine)[len(image) :].any()


def test_no_pages_and_empty_pages() -> None:
    bundle = rule()
    machine = RtlMachine(CONFIG)
    machine.load(bundle)
    done = machine.run_epoch(b"")
    busy = 0
    if Section.INIT in bundle.sections:
        busy = cycles.SECTION_START + section_length(bundle.section(Section.INIT), bundle.config.divide_interval)
    assert (done.cycles, done.tuples, done.engine_busy, done.fault) == (1 + busy, 0, busy, Fault.NONE)
    simulator = Simulator(CONFIG)
    simulator.load(bundle)
    empty = build_pages(SCHEMA, [], page_size=CONFIG.page_size) or bytes(CONFIG.page_size)
    assert machine.run_epoch(empty * 3) == simulator.run_epoch(empty * 3)


@pytest.mark.parametrize("stall_seed", [None, 5])
def test_a_damaged_page_stops_the_machine_and_nothing_stays_of_it(stall_seed: int | None) -> None:
    pages = bytearray(table(300))
    count = len(pages) // CONFIG.page_size
    assert count >= 2
    whole = bytes(pages)
    # pd_lower of the second page beyond the page
    pages[CONFIG.page_size + 12 : CONFIG.page_size + 14] = b"\xff\xff"
    rtl = RtlMachine(CONFIG, stall_seed=stall_seed)
    simulator = Simulator(CONFIG)
    for machine in (rtl, simulator):
        machine.load(rule())
    found, wanted = rtl.run_epoch(bytes(pages)), simulator.run_epoch(bytes(pages))
    assert found.fault is Fault.PAGE_HEADER
    assert (found.fault, found.fault_page, found.fault_pointer) == (wanted.fault, 1, wanted.fault_pointer)
    for machine in (rtl, simulator):
        machine.load(rule())
    again = rtl.run_epoch(whole)
    assert again.fault is Fault.NONE
    assert again.tuples == simulator.run_epoch(whole).tuples
    np.testing.assert_array_equal(everything(rtl), everything(simulator))


def test_a_batch_of_too_many_rounds_is_a_fault() -> None:
    bundle = rule()
    assert bundle.levels >= 1
    # the whole table is one batch, and there is room for none of its rounds
    bundle = replace(bundle, batch=1 << 20, levels=0)
    machine = RtlMachine(CONFIG)
    machine.load(bundle)
    assert machine.run_epoch(table(300)).fault is Fault.STACK


ENDLESS = (Instruction(op=Opcode.MOV, inner=16383, outer=4095), Instruction(op=Opcode.END))
"""An instruction of 67 million rows is as good as one without an end."""


def test_a_machine_that_does_not_come_to_an_end_says_so() -> None:
    machine = RtlMachine(CONFIG, patience=20_000)
    machine.load(rule(program=ENDLESS, sections={Section.TUPLE: 0}, batch=1))
    with pytest.raises(MachineHang, match="within 20000 cycles, but it has not: 1 pages were read and 0 epochs ended"):
        machine.run_epoch(table(5))
    machine.load(rule())
    assert machine.run_epoch(table(5)).tuples == 5


def test_one_that_moves_is_waited_for() -> None:
    """An epoch that takes longer than a part of it may."""
    machine = RtlMachine(CONFIG, patience=10_000)
    machine.load(rule())
    assert machine.run_epoch(table(2000)).cycles > 40_000


def test_a_signal_ends_a_training_and_leaves_the_board_idle() -> None:
    """As the worker's does when its backend is gone."""

    class Gone(BaseException):
        pass

    def gone(*_: object) -> None:
        raise Gone

    machine = RtlMachine(CONFIG)
    machine.load(rule(program=ENDLESS, sections={Section.TUPLE: 0}, batch=1))
    before = signal.signal(signal.SIGALRM, gone)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Gone):
            machine.run_epoch(table(5))
    finally:
        signal.signal(signal.SIGALRM, before)
    status = machine.rtl.read(aperture.address(BoardRegion.BOARD, BoardRegister.STATUS), 1)[0]
    assert status == BoardStatus.STOPPED
    machine.load(rule())
    assert machine.run_epoch(table(5)).tuples == 5


def test_registers_that_the_driver_does_not_read() -> None:
    words = RtlMachine(CONFIG).rtl.read(aperture.address(Region.CONTROL), 0x30)
    assert words[Register.ID] == registers.IDENTITY
    assert not words[0x30 - 4 :].any()


def test_what_cannot_be_is_refused() -> None:
    machine = RtlMachine(CONFIG)
    with pytest.raises(ValueError, match="must be loaded with a Bundle before it trains"):
        machine.run_epoch(b"")
    with pytest.raises(BoardError, match="the Bundle must be for this board, with striders = 2, not 3"):
        machine.load(rule(config=replace(CONFIG, striders=3)))
    with pytest.raises(ValueError, match="must have a section 'tuple'"):
        machine.load(rule(sections={}))
    with pytest.raises(ValueError, match=r"\(SIGMOID in section tuple\) .* breaks it: the machine has the operation"):
        machine.load(rule(config=replace(CONFIG, functions=0)))
    crossing, sections = assemble("tuple:\n add s0 <- s0, s1, lane^1 wait=1\n end wait=9\n")
    with pytest.raises(ValueError, match="breaks it: the machine has crossed exchanges"):
        machine.load(rule(config=replace(CONFIG, crossed=0), program=crossing, sections=sections, batch=1))
    far, sections = assemble("tuple:\n add s0 <- s0, s1, lane^8 wait=1\n end wait=9\n")
    with pytest.raises(BundleError, match=r"breaks it: 2\*\*distance of an exchange is below the number of lanes"):
        machine.load(rule(program=far, sections=sections, batch=1))
    machine.load(rule(config=replace(CONFIG, link_latency=7, clock_hz=1)))
    with pytest.raises(ValueError, match="pages must be a multiple of 8192 bytes, not 10"):
        machine.run_epoch(bytes(10))
    with pytest.raises(ValueError, match=r"rows must have shape \[k, 8\], not \[2, 3\]"):
        machine.write_rows(0, np.zeros((2, 3), dtype=np.uint32))
    with pytest.raises(ValueError, match="rows must lie in 0 … 255, not 255 … 256"):
        machine.read_rows(255, 2)
    last = aperture.aperture_bytes(CONFIG) // 4 - 1
    with pytest.raises(
        BoardError, match=rf"a read of 2 words from byte address {4 * last:#x} on must lie in the board"
    ):
        machine.rtl.read(last, 2)
    with pytest.raises(BoardError, match=r"a write of byte address 0x404 must be .* the board said SLVERR"):
        machine.rtl.write(aperture.address(Region.CONTROL, Register.CONTROL) - 1, np.ones(2, dtype=np.uint32))
    with pytest.raises(ConfigError, match="hardware has a scratch_depth of at most 65536 with 128 lanes"):
        MachineConfig(clusters=16, scratch_depth=1 << 17).require_hardware()


@pytest.mark.parametrize("name", ["load", "write_rows", "read_rows", "run_epoch"])
def test_help_says_what_its_methods_take_and_raise(name: str) -> None:
    said = pydoc.render_doc(RtlMachine, renderer=pydoc.plaintext)
    assert re.search(rf"\b{name}\(\W*self, ", said)  # Python 3.13 breaks long lines
    assert "Raises" in pydoc.render_doc(getattr(RtlMachine, name), renderer=pydoc.plaintext)
