"""The host port of a board's machine, which the control bus and the training loop share, for every run: an access of
the bus reaches the machine once, in a cycle that the loop leaves free, and an access of the loop always does."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Fragment, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl import machine
from hwgen.rtl.board.board import Board
from hwgen.rtl.board.front import Front
from hwgen.rtl.delay import delayed
from hwgen.rtl.host import region_of
from hwgen.rtl.interfaces import PAGE_NUMBER_BITS
from hwgen.rtl.library import Library
from hwgen.spec import registers
from hwgen.spec.board import BoardRegion
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import ADDRESS_BITS, Region
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig()

LOOKS = 3
"""Cycles in which the front finds out what an access is."""
TAKES = 2
"""Cycles that the loop takes one after another at most: it starts an epoch, and asks how that goes."""
QUICK = 3
"""READ_LATENCY of a machine that answers so soon that z3 comes to a read that meets the loop's."""

# of the parts around the host port, the ports are wanted and nothing else
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Parts go while their warning is ignored, not in another test."""
    yield
    gc.collect()


ASKS = ("valid", "write", "address", "wdata")
READER = ("idle", "failed", "failed_page", "arrived")


class Parts(Library):
    """A board's parts as components, not as instances of modules: they can be looked into. What is around the host port
    has ports and nothing else."""

    OUTSIDE = (machine.TOP, "page_reader", "lite_slave")

    def __init__(self, *, deaf: bool) -> None:
        super().__init__()
        self._deaf = deaf
        self.placed: dict[str, Any] = {}

    def place(self, name: str, make: Callable[[], wiring.Component]) -> Any:
        part: Any = make()
        if name in self.OUTSIDE:
            part = Outside(part.signature)
        if name == "front" and self._deaf:
            part = Deaf(CONFIG)
        self.placed[name] = part
        return part


class Outside(wiring.Component):
    def elaborate(self, platform: object) -> Module:
        return Module()


class Deaf(Front):
    """A front that never hears that the loop takes the port: a fault."""

    def elaborate(self, platform: object) -> Module:
        self.taken = Signal(name="unheard")
        return super().elaborate(platform)


class Shared(wiring.Component):
    """A board of which slave, machine and page reader do and say anything.

    Parameters
    ----------
    met
        Cover a read that waits for the loop; else one that is answered.
    words
        What is read is looked at too, for which z3 needs all registers of the board.
    deaf
        See `Deaf`.
    """

    def __init__(self, *, met: bool = False, words: bool = False, deaf: bool = False) -> None:
        self._met, self._words, self._deaf = met, words, deaf
        super().__init__(
            {
                "valid": In(1), "write": In(1), "address": In(ADDRESS_BITS), "wdata": In(32),
                "word": In(32), "idle": In(1), "failed": In(1), "failed_page": In(PAGE_NUMBER_BITS), "arrived": In(32),
                "decoded": In(1), "known": In(1), "looked": In(1), "asked": In(1),
                "count": In(range(registers.READ_LATENCY + 1)), "left": In(range(registers.READ_LATENCY + 1)),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parts = Parts(deaf=self._deaf)
        board = Board(CONFIG, parts)
        m.submodules.board = Fragment.get(board, None)
        slave, loop, host, reader = (
            parts.placed[name] for name in ("lite_slave", "training_loop", machine.TOP, "page_reader")
        )
        port, access = host.host, slave.access
        m.d.comb += [
            *(getattr(access, name).eq(getattr(self, name)) for name in ASKS),
            *(getattr(reader, name).eq(getattr(self, name)) for name in READER),
            port.rdata.eq(self.word),
        ]
        # what is proved of the slave
        ends = access.valid & access.done
        held, was, ended = Signal(), Signal(ADDRESS_BITS + 33), Signal()
        content = Cat(access.write, access.address, Mux(access.write, access.wdata, 0))
        m.d.sync += [held.eq(access.valid & ~ends), was.eq(content), ended.eq(ends)]
        m.d.comb += [Assume(~held | (access.valid & (content == was))), Assume(~ended | ~access.valid)]
        taken, busy = loop.port.read | loop.port.write, loop.busy

        # in each cycle the machine is asked by one of them, and by the loop if it asks
        with m.If(taken):
            m.d.comb += [
                Assert(getattr(port, name) == getattr(loop.port, name)) for name in ("read", "write", "addr", "wdata")
            ]
        m.d.comb += Assert(~(port.read & port.write))

        # an access of the bus: itself, once, and not if it is refused or the board's own
        asks = (port.read | port.write) & ~taken
        reached, sought = Signal(), Signal()
        region = region_of(access.address)
        outside = (region != BoardRegion.BOARD) & (region != BoardRegion.LOSSES)
        with m.If(asks):
            m.d.comb += [
                Assert(access.valid & outside & ~access.refused & ~reached),
                Assert((port.addr == access.address) & (port.write == access.write)),
                Assert(~port.write | (port.wdata == access.wdata)),
                # while a training runs nothing is written, and of the model nothing is read
                Assert(~busy | (port.read & (region_of(port.addr) == Region.CONTROL))),
            ]
        m.d.comb += [Assert(~access.done | access.valid), Assert(~reached | access.valid)]
        m.d.sync += reached.eq((reached | asks) & ~ends)
        with m.If(ends):
            m.d.comb += Assert((reached | asks) == (outside & ~access.refused))

        # what is read is the answer to it, and so is what the loop takes for a loss
        latency = registers.READ_LATENCY
        looped = Signal()
        m.d.comb += [
            sought.eq(asks & port.read),
            looped.eq(loop.port.read & (region_of(loop.port.addr) == Region.SCRATCH)),
        ]
        since = [delayed(m, sought, k, name=f"sought_{k}") for k in range(latency + 1)]
        found = delayed(m, looped, latency, name="looped")
        with m.If(ends & ~access.write & outside & ~access.refused):
            m.d.comb += Assert(since[latency])
            if self._words:
                m.d.comb += Assert(access.rdata == self.word)
        with m.If(loop.loss.valid):
            m.d.comb += [Assert(found), Assert(loop.loss.word == self.word)]

        # it ends in time: the front looks, waits while the loop takes the port, and for the answer
        age, run = Signal(5), Signal(2)
        m.d.sync += [age.eq(Mux(access.valid & ~ends, age + 1, 0)), run.eq(Mux(taken, run + 1, 0))]
        m.d.comb += [
            Assert(age <= LOOKS + TAKES + latency),
            Assert(run <= TAKES),
            Cover(outside & ~access.refused & (self.looked & taken if self._met else ends & ~access.write)),
        ]

        # where the front is: what induction needs, and true of every run
        m.d.comb += [
            Assert(self.decoded == (age >= 1)),
            Assert(self.known == (age >= 2)),
            Assert(self.looked == (age >= LOOKS)),
            Assert(reached == self.asked),
            Assert(self.left <= latency),
            Assert(~self.asked | (self.looked & outside & ~access.write & (self.count < latency))),
            Assert(~self.looked | self.asked | (age <= LOOKS + run)),
            Assert(~self.asked | (age <= LOOKS + TAKES + 1 + self.count)),
        ]
        with m.If(self.asked):
            m.d.comb += Assert(Cat(since[1:]).bit_select(self.count, 1))
        return m


PROBES = {name: f"board.front.{name}" for name in ("decoded", "known", "looked", "asked", "count")}
PROBES["left"] = "board.loop.count"


def test_an_access_reaches_the_machine_once_where_the_loop_leaves_room(tmp_path: Path) -> None:
    depth = registers.READ_LATENCY + 4
    check(Shared(), cycles=depth, folder=tmp_path, probes=PROBES, arrays=True, induction=depth)


def test_the_same_where_a_read_has_met_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "READ_LATENCY", QUICK)
    check(Shared(met=True), cycles=18, folder=tmp_path, probes=PROBES, arrays=True, induction=QUICK + 4)


def test_what_the_machine_answers_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "READ_LATENCY", QUICK)
    depth = QUICK + 4
    check(Shared(words=True), cycles=depth, folder=tmp_path, probes=PROBES, arrays=True, induction=depth)


def test_a_front_that_does_not_hear_of_the_loop_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail: of accesses that are lost, since the loop takes the port, it does."""
    monkeypatch.setattr(registers, "READ_LATENCY", QUICK)
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Shared(deaf=True), cycles=18, folder=tmp_path, probes=PROBES, arrays=True)
