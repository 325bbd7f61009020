"""The special function unit of a cluster: one unit for four functions, one for quotients and roots.

In: the operands of one lane and which function. Out: the result, in the cycle that `hwgen.spec.timing` gives. It does
not know where operands come from, nor who takes the result.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.divide import FloatDivide
from hwgen.rtl.arith.function import FloatFunction, Function
from hwgen.rtl.engine.control import FUNCTION_BITS, Side
from hwgen.spec.engine import Opcode

CODES = {function: Opcode[function.name] & (1 << FUNCTION_BITS) - 1 for function in Function}
"""`function` on the control bus for what the `FloatFunction` computes."""

SQUARE_ROOT = Opcode.SQRT & (1 << FUNCTION_BITS) - 1


class SpecialFunctions(wiring.Component):
    """All special functions.

    Parameters
    ----------
    divide_interval
        Cycles between two quotients or roots.

    Members
    -------
    a, b
        Operands, stage 3.
    start, function
        Stage 3: there are operands; what to compute, as `control.FUNCTION_BITS` says.
    side
        In the cycle in which a result is due: whose it is (`control.Side`).
    result
        In that cycle.
    """

    def __init__(self, divide_interval: int) -> None:
        self._divide_interval = divide_interval
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "start": In(1),
                "function": In(FUNCTION_BITS),
                "side": In(Side.BITS),
                "result": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.functions = functions = FloatFunction()
        m.submodules.divide = divide = FloatDivide(interval=self._divide_interval)
        m.d.comb += [functions.a.eq(self.a), divide.a.eq(self.a), divide.b.eq(self.b)]
        with m.Switch(self.function):
            for function, code in CODES.items():
                with m.Case(code):
                    m.d.comb += [functions.start.eq(self.start), functions.function.eq(function)]
            with m.Default():
                m.d.comb += [divide.start.eq(self.start), divide.square_root.eq(self.function == SQUARE_ROOT)]
        m.d.comb += self.result.eq(Mux(self.side == Side.DIVIDE, divide.result, functions.result))
        return m
