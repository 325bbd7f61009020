"""The special function unit of a cluster: one unit for functions, one for quotients and roots; of both only what
the machine's configuration asks for.

In: the operands of one lane and which function. Out: the result, in the cycle that `hwgen.spec.timing` gives. It does
not know where operands come from, nor who takes the result.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.divide import FloatDivide
from hwgen.rtl.arith.function import FUNCTION_BITS, FUNCTIONS, FloatFunction, code
from hwgen.rtl.engine.control import Side
from hwgen.rtl.interfaces import wires
from hwgen.rtl.library import Library
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Opcode


class SpecialFunctions(wiring.Component):
    """The special functions of a cluster."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(
            {
                "a": In(32),  # operands, stage 4
                "b": In(32),
                "start": In(1),  # stage 4: there are operands
                "function": In(FUNCTION_BITS),  # stage 4: what to compute, the low bits of its code
                "side": In(Side.BITS),  # in the cycle in which a result is due: whose it is (`control.Side`)
                "result": Out(32),  # in that cycle
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipelined = [function for function in FUNCTIONS if self._config.has(function)]
        divides, roots = (self._config.has(op) for op in (Opcode.DIV, Opcode.SQRT))
        results: list[Value] = []
        if pipelined:
            m.submodules.functions = functions = FloatFunction(pipelined, narrow=not self._library.wide_multipliers)
            m.d.comb += wires(functions, self, "a", "start", "function")
            results.append(functions.result)
        if divides or roots:
            m.submodules.divide = divide = FloatDivide(
                divide=divides, root=roots, interval=self._config.divide_interval
            )
            # the operands of the other unit's functions mean nothing to this one
            others = Cat(self.function == code(function) for function in pipelined).any()
            m.d.comb += [
                *wires(divide, self, "a", "b"),
                divide.start.eq(self.start & ~others),
                divide.square_root.eq(self.function == code(Opcode.SQRT)),
            ]
            results.append(divide.result)
        if len(results) == 2:
            m.d.comb += self.result.eq(Mux(self.side == Side.DIVIDE, results[1], results[0]))
        else:
            m.d.comb += self.result.eq(results[0] if results else Const(0, 32))
        return m
