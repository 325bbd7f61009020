"""Places for tuples: thread and slot of the tuple that is unpacked, and what is known of its round.

In: tuples that begin and end, halves that the engine released. Out: where the tuple's rows go, whether the round is
full. It counts; when a round is handed over is for the unpacker to say.
"""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.interfaces import SETTINGS, count_bits, thread_bits, tuple_address_bits
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import MachineConfig

HALVES = 2


class Places(wiring.Component):
    """Counters of threads, slots, rounds and halves."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),  # pulse: first tuple of the epoch's first round
                "settings": In(SETTINGS),
                "following": In(1),  # the tuple that begins is the first of the next round
                "begin": In(1),  # the first beat of a tuple is written in this cycle
                "end": In(1),  # the last beat of a tuple is written in this cycle
                "cut": In(1),  # pulse between two tuples: the batch ends with the last one, if the round has one
                # with `cut`: the one before the last ends it; the last is reported again in the next cycle: `end`
                "late": In(1),
                "half_release": In(1),  # pulse: the engine is done with a half
                "free": Out(1),  # a half can be filled, in addition to the one being filled
                "final": Out(1),  # the next tuple is the round's last
                # the round takes no more tuples. While it is full, `count` and `batch_done` speak of it; `half`,
                # `thread`, `base` are the next round's from its last tuple's end on
                "full": Out(1),
                "count": Out(count_bits(config)),  # tuples of the round
                "batch_done": Out(1),  # they complete their batch
                "half": Out(1),  # where the tuple is
                "thread": Out(thread_bits(config)),
                "base": Out(tuple_address_bits(config)),  # the first row of its slot
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
        full_count = Signal(count_bits(config))
        left = Signal(32)
        halves = Signal(range(HALVES))
        # what the settings say, and flags of the tuple that is unpacked: registers, since a tuple's end comes late in a
        # cycle
        last_slot = Signal(len(slot))
        one_slot, whole, one_tuple = Signal(), Signal(), Signal()
        thread_done, threads_done, batch_done = Signal(), Signal(), Signal()
        m.d.sync += [
            last_slot.eq((C(1, 16) << self.settings.group_log2) - 1),
            one_slot.eq(self.settings.group_log2 == 0),
            whole.eq(self.settings.batch == WHOLE_EPOCH),
            one_tuple.eq(self.settings.batch == 1),
        ]

        # a round begins, and with it a batch
        begins = [
            thread.eq(0),
            base.eq(0),
            slot.eq(0),
            count.eq(0),
            left.eq(self.settings.batch),
            thread_done.eq(one_slot),
            threads_done.eq(config.threads == 1),
            batch_done.eq(one_tuple),
        ]
        m.d.comb += [
            self.half.eq(half),
            self.thread.eq(thread),
            self.base.eq(base),
            self.count.eq(Mux(self.full, full_count, count)),
            self.free.eq(halves.any()),
            self.final.eq((thread_done & threads_done) | batch_done),
        ]
        with m.If(self.begin):
            m.d.sync += [self.full.eq(0), self.batch_done.eq(0)]
        with m.If(self.end):
            # what follows a full round belongs to the next one
            full = self.final
            m.d.sync += [
                count.eq(Mux(full, 0, count + 1)),
                full_count.eq(count + 1),
                left.eq(Mux(batch_done, self.settings.batch, left - 1)),
                batch_done.eq(Mux(batch_done, one_tuple, ~whole & (left == 2))),
                slot.eq(Mux(full | thread_done, 0, slot + 1)),
                thread_done.eq(Mux(full | thread_done, one_slot, slot + 1 == last_slot)),
                base.eq(Mux(full | thread_done, 0, base + self.settings.tuple_rows)),
                half.eq(half ^ full),
                self.full.eq(full),
                self.batch_done.eq(batch_done),
            ]
            with m.If(full):
                m.d.sync += [thread.eq(0), threads_done.eq(config.threads == 1)]
            with m.Elif(thread_done):
                m.d.sync += [thread.eq(thread + 1), threads_done.eq(thread == config.threads - 2)]
        with m.If(self.cut & ~self.full & count.any()):
            before = count - self.late
            m.d.sync += [*begins, full_count.eq(before), half.eq(~half), self.full.eq(1), self.batch_done.eq(1)]
        starts = (self.begin & self.following) | (self.cut & self.late)
        with m.If(starts & ~self.half_release):
            m.d.sync += halves.eq(halves - 1)
        with m.Elif(~starts & self.half_release):
            m.d.sync += halves.eq(halves + 1)
        with m.If(self.start):
            m.d.sync += [*begins, half.eq(0), halves.eq(HALVES - 1), self.full.eq(0), self.batch_done.eq(0)]
        return m
