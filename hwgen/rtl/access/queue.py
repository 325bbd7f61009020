"""A Strider's queue: entries wait for the unpacker, first in, first out.

In: entries. Out: the oldest one. An entry can be taken in the cycle after it was pushed, and leaves the count in the
cycle after it was taken: there is no path from one side to the other within a cycle.
"""

from amaranth.hdl import C, Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.layouts import entry_layout
from hwgen.spec.config import MachineConfig


class EntryQueue(wiring.Component):
    """First-in, first-out, with registers on both sides."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        layout = entry_layout(config)
        super().__init__(
            {
                "clear": In(1),  # pulse: empty it
                "entry": In(layout),
                "push": In(1),  # only while there is `room`
                "room": Out(1),
                "oldest": Out(layout),
                "valid": Out(1),
                "take": In(1),  # only while `valid`
            }
        )

    def elaborate(self, platform: object) -> Module:
        depth = self._config.queue_depth
        m = Module()
        m.submodules.entries = entries = Memory(shape=self.entry.shape(), depth=depth, init=[])
        writer, reader = entries.write_port(), entries.read_port(domain="comb")
        level = Signal(range(depth + 1))
        m.d.comb += [
            writer.en.eq(self.push),
            writer.data.eq(self.entry),
            self.oldest.eq(reader.data),
            self.room.eq(level != depth),
            self.valid.eq(level.any()),
        ]
        with m.If(self.push):
            m.d.sync += writer.addr.eq(writer.addr + 1)
        with m.If(self.take):
            m.d.sync += reader.addr.eq(reader.addr + 1)
        with m.If(self.push != self.take):
            m.d.sync += level.eq(level + Cat(C(1, 1), self.take.replicate(len(level) - 1)))
        with m.If(self.clear):
            m.d.sync += [level.eq(0), writer.addr.eq(0), reader.addr.eq(0)]
        return m
