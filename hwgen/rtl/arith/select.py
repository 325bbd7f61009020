"""Comparison and choice of binary32: what moves or tests numbers without computing new ones.

In: two operands and an operation. Out: a result, and whether b holds as a condition. ``where(c, a, b)`` is a move of a
that is written only if c holds.
"""

from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics.binary32 import QUIET_NAN_BITS
from hwgen.spec.timing import SELECT_LATENCY

ONE = 0x3F800000
OPERATION_BITS = 4
HALF = 16
"""Bits of a binary32 that a bfloat16 lacks."""


class Operation(IntEnum):
    """What a `FloatSelect` does. Those from 8 on give a truth."""

    MOV = 0
    SECOND = 1  # b, as MOV gives a; the two differ in bit 0
    NEG = 2
    ABS = 3
    MAX = 4
    MIN = 5
    COPYSIGN = 6
    BFLOAT16 = 7
    LT = 8
    GT = 9
    LE = 10
    GE = 11
    EQ = 12


class FloatSelect(wiring.Component):
    """One `Operation` of a, or of a and b: flushed, NaN canonical, a truth as 1.0 or 0.0.

    ``holds``: that b was anything but a zero (a NaN is). It has `Operation.SECOND` if ``second`` says so.
    """

    LATENCY = SELECT_LATENCY

    def __init__(self, *, second: bool = True) -> None:
        self._second = second
        super().__init__(
            {"a": In(32), "b": In(32), "operation": In(OPERATION_BITS), "result": Out(32), "holds": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)

        # 1: the magnitudes compared as integers, which is right unless both are zero or one is NaN
        below = after(self.a[:31] < self.b[:31])
        same = after(self.a[:31] == self.b[:31])
        a_some, b_some = after(self.a[23:31].any()), after(self.b[23:31].any())
        a_zero, b_zero = ~a_some, ~b_some
        a_nan, b_nan = (after(x[23:31].all() & x[:23].any()) for x in (self.a, self.b))
        b, operation = after(self.b), after(self.operation)
        rounds = self.operation == Operation.BFLOAT16
        up = after(rounds & self.a[HALF - 1] & (self.a[: HALF - 1].any() | self.a[HALF]))
        a = after(Cat(Mux(rounds, 0, self.a[:HALF]), self.a[HALF:]))

        # 2: the order, and what is chosen
        zeros = a_zero & b_zero
        equal = zeros | (same & (a[31] == b[31]))
        less = Mux(a[31] ^ b[31], a[31], Mux(a[31], ~below, below)) & ~equal
        either = a_nan | b_nan
        test = operation[3]
        truth, second, sign = Signal(), Signal(), Signal()
        m.d.comb += sign.eq(Mux(second, b[31], a[31]))
        truths = {"LT": less, "GT": ~(less | equal), "LE": less | equal, "GE": ~less, "EQ": equal}
        with m.Switch(operation):
            for name, value in truths.items():
                with m.Case(Operation[name]):
                    m.d.comb += truth.eq(value)
            with m.Case(Operation.MAX):
                m.d.comb += second.eq(less)
                with m.If(zeros):
                    m.d.comb += sign.eq(a[31] & b[31])
            with m.Case(Operation.MIN):
                m.d.comb += second.eq(~(less | equal))
                with m.If(zeros):
                    m.d.comb += sign.eq(a[31] | b[31])
            for name, value in {"NEG": ~a[31], "ABS": Const(0, 1), "COPYSIGN": b[31] & ~b_nan}.items():
                with m.Case(Operation[name]):
                    m.d.comb += sign.eq(value)
            if self._second:
                with m.Case(Operation.SECOND):
                    m.d.comb += second.eq(1)
        binary = (operation == Operation.MAX) | (operation == Operation.MIN)
        nan: Value = a_nan | (b_nan & binary)
        if self._second:
            nan = Mux(operation == Operation.SECOND, b_nan, nan)
        zero, nan, holds = after(Mux(second, b_zero, a_zero)), after(nan & ~test), after(b_some, 2)
        test, one = after(test), after(test & truth & ~either)

        # 3: the choice
        result = Signal(32, reset_less=True)
        # a carry out of the fraction is the next power of two, or infinity
        rounded = Cat(a[:HALF], (a[HALF:31] + up)[: 31 - HALF])
        m.d.sync += result.eq(Cat(Mux(after(second), after(b[:31]), after(rounded)), after(sign)))
        with m.If(zero):
            m.d.sync += result[:31].eq(0)
        with m.If(nan):
            m.d.sync += result.eq(QUIET_NAN_BITS)
        with m.If(test):
            m.d.sync += result.eq(Mux(one, ONE, 0))
        m.d.comb += [self.result.eq(result), self.holds.eq(holds)]
        return m
