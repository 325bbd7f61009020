"""The record unit and its master on the AXI bus, for every run of so many cycles: the bus obeyed, no address outside of
the table, records as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Array, Assert, Assume, C, Cat, Cover, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.records import Records
from hwgen.rtl.board.records import RecordMaster
from hwgen.spec.bundle import RECORD_BOUNDARY
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import TableWord
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(threads=2, tuple_depth=16, watch_depth=2, record_depth=2, link_bytes=8)
BYTES = 4 * CONFIG.lanes
ROW_BITS = 2
"""Of the rows of a record, less one."""
CYCLES = 18
NUMBERS = np.array([0, 1, 2, 4], dtype=np.float32).view(np.uint32).tolist()
WORDS = (TableWord.RECORDS, TableWord.ROWS, TableWord.SHIFT, TableWord.BASE, TableWord.BASE + 1)
"""In the order in which the host writes them."""


class OnTheBus(wiring.Component):
    """A host that writes a legal table first; an unpacker with numbers and rounds, an engine and a memory that act when
    they like.

    Parameters
    ----------
    shorter
        Claim what is not so: that the table ends a record before its end.
    """

    def __init__(self, *, shorter: bool = False) -> None:
        self._shorter = shorter
        names = ("valid", "writes", "begin", "late", "decided", "release", "stop", "start", "put")
        memory = ("arready", "awready", "wready", "deliver", "answer", "error")
        super().__init__(
            {
                **{name: In(1) for name in (*names, *memory)},
                "number": In(2), "rows": In(ROW_BITS), "records": In(3), "base": In(6), "row": In(2), "data": In(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = Records(CONFIG)
        m.submodules.master = master = RecordMaster(CONFIG)
        wiring.connect(m, unit.port, master.records)
        bus, link = master.bus, unit.link

        # the host
        cycle = Signal(8)
        rows, records, base, shift = Signal(ROW_BITS), Signal(3), Signal(52), Signal(4)
        row = self.data.replicate(8 * BYTES)
        m.d.sync += cycle.eq(cycle + 1)
        # few bits are free, at both ends: z3 has enough to do
        free = Cat(self.rows, self.records, self.base[:3], C(0, 46), self.base[3:])
        m.d.sync += Cat(rows, records, base).eq(Mux(cycle == 0, free, Cat(rows, records, base)))
        table = Signal(32)
        m.d.comb += [
            shift.eq(5 + Mux(rows > 1, 2, rows)),
            Assume((cycle != 0) | (self.records != 0)),
            unit.image.table.eq((cycle > 0) & (cycle <= len(WORDS))),
            unit.image.data.eq(table),
        ]
        values = (records, rows + 1, shift, Cat(base, 0)[:20] << 12, base[20:])
        with m.Switch(cycle):
            for k, (word, value) in enumerate(zip(WORDS, values, strict=True), 1):
                with m.Case(k):
                    m.d.comb += [unit.image.address.eq(word), table.eq(value)]

        # the unpacker: no more numbers than a batch has, none that names no record, a tuple after its numbers
        fetching, handed, late = Signal(), Signal(), Signal(3)
        own, named = Signal(3), Signal(3)
        stopped, owed, begins_late = Signal(), Signal(), Signal()
        """`owed`: a round that ended before its last tuple, which has begun the next one; it is not decided yet."""
        m.d.comb += [
            link.valid.eq(self.valid), link.word.eq(Array(C(word, 32) for word in NUMBERS)[self.number]),
            link.table.eq(1), link.writes.eq(self.writes),
            begins_late.eq(self.begin & self.late & ~handed & named.any()),
            link.row.eq(self.row), link.begin.eq(self.begin), link.following.eq(handed | begins_late),
            link.decided.eq(self.decided),
            Assume(~self.valid | ((cycle > 3) & (own + named < CONFIG.record_depth) & ~stopped)),
            Assume(~(self.begin & (self.valid | late.any() | fetching | owed))),
            Assume(~self.decided | (named.any() & ~fetching & ~self.begin & ~self.valid & ~stopped)),
            Assume(~link.wrong),
            unit.outbox.valid.eq(self.put), unit.outbox.row.eq(self.row), unit.outbox.data.eq(row),
        ]  # fmt: skip
        m.d.sync += [late.eq(Cat(self.valid, late)), own.eq(own + self.valid)]
        with m.If(self.begin):
            m.d.sync += [named.eq(Mux(handed | begins_late, own, named + own)), own.eq(0), handed.eq(0)]
            m.d.sync += owed.eq(begins_late)
        with m.If(self.decided):
            m.d.sync += fetching.eq(1)
        with m.If(link.fetched):
            m.d.sync += [fetching.eq(0), handed.eq(~owed), named.eq(Mux(owed, named, 0)), owed.eq(0)]
        # the engine has a round once it is fetched, and releases it once
        running = Signal()
        m.d.sync += running.eq(~self.stop & (link.fetched | (running & ~self.release)))
        m.d.comb += [unit.release.eq(self.release), Assume(~self.release | running), Assert(~(link.fetched & running))]
        # a fault or the host: nothing begins until all is still
        m.d.comb += [
            unit.stop.eq(self.stop), unit.start.eq(self.start),
            Assume(~self.start | (stopped & master.idle)), Assume(~(self.begin & stopped)),
        ]  # fmt: skip
        with m.If(self.stop):
            m.d.sync += stopped.eq(1)
        with m.Elif(self.start):
            m.d.sync += [stopped.eq(0), own.eq(0), named.eq(0), fetching.eq(0), handed.eq(0), late.eq(0), owed.eq(0)]

        # the memory: rows of the bursts it has taken, in their order; an answer to each that has been written
        asked, given, addressed, wrote, answered = (Signal(4) for _ in range(5))
        beat, written = Signal(ROW_BITS), Signal(ROW_BITS)
        last, sent = Signal(), Signal()
        m.d.comb += [
            *(getattr(bus, name).eq(getattr(self, name)) for name in ("arready", "awready", "wready")),
            bus.rvalid.eq(self.deliver & (asked != given)),
            bus.rdata.eq(row), bus.rresp.eq(self.error << 1), last.eq(bus.rvalid & (beat == rows)),
            bus.rlast.eq(last),
            bus.bvalid.eq(self.answer & (answered != addressed) & (answered != wrote)),
            sent.eq(bus.wvalid & bus.wready),
        ]  # fmt: skip
        m.d.sync += [
            asked.eq(asked + (bus.arvalid & bus.arready)), given.eq(given + last),
            addressed.eq(addressed + (bus.awvalid & bus.awready)), wrote.eq(wrote + (sent & bus.wlast)),
            answered.eq(answered + bus.bvalid),
        ]  # fmt: skip
        with m.If(bus.rvalid):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        with m.If(sent):
            m.d.sync += written.eq(Mux(bus.wlast, 0, written + 1))

        # what is valid stands, unchanged, until it is taken (A3.2.1)
        for channel, held in (("ar", Cat(bus.araddr, bus.arlen)), ("aw", Cat(bus.awaddr, bus.awlen)),
                              ("w", Cat(bus.wdata, bus.wlast))):  # fmt: skip
            valid, ready = getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready")
            stood, before = Signal(name=f"{channel}_stood"), Signal(len(held), name=f"{channel}_before")
            m.d.sync += [stood.eq(valid & ~ready), before.eq(held)]
            with m.If(stood):
                m.d.comb += [Assert(valid), Assert(before == held)]
        # records of the table, whole, and no others
        for valid, address, length in (
            (bus.arvalid, bus.araddr, bus.arlen),
            (bus.awvalid, bus.awaddr, bus.awlen),
        ):
            offset = Signal(64)
            m.d.comb += offset.eq(address - (base << 12))
            with m.If(valid):
                m.d.comb += [
                    Assert(length == rows),
                    Assert((offset >> shift) < records - self._shorter),
                    Assert(((offset >> shift) << shift) == offset),
                    Assert(address[:12] + BYTES * (length + 1) <= RECORD_BOUNDARY),
                ]
        with m.If(bus.wvalid):
            m.d.comb += [Assert(bus.wlast == (written == rows)), Assert(bus.wstrb.all())]
        # rows go on as they came, and no record is asked for while one is written, nor the other way round
        came, data = Signal(), Signal(8 * BYTES)
        m.d.sync += [came.eq(bus.rvalid), data.eq(row)]
        with m.If(link.row_valid):
            m.d.comb += [Assert(came), Assert(link.data.as_value() == data)]
        writing = bus.awvalid | bus.wvalid | (addressed != answered)
        reading = bus.arvalid | (asked != given)
        m.d.comb += [
            Assert(~(writing & bus.arvalid)),
            Assert(~(reading & bus.awvalid)),
            Assert(~link.fetched | ~reading),
            Assert(~master.idle | ~(writing | reading)),
            Assert(bus.rready & bus.bready),
        ]
        m.d.comb += Cover(bus.arvalid & (rows == 2) & base[-1])
        return m


def test_no_address_is_outside_of_the_table_and_the_bus_s_rules_hold(tmp_path: Path) -> None:
    """As far as the requests of a round; that stores are in turn is shown by the tests of machines and boards."""
    check(OnTheBus(), cycles=CYCLES, folder=tmp_path)


def test_a_table_that_is_shorter_is_noticed(tmp_path: Path) -> None:
    """The proof can fail."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(OnTheBus(shorter=True), cycles=CYCLES, folder=tmp_path)
