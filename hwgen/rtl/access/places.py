"""Places for tuples: thread and slot of the tuple that is unpacked, and what is known of its round.

In: tuples that begin and end, halves that the engine released. Out: where the tuple's rows go, whether the round is
full. It counts; when a round is handed over is for the unpacker to say.
"""

from __future__ import annotations

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.interfaces import count_bits, settings, thread_bits, tuple_address_bits
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import MachineConfig

HALVES = 2


class Places(wiring.Component):
    """See the module.

    Members
    -------
    start
        Pulse: first tuple of the epoch's first round.
    settings
        See `hwgen.rtl.interfaces.settings`.
    following
        The tuple that begins is the first of the next round: `half`, `thread`, `base` are its in the same cycle.
    begin
        The first beat of a tuple is written in this cycle.
    end
        The last beat of a tuple is written in this cycle.
    half_release
        Pulse: the engine is done with a half.
    free
        A half can be filled besides the one being filled.
    full, count, batch_done
        The round takes no more tuples; how many it has; they complete their batch.
    half, thread, base
        Where the tuple is: `base` is the first row of its slot.
    """

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "settings": In(settings()),
                "following": In(1),
                "begin": In(1),
                "end": In(1),
                "half_release": In(1),
                "free": Out(1),
                "full": Out(1),
                "count": Out(count_bits(config)),
                "batch_done": Out(1),
                "half": Out(1),
                "thread": Out(thread_bits(config)),
                "base": Out(tuple_address_bits(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        half = Signal()
        thread = Signal(thread_bits(config))
        base = Signal(tuple_address_bits(config))
        slot = Signal((config.tuple_depth // 2).bit_length())
        count = Signal(count_bits(config))
        left = Signal(32)
        halves = Signal(range(HALVES))
        new = self.following

        m.d.comb += [
            self.half.eq(half ^ new),
            self.thread.eq(Mux(new, 0, thread)),
            self.base.eq(Mux(new, 0, base)),
            self.count.eq(count),
            self.free.eq(halves.any()),
        ]
        # values of the round to which the tuple of this cycle belongs
        this_slot, this_count = Mux(new, 0, slot), Mux(new, 0, count)
        this_left = Mux(new & self.batch_done, self.settings.batch, left)

        last_slot = Signal(len(slot))
        m.d.sync += last_slot.eq((C(1, 16) << self.settings.group_log2) - 1)
        thread_done = this_slot == last_slot
        whole = Signal()
        m.d.sync += whole.eq(self.settings.batch == WHOLE_EPOCH)
        batch_done = ~whole & (this_left == 1)

        with m.If(self.begin & new):
            m.d.sync += [
                half.eq(~half),
                thread.eq(0),
                base.eq(0),
                slot.eq(0),
                count.eq(0),
                left.eq(this_left),
                self.full.eq(0),
                self.batch_done.eq(0),
            ]
        with m.If(self.end):
            m.d.sync += [
                count.eq(this_count + 1),
                left.eq(this_left - 1),
                slot.eq(Mux(thread_done, 0, this_slot + 1)),
                base.eq(Mux(thread_done, 0, self.base + self.settings.tuple_rows)),
                thread.eq(self.thread + thread_done),
                self.full.eq((thread_done & (self.thread == config.threads - 1)) | batch_done),
                self.batch_done.eq(batch_done),
            ]
        with m.If((self.begin & new) & ~self.half_release):
            m.d.sync += halves.eq(halves - 1)
        with m.Elif(~(self.begin & new) & self.half_release):
            m.d.sync += halves.eq(halves + 1)
        with m.If(self.start):
            m.d.sync += [
                half.eq(0),
                thread.eq(0),
                base.eq(0),
                slot.eq(0),
                count.eq(0),
                left.eq(self.settings.batch),
                halves.eq(HALVES - 1),
                self.full.eq(0),
                self.batch_done.eq(0),
            ]
        return m
