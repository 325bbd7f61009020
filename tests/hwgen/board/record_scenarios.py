"""A board with a record memory between foreign bus models (cocotbext-axi), for `test_board_records.py` in Verilator."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiResp, AxiSlave

from dana.simulator import Simulator
from hwgen.spec import load
from hwgen.spec.board import BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import RECORD_BOUNDARY, Bundle, Table
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.strider import Fault
from tests.hwgen.board.scenarios import TIMEOUT, Rig, at_random
from tests.simulator.test_simulated_records import Watch, made

CONFIG = MachineConfig(
    threads=2, scratch_depth=64, tuple_depth=64, strider_depth=64, descriptor_depth=8, program_depth=64,
    watch_depth=8, record_depth=8, link_bytes=16,
)  # fmt: skip
BASE = 0x7_0000_3000
EPOCHS = 2
ENDED = BoardStatus.STOPPED | BoardStatus.UNANSWERED


@cache
def trained() -> tuple[Bundle, bytes, bytes]:
    """A Bundle, pages, and the memory after the training: what the simulator makes of zeros."""
    tables = (Table(records=9, rows=3), Table(records=4, rows=1))
    one = made(random.Random(3), CONFIG, tables, (Watch(1, True), Watch(2, True)), count=60, group=2)
    bundle, pages = one.bundle, b"".join(one.pages)
    simulator = Simulator(CONFIG)
    simulator.load(bundle)
    for _ in range(EPOCHS):
        simulator.run_epoch(pages)
    memory = bytearray(bundle.table_offsets[-1])
    for t, table in enumerate(tables, 1):
        rows = simulator.read_rows(0, table.records * table.rows, table=t).reshape(table.records, -1)
        assert rows.any()
        for n, words in enumerate(rows):
            at = bundle.table_offsets[t - 1] + (n << table.shift(CONFIG.lanes))
            memory[at : at + words.nbytes] = words.astype("<u4").tobytes()
    return bundle, pages, bytes(memory)


class Memory:
    """Tables at BASE and nothing around them; what is outside, or where it hurts, is an error."""

    def __init__(self) -> None:
        self.data = bytearray(trained()[0].table_offsets[-1])
        self.bad_reads = self.bad_writes = False

    async def read(self, address: int, length: int) -> bytes:
        assert not self.bad_reads
        at = address - BASE
        assert 0 <= at <= len(self.data) - length
        return bytes(self.data[at : at + length])

    async def write(self, address: int, data: bytes) -> None:
        assert not self.bad_writes
        at = address - BASE
        assert 0 <= at <= len(self.data) - len(data)
        self.data[at : at + len(data)] = data


class RecordRig(Rig):
    def __init__(self, dut: Any, *, memory_is_reset: bool = True) -> None:
        super().__init__(dut, memory_is_reset=memory_is_reset)
        self.records = Memory()
        bus = AxiBus.from_prefix(dut, "m_axi_records")
        self.both = AxiSlave(bus, dut.clk, dut.rst, target=self.records)

    async def begin(self) -> None:
        bundle, pages, _ = trained()
        assert BASE % RECORD_BOUNDARY == 0
        self.records.data[:] = bytes(len(self.records.data))
        for address, words in load.bundle_blocks(bundle, records=BASE):
            await self.write(address, *words)
        await self.train(bundle, pages, EPOCHS)

    async def trains_exactly(self) -> None:
        await self.begin()
        assert await self.ended() == BoardStatus.TRAINED
        assert self.records.data == trained()[2]

    def stall(self, seed: int) -> None:
        channels = (
            self.both.write_if.aw_channel, self.both.write_if.w_channel, self.both.write_if.b_channel,
            self.both.read_if.ar_channel, self.both.read_if.r_channel,
        )  # fmt: skip
        for k, channel in enumerate(channels):
            channel.set_pause_generator(at_random(100 * seed + k, 0.4))


@cocotb.test()
@cocotb.parametrize(seed=[0, 1, 2, 3])
async def records_are_the_simulators(dut: Any, seed: int) -> None:
    rig = await RecordRig.ready(dut)
    if seed:
        rig.stall(seed)
    await rig.trains_exactly()


@cocotb.test()
@cocotb.parametrize(written=[False, True])
async def an_error_is_reported_and_forgotten(dut: Any, written: bool) -> None:
    """Also one of the last store."""
    rig = await RecordRig.ready(dut)
    rig.records.bad_reads, rig.records.bad_writes = not written, written
    await rig.begin()
    assert await rig.ended() == Fault.BUS << 8
    assert await rig.register(BoardRegister.FAILED_PAGE) == UNKNOWN_PAGE
    rig.records.bad_reads = rig.records.bad_writes = False
    await rig.trains_exactly()


@cocotb.test()
@cocotb.parametrize(channel=["ar", "r", "aw", "w", "b"])
async def a_memory_that_does_not_answer_is_reported_and_forgotten(dut: Any, channel: str) -> None:
    rig = await RecordRig.ready(dut)
    side = rig.both.read_if if channel in {"ar", "r"} else rig.both.write_if
    silent = getattr(side, f"{channel}_channel")
    await rig.put(BoardRegister.BUS_TIMEOUT, TIMEOUT)
    await rig.begin()
    await ClockCycles(dut.clk, 1500)
    silent.pause = True
    assert await rig.ended() == BoardStatus.BUSY | BoardStatus.UNANSWERED
    await rig.put(BoardRegister.COMMAND, Command.STOP)
    assert await rig.ended() & ~BoardStatus.TRAINED in {BoardStatus.UNANSWERED, ENDED}
    assert await rig.put(BoardRegister.COMMAND, Command.TRAIN) == AxiResp.SLVERR
    silent.pause = False
    await ClockCycles(dut.clk, 2000)
    assert not await rig.register(BoardRegister.STATUS) & BoardStatus.UNANSWERED
    await rig.trains_exactly()


@cocotb.test()
async def stopped_or_reset_in_the_middle(dut: Any) -> None:
    """Nothing is under way on either bus when the board says that it is idle."""
    rig = await RecordRig.ready(dut)
    rig.stall(9)
    draw = random.Random(1)
    for k in range(12):
        await rig.begin()
        await ClockCycles(dut.clk, 400 + draw.randrange(4000))
        if k % 3 == 2:
            await rig.reset()
            continue
        await rig.put(BoardRegister.COMMAND, Command.STOP)
        assert await rig.ended() in {BoardStatus.STOPPED, BoardStatus.TRAINED}
        before = bytes(rig.records.data)
        for _ in range(200):
            await ClockCycles(dut.clk, 1)
            moving = (dut.m_axi_records_arvalid, dut.m_axi_records_rvalid, dut.m_axi_records_awvalid)
            assert not any(
                int(signal.value) for signal in (*moving, dut.m_axi_records_wvalid, dut.m_axi_records_bvalid)
            )
        assert np.array_equal(np.frombuffer(before, np.uint8), np.frombuffer(rig.records.data, np.uint8))
    await rig.trains_exactly()
