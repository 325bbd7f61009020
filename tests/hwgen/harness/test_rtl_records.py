"""Tables in the record memory on the whole machine: bits, cycles and faults are those of the oracles."""

from __future__ import annotations

import dataclasses
import random
import struct

import numpy as np
import pytest

from dana.simulator import Simulator
from hwgen.driver import Board, BoardError
from hwgen.harness import RtlBoard, RtlMachine
from hwgen.harness.build import verilog_of
from hwgen.spec import aperture, load
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import Table
from hwgen.spec.columns import ColumnType
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.registers import TABLE_WORDS, Region, Register, TableWord
from hwgen.spec.strider import Control, Fault
from hwgen.spec.strider import Instruction as Step
from hwgen.spec.strider import Opcode as StepOp
from tests.oracles.machine import Machine
from tests.scale import multiplied, scaled
from tests.simulator.bundles import bits
from tests.simulator.test_access import NOT_EXPECTED, expected_counters
from tests.simulator.test_simulated_records import MACHINES, Made, Watch, made, random_case

CONFIG = MACHINES["threads"]


def begun(one: Made, seed: int, *machines: RtlMachine | Simulator) -> Machine:
    """Machines with the Bundle loaded and the same records, and the oracle that has them, too."""
    bundle = one.bundle
    oracle = Machine(bundle)
    for machine in machines:
        machine.load(bundle)
    words = np.random.default_rng(seed)
    for symbol in bundle.symbols:
        value = words.normal(size=symbol.shape).astype(np.float32)
        oracle.write(symbol, value)
        rows = symbol.place(value, bundle.config.lanes).view(np.uint32)
        for machine in machines:
            machine.write_rows(symbol.row, rows, table=symbol.table)
    return oracle


def check_records(one: Made, machine: RtlMachine | Simulator, oracle: Machine) -> None:
    lanes = one.bundle.config.lanes
    for symbol in one.bundle.symbols:
        found = machine.read_rows(symbol.row, symbol.rows(lanes), table=symbol.table)
        np.testing.assert_array_equal(found, bits(symbol.place(oracle.read(symbol), lanes)))


