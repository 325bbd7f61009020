"""The board between foreign bus models (cocotbext-axi), as a driver sees it; run by `test_board.py` inside Verilator.

Each scenario resets the board and loads it through its control bus; what is trained is compared with the simulator's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiSlaveRead

from hwgen.spec import aperture, board, load, registers
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import Bundle
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault
from tests.hwgen.board.table import CONFIG, CONVERGES_BELOW, rule, simulated, table

BASE = 0x12_3456_0000
PATIENCE = 400_000
"""Cycles until an interrupt."""
TIMEOUT = 700
"""Cycles for the answer of a memory, more than one of these takes."""
ROUNDS = 200_000
"""Cycles of a scenario that asks again and again."""


class Pages:
    """Host memory: pages at BASE, and nothing around them; what is read beyond them, or where it hurts, is an error."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.bad: set[int] = set()
        self.reads = 0

    async def read(self, address: int, length: int) -> bytes:
        offset = address - BASE
        assert 0 <= offset <= len(self.data) - length
        assert offset // CONFIG.page_size not in self.bad
        self.reads += 1
        return bytes(self.data[offset : offset + length])


class Rig:
    """A board with a driver's bus and host memory on its buses; the memory may go on when the board is reset."""

    def __init__(self, dut: Any, *, memory_is_reset: bool = True) -> None:
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        self.memory = Pages()
        dut.rst.value = 1
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        reset = dut.rst if memory_is_reset else None
        self.slave = AxiSlaveRead(AxiReadBus.from_prefix(dut, "m_axi"), dut.clk, reset, target=self.memory)

    @classmethod
    async def ready(cls, dut: Any, *, memory_is_reset: bool = True) -> Rig:
        """A rig whose board has been reset."""
        rig = cls(dut, memory_is_reset=memory_is_reset)
        await rig.reset()
        return rig

    async def reset(self) -> None:
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 5)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)

    async def write(self, address: int, *words: int) -> AxiResp:
        data = b"".join(int(word).to_bytes(4, "little") for word in words)
        return (await self.lite.write(4 * address, data)).resp

    async def read(self, address: int, count: int = 1) -> np.ndarray:
        answer = await self.lite.read(4 * address, 4 * count)
        assert answer.resp == AxiResp.OKAY
        return np.frombuffer(answer.data, dtype="<u4")

    async def register(self, register: BoardRegister | Register) -> int:
        region = BoardRegion.BOARD if isinstance(register, BoardRegister) else Region.CONTROL
        return int((await self.read(aperture.address(region, register)))[0])

    async def put(self, register: BoardRegister, word: int) -> AxiResp:
        return await self.write(aperture.address(BoardRegion.BOARD, register), word)

    async def load(self, bundle: Bundle) -> None:
        for address, words in load.bundle_blocks(bundle):
            assert await self.write(address, *words) == AxiResp.OKAY

    async def train(self, bundle: Bundle, pages: bytes, epochs: int, **where: int) -> None:
        """Start, and return at once."""
        if not where:
            self.memory.data[:] = pages
        count = len(pages) // CONFIG.page_size
        for address, words in load.training_blocks(bundle, pages=count, epochs=epochs, base=BASE, **where):
            assert await self.write(address, *words) == AxiResp.OKAY

    async def ended(self) -> int:
        """Wait for the interrupt, clear it, and tell the status."""
        if not self.dut.irq.value:
            await with_timeout(RisingEdge(self.dut.irq), 10 * PATIENCE, "ns")
        assert await self.register(BoardRegister.INTERRUPT) == 1
        await self.put(BoardRegister.INTERRUPT, 1)
        assert not self.dut.irq.value
        return await self.register(BoardRegister.STATUS)

    async def check(self, bundle: Bundle, pages: bytes, epochs: int, status: int) -> None:
        """The whole scratchpad, losses, counts: as the simulator has them."""
        wanted = simulated(bundle, pages, epochs)
        ended = BoardStatus.TRAINED | (BoardStatus.CONVERGED if wanted.converged else BoardStatus(0))
        assert status == ended
        assert await self.register(BoardRegister.EPOCHS_RUN) == len(wanted.losses)
        losses = await self.read(aperture.address(BoardRegion.LOSSES), len(wanted.losses))
        assert losses.tolist() == wanted.losses
        rows = len(bundle.image) + 8
        words = await self.read(aperture.address(Region.SCRATCH, 0, CONFIG), rows * CONFIG.lanes)
        np.testing.assert_array_equal(words.reshape(rows, -1), wanted.scratchpad[:rows])
        for symbol in bundle.of_kind("model"):
            assert symbol.row + symbol.rows(CONFIG.lanes) <= rows

    async def trains(self, bundle: Bundle, pages: bytes, epochs: int) -> None:
        """Load, train to the end, and compare."""
        await self.load(bundle)
        await self.train(bundle, pages, epochs)
        await self.check(bundle, pages, epochs, await self.ended())


