"""Binary32 multiplier: six stages, one product a cycle, flushed, rounded to nearest even.

In: two operands. Out: their product.

The product of the significands is made of 24 × 17 and 24 × 7 bits, or, for narrow multipliers, of four products that
are summed a stage later. Whether the result is tiny is asked after rounding, of an exponent that has room for every
product's.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.normalize import packed
from hwgen.rtl.delay import pipeline
from hwgen.spec.timing import MUL_LATENCY

LOW_BITS = 17
NARROW_BITS = 18


class FloatMul(wiring.Component):
    """a * b, by two wide multipliers or four narrow ones."""

    LATENCY = MUL_LATENCY

    def __init__(self, *, narrow: bool = True) -> None:
        self._narrow = narrow
        super().__init__({"a": In(32), "b": In(32), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)

        # 1 and 2: the products of the significands; a zero operand keeps its hidden bit, its result is cleared
        low, high = _products(after, *(Cat(x[:23], Const(1, 1)) for x in (self.a, self.b)), narrow=self._narrow)
        exponent = after(after(self.a[23:31] + self.b[23:31]), 3)
        sign = after(self.a[31] ^ self.b[31], 5)
        a_zero, a_full, a_fraction = (after(x) for x in (~self.a[23:31].any(), self.a[23:31].all(), self.a[:23].any()))
        b_zero, b_full, b_fraction = (after(x) for x in (~self.b[23:31].any(), self.b[23:31].all(), self.b[:23].any()))
        nan = after((a_full & (a_fraction | b_zero)) | (b_full & (b_fraction | a_zero)), 4)
        infinite = after(a_full | b_full, 4)
        zero = after(a_zero | b_zero, 4)

        # 3: their sum, but for the places that take no part in it
        upper = after(low[LOW_BITS:] + high)
        rest = after(low[:LOW_BITS].any())

        # 4: 1 <= product < 4: the leading one to its place
        two = upper[30]
        significand = after(Mux(two, upper[6:30], upper[5:29]))
        sticky = after(rest | upper[:5].any() | (two & upper[5]))
        two = after(two)

        # 5: rounding, which carries into the exponent; from there the bias is taken: + two - 127
        up = significand[0] & (significand[1] | sticky)
        less_bias = Cat(Const(0, 23), ~two, two, Const(0b11100000, 8))
        rounded = after((Cat(significand[1:], exponent) + less_bias + up)[:33])

        # 6: what does not fit
        m.d.comb += self.result.eq(packed(m, rounded, sign, zero=zero, infinite=infinite, nan=nan))
        return m


def _products(after: Callable[..., Signal], a: Value, b: Value, *, narrow: bool) -> tuple[Value, Value]:
    """a times the lower and a times the upper places of b, two edges later."""
    b_parts = b[:LOW_BITS], b[LOW_BITS:]
    if not narrow:
        a, b_parts = after(a), tuple(after(part) for part in b_parts)
        return after(a * b_parts[0]), after(a * b_parts[1])
    sums = []
    for part in b_parts:
        lower, upper = after(a[:NARROW_BITS] * part), after(a[NARROW_BITS:] * part)
        sums.append(Cat(after(lower[:NARROW_BITS]), after(lower[NARROW_BITS:] + upper)))
    return sums[0], sums[1]
