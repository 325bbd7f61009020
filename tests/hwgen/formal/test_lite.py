"""The AXI4-Lite slave, for every run: its bus obeyed, each request carried out once and answered once."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.board import axi
from hwgen.rtl.board.lite import LiteSlave
from hwgen.spec.aperture import aperture_bits, region_bits, region_words, starts
from hwgen.spec.registers import ADDRESS_BITS, NO_REGION, REGION_SHIFT
from tests.hwgen.board.table import CONFIG
from tests.hwgen.formal.proof import check

BITS = aperture_bits(CONFIG)
SLOWEST = {"write": 3, "read": 4}
"""Cycles from a request's last part to its answer, but for those in which the inside keeps an access waiting: one to
begin, one to carry it out, and what an access of the other kind takes that is before it."""


class Requests(wiring.Component):
    """A master that asks when it likes and takes answers when it likes, and an inside that carries out when it likes.

    The master keeps AXI's rule: what it has said stands until it is taken. What it asked for is remembered here, and
    compared with what reaches the inside, and what comes back of it.

    Parameters
    ----------
    hurried
        The slave is told that its answers are taken at once, which the master does not know of: a fault.
    slowest
        See `SLOWEST`.
    shifted
        How far what lies in no region is from where it belongs: a fault, if it is not 0.
    """

    def __init__(self, *, hurried: bool = False, slowest: dict[str, int] = SLOWEST, shifted: int = 0) -> None:
        self._hurried = hurried
        self._shifted = shifted
        self._slowest = slowest
        super().__init__(
            {
                "awvalid": In(1), "awaddr": In(BITS), "wvalid": In(1), "wdata": In(32), "wstrb": In(4),
                "arvalid": In(1), "araddr": In(BITS), "bready": In(1), "rready": In(1),
                "done": In(1), "refused": In(1), "rdata": In(32),
                "has_address": In(1), "has_word": In(1), "has_read": In(1),
                "write_address": In(BITS - 2), "read_address": In(BITS - 2), "whole": In(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slave = slave = LiteSlave(CONFIG)
        bus, access = slave.bus, slave.access
        m.d.comb += [
            *(getattr(bus, name).eq(getattr(self, name)) for name in ("awvalid", "awaddr", "wvalid", "wdata", "wstrb")),
            *(getattr(bus, name).eq(getattr(self, name)) for name in ("arvalid", "araddr")),
            bus.bready.eq(1 if self._hurried else self.bready),
            bus.rready.eq(1 if self._hurried else self.rready),
            access.done.eq(self.done),
            access.refused.eq(self.refused),
            access.rdata.eq(self.rdata),
        ]
        # the master's part of the rule (ARM IHI 0022, A3.2.1), and the slave's
        word = Mux(access.write, access.wdata, 0)
        stands = [
            ("address", bus.awvalid, bus.awready, bus.awaddr, Assume),
            ("word", bus.wvalid, bus.wready, Cat(bus.wdata, bus.wstrb), Assume),
            ("read", bus.arvalid, bus.arready, bus.araddr, Assume),
            ("written", bus.bvalid, self.bready, bus.bresp, Assert),
            ("found", bus.rvalid, self.rready, Cat(bus.rdata, bus.rresp), Assert),
            ("access", access.valid, self.done, Cat(access.write, access.address, word), Assert),
        ]
        for name, valid, taken, content, statement in stands:
            waits, was = Signal(name=f"{name}_waits"), Signal(len(content), name=f"{name}_was")
            m.d.sync += [waits.eq(valid & ~taken), was.eq(content)]
            with m.If(waits):
                m.d.comb += [statement(valid), statement(content == was)]
        carried = access.valid & self.done
        write = self._write(m, slave, carried & access.write)
        read = self._read(m, slave, carried & ~access.write)
        covered = Signal(2)
        m.d.sync += covered.eq(covered | Cat(write, read))
        # a write and a read were answered, and another write is
        m.d.comb += Cover(covered.all() & bus.bvalid)
        return m

    def _inside(self, address: Value) -> Value:
        """The address in the host port's map of a word of the bus."""
        sizes = {region: 1 << region_bits(words) for region, words in region_words(CONFIG).items()}
        found: Value = Const((NO_REGION + self._shifted) << REGION_SHIFT, ADDRESS_BITS)
        for region, start in starts(sizes).items():
            within = (address >= start) & (address < start + sizes[region])
            found = Mux(within, (region << REGION_SHIFT) + address - start, found)
        return found

    def _write(self, m: Module, slave: LiteSlave, carried: Value) -> Value:
        """A request has two parts, and is one when both are there; returns whether an answer is taken."""
        bus, access = slave.bus, slave.access
        has_address, has_word, was_carried = Signal(), Signal(), Signal()
        address, word, strobes, response = Signal(BITS - 2), Signal(32), Signal(4), Signal(2)
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [has_address.eq(1), address.eq(bus.awaddr[2:])]
            m.d.comb += Assert(~has_address)
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [has_word.eq(1), word.eq(bus.wdata), strobes.eq(bus.wstrb)]
            m.d.comb += Assert(~has_word)
        asks = access.valid & access.write
        with m.If(asks):
            m.d.comb += [
                Assert(has_address & has_word & (strobes == axi.ALL_BYTES) & ~was_carried),
                Assert((access.address == self._inside(address)) & (access.wdata == word)),
            ]
        with m.If(carried):
            m.d.sync += [was_carried.eq(1), response.eq(Mux(self.refused, axi.REFUSED, axi.OKAY))]
        taken = bus.bvalid & self.bready
        with m.If(bus.bvalid):
            m.d.comb += [
                Assert(has_address & has_word),
                Assert(was_carried == (strobes == axi.ALL_BYTES)),
                Assert(bus.bresp == Mux(was_carried, response, axi.REFUSED)),
            ]
        with m.If(taken):
            m.d.sync += [has_address.eq(0), has_word.eq(0), was_carried.eq(0)]
        # the slave's own account is the same: what induction needs, and true of every run
        m.d.comb += [
            Assert(has_address == self.has_address),
            Assert(has_word == self.has_word),
            Assert(~was_carried | bus.bvalid),
            Assert(~has_address | (self.write_address == address)),
            Assert(~has_word | ((access.wdata == word) & (self.whole == (strobes == axi.ALL_BYTES)))),
        ]
        whole = strobes == axi.ALL_BYTES
        after = Mux(access.valid & ~access.write, 1, 0) + 1 + whole
        left = Mux(access.valid & access.write, 1, after)
        self._in_time(m, "write", has_address & has_word & ~bus.bvalid, access, left)
        return taken

    def _read(self, m: Module, slave: LiteSlave, carried: Value) -> Value:
        bus, access = slave.bus, slave.access
        pending, was_carried = Signal(), Signal()
        address, found, response = Signal(BITS - 2), Signal(32), Signal(2)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [pending.eq(1), address.eq(bus.araddr[2:])]
            m.d.comb += Assert(~pending)
        with m.If(access.valid & ~access.write):
            m.d.comb += Assert(pending & ~was_carried & (access.address == self._inside(address)))
        with m.If(carried):
            m.d.sync += [
                was_carried.eq(1),
                found.eq(self.rdata),
                response.eq(Mux(self.refused, axi.REFUSED, axi.OKAY)),
            ]
        taken = bus.rvalid & self.rready
        with m.If(bus.rvalid):
            m.d.comb += Assert(pending & was_carried & (bus.rdata == found) & (bus.rresp == response))
        with m.If(taken):
            m.d.sync += [pending.eq(0), was_carried.eq(0)]
        m.d.comb += [
            Assert(pending == self.has_read),
            Assert(~was_carried | bus.rvalid),
            Assert(~pending | (self.read_address == address)),
        ]
        first = self.has_address & self.has_word & ~bus.bvalid
        after = Mux(access.valid, 1, Mux(first, 1 + self.whole, 0)) + 2
        left = Mux(access.valid & ~access.write, 1, after)
        self._in_time(m, "read", pending & ~bus.rvalid, access, left)
        return taken

    def _in_time(self, m: Module, name: str, waits: Value, access: wiring.PureInterface, left: Value) -> None:
        """A request is answered, as soon as whoever it waits for lets it; `left` are the cycles until then."""
        age = Signal(4, name=f"{name}_age")
        with m.If(~waits):
            m.d.sync += age.eq(0)
        with m.Elif(~access.valid | self.done):
            m.d.sync += age.eq(age + 1)
        slowest = self._slowest[name]
        m.d.comb += [Assert(age <= slowest), Assert(~waits | (age + left <= slowest))]


PROBES = {
    "has_address": "slave.write_at",
    "has_word": "slave.write_word",
    "has_read": "slave.read_at",
    "write_address": "slave.write_address",
    "read_address": "slave.read_address",
    "whole": "slave.whole",
}


def test_each_request_is_carried_out_once_and_answered_once(tmp_path: Path) -> None:
    check(Requests(), cycles=12, folder=tmp_path, probes=PROBES, induction=5)


def test_an_answer_that_nobody_took_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: of a slave that takes an answer away before the master has it, it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Requests(hurried=True), cycles=12, folder=tmp_path, probes=PROBES)


def test_an_access_to_no_region_that_reaches_one_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Requests(shifted=1), cycles=12, folder=tmp_path, probes=PROBES)


@pytest.mark.parametrize("name", ["write", "read"])
def test_the_bounds_are_met(tmp_path: Path, name: str) -> None:
    """The proof can fail: of a request that must be answered a cycle sooner it does."""
    shorter = SLOWEST | {name: SLOWEST[name] - 1}
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Requests(slowest=shorter), cycles=12, folder=tmp_path, probes=PROBES)
