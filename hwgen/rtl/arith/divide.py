"""Division and square root of binary32 by digit recurrence: small, one result bit a cycle, correctly rounded.

In: operands and a strobe. Out: quotient or root, LATENCY edges later for one cycle. The next operands may come
`interval` cycles after the last ones.

Both recurrences subtract a trial value from a shifted remainder and keep the difference if it is not negative:

    quotient   2 r - 2 b                 r starts as a
    root       4 r + two bits - (4 q + 1)    r starts as 0, the bits are the radicand's

The recurrence takes 27 cycles: operands are loaded, then come 26 digits. A unit for an interval of 27 has one state
that goes round; one for an interval of i has 27 / i of them in a row, each of which works for i cycles and hands over.
Nothing counts: a state runs on until it is loaded again, and the stages behind show the result when it is due.
"""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.normalize import packed
from hwgen.rtl.arith.reduce import is_nan
from hwgen.rtl.delay import pipeline
from hwgen.spec.timing import DIVIDE_INTERVALS, DIVIDE_LATENCY

DIGITS = 26
"""One before the point, 23 of the fraction, one that may be needed to normalise, one that rounds."""

EXPONENT_BITS = 10

STATE = {
    "remainder": DIGITS + 1,
    "digits": DIGITS,
    "operand": DIGITS,
    "root": 1,
    "sign": 1,
    "exponent": EXPONENT_BITS,
    "nan": 1,
    "infinite": 1,
    "zero": 1,
}
"""Bits of the recurrence: `operand` is twice the divisor, or what is left of the radicand. From `sign` on, what the
result needs in addition to the digits."""

State = Mapping[str, Value]


class FloatDivide(wiring.Component):
    """a / b, or the square root of a, of operands that are there in a cycle with ``start``.

    Parameters
    ----------
    divide, root : bool
        Which of the two the unit can do. One that can do both reads ``square_root`` with the operands.
    interval : int
        Cycles from one start to the next at least, one of `DIVIDE_INTERVALS`.
    """

    LATENCY = DIVIDE_LATENCY

    def __init__(self, *, divide: bool = True, root: bool = True, interval: int = DIVIDE_INTERVALS[0]) -> None:
        if interval not in DIVIDE_INTERVALS:
            raise ValueError(f"a division unit has an interval of {DIVIDE_INTERVALS}, not {interval}")
        self._interval = interval
        self._choice = divide and root
        self._root = root
        super().__init__({"a": In(32), "b": In(32), "square_root": In(1), "start": In(1), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)
        take_root = self.square_root if self._choice else Const(int(self._root), 1)

        state = self._loaded(take_root)
        start = self.start
        for stage in range(DIVIDE_INTERVALS[0] // self._interval):
            # the first stage spends a cycle on loading; another begins with a digit
            arriving = self._step(state) if stage else state
            registers = {name: Signal(bits, reset_less=True, name=name) for name, bits in STATE.items()}
            state = registers
            if self._interval > 1:
                m.d.sync += [registers[name].eq(value) for name, value in self._step(state).items()]
                with m.If(start):
                    m.d.sync += [registers[name].eq(value) for name, value in arriving.items()]
                start = after(start, self._interval)
            else:
                m.d.sync += [registers[name].eq(value) for name, value in arriving.items()]
        remainder, digits, sign, exponent = (state[name] for name in ("remainder", "digits", "sign", "exponent"))
        nan, infinite, zero = (state[name] for name in ("nan", "infinite", "zero"))

        # normalised
        one = digits[-1]
        significand = after(Mux(one, digits[2:], digits[1:-1]))
        half = after(Mux(one, digits[1], digits[0]))
        sticky = after(remainder.any() | (one & digits[0]))
        less = ~after(one)
        exponent, sign = after(exponent), after(sign, 2)
        nan, infinite, zero = (after(flag, 2) for flag in (nan, infinite, zero))

        # rounded: carries into the exponent, which is one less for a quotient below 1
        up = half & (significand[0] | sticky)
        rounded = after((Cat(significand[:23], exponent) + Cat(Const(0, 23), less.replicate(10)) + up)[:33])

        # packed
        m.d.comb += self.result.eq(packed(m, rounded, sign, zero=zero, infinite=infinite, nan=nan))
        return m

    def _loaded(self, take_root: Value) -> State:
        """The state before the first digit."""
        a_exponent, b_exponent = self.a[23:31], self.b[23:31]
        a_significand, b_significand = (Cat(x[:23], Const(1, 1)) for x in (self.a, self.b))
        a_zero, b_zero = ~a_exponent.any(), ~b_exponent.any()
        a_infinite, b_infinite = a_exponent.all(), b_exponent.all()
        # an even power of two times 1.f, or an odd one: 1f.f
        radicand = Mux(a_exponent[0], Cat(Const(0, 1), a_significand, Const(0, 1)), Cat(Const(0, 2), a_significand))
        no_root = is_nan(self.a) | (self.a[31] & ~a_zero)
        no_quotient = is_nan(self.a) | is_nan(self.b) | (a_zero & b_zero) | (a_infinite & b_infinite)
        return {
            "remainder": Mux(take_root, 0, a_significand),
            "digits": Const(0, DIGITS),
            "operand": Mux(take_root, radicand, Cat(Const(0, 1), b_significand)),
            "root": take_root,
            "sign": self.a[31] ^ (~take_root & self.b[31]),
            "exponent": Mux(take_root, (a_exponent + 127)[1:], (a_exponent - b_exponent + 127)[:EXPONENT_BITS]),
            "nan": Mux(take_root, no_root, no_quotient),
            "infinite": a_infinite | (~take_root & b_zero),
            "zero": a_zero | (~take_root & b_infinite),
        }

    def _step(self, state: State) -> State:
        """The state one digit later."""
        root = state["root"] if self._choice else Const(int(self._root), 1)
        minuend = Mux(root, Cat(state["operand"][-2:], state["remainder"]), Cat(Const(0, 1), state["remainder"]))
        trial = Mux(root, Cat(Const(1, 2), state["digits"]), state["operand"])
        difference = minuend - trial
        negative = difference[-1]
        return {
            **state,
            "remainder": Mux(negative, minuend, difference),
            "digits": Cat(~negative, state["digits"]),
            "operand": Mux(root, state["operand"] << 2, state["operand"]),
        }