def gaps() -> list[int]:
    """The first word and the last of each part of the map that has none."""
    sizes = aperture.region_words(CONFIG)
    begins = [*aperture.starts(sizes).values(), aperture.aperture_bytes(CONFIG) // 4]
    between = [
        (aperture.address(region, words, CONFIG), begin)
        for (region, words), begin in zip(sizes.items(), begins[1:], strict=True)
    ]
    return [word for first, behind in between if first < behind for word in (first, behind - 1)]


def at_random(seed: int, share: float) -> Iterator[bool]:
    """A bus that pauses in so many of its cycles, in runs."""
    draw = random.Random(seed)
    while True:
        pause = draw.random() < share
        yield from [pause] * draw.choice((1, 1, 2, 3, 20))


@cocotb.test()
async def a_driver_finds_out_what_it_drives(dut: Any) -> None:
    rig = await Rig.ready(dut)
    assert await rig.register(Register.ID) == registers.IDENTITY
    assert await rig.register(BoardRegister.ID) == board.IDENTITY
    words = await rig.read(aperture.address(BoardRegion.BOARD, BoardRegister.THREADS), len(board.CONFIGURATION))
    assert words.tolist() == [getattr(CONFIG, name) for name in board.CONFIGURATION]
    assert await rig.register(BoardRegister.STATUS) == 0


@cocotb.test()
async def what_has_no_effect_is_refused(dut: Any) -> None:
    rig = await Rig.ready(dut)
    at = aperture.byte_address(BoardRegion.BOARD, BoardRegister.EPOCHS)
    await rig.put(BoardRegister.EPOCHS, 0x01020304)
    assert (await rig.lite.write(at, b"\xff\xff")).resp == AxiResp.SLVERR
    assert await rig.register(BoardRegister.EPOCHS) == 0x01020304
    for at in (4 * word for word in gaps()):
        assert (await rig.lite.read(at, 4)).resp == AxiResp.SLVERR
        assert (await rig.lite.write(at, bytes(4))).resp == AxiResp.SLVERR
    assert (await rig.lite.read(aperture.byte_address(Region.PROGRAM, 0, CONFIG), 4)).resp == AxiResp.SLVERR
    assert await rig.write(aperture.address(BoardRegion.LOSSES), 0) == AxiResp.SLVERR
    # an epoch is started by the board alone
    assert await rig.write(aperture.address(Region.CONTROL, Register.CONTROL), 1) == AxiResp.SLVERR
    # and not before it knows where pages are
    assert await rig.put(BoardRegister.COMMAND, Command.TRAIN) == AxiResp.SLVERR
    assert await rig.register(BoardRegister.STATUS) == 0


@cocotb.test()
async def rows_that_are_not_there_are_refused(dut: Any) -> None:
    """The last one is there; behind it, the first one does not come again."""
    rig = await Rig.ready(dut)
    first, behind = (aperture.address(Region.SCRATCH, k, CONFIG) for k in (0, CONFIG.scratch_depth * CONFIG.lanes))
    await rig.write(first, 0x3F800000)
    assert await rig.write(behind - 1, 0x40000000) == AxiResp.OKAY
    assert await rig.write(behind, 0x40400000) == AxiResp.SLVERR
    assert (await rig.lite.read(4 * behind, 4)).resp == AxiResp.SLVERR
    assert ((await rig.read(first))[0], (await rig.read(behind - 1))[0]) == (0x3F800000, 0x40000000)


@cocotb.test()
async def settings_that_are_only_written_read_as_zero(dut: Any) -> None:
    rig = await Rig.ready(dut)
    for register in Register:
        if Register.PAGES <= register <= Register.EPOCH:
            assert await rig.write(aperture.address(Region.CONTROL, register), 5) == AxiResp.OKAY
            assert await rig.register(register) == 0
    assert await rig.register(BoardRegister.COMMAND) == 0


@cocotb.test()
async def a_stop_wins_over_a_start(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    await rig.trains(bundle, pages, 2)
    assert await rig.put(BoardRegister.COMMAND, Command.TRAIN | Command.STOP) == AxiResp.OKAY
    await ClockCycles(dut.clk, 20)
    assert await rig.register(BoardRegister.STATUS) == BoardStatus.TRAINED


@cocotb.test()
async def the_model_is_the_simulators(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    await rig.trains(bundle, pages, 3)
    assert await rig.register(BoardRegister.PAGES_READ) == 3 * len(pages) // CONFIG.page_size
    assert await rig.register(Register.TUPLES) == 120


@cocotb.test(timeout_time=10 * ROUNDS, timeout_unit="ns")
async def nothing_moves_while_the_board_trains(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    await rig.load(bundle)
    await rig.train(bundle, pages, 2)
    for address in (
        aperture.address(Region.SCRATCH, 3, CONFIG),
        aperture.address(Region.PROGRAM, 0, CONFIG),
        aperture.address(Region.CONTROL, Register.PAGES),
        aperture.address(BoardRegion.BOARD, BoardRegister.PAGE_BASE),
    ):
        assert await rig.write(address, 7) == AxiResp.SLVERR
    assert (await rig.lite.read(aperture.byte_address(Region.SCRATCH, 0, CONFIG), 4)).resp == AxiResp.SLVERR
    # a second command does nothing either, and registers can be read all the time
    await rig.put(BoardRegister.COMMAND, Command.TRAIN)
    while await rig.register(BoardRegister.STATUS) & BoardStatus.BUSY:
        assert await rig.register(Register.ID) == registers.IDENTITY
    await rig.check(bundle, pages, 2, await rig.ended())


@cocotb.test()
async def training_ends_where_the_convergence_test_holds(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(CONVERGES_BELOW), table(120)
    assert 1 < len(simulated(bundle, pages, 8).losses) < 8
    await rig.load(bundle)
    await rig.train(bundle, pages, 8)
    status = await rig.ended()
    assert status & BoardStatus.CONVERGED
    await rig.check(bundle, pages, 8, status)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def buses_that_stall_at_random_change_no_bit(dut: Any, seed: int) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(150, seed)
    channels = (
        rig.slave.ar_channel,
        rig.slave.r_channel,
        rig.lite.write_if.aw_channel,
        rig.lite.write_if.w_channel,
        rig.lite.write_if.b_channel,
        rig.lite.read_if.ar_channel,
        rig.lite.read_if.r_channel,
    )
    for k, channel in enumerate(channels):
        channel.set_pause_generator(at_random(100 * seed + k, 0.3))
    await rig.trains(bundle, pages, 2)


@cocotb.test(timeout_time=10 * ROUNDS, timeout_unit="ns")
async def pages_that_come_while_the_board_trains(dut: Any) -> None:
    """Three slots for five pages, twice: a page goes where one was that has been read."""
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(150)
    size, slots, epochs = CONFIG.page_size, 3, 2
    count = len(pages) // size
    assert count > slots
    stream = [pages[size * (k % count) : size * (k % count) + size] for k in range(epochs * count)]
    rig.memory.data[:] = bytes(slots * size)
    await rig.load(bundle)
    await rig.train(bundle, pages, epochs, slots=slots, ready=0)
    ready = 0
    while ready < len(stream):
        if ready - await rig.register(BoardRegister.PAGES_READ) < slots:
            at = size * (ready % slots)
            rig.memory.data[at : at + size] = stream[ready]
            ready += 1
            assert await rig.put(BoardRegister.PAGES_READY, ready) == AxiResp.OKAY
    await rig.check(bundle, pages, epochs, await rig.ended())


@cocotb.test()
async def a_damaged_page_is_reported_and_forgotten(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    damaged = bytearray(pages)
    damaged[CONFIG.page_size + 12 : CONFIG.page_size + 14] = b"\xff\xff"  # pd_lower
    await rig.load(bundle)
    await rig.train(bundle, bytes(damaged), 3)
    assert await rig.ended() == Fault.PAGE_HEADER << 8
    assert await rig.register(Register.FAULT_PAGE) == 1
    await rig.trains(bundle, pages, 2)


@cocotb.test()
async def an_error_on_the_bus_is_reported_and_forgotten(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    await rig.load(bundle)
    rig.memory.bad = {2}
    await rig.train(bundle, pages, 3)
    assert await rig.ended() == Fault.BUS << 8
    assert await rig.register(BoardRegister.FAILED_PAGE) == 2
    rig.memory.bad = set()
    await rig.trains(bundle, pages, 2)


@cocotb.test()
async def stopped_in_the_middle_and_begun_anew(dut: Any) -> None:
    """At moments that differ: while pages are under way, half asked for, between epochs."""
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    draw = random.Random(3)
    for _ in range(6):
        await rig.load(bundle)
        rig.slave.r_channel.set_pause_generator(at_random(draw.randrange(99), 0.5))
        await rig.train(bundle, pages, 50)
        await ClockCycles(dut.clk, draw.randrange(1, 6000))
        await rig.put(BoardRegister.COMMAND, Command.STOP)
        assert await rig.ended() == BoardStatus.STOPPED
        reads = rig.memory.reads
        await ClockCycles(dut.clk, 200)
        assert rig.memory.reads == reads
    await rig.trains(bundle, pages, 2)


@cocotb.test()
@cocotb.parametrize(channel=["ar", "r"])
async def a_memory_that_does_not_answer_is_reported_and_forgotten(dut: Any, channel: str) -> None:
    """From moments that differ; a stop ends the training, and the next one begins when all has been answered."""
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    assert await rig.register(BoardRegister.BUS_TIMEOUT) == board.BUS_TIMEOUT
    assert await rig.put(BoardRegister.BUS_TIMEOUT, TIMEOUT) == AxiResp.OKAY
    draw = random.Random(5)
    silent = {"ar": rig.slave.ar_channel, "r": rig.slave.r_channel}[channel]
    for _ in range(3):
        await rig.load(bundle)
        await rig.train(bundle, pages, 50)
        await ClockCycles(dut.clk, draw.randrange(1, 6000))
        silent.pause = True
        assert await rig.ended() == BoardStatus.BUSY | BoardStatus.UNANSWERED
        # it is no end: where the memory answers, the training goes on
        silent.pause = False
        await ClockCycles(dut.clk, 3 * TIMEOUT)
        assert await rig.register(BoardRegister.STATUS) == BoardStatus.BUSY
        silent.pause = True
        assert await rig.ended() == BoardStatus.BUSY | BoardStatus.UNANSWERED
        await rig.put(BoardRegister.COMMAND, Command.STOP)
        assert await rig.ended() == BoardStatus.STOPPED | BoardStatus.UNANSWERED
        await rig.load(bundle)
        assert await rig.put(BoardRegister.COMMAND, Command.TRAIN) == AxiResp.SLVERR
        silent.pause = False
        await ClockCycles(dut.clk, 2000)
        assert await rig.register(BoardRegister.STATUS) == BoardStatus.STOPPED
        await rig.trains(bundle, pages, 2)
        assert await rig.register(BoardRegister.PAGES_READ) == 2 * len(pages) // CONFIG.page_size


@cocotb.test()
async def a_timeout_of_zero_is_none(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    await rig.put(BoardRegister.BUS_TIMEOUT, 0)
    await rig.load(bundle)
    rig.slave.r_channel.pause = True
    await rig.train(bundle, pages, 2)
    await ClockCycles(dut.clk, 4 * TIMEOUT)
    assert await rig.register(BoardRegister.STATUS) == BoardStatus.BUSY
    rig.slave.r_channel.pause = False
    await rig.check(bundle, pages, 2, await rig.ended())


@cocotb.test()
async def reset_in_the_middle(dut: Any) -> None:
    rig = await Rig.ready(dut)
    bundle, pages = rule(), table(120)
    draw = random.Random(4)
    for _ in range(4):
        await rig.load(bundle)
        await rig.train(bundle, pages, 50)
        await ClockCycles(dut.clk, draw.randrange(1, 6000))
        await rig.reset()
        assert await rig.register(BoardRegister.STATUS) == 0
        assert not dut.irq.value
    await rig.trains(bundle, pages, 2)


@cocotb.test()
async def reset_alone_in_the_middle(dut: Any) -> None:
    """The memory goes on, and answers what the board asked for; then the board trains as ever."""
    rig = await Rig.ready(dut, memory_is_reset=False)
    bundle, pages = rule(), table(120)
    await rig.load(bundle)
    rig.slave.r_channel.set_pause_generator(at_random(1, 0.5))
    await rig.train(bundle, pages, 50)
    await ClockCycles(dut.clk, 1500)
    await rig.reset()
    rig.slave.r_channel.clear_pause_generator()
    rig.slave.r_channel.pause = False
    late = quiet = 0
    while quiet < 200:
        await RisingEdge(dut.clk)
        late, quiet = (late + 1, 0) if dut.m_axi_rvalid.value else (late, quiet + 1)
    assert late > 100
    await rig.trains(bundle, pages, 2)
    assert await rig.register(BoardRegister.PAGES_READ) == 2 * len(pages) // CONFIG.page_size
