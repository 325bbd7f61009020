"""The page reader on its AXI bus, for every run of so many cycles: the bus obeyed, no page that nobody wants, each beat
that was asked for given to the machine as it came, and beats that nobody asked for come to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.board.pages import PageReader
from hwgen.spec import board
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(striders=2, link_bytes=64)
BOUNDARY = 4096
"""Bytes that a burst must not cross a multiple of (ARM IHI 0022, A3.4.1)."""


class OnTheBus(wiring.Component):
    """A machine that asks for pages while it has buffers, and a memory that accepts and delivers when it likes.

    Parameters
    ----------
    ends
        Cover the end of bursts that were dropped; else the first burst of a second page.
    """

    def __init__(self, *, ends: bool = False) -> None:
        self._ends = ends
        super().__init__(
            {
                "ask": In(1), "page_taken": In(1), "drop": In(1), "begin": In(1),
                "base": In(board.PAGE_ADDRESS_BITS), "slots": In(32), "ready": In(32),
                "accept": In(1), "deliver": In(1), "stray": In(1), "error": In(1),
                "data": In(8 * CONFIG.link_bytes),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = PageReader(CONFIG)
        beats = board.burst_beats(CONFIG)
        bursts = CONFIG.page_beats // beats
        bus = reader.bus

        # the machine: no more requests than it has buffers
        buffers = Signal(4)
        asks = Signal()
        m.d.comb += [
            asks.eq(self.ask & (buffers < CONFIG.striders) & ~self.drop & ~self.begin),
            reader.page.req_valid.eq(asks),
            reader.begin.eq(self.begin),
            reader.drop.eq(self.drop),
            reader.base.eq(self.base),
            reader.slots.eq(self.slots),
            reader.ready.eq(self.ready),
            Assume(~self.begin | reader.idle),
        ]
        m.d.sync += buffers.eq(buffers + asks)

        # the memory: bursts in order, each of its length, the last beat marked; and where none is asked for, beats of a
        # time before a reset
        waiting, beat = Signal(8), Signal(8)
        accepted, last, stray = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.arready.eq(self.accept),
            stray.eq(self.stray & ~waiting.any()),
            bus.rvalid.eq(self.deliver & waiting.any() | stray),
            last.eq(self.deliver & waiting.any() & (beat == beats - 1)),
            bus.rlast.eq(last | stray),
            bus.rresp.eq(self.error << 1),
            bus.rdata.eq(self.data),
            accepted.eq(bus.arvalid & bus.arready),
        ]
        m.d.sync += waiting.eq(waiting + accepted - last)
        with m.If(bus.rvalid & ~stray):
            m.d.sync += beat.eq(beat + 1)
        strayed, arrived = Signal(), Signal.like(reader.arrived)
        m.d.sync += [strayed.eq(stray), arrived.eq(reader.arrived)]
        with m.If(strayed):
            m.d.comb += [Assert(~reader.page.valid), Assert((reader.arrived == arrived) | (reader.arrived == 0))]
        with m.If(last):
            m.d.sync += beat.eq(0)

        # what the machine is given is the beat of the cycle before; until a drop it is given each one that it asked for
        came, word, forgotten = Signal(), Signal.like(self.data), Signal()
        m.d.sync += [came.eq(bus.rvalid & ~stray), word.eq(self.data), forgotten.eq(forgotten | self.drop)]
        with m.If(reader.page.valid):
            m.d.comb += [Assert(came), Assert(reader.page.data == word)]
        with m.If(came & ~forgotten):
            m.d.comb += Assert(reader.page.valid)

        # an address stands, unchanged, until it is accepted (A3.2.1)
        stood, address = Signal(), Signal.like(bus.araddr)
        m.d.sync += [stood.eq(bus.arvalid & ~bus.arready), address.eq(bus.araddr)]
        with m.If(stood):
            m.d.comb += [Assert(bus.arvalid), Assert(bus.araddr == address)]
        size = beats * CONFIG.link_bytes
        within = bus.araddr[: (BOUNDARY - 1).bit_length()]
        with m.If(bus.arvalid):
            m.d.comb += [
                Assert(within + size <= BOUNDARY),
                Assert(bus.arlen == beats - 1),
                Assert((1 << bus.arsize) == CONFIG.link_bytes),
            ]

        # bursts of pages that were asked for, and no others; nothing is under way that the reader does not know of
        given, dropped = Signal(8), Signal()
        m.d.sync += [given.eq(given + accepted), dropped.eq(dropped | (self.drop & waiting.any()))]
        m.d.comb += [
            Assert(given <= bursts * buffers),
            Assert(bus.rready),
            Assert(~reader.idle | ~waiting.any()),
            Cover(reader.idle & dropped if self._ends else (given == bursts + 1) & self.error & bus.rvalid),
        ]
        return m


def test_the_bus_s_rules_hold_and_no_page_is_read_that_was_not_asked_for(tmp_path: Path) -> None:
    check(OnTheBus(), cycles=16, folder=tmp_path)


def test_the_same_of_bursts_that_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts so short that several end, and those that nobody wants any more are received to their last beat."""
    monkeypatch.setattr(board, "LONGEST_BURST", 4)
    check(OnTheBus(ends=True), cycles=16, folder=tmp_path)
