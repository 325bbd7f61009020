"""The driver on a board under Verilator, and its files."""

from __future__ import annotations

import copy
import mmap
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwgen.driver import Board, BoardError, BusHang, MachineHang, MappedPages, MappedRegisters, WrittenPages
from hwgen.driver.board import announced
from hwgen.driver.watch import Watch
from hwgen.harness import RtlBoard
from hwgen.rtl.board.board import generate
from hwgen.spec import aperture, board, load, registers
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import BundleError
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault
from tests.assembly.engine import assemble
from tests.hwgen.board.table import CONFIG, CONVERGES_BELOW, rule, simulated, table

MANY = 1 << 20
NEVER = 256
"""Of 256 cycles, those in which the bus of a memory pauses."""


@cache
def verilog() -> str:
    """With the multipliers of UltraScale+; `scenarios.py` has the others."""
    return generate(CONFIG, wide_multipliers=True)


def made(memory_bytes: int = MANY, stall: int = 0) -> tuple[RtlBoard, Board]:
    rtl = RtlBoard(verilog(), CONFIG, memory_bytes=memory_bytes)
    rtl.stall(stall)
    return rtl, Board(rtl, rtl.pages)


def assert_trains(driver: Board, rows: int, epochs: int, bound: float = 0.0) -> None:
    """To what the simulator trains."""
    bundle, pages = rule(bound), table(rows)
    driver.load(bundle)
    run = driver.train(pages, epochs=epochs, seconds=300)
    wanted = simulated(bundle, pages, epochs)
    assert (run.epochs, run.converged) == (len(wanted.losses), wanted.converged)
    assert run.losses.view(np.uint32).tolist() == wanted.losses
    assert (run.counters.fault, run.counters.tuples) == (Fault.NONE, rows)
    assert run.cycles > run.epochs * run.counters.cycles // 2
    for symbol in bundle.of_kind("model"):
        found = driver.read_rows(symbol.row, symbol.rows(CONFIG.lanes))
        np.testing.assert_array_equal(found, wanted.scratchpad[symbol.row : symbol.row + len(found)])


def test_it_says_what_it_is_and_trains_again_and_again() -> None:
    _, driver = made()
    assert driver.config == CONFIG
    assert_trains(driver, 120, 2)
    assert_trains(driver, 120, 8, CONVERGES_BELOW)
    assert_trains(driver, 5, 1)


def test_a_table_larger_than_the_memory_streams_through_it() -> None:
    assert len(table(150)) > 2 * CONFIG.page_size
    for stall in (0, 100):
        _, driver = made(2 * CONFIG.page_size, stall)
        assert_trains(driver, 150, 3)
    _, driver = made(CONFIG.page_size)
    driver.load(rule())
    with pytest.raises(BoardError, match=r"must hold 2 pages of 8192 bytes to stream a table, but it has 8192 bytes"):
        driver.train(table(150), epochs=1)


def test_a_damaged_page_and_an_error_of_the_bus_are_the_runs() -> None:
    rtl, driver = made()
    damaged = bytearray(table(120))
    damaged[CONFIG.page_size + 12 : CONFIG.page_size + 14] = b"\xff\xff"  # pd_lower
    driver.load(rule())
    found = driver.train(damaged, epochs=2).counters
    assert (found.fault, found.fault_page) == (Fault.PAGE_HEADER, 1)
    with pytest.raises(ValueError, match="call load first"):
        driver.train(table(120), epochs=1)
    driver.load(rule())
    pages = table(120)
    rtl.pages.base -= CONFIG.page_size  # the first page is before the memory
    found = driver.train(pages, epochs=2).counters
    assert (found.fault, found.fault_page) == (Fault.BUS, 0)
    rtl.pages.base += CONFIG.page_size
    assert_trains(driver, 120, 1)


def test_a_board_is_left_idle() -> None:
    """Whoever was here before, whatever ends the training."""
    rtl, driver = made()
    driver.load(rule())
    with pytest.raises(BoardError, match=r"must end within 0\.0 s, but it has not; the board was stopped"):
        driver.train(table(120), epochs=1000, seconds=0.0)
    status = aperture.address(BoardRegion.BOARD, BoardRegister.STATUS)
    assert int(rtl.read(status, 1)[0]) == BoardStatus.STOPPED
    with pytest.raises(ValueError, match="call load first"):
        driver.train(table(120), epochs=1)
    driver.load(rule())
    for address, words in load.training_blocks(rule(), pages=1, epochs=1 << 20, base=rtl.pages.base):
        rtl.write(address, words)
    assert int(rtl.read(status, 1)[0]) & BoardStatus.BUSY
    assert_trains(Board(rtl, rtl.pages), 120, 1)


