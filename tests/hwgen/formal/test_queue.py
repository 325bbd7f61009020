"""A Strider's queue as it is built, for every run: nothing is lost, doubled, or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Array, Assert, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.layouts import entry_layout
from hwgen.rtl.access.queue import EntryQueue
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

SHIPPED = MachineConfig()
SMALL = MachineConfig(queue_depth=2)


def probes(config: MachineConfig) -> dict[str, str]:
    return {
        "level": "queue.level",
        "first": "queue.reader__addr",
        "free": "queue.$signature__addr",  # of the write port, which Amaranth names so
        **{f"word_{k}": f"queue.entries[{k}]" for k in range(config.queue_depth)},
    }


class InOrder(wiring.Component):
    """Any entry, `mark`ed as it goes in, comes out as it was, after those that were there before it and no others."""

    def __init__(self, config: MachineConfig, *, broken: bool = False) -> None:
        self._config = config
        self._broken = broken
        depth, entry = config.queue_depth, entry_layout(config).size
        place = (depth - 1).bit_length()
        super().__init__(
            {
                "entry": In(entry), "push": In(1), "take": In(1), "clear": In(1), "mark": In(1),
                "level": In(range(depth + 1)), "first": In(place), "free": In(place),
                **{f"word_{k}": In(entry) for k in range(depth)},
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = EntryQueue(self._config)
        depth, place = self._config.queue_depth, len(self.first)
        count, ahead = Signal(range(depth + 2)), Signal(range(depth + 1))
        marked, kept = Signal(), Signal.like(self.entry)
        m.d.comb += [
            queue.entry.as_value().eq(self.entry),
            queue.push.eq(self.push & (queue.room if not self._broken else 1)),
            queue.take.eq(self.take & queue.valid),
            queue.clear.eq(self.clear),
        ]
        m.d.sync += count.eq(count + queue.push - queue.take)
        with m.If(queue.push & self.mark & ~marked):
            m.d.sync += [marked.eq(1), kept.eq(self.entry), ahead.eq(count - queue.take)]
        with m.Elif(queue.take & marked):
            m.d.sync += [marked.eq(ahead.any()), ahead.eq(ahead - 1)]
            with m.If(ahead == 0):
                m.d.comb += Assert(queue.oldest.as_value() == kept)
        with m.If(self.clear):
            m.d.sync += [count.eq(0), marked.eq(0)]
        m.d.comb += [
            Assert(queue.valid == count.any()),
            Assert(queue.room == (count != depth)),
            Cover(~queue.room & marked & queue.take & (ahead == 1)),
            # how it keeps them, without which the above is no induction
            Assert(self.level == count),
            Assert(count <= depth),
            Assert(self.free == (self.first + count)[:place]),
        ]
        words = Array(getattr(self, f"word_{k}") for k in range(depth))
        with m.If(marked):
            m.d.comb += [Assert(ahead < count), Assert(words[(self.first + ahead)[:place]] == kept)]
        return m


def test_entries_leave_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    check(InOrder(SHIPPED), cycles=20, folder=tmp_path, probes=probes(SHIPPED), induction=1)


def test_a_push_without_room_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: without the rule that nobody pushes into a full queue it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(InOrder(SMALL, broken=True), cycles=10, folder=tmp_path, probes=probes(SMALL))
