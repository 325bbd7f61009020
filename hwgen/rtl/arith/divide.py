"""Division and square root of binary32 by digit recurrence: small, one result bit a cycle, correctly rounded.

In: operands and a strobe. Out: quotient or root, LATENCY edges later for one cycle. The next operands may come INTERVAL
cycles after the last ones.

Both recurrences subtract a trial value from a shifted remainder and keep the difference if it is not negative:

    quotient   2 r - 2 b                 r starts as a
    root       4 r + two bits - (4 q + 1)    r starts as 0, the bits are the radicand's

Nothing counts: the state runs on until the next start, and the stages behind it show the result when it is due.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.pipeline import Pipeline
from hwgen.rtl.arith.reduce import is_nan
from hwgen.spec.timing import DIVIDE_INTERVAL, DIVIDE_LATENCY

DIGITS = 26
"""One before the point, 23 of the fraction, one that may be needed to normalise, one that rounds."""
QUIET_NAN = 0x7FC00000


class FloatDivide(wiring.Component):
    """a / b, or the square root of a.

    Parameters
    ----------
    divide, root : bool
        Which of the two the unit can do.

    Attributes
    ----------
    a, b : Signal(32), in
        Operands; count with ``start``.
    square_root : Signal(1), in
        The root of a instead of the quotient; counts with ``start``. Only read if the unit can do both.
    start : Signal(1), in
        There are operands in this cycle; INTERVAL cycles or more after the last ones.
    result : Signal(32), out
        LATENCY edges after the start, for one cycle.
    """

    LATENCY = DIVIDE_LATENCY
    INTERVAL = DIVIDE_INTERVAL

    a: Signal
    b: Signal
    square_root: Signal
    start: Signal
    result: Signal

    def __init__(self, *, divide: bool = True, root: bool = True) -> None:
        self._choice = divide and root
        self._root = root
        super().__init__({"a": In(32), "b": In(32), "square_root": In(1), "start": In(1), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = Pipeline(m).after
        take_root = self.square_root if self._choice else Const(int(self._root), 1)

        # the state of the recurrence; `operand` is twice the divisor, or what is left of the radicand
        remainder, digits, operand = (_state(bits) for bits in (DIGITS + 1, DIGITS, DIGITS))
        rooting = _state(1)
        root_now = rooting if self._choice else take_root
        minuend = Mux(root_now, Cat(operand[-2:], remainder), Cat(Const(0, 1), remainder))
        trial = Mux(root_now, Cat(Const(1, 2), digits), operand)
        difference = minuend - trial
        negative = difference[-1]
        m.d.sync += [
            remainder.eq(Mux(negative, minuend, difference)),
            digits.eq(Cat(~negative, digits)),
        ]
        with m.If(root_now):
            m.d.sync += operand.eq(operand << 2)

        # a new start; what the result needs besides stays until the next one
        a_exponent, b_exponent = self.a[23:31], self.b[23:31]
        a_significand, b_significand = (Cat(x[:23], Const(1, 1)) for x in (self.a, self.b))
        sign, exponent = _state(1), _state(10)
        nan, infinite, zero = _state(1), _state(1), _state(1)
        a_zero, b_zero = ~a_exponent.any(), ~b_exponent.any()
        a_infinite, b_infinite = a_exponent.all(), b_exponent.all()
        with m.If(self.start):
            m.d.sync += digits.eq(0)
            m.d.sync += [infinite.eq(a_infinite), zero.eq(a_zero), rooting.eq(take_root)]
            with m.If(take_root):
                # an even power of two times 1.f, or an odd one: 1f.f
                radicand = Mux(
                    a_exponent[0], Cat(Const(0, 1), a_significand, Const(0, 1)), Cat(Const(0, 2), a_significand)
                )
                m.d.sync += [
                    remainder.eq(0),
                    operand.eq(radicand),
                    sign.eq(self.a[31]),
                    exponent.eq((a_exponent + 127)[1:]),
                    nan.eq(is_nan(self.a) | (self.a[31] & ~a_zero)),
                ]
            with m.Else():
                m.d.sync += [
                    remainder.eq(a_significand),
                    operand.eq(Cat(Const(0, 1), b_significand)),
                    sign.eq(self.a[31] ^ self.b[31]),
                    exponent.eq(a_exponent - b_exponent + 127),
                    nan.eq(is_nan(self.a) | is_nan(self.b) | (a_zero & b_zero) | (a_infinite & b_infinite)),
                    infinite.eq(a_infinite | b_zero),
                    zero.eq(a_zero | b_infinite),
                ]

        # normalised
        one = digits[-1]
        significand = after(Mux(one, digits[2:], digits[1:-1]))
        half = after(Mux(one, digits[1], digits[0]))
        sticky = after(remainder.any() | (one & digits[0]))
        less = after(~one)
        exponent, sign = after(exponent), after(sign, 2)
        nan, infinite, zero = (after(flag, 2) for flag in (nan, infinite, zero))

        # rounded: carries into the exponent, which is one less for a quotient below 1
        up = half & (significand[0] | sticky)
        rounded = after((Cat(significand[:23], exponent) + Cat(Const(0, 23), less.replicate(10)) + up)[:33])

        # packed
        exponent = rounded[23:].as_signed()
        result = Signal(32, reset_less=True)
        m.d.sync += result.eq(Cat(rounded[:31], sign))
        with m.If(zero | (exponent < 1)):
            m.d.sync += result[:31].eq(0)
        with m.Elif(infinite | (exponent > 254)):
            m.d.sync += result[:31].eq(0x7F800000)
        with m.If(nan):
            m.d.sync += result.eq(QUIET_NAN)
        m.d.comb += self.result.eq(result)
        return m


def _state(bits: int) -> Signal:
    return Signal(bits, reset_less=True, name="state")