def trains(one: Made, machine: RtlMachine, *, exact: bool = True, epochs: int = 2) -> int:
    """Epochs whose records, and cycles if `exact`, are the oracles'; batches that were cut."""
    oracle = begun(one, 1, machine)
    expected, _ = expected_counters(one.bundle, one.case)
    cut = 0
    for _ in range(epochs):
        found = machine.run_epoch(b"".join(one.pages))
        if exact:
            assert dataclasses.replace(found, **NOT_EXPECTED) == expected
        oracle.epoch(one.tuples, one.numbers)
        check_records(one, machine, oracle)
        cut += found.tuples > found.batches > -(-found.tuples // one.bundle.batch)
    return cut


def test_records_and_cycles_are_the_oracles() -> None:
    """Of one cluster it is shown that they are the simulator's, in tests/lockstep, and those the oracles'."""
    rng = random.Random("rtl two")
    machine = RtlMachine(CONFIG)
    cut = sum(trains(random_case(rng, CONFIG), machine) for _ in range(multiplied(10)))
    assert cut > 1


@pytest.mark.parametrize("latency", [3, 4, 64])
def test_the_record_memory_is_as_late_as_the_contract_says(latency: int) -> None:
    """From what the record master needs on: the first row comes in the cycle after its address."""
    rng = random.Random(latency)
    config = dataclasses.replace(CONFIG, record_latency=latency)
    machine = RtlMachine(config)
    for _ in range(scaled(6)):
        trains(random_case(rng, config), machine, epochs=1)


def test_every_round_waits_for_the_one_before() -> None:
    """One record, that all tuples choose: as slow as can be, and right; and records of a row, a cycle each."""
    rng = random.Random(2)
    machine = RtlMachine(CONFIG)
    one = made(rng, CONFIG, (Table(records=1, rows=4),), (Watch(1, True),), count=40, group=8)
    trains(one, machine)
    assert machine.run_epoch(b"".join(one.pages)).batches == 40
    many = made(rng, CONFIG, (Table(records=999, rows=1),) * 2, (Watch(1, True), Watch(2, False)), count=60, group=8)
    trains(many, machine)
    read = made(rng, CONFIG, (Table(records=9, rows=2),), (Watch(1, False),), count=30, group=4)
    trains(read, machine)


def test_a_memory_that_stalls() -> None:
    rng = random.Random(3)
    machine = RtlMachine(CONFIG, stall_seed=4)
    for _ in range(scaled(6)):
        trains(random_case(rng, CONFIG), machine, exact=False)


def test_no_tuples_and_no_tables() -> None:
    """The same machine without a Bundle's tables is like any other."""
    rng = random.Random(4)
    machine, simulator = RtlMachine(CONFIG), Simulator(CONFIG)
    one = made(rng, CONFIG, (Table(records=5, rows=2),), (Watch(1, True),), count=30, group=4)
    bare = dataclasses.replace(
        one.bundle, tables=(), symbols=(), program=one.bundle.program[-1:], sections={"tuple": 0}
    )  # type: ignore[dict-item]
    for _ in range(2):
        for pages in (b"", struct.pack("<I", 0).ljust(CONFIG.page_size, b"\0")):
            oracle = begun(one, 5, machine, simulator)
            if pages:
                continue
            assert machine.run_epoch(pages) == simulator.run_epoch(pages)
            check_records(one, machine, oracle)
        for each in (machine, simulator):
            each.load(bare)
        assert machine.run_epoch(b"".join(one.pages)) == simulator.run_epoch(b"".join(one.pages))
        trains(one, machine)


def numbered(*numbers: float, place: int = 3) -> tuple[Made, bytes]:
    """A case of two watched columns, float4, and its first page with other numbers of one of its nine tuples, by itself
    the second of thread 1."""
    rng = random.Random(5)
    one = None
    while one is None or one.bundle.columns[0].type is not ColumnType.FLOAT4:
        one = made(
            rng, CONFIG, (Table(records=20, rows=2), Table(records=3, rows=1)), (Watch(1, True), Watch(2, True)),
            count=9, group=2,
        )  # fmt: skip
    page = bytearray(one.pages[0])
    struct.pack_into("<2f", page, 4 + place * 4 * (2 + CONFIG.lanes + 3), *numbers)
    return one, bytes(page)


WRONG = (20.0, -1.0, 0.5, float("nan"), float("inf"), 2.0**24, 2.0**31, 2.0**40, 19.5, -1e38)


@pytest.mark.parametrize("k", [0, 1])
def test_a_number_that_names_no_record_is_a_fault(k: int) -> None:
    machine = RtlMachine(CONFIG)
    for wrong in (*WRONG, *([3.0] if k else [])):
        one, page = numbered(*([wrong, 1.0] if k == 0 else [1.0, wrong]))
        begun(one, 6, machine)
        found = machine.run_epoch(page + b"".join(one.pages[1:]))
        assert (found.fault, found.fault_page, found.fault_pointer) == (Fault.INDEX, UNKNOWN_PAGE, k)
        trains(one, machine)


@pytest.mark.parametrize("numbers", [(-0.0, 0.0), (1e-40, -1e-40), (19.0, 2.0)])
def test_numbers_that_name_one(numbers: tuple[float, float]) -> None:
    one, page = numbered(*numbers)
    machine, simulator = RtlMachine(CONFIG), Simulator(CONFIG)
    begun(one, 7, machine, simulator)
    assert machine.run_epoch(page) == simulator.run_epoch(page)
    for table, rows in ((1, 40), (2, 3)):
        np.testing.assert_array_equal(
            machine.read_rows(0, rows, table=table), simulator.read_rows(0, rows, table=table)
        )


@pytest.mark.parametrize("behind", [1, 2])
@pytest.mark.parametrize("wrong", [False, True])
def test_of_a_number_and_what_is_behind_it_the_number_is_the_fault(behind: int, wrong: bool) -> None:
    """Though it is seen before what is wrong with the number."""
    one, page = numbered(20.0 if wrong else 1.0, 1.0, place=0)
    strider = list(one.bundle.strider)
    handed = [k for k, step in enumerate(strider) if step.op is StepOp.WRITEB][behind]
    strider[handed] = Step(StepOp.CTL, Control.FAIL, 0, Fault.PAGE_HEADER)
    bundle = dataclasses.replace(one.bundle, strider=tuple(strider))
    expected, _ = expected_counters(bundle, dataclasses.replace(one.case, program=bundle.strider, pages=(page,)))
    machine = RtlMachine(CONFIG)
    machine.load(bundle)
    found = machine.run_epoch(page)
    assert found.fault is (Fault.INDEX if wrong else Fault.PAGE_HEADER)
    assert (found.fault, found.fault_page, found.fault_pointer) == (
        expected.fault, expected.fault_page, expected.fault_pointer,
    )  # fmt: skip
    trains(one, machine)


def test_a_record_that_the_bus_refuses_is_a_fault_of_the_bus() -> None:
    """A table that lies beyond the memory: read in vain, and nothing hangs."""
    machine = RtlMachine(CONFIG)
    one, _ = numbered(1.0, 1.0)
    begun(one, 8, machine)
    far = aperture.address(Region.CONTROL, Register.TABLES + TABLE_WORDS + TableWord.BASE)
    machine.rtl.write(far, np.array([0x100_0000, 1], dtype=np.uint32))
    found = machine.run_epoch(b"".join(one.pages))
    assert (found.fault, found.fault_page) == (Fault.BUS, UNKNOWN_PAGE)
    trains(one, machine)


def test_stopped_in_the_middle() -> None:
    """While records are fetched, computed, stored: the board is idle after it, and trains as ever."""
    machine = RtlMachine(CONFIG, stall_seed=9)
    rng = random.Random(10)
    one = made(rng, CONFIG, (Table(records=50, rows=4),), (Watch(1, True),), count=300, group=8)
    status, command = (aperture.address(BoardRegion.BOARD, k) for k in (BoardRegister.STATUS, BoardRegister.COMMAND))
    for later in range(scaled(40)):
        begun(one, 11, machine)
        machine.rtl.stall([0, 128][later % 2], later)
        machine.rtl.pages.write(0, memoryview(b"".join(one.pages)))
        for address, words in load.training_blocks(one.bundle, pages=1, epochs=9, base=machine.rtl.pages.base):
            machine.rtl.write(address, words)
        for _ in range(60 + rng.randrange(60)):
            machine.rtl.read(status, 1)
        machine.rtl.write(command, np.array([Command.STOP], dtype=np.uint32))
        while machine.rtl.read(status, 1)[0] & BoardStatus.BUSY:
            pass
        assert machine.rtl.read(status, 1)[0] == BoardStatus.STOPPED
    machine.rtl.stall(0)
    trains(one, RtlMachine(CONFIG))
    oracle = begun(one, 12, machine)
    machine.run_epoch(b"".join(one.pages))
    oracle.epoch(one.tuples, one.numbers)
    check_records(one, machine, oracle)


def test_what_a_driver_is_told() -> None:
    one = made(random.Random(1), CONFIG, (Table(records=3, rows=3),), (Watch(1, True),), count=1, group=1)
    machine = RtlMachine(CONFIG)
    with pytest.raises(ValueError, match="must be loaded with a Bundle before its records are read"):
        machine.read_rows(0, 3, table=1)
    machine.load(one.bundle)
    words = np.random.default_rng(1).integers(0, 1 << 32, (3, CONFIG.lanes), dtype=np.uint32)
    machine.write_rows(1, words, table=1)
    whole = machine.read_rows(0, 9, table=1).reshape(3, 3, -1)
    np.testing.assert_array_equal(whole[:, 1], words)
    assert not whole[:, [0, 2]].any()
    for row, count, table in ((0, 5, 1), (3, 3, 1), (-1, 3, 1), (0, 0, 1)):
        with pytest.raises(ValueError, match="must be rows of all its 3 records, which have 3 rows each, not"):
            machine.read_rows(row, count, table=table)
    with pytest.raises(ValueError, match="the Bundle must have a table 2 in the record memory; it has 1"):
        machine.read_rows(0, 3, table=2)
    small = RtlBoard(verilog_of(CONFIG), CONFIG, record_bytes=4095)
    with pytest.raises(BoardError, match="must hold the Bundle's tables, 4096 bytes, but it has 4095"):
        Board(small, small.pages, small.records).load(one.bundle)
    with pytest.raises(BoardError, match="tables need a record memory, but the board was opened without one"):
        Board(small, small.pages).load(one.bundle)
