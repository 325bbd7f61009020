"""The board between bus models of cocotbext-axi: python3 sim/cocotb_board.py [SIMULATOR]

The training of testbench.v in Python, to be extended by tests of your own. It needs PyPI's cocotb and cocotbext-axi and
a simulator that cocotb knows (icarus; no other has been tried). The memories pause and are as late as their models, so
the trained model, losses and records are compared, and not cycles: testbench.v compares those.
"""

import itertools
import json
import os
import random
import sys
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiSlave, AxiSlaveRead
from cocotbext.axi.sparse_memory import SparseMemory

PACKAGE = Path(__file__).resolve().parent.parent
MANIFEST = json.loads((PACKAGE / "manifest.json").read_text())
PAGE_BASE, PART, RECORD_BASE, INTERRUPT = (int(x, 16) for x in ("@BASE@", "@PART@", "@RECORD_BASE@", "@INTERRUPT@"))
PATIENCE_MS = 100
"""Simulated time that a training may take: ten million cycles."""


def words(name):
    """Lines of an address and a word."""
    for line in (PACKAGE / name).read_text().split():
        yield int(line[:8], 16), int(line[8:], 16)


def rows(name):
    """Rows of records, by their bytes' offset, as numbers."""
    for line in (PACKAGE / "sim" / name).read_text().splitlines():
        number, row = line.split()
        yield int(number[1:], 16) * len(row) // 2, bytes.fromhex(row)[::-1]


class Memory:
    """What is behind a bus: zero where nothing was put."""

    def __init__(self):
        self.data = SparseMemory(1 << 64)

    async def read(self, address, length):
        return bytes(self.data.read(address, length))

    async def write(self, address, data):
        self.data.write(address, data)


class Board:
    """A board after its reset, with a driver's bus and memories that pause in so many of 256 cycles."""

    def __init__(self, dut, pauses):
        self.dut, self.pages, self.records = dut, Memory(), Memory()
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value = 1
        self.bus = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        channels = []
        for k in range(MANIFEST["buses"]):
            bus = AxiReadBus.from_prefix(dut, f"m_axi_{k}" if k else "m_axi")
            slave = AxiSlaveRead(bus, dut.clk, dut.rst, target=self.pages)
            channels += [slave.ar_channel, slave.r_channel]
        if MANIFEST["config"]["record_depth"]:
            bus = AxiBus.from_prefix(dut, "m_axi_records")
            slave = AxiSlave(bus, dut.clk, dut.rst, target=self.records)
            channels += [slave.read_if.ar_channel, slave.read_if.r_channel]
            channels += [slave.write_if.aw_channel, slave.write_if.w_channel, slave.write_if.b_channel]
        chance = random.Random(1)
        for channel in channels if pauses else ():
            channel.set_pause_generator(chance.randrange(256) < pauses for _ in itertools.count())

    async def reset(self):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 5)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)

    async def write(self, pairs):
        for address, word in pairs:
            answer = await self.bus.write(address, word.to_bytes(4, "little"))
            assert answer.resp == AxiResp.OKAY, f"the write of {address:#x} was answered with {answer.resp!r}"

    async def read(self, address):
        answer = await self.bus.read(address, 4)
        assert answer.resp == AxiResp.OKAY, f"the read of {address:#x} was answered with {answer.resp!r}"
        return int.from_bytes(answer.data, "little")


@cocotb.test()
@cocotb.parametrize(pauses=[0, 64])
async def it_trains_the_simulator_s_model(dut, pauses):
    board = Board(dut, pauses)
    beats = (PACKAGE / "sim" / "pages.hex").read_text().split()
    beats = [line for line in beats if len(line) == 2 * MANIFEST["config"]["link_bytes"]]
    for k in range(MANIFEST["buses"]):
        # of each beat the stripe that comes over this bus
        width = MANIFEST["config"]["link_bytes"] // MANIFEST["buses"]
        stripes = (bytes.fromhex(line)[::-1][k * width : (k + 1) * width] for line in beats)
        board.pages.data.write(PAGE_BASE + k * PART, b"".join(stripes))
    for offset, row in rows("starts.hex") if MANIFEST["config"]["record_depth"] else ():
        board.records.data.write(RECORD_BASE + offset, row)
    await board.reset()
    await board.write(words("images/load.hex"))
    await board.write(words("sim/writes.hex"))
    await with_timeout(RisingEdge(dut.irq), PATIENCE_MS, "ms")
    await board.write([(INTERRUPT, 1)])
    wrong = [(address, word) for address, word in words("sim/expected.hex") if await board.read(address) != word]
    assert not wrong, f"{len(wrong)} words are not as sim/expected.hex says; the first is at {wrong[0][0]:#x}"
    held = dict(rows("held.hex")) if MANIFEST["config"]["record_depth"] else {}
    for offset, row in rows("records.hex") if held else ():
        found = bytes(board.records.data.read(RECORD_BASE + offset, len(row)))
        bits = held.get(offset, bytes(len(row) * [255]))
        same = all((a ^ b) & bit == 0 for a, b, bit in zip(found, row, bits, strict=True))
        assert same, f"the record row at {offset:#x} is {found.hex()}, not {row.hex()}"
    assert dut.irq.value == 0


def main():
    simulator = sys.argv[1] if len(sys.argv) > 1 else "icarus"
    runner = get_runner(simulator)
    build = PACKAGE / "sim" / "cocotb"
    # in SystemVerilog, for which cocotb asks, registers have their values before any block waits for a change, and
    # Icarus does not run those blocks at first: what they drive stays unknown
    language = {"icarus": ["-g2001"], "verilator": ["--default-language", "1364-2001", "-Wno-fatal"]}
    runner.build(
        sources=sorted((PACKAGE / "rtl").glob("*.v")),
        hdl_toplevel=MANIFEST["top"],
        build_dir=build,
        build_args=language.get(simulator, []),
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel=MANIFEST["top"],
        test_module=Path(__file__).stem,
        test_dir=Path(__file__).parent,
        build_dir=build,
        # the bus models report each access as INFO
        extra_env={"COCOTB_LOG_LEVEL": os.environ.get("COCOTB_LOG_LEVEL", "WARNING")},
    )
    tests, failed = get_results(results)
    if failed or not tests:
        sys.exit(f"FAIL {failed} of {tests} tests")
    print(f"PASS {tests} tests")


if __name__ == "__main__":
    main()
