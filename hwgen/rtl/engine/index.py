"""The index file of a thread: what is added to addresses that a tuple's number chooses.

In: the number, in the cycles after an instruction SETX issued, and which entry a row uses. Out: rows to be added,
whether the number names a row at all, and whether its entry is among those set shortly before. It does not know which
memory is addressed, nor by whom.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import delayed, pipeline
from hwgen.rtl.engine.control import STRIDE_BITS, bound_bits, entry_bits, repeat_layout, scratch_address_bits
from hwgen.rtl.interfaces import UNSHARED
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import INDEX_LATENCY, ORDER_WINDOW, RESULT_LATENCY

MANTISSA = 23
BIAS = 127

WHOLE_LATENCY = 3


def whole_number(m: Module, word: Value, bits: int) -> tuple[Signal, Signal]:
    """A binary32 as a number of so many bits, and whether it is none: WHOLE_LATENCY cycles later.

    The stages: taken apart, shifted, whole?
    """
    after = pipeline(m)
    exponent = word[MANTISSA:31]
    zero = exponent == 0
    significand = after(Mux(zero, 0, Cat(word[:MANTISSA], Const(1))))
    shift = after((exponent - BIAS)[: (bits - 1).bit_length()])
    # -0 is row 0, and so is what is flushed; below 1, negative, beyond all bounds, infinite, NaN are no rows
    bad = after(~zero & (word[31] | (exponent < BIAS) | (exponent >= BIAS + bits)), 2)
    shifted = after((significand << shift)[: MANTISSA + bits])
    # bits below the point: no whole number
    return after(shifted[MANTISSA:]), after(bad | shifted[:MANTISSA].any())


class IndexFile(wiring.Component):
    """Entries, and the way from a binary32 to one of them."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        rows = scratch_address_bits(config)
        super().__init__(
            {
                "word": In(32),  # stage 3: lane 0's operand a
                "bound": In(bound_bits(config)),  # of the SETX that issued last
                "stride": In(STRIDE_BITS),  # the same
                "set": In(1),  # five stages after `word`: it was a SETX's, for `entry`
                "entry": In(entry_bits(config)),  # of `set`, or that a row's result uses
                "absent": In(1),  # the tuple of `set` is not there: its entry repeats none
                "repeat": Out(repeat_layout(config)),  # two cycles after `set`
                "wrong": Out(1),  # in the cycle after `set`: the number names no row
                "dst": Out(rows),  # in the cycle after `entry`: rows to add
                "a_entry": In(entry_bits(config)),  # the entry that operand a of a row uses
                "a": Out(rows),  # in the cycle after it: rows to add
            }
        )

    def elaborate(self, platform: object) -> Module:
        if INDEX_LATENCY != RESULT_LATENCY or RESULT_LATENCY != 11:
            raise ValueError("index.py is built for an INDEX_LATENCY of 11, which is that of other results")
        m = Module()
        rows = scratch_address_bits(self._config)
        # an entry is not read in the cycle in which it is written: rows wait for INDEX_LATENCY
        m.submodules.entries = entries = Memory(shape=rows, depth=self._config.index_depth, init=[], attrs=UNSHARED)
        write, for_a, for_dst = entries.write_port(), entries.read_port(), entries.read_port()
        # five stages: those of `whole_number`, in bounds? and times the stride, a register for the product
        after = pipeline(m)
        number, no_number = whole_number(m, self.word, bound_bits(self._config))
        # cut to an address: a number that would pass it is not below the bound, whose reach fits (setx_reach)
        value = after((number * self.stride)[:rows], 2)
        bad = after(no_number | (number >= self.bound), 2)
        m.d.comb += [
            write.addr.eq(self.entry),
            write.data.eq(value),
            write.en.eq(self.set),
            for_dst.addr.eq(self.entry),
            self.dst.eq(for_dst.data),
            for_a.addr.eq(self.a_entry),
            self.a.eq(for_a.data),
        ]
        m.d.sync += self.wrong.eq(self.set & bad)
        self._repeat(m, value)
        return m

    def _repeat(self, m: Module, value: Value) -> None:
        """Compare an entry with those before it, back to the first that its SETX set."""
        before = [Signal(len(value), name=f"before_{k}", reset_less=True) for k in range(ORDER_WINDOW)]
        known = Signal(ORDER_WINDOW)
        same = Signal(ORDER_WINDOW)
        others = (self.entry != 0) & ~self.absent
        with m.If(self.set):
            m.d.sync += [one.eq(other) for one, other in zip(before, [value, *before], strict=False)]
            m.d.sync += known.eq(Cat(1, Mux(self.entry == 0, 0, known)))
        m.d.sync += same.eq(Cat(known[k] & others & (one == value) for k, one in enumerate(before)))
        set_, entry = (delayed(m, port, 1, name=f"repeat_{k}") for k, port in enumerate((self.set, self.entry)))
        m.d.sync += [self.repeat.set.eq(set_), self.repeat.entry.eq(entry), self.repeat.repeats.eq(same.any())]