def test_a_memory_that_does_not_answer_is_named() -> None:
    """From a cycle in which pages are under way; the board trains again once it has what was owed."""
    rtl, driver = made()
    driver.load(rule())
    timeout = aperture.address(BoardRegion.BOARD, BoardRegister.BUS_TIMEOUT)
    assert int(rtl.read(timeout, 1)[0]) == board.BUS_TIMEOUT
    rtl.write(timeout, np.array([5000], dtype=np.uint32))
    rtl.stall(NEVER)
    with pytest.raises(BusHang, match=r"from 0x40000000 on must answer the board within 5000 cycles, but .* 0 pages"):
        driver.train(table(120), epochs=2)
    status = aperture.address(BoardRegion.BOARD, BoardRegister.STATUS)
    assert int(rtl.read(status, 1)[0]) == BoardStatus.STOPPED | BoardStatus.UNANSWERED
    driver.load(rule())
    with pytest.raises(BusHang, match=r"must have answered all that the board asked for before it trains"):
        driver.train(table(120), epochs=2)
    rtl.stall(0)
    rtl.wait()
    assert_trains(driver, 120, 2)


def test_who_stops_the_board_of_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rtl, driver = made()
    driver.load(rule())
    command = aperture.address(BoardRegion.BOARD, BoardRegister.COMMAND)
    monkeypatch.setattr(rtl, "wait", lambda: rtl.write(command, np.array([Command.STOP], dtype=np.uint32)))
    with pytest.raises(BoardError, match=r"must have trained to the end, but was stopped or reset from outside"):
        driver.train(table(120), epochs=1000)
    with pytest.raises(ValueError, match="call load first"):
        driver.train(table(120), epochs=1)


def file_of(path: Path, config: MachineConfig) -> MappedRegisters:
    """Registers that say that they are a board's, and do nothing."""
    with path.open("wb") as file:
        file.truncate(aperture.aperture_bytes(config))
    found = MappedRegisters(path)
    words = {
        aperture.address(Region.CONTROL, Register.ID): [registers.IDENTITY],
        aperture.address(BoardRegion.BOARD, BoardRegister.ID): [board.IDENTITY],
        aperture.address(BoardRegion.BOARD, BoardRegister.THREADS): [
            getattr(config, name) for name in board.CONFIGURATION
        ],
    }
    for address, values in words.items():
        found.write(address, np.array(values, dtype=np.uint32))
    return found


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"functions": 0}, r"the board lacks SIGMOID, which the Bundle's program uses"),
        ({"threads": 2}, r"for this board, with threads = 2, not 1: compile it with --design thr"),
        ({"page_size": 77}, r"configuration cannot be: page_size must be .* 77; are these its registers\?"),
        ({"clock_hz": 1, "link_latency": 9}, ""),
        ({"functions": 17, "crossed": 0}, ""),
    ],
)
def test_what_is_for_another_board_is_refused(changed: dict[str, int], said: str, tmp_path: Path) -> None:
    config = copy.copy(CONFIG)
    for name, value in changed.items():
        object.__setattr__(config, name, value)  # also what no configuration may be
    path = tmp_path / "registers"
    found = file_of(path, config)
    memory = MappedPages(path, base=0, size=4096)
    with pytest.raises(BoardError, match=said) if said else nullcontext():
        Board(found, memory).load(rule())


def test_a_program_that_breaks_a_rule_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "registers"
    driver = Board(file_of(path, CONFIG), MappedPages(path, base=0, size=4096))
    before = path.read_bytes()
    program, sections = assemble("tuple:\n high s0 <- s0, s1 wait=1\n end wait=9\n")
    with pytest.raises(BundleError, match="breaks it: LOW and HIGH need an exchange"):
        driver.load(replace(rule(), program=program, sections=sections))
    assert path.read_bytes() == before


def test_what_cannot_be_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "registers"
    driver = Board(file_of(path, CONFIG), MappedPages(path, base=0, size=4096))
    driver.load(rule())
    with pytest.raises(ValueError, match="multiple of 8192 bytes, not 5"):
        driver.train(b"12345", epochs=1)
    with pytest.raises(ValueError, match="epochs must be 1 to"):
        driver.train(b"", epochs=0)
    with pytest.raises(ValueError, match=r"rows must lie in 0 … 47, not 44 … 48"):
        driver.read_rows(44, 5)


def test_a_device_that_is_gone_is_not_busy(tmp_path: Path) -> None:
    path = tmp_path / "registers"
    registers = file_of(path, CONFIG)
    driver = Board(registers, MappedPages(path, base=0, size=4096))
    registers.write(aperture.address(BoardRegion.BOARD, BoardRegister.STATUS), np.array([0xFFFFFFFF], dtype=np.uint32))
    with pytest.raises(BoardError, match=r"STATUS must have no bits but 0xff7f, but 0xffffffff was read: is it gone\?"):
        driver.load(rule())


def test_a_rule_without_a_loss_has_none() -> None:
    """Whatever the losses of the rule before were."""
    _, driver = made()
    assert_trains(driver, 120, 2)
    bundle = rule()
    without = replace(bundle, symbols=tuple(symbol for symbol in bundle.symbols if symbol.kind != "loss"))
    driver.load(without)
    run = driver.train(table(120), epochs=2)
    assert (run.epochs, run.losses.tolist()) == (2, [])


