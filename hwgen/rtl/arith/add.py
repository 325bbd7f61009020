"""Binary32 adder: six stages, one addition or subtraction a cycle, flushed, rounded to nearest even.

In: two operands and which operation. Out: their sum or difference.

One path serves all operands: swap so that the larger magnitude comes first, shift the smaller one right, add or
subtract, shift left, round. A difference that loses more than one leading bit is exact, so one rounding at the end
is enough; a tiny result is exact as well, so "tiny after rounding" is "tiny".
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics.binary32 import QUIET_NAN_BITS
from hwgen.spec.timing import ADD_LATENCY


class FloatAdd(wiring.Component):
    """a + b, or a - b with ``subtract``."""

    LATENCY = ADD_LATENCY

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32), "subtract": In(1), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)

        # 1: the larger magnitude first
        swap = self.a[:31] < self.b[:31]
        sign_b = self.b[31] ^ self.subtract
        large = after(Mux(swap, self.b[:31], self.a[:31]))
        small = after(Mux(swap, self.a[:31], self.b[:31]))
        minus = after(self.a[31] ^ sign_b)
        sign = after(Mux(swap, sign_b, self.a[31]), 5)
        both_negative = after(self.a[31] & sign_b, 5)

        # 2: how far to shift, and the last two bits of that shift; three places hold what is shifted out. A small
        # operand that is out of reach leaves only the fact that there was something (which, were it zero, changes
        # nothing: what is that small decides no rounding by itself)
        distance = (large[23:] - small[23:])[:8]
        absent = ~small[23:].any()
        beyond = distance[5:].any()
        shifted = Signal(27, reset_less=True)
        m.d.sync += shifted.eq(Cat(Const(0, 3), small[:23], Const(1, 1)) >> distance[:2])
        with m.If(absent | beyond):
            m.d.sync += shifted.eq(0)
        sticky = after(beyond)
        far = after(distance[2:5])
        zero = after(~large[23:].any(), 4)
        significand = after(Cat(large[:23], Const(1, 1)), 2)
        exponent = after(large[23:], 2)
        infinite = large[23:].all()
        nan = after(infinite & (large[:23].any() | (small[23:].all() & minus)), 4)
        infinite = after(infinite, 2)

        # 3: the rest of the shift; of what falls off only whether it was zero is kept. Complemented to be subtracted
        minus = after(minus)
        # nibble k falls off if far > k; not by a comparison or a subtraction, which take a carry chain
        lost = sticky | (shifted & ~(Const(-1, len(shifted)) << (far << 2))[: len(shifted)]).any()
        kept = shifted >> (far << 2)
        addend = after((kept | lost) ^ minus.replicate(27))
        minus = after(minus)

        # 4: the sum with its carry, and its first 16 places if those are zero
        total = Signal(28)
        m.d.comb += total.eq(Cat(Const(0, 3), significand) + Cat(addend, minus) + minus)
        unshifted = [total[12:].any()]
        # (a difference that lost more than one place has no bits in its last two, so none are shifted by 16, 8 or 4)
        normal = after(Mux(unshifted[0], total, Cat(Const(0, 18), total[2:12])))
        infinite = after(infinite | ((exponent == 254) & total[27]), 2)
        exponent = after(exponent)

        # 5: 8, 4 and 2 places
        unshifted = [after(unshifted[0])]
        for places in (8, 4, 2):
            unshifted.append(normal[28 - places :].any())
            exact = 2 if places > 2 else 0
            normal = Mux(unshifted[-1], normal, Cat(Const(0, places + exact), normal[exact : 28 - places]))
        unshifted = [after(flag) for flag in unshifted]
        normal = after(normal)
        # ~(exponent + 2), as are the flags: what meets a constant one in a carry chain is complemented for nothing
        less = after((Const(0xFE, 8) + ~exponent)[:8])
        exponent = after(exponent)

        # 6: the last place, and rounding, which carries into the exponent
        unshifted.append(normal[27])
        normal = Mux(unshifted[-1], normal, normal << 1)[:28]
        count = ~Cat(reversed(unshifted))
        up = normal[3] & (normal[4] | normal[:3].any())
        rounded = Signal(31)
        # the exponent grows by one for the carry's place, less the places shifted: + 2 + ~count
        m.d.comb += rounded.eq(Cat(Const(0, 23), ~count, Const(-1, 3)) + Cat(normal[4:27], ~less) + up)
        none = ~normal[27] | zero
        tiny = none | (exponent < count)
        result = Signal(32, reset_less=True)
        m.d.sync += result.eq(Cat(rounded, Mux(none & ~infinite, both_negative, sign)))
        with m.If(tiny):
            m.d.sync += result[:31].eq(0)
        with m.If(infinite):
            m.d.sync += result[:31].eq(0x7F800000)
        with m.If(nan):
            m.d.sync += result.eq(QUIET_NAN_BITS)
        m.d.comb += self.result.eq(result)
        return m
