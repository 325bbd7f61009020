"""The page reader on its AXI bus, for every run of so many cycles: the bus obeyed, no page that nobody wants, each beat
that was asked for given to the machine as it came, and beats that nobody asked for come to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.board.pages import PageReader
from hwgen.rtl.interfaces import wires
from hwgen.spec import board
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(striders=2, link_bytes=64)
SEVERAL = MachineConfig(striders=2, clusters=8, link_bytes=256)
BOUNDARY = 4096
"""Bytes that a burst must not cross a multiple of (ARM IHI 0022, A3.4.1)."""


class Memory(NamedTuple):
    """What is known of a memory behind a bus: bursts under way, bursts so far, beats that were asked for and taken, and
    whether one comes that was not, or was."""

    waiting: Signal
    given: Signal
    brought: Signal
    stray: Signal
    came: Signal


class OnTheBus(wiring.Component):
    """A machine that asks for pages while it has buffers, and memories that accept and deliver when they like.

    Parameters
    ----------
    config
        The machine: a bus, or several.
    ends
        Cover the end of bursts that were dropped; else the first burst of a second page.
    """

    def __init__(self, config: MachineConfig = CONFIG, *, ends: bool = False) -> None:
        self._config, self._ends = config, ends
        buses = config.buses
        super().__init__(
            {
                "ask": In(1), "page_taken": In(1), "drop": In(1), "begin": In(1),
                **{board.of_bus("base", k): In(board.PAGE_ADDRESS_BITS) for k in range(buses)},
                "slots": In(32), "ready": In(32),
                "accept": In(buses), "deliver": In(buses), "stray": In(buses), "error": In(buses),
                "data": In(8 * config.link_bytes),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.reader = reader = PageReader(config)
        bursts = config.page_beats // board.burst_beats(config)

        # the machine: no more requests than it has buffers
        buffers = Signal(4)
        asks = Signal()
        m.d.comb += [
            asks.eq(self.ask & (buffers < config.striders) & ~self.drop & ~self.begin),
            reader.page.req_valid.eq(asks),
            *wires(reader, self, "begin", "drop", "slots", "ready"),
            *wires(reader, self, *(board.of_bus("base", k) for k in range(config.buses))),
            Assume(~self.begin | reader.idle),
        ]
        m.d.sync += buffers.eq(buffers + asks)
        buses = [self._memory(m, getattr(reader, board.of_bus("bus", k)), k) for k in range(config.buses)]
        strayed, arrived = Signal(), Signal.like(reader.arrived)
        m.d.sync += [strayed.eq(buses[0].stray), arrived.eq(reader.arrived)]
        with m.If(strayed):
            m.d.comb += [Assert(~reader.page.valid), Assert((reader.arrived == arrived) | (reader.arrived == 0))]

        # what the machine is given are the stripes of the cycle before, the same one from each bus; until a drop it is
        # given each one that it asked for
        came, word, forgotten = Signal(config.buses), Signal.like(self.data), Signal()
        m.d.sync += [
            came.eq(Cat(bus.came for bus in buses)), word.eq(self.data), forgotten.eq(forgotten | self.drop)
        ]  # fmt: skip
        with m.If(reader.page.valid):
            m.d.comb += [Assert(came.all()), Assert(reader.page.data == word)]
        with m.If(came.any() & ~forgotten):
            m.d.comb += Assert(reader.page.valid)
        with m.If(~forgotten):
            m.d.comb += [Assert(bus.brought == buses[0].brought) for bus in buses]

        # what is dropped is taken at once, bus by bus: one may have been asked for less of it
        drains = Signal()
        with m.If(self.drop):
            m.d.sync += drains.eq(1)
        with m.Elif(reader.idle):
            m.d.sync += drains.eq(0)
        with m.If(drains):
            m.d.comb += [
                Assert(bus.rready | ~bus.rvalid)
                for bus in (getattr(reader, board.of_bus("bus", k)) for k in range(config.buses))
            ]

        # bursts of pages that were asked for, and no others; nothing is under way that the reader does not know of
        dropped = Signal()
        under_way = Cat(bus.waiting.any() for bus in buses).any()
        m.d.sync += dropped.eq(dropped | (self.drop & under_way))
        m.d.comb += [
            *(Assert(bus.given <= bursts * buffers) for bus in buses),
            Assert(~reader.idle | ~under_way),
            Cover(reader.idle & dropped if self._ends else (buses[-1].given == bursts + 1) & reader.failed),
        ]
        return m

    def _memory(self, m: Module, bus: Any, k: int) -> Memory:
        """One behind a bus: bursts in order, each of its length, the last beat marked; and where none is asked for,
        beats of a time before a reset."""
        config = self._config
        beats = board.burst_beats(config)
        waiting, beat, given, brought = (
            Signal(8, name=f"{name}_{k}") for name in ("waiting", "beat", "given", "brought")
        )
        accepted, last, stray, came = (Signal(name=f"{name}_{k}") for name in ("accepted", "last", "stray", "came"))
        valid = Signal(name=f"valid_{k}")
        m.d.comb += [
            bus.arready.eq(self.accept[k]),
            stray.eq(self.stray[k] & ~waiting.any()),
            valid.eq(self.deliver[k] & waiting.any()),
            bus.rvalid.eq(valid | stray),
            bus.rlast.eq(valid & (beat == beats - 1) | stray),
            bus.rresp.eq(self.error[k] << 1),
            bus.rdata.eq(self.data.word_select(k, 8 * config.bus_bytes)),
            accepted.eq(bus.arvalid & bus.arready),
            came.eq(valid & bus.rready),
            last.eq(came & bus.rlast),
        ]
        m.d.sync += [
            waiting.eq(waiting + accepted - last),
            given.eq(given + accepted),
            brought.eq(brought + came),
        ]
        with m.If(came):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))

        # an address stands, unchanged, until it is accepted (A3.2.1)
        stood, address = Signal(name=f"stood_{k}"), Signal.like(bus.araddr, name=f"address_{k}")
        m.d.sync += [stood.eq(bus.arvalid & ~bus.arready), address.eq(bus.araddr)]
        with m.If(stood):
            m.d.comb += [Assert(bus.arvalid), Assert(bus.araddr == address)]
        within = bus.araddr[: (BOUNDARY - 1).bit_length()]
        with m.If(bus.arvalid):
            m.d.comb += [
                Assert(within + beats * config.bus_bytes <= BOUNDARY),
                Assert(bus.arlen == beats - 1),
                Assert((1 << bus.arsize) == config.bus_bytes),
            ]
        # strays are taken at once; so is all where there is one bus
        m.d.comb += Assert(bus.rready | (valid if config.buses > 1 else 0) | ~bus.rvalid)
        return Memory(waiting, given, brought, stray, came)


def test_the_bus_s_rules_hold_and_no_page_is_read_that_was_not_asked_for(tmp_path: Path) -> None:
    check(OnTheBus(), cycles=16, folder=tmp_path)


def test_the_same_of_bursts_that_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts so short that several end, and those that nobody wants any more are received to their last beat."""
    monkeypatch.setattr(board, "LONGEST_BURST", 4)
    check(OnTheBus(ends=True), cycles=16, folder=tmp_path)


def test_of_two_buses_the_machine_gets_the_same_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is ahead; and what each was asked for is received to its last beat, after a drop from each alone."""
    check(OnTheBus(SEVERAL), cycles=16, folder=tmp_path)
    monkeypatch.setattr(board, "LONGEST_BURST", 4)
    check(OnTheBus(SEVERAL, ends=True), cycles=16, folder=tmp_path)
