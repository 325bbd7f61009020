"""Fixed point to binary32: shift the leading one to its place, round to nearest even, pack.

In: a magnitude, the exponent of its highest place, a sign, or a special value to give instead. Out: binary32. Results
must be normal numbers, zero, or named as special: nothing here looks for overflow or underflow.
"""

from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics.binary32 import QUIET_NAN_BITS

EXPONENT_BITS = 10
CACHED_BITS = 24 + 1 + 15 + 1
"""After stage 1: the significand, the place that rounds it, as many as may still be shifted, and one for all below."""


class Special(IntEnum):
    """What is given instead of the rounded value."""

    NONE = 0
    ZERO = 1
    ONE = 2
    INFINITY = 3
    NAN = 4


SPECIAL_BITS = 3


def packed(m: Module, rounded: Value, sign: Value, *, zero: Value, infinite: Value, nan: Value) -> Signal:
    """A product's or quotient's binary32, a cycle later; `rounded`: 23 bits of fraction below a signed exponent."""
    exponent = rounded[23:].as_signed()
    result = Signal(32, reset_less=True)
    m.d.sync += result.eq(Cat(rounded[:31], sign))
    with m.If(zero | (exponent < 1)):  # tiny after rounding, too
        m.d.sync += result[:31].eq(0)
    with m.Elif(infinite | (exponent > 254)):
        m.d.sync += result[:31].eq(0x7F800000)
    with m.If(nan):  # behind the others, over which it wins
        m.d.sync += result.eq(QUIET_NAN_BITS)
    return result


class Normalize(wiring.Component):
    """A magnitude of ``width`` bits, 25 to 63, to binary32."""

    LATENCY = 3

    def __init__(self, *, width: int) -> None:
        self._width = width
        super().__init__(
            {
                "magnitude": In(width),
                # biased exponent of a number whose leading one is the magnitude's highest bit, plus one; modulo 2**10
                "exponent": In(EXPONENT_BITS),
                "sign": In(1),  # of the result; not of a NaN, nor of a zero that is not `Special.ZERO`
                "special": In(SPECIAL_BITS),  # a `Special`
                "result": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)
        width = self._width
        # by halves, the last place in stage 3: at most 14 in stage 2
        steps = [1 << k for k in reversed(range((width - 1).bit_length()))]

        # 1 and 2: the other places
        value: Any = self.magnitude
        before: Any = value
        unshifted: list[Any] = []  # whether the places by which the value would move hold something: it is not moved
        for stage in (steps[: len(steps) - 4], steps[len(steps) - 4 : -1]):
            if unshifted and width > CACHED_BITS:
                # what cannot come up to the rounded places any more is only asked whether it was zero
                cut = width - CACHED_BITS + 1
                value, width = Cat(value[:cut].any(), value[cut:]), CACHED_BITS
            for k, places in enumerate(stage):
                some = value[width - places :].any()
                if k % 2:
                    # both places where these bits may come from are looked at before it is known which it is
                    moved = before[width - 3 * places : width - 2 * places].any()
                    some = Mux(unshifted[-1], before[width - places :].any(), moved)
                keep = Signal(name=f"unshifted_{places}")
                m.d.comb += keep.eq(some)
                before, value = value, Mux(keep, value, value << places)[:width]
                unshifted.append(keep)
            value, unshifted = after(value), [after(keep) for keep in unshifted]
        exponent = after(self.exponent, 2)
        # what the result is in any case, if it is: chosen here, since the last stage has rounding before its choice
        special, minus = after(self.special), after(self.sign)
        fixed = Signal(32)
        with m.Switch(special):
            for kind, bits in ((Special.ZERO, 0), (Special.ONE, 0x3F800000), (Special.INFINITY, 0x7F800000)):
                with m.Case(kind):
                    m.d.comb += fixed.eq(Cat(Const(bits, 31), minus))
            with m.Case(Special.NAN):
                m.d.comb += fixed.eq(QUIET_NAN_BITS)
        is_fixed, fixed, sign = after(special != Special.NONE), after(fixed), after(minus)

        # 3: the last place, and rounding, which carries into the exponent
        unshifted.append(value[width - 1])
        value = Mux(unshifted[-1], value, value << 1)[:width]
        fraction, rest = value[width - 24 : width - 1], value[: width - 24]
        up = rest[-1] & (fraction[0] | rest[:-1].any())
        # the exponent less the places: + 1 + ~count
        less_count = Cat(Const(0, 23), reversed(unshifted), Const(-1, EXPONENT_BITS - len(unshifted)))
        rounded = (Cat(fraction, exponent) + less_count + up)[:31]
        result = Signal(32, reset_less=True)
        m.d.sync += result.eq(Cat(rounded, sign))
        with m.If(~value[width - 1]):
            m.d.sync += result.eq(0)
        with m.If(is_fixed):
            m.d.sync += result.eq(fixed)
        m.d.comb += self.result.eq(result)
        return m
