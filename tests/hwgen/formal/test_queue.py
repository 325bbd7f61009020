"""A Strider's queue, for every run of so many cycles: nothing is lost, doubled, or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.queue import EntryQueue
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check


class InOrder(wiring.Component):
    """The k-th entry out is the k-th one in, for a k that is any.

    `number` is that k. The entry is remembered as it goes in and compared as it comes out.
    """

    def __init__(self, depth: int, *, broken: bool = False) -> None:
        self._config = MachineConfig(queue_depth=depth)
        self._broken = broken
        super().__init__({"entry": In(64), "push": In(1), "take": In(1), "clear": In(1), "number": In(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = EntryQueue(self._config)
        pushed, taken, number = Signal(8), Signal(8), Signal(4)
        kept = Signal(queue.entry.shape().size)
        started = Signal()
        m.d.sync += started.eq(1)
        entry = self.entry[: len(kept)]
        m.d.comb += [
            queue.entry.as_value().eq(entry),
            queue.push.eq(self.push & (queue.room if not self._broken else 1)),
            queue.take.eq(self.take & queue.valid),
            queue.clear.eq(self.clear),
        ]
        with m.If(started):
            m.d.comb += Assume(self.number == number)
        m.d.sync += number.eq(self.number)
        with m.If(queue.push):
            m.d.sync += pushed.eq(pushed + 1)
            with m.If(pushed == self.number):
                m.d.sync += kept.eq(entry)
        with m.If(queue.take):
            m.d.sync += taken.eq(taken + 1)
            with m.If(taken == self.number):
                m.d.comb += Assert(queue.oldest.as_value() == kept)
        with m.If(self.clear):
            m.d.sync += [pushed.eq(0), taken.eq(0)]
        m.d.comb += [
            Assert(queue.valid == (pushed != taken)),
            Assert(queue.room == (pushed - taken != self._config.queue_depth)),
            Cover(~queue.room & (taken == 1)),
        ]
        return m


def test_entries_leave_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    check(InOrder(2), cycles=10, folder=tmp_path)


def test_a_push_without_room_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: without the rule that nobody pushes into a full queue it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(InOrder(2, broken=True), cycles=10, folder=tmp_path)