def test_losses_are_the_last_ones_the_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "registers"
    found = file_of(path, CONFIG)
    driver = Board(found, MappedPages(path, base=0, size=4096))
    driver.load(rule())
    for register, word in ((BoardRegister.STATUS, BoardStatus.TRAINED), (BoardRegister.EPOCHS_RUN, board.LOSSES + 2)):
        found.write(aperture.address(BoardRegion.BOARD, register), np.array([word], dtype=np.uint32))
    found.write(aperture.address(BoardRegion.LOSSES), np.arange(board.LOSSES, dtype=np.uint32))
    losses = driver.train(b"", epochs=1).losses.view(np.uint32)
    assert losses.tolist() == [*range(2, board.LOSSES), 0, 1]


def test_pages_are_never_announced_as_all() -> None:
    """PAGES_READY counts modulo 2**32, and all ones say that nothing is waited for."""
    last = (1 << 32) - 1
    assert [announced(pages, 1 << 40) for pages in (last - 1, last, last + 1)] == [last - 1, last - 1, last + 1]
    assert announced(last, last) == last


def test_registers_that_are_none(tmp_path: Path) -> None:
    """A file of zeros is what a board without bitstream may look like."""
    path = tmp_path / "registers"
    with path.open("wb") as file:
        file.truncate(aperture.aperture_bytes(CONFIG))
    with pytest.raises(BoardError, match=r"ID of the board must be 0xda7ab004, but 0x0 was read: is the bitstream"):
        Board(MappedRegisters(path), MappedPages(path, base=0, size=4096))
    with pytest.raises(BoardError, match=r"must be open to reading, writing and mapping, but is not"):
        MappedRegisters(tmp_path / "nothing")
    with pytest.raises(BoardError, match=r"must begin at a multiple of"):
        MappedRegisters(path, offset=4)
    with pytest.raises(BoardError, match=r"must be open to writing"):
        WrittenPages(tmp_path / "nothing", base=0, size=1)
    with pytest.raises(BoardError, match=r"5 bytes must go to 0x0, but: .*No space left"):
        WrittenPages("/dev/full", base=0, size=8).write(0, memoryview(b"bytes"))
    held = MappedRegisters(path)
    with pytest.raises(BoardError, match=r"must not be in use by another driver"):
        MappedRegisters(path)
    assert held.read(0, 1).tolist() == [0]


def test_a_map_that_is_smaller_than_the_machine_s(tmp_path: Path) -> None:
    path = tmp_path / "registers"
    driver = Board(file_of(path, CONFIG), MappedPages(path, base=0, size=4096))
    size = aperture.aperture_bytes(CONFIG)
    with path.open("r+b") as file:
        file.truncate(size // 2)
    with pytest.raises(BoardError, match=f"{size} bytes from 0x0 on, must be open to reading, writing and mapping"):
        driver.load(rule())


def test_a_table_that_there_is_no_memory_for() -> None:
    rtl, _ = made()
    with pytest.raises(MemoryError, match="no room for 1 bytes of pages in the simulated board's memory"):
        rtl.pages.write(1 << 62, memoryview(b"x"))


def test_memory_that_no_page_begins_in() -> None:
    rtl, driver = made()
    driver.load(rule())
    rtl.pages.base += 4096
    with pytest.raises(BoardError, match=r"must begin at a multiple of 0x2000 on the board's bus, not at 0x40001000"):
        driver.train(table(5), epochs=1)


def test_words_and_pages_lie_where_the_map_says(tmp_path: Path) -> None:
    path = tmp_path / "device"
    offset = mmap.ALLOCATIONGRANULARITY
    with path.open("wb") as file:
        file.truncate(offset + aperture.aperture_bytes(CONFIG))
    found = MappedRegisters(path, offset=offset)
    command = aperture.address(BoardRegion.BOARD, BoardRegister.COMMAND)
    found.write(command, np.array([Command.STOP, 7], dtype=np.uint32))
    assert found.read(command, 2).tolist() == [2, 7]
    at = offset + aperture.byte_address(BoardRegion.BOARD, BoardRegister.COMMAND)
    assert path.read_bytes()[at : at + 8] == bytes([2, 0, 0, 0, 7, 0, 0, 0])
    MappedPages(path, base=1 << 40, size=offset, offset=offset).write(5, memoryview(b"mapped"))
    WrittenPages(path, base=100, size=200).write(7, memoryview(b"written"))
    held = path.read_bytes()
    assert held[offset + 5 : offset + 11] == b"mapped"
    assert held[107:114] == b"written"


def test_patience_goes_beyond_the_count_that_is_looked_at() -> None:
    watch, state = Watch(5 << 32), (3, 1, 3)
    for look in range(12):
        watch.look((look << 31) % (1 << 32), state)
    with pytest.raises(MachineHang, match="3 pages were read and 1 epochs ended"):
        watch.look(0, state)
    watch.look(1 << 31, (4, 1, 3))
