"""Functions of a table and a polynomial: the datapath that they share, and the argument reductions wanted.

In: an operand, which function, and a strobe. Out: the function's value, as many edges later as it has `stages`.
A new operand may come in every cycle, as long as no two results fall in the same one: every shared stage is equally
far from the operand, or equally far from the result, for any two functions that use it.

    reduction (1 to 6 edges)   where in the table: `reduce.py`
    table (6)                  c0 + (c1 + c2 t) t: `table.py`
    product (2)                what the reduction asks for: times m, plus n ln 2; the others wait
    packing (3)                `normalize.py`
"""

from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.normalize import EXPONENT_BITS, Normalize, Special
from hwgen.rtl.arith.reduce import of_valid, reductions
from hwgen.rtl.arith.table import VALUE_BITS, TablePolynomial
from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics import layout
from hwgen.spec.operations import Opcode, Unit

NARROW_BITS = 18
LOW_BITS = 17
LOG_BITS = 55

FUNCTIONS = tuple(op for op in Opcode if op.unit is Unit.FUNCTION)
"""What a `FloatFunction` computes."""

FUNCTION_BITS = (len([op for op in Opcode if op.special]) - 1).bit_length()
"""Low bits of a special function's code, which distinguish it from the others."""


class FloatFunction(wiring.Component):
    """Any of these functions of a, by the low bits of its code; both count with ``start``.

    Each is one that has a `Unit.FUNCTION`; hardware for the others is not built.
    """

    def __init__(self, functions: Iterable[Opcode] = FUNCTIONS, *, narrow: bool = True) -> None:
        self._functions = frozenset(functions)
        self._narrow = narrow
        super().__init__({"a": In(32), "function": In(FUNCTION_BITS), "start": In(1), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)
        wanted = {f: self.start & (self.function == code(f)) for f in FUNCTIONS if f in self._functions}
        places, n_ln2 = reductions(m, self.a, wanted)
        products = [place.product for place in places if place.product is not None]

        # the table
        m.submodules.table = table = TablePolynomial(rows=max(place.rows for place in places))
        m.d.comb += [
            table.row.eq(of_valid([(place.valid, place.row) for place in places])),
            table.t.eq(of_valid([(place.valid, place.t) for place in places])),
            table.complement.eq(of_valid([(place.valid, place.complement) for place in places])),
        ]
        y = table.y
        special = after(of_valid([(place.valid, place.special) for place in places]), 7)
        minus = after(of_valid([(place.valid, place.minus) for place in places]), 8)
        scales = [(place.valid, place.scale) for place in places if place.scale is not None]

        # the product
        width, fraction_bits = (LOG_BITS, layout.LOG_FRACTION) if products else (VALUE_BITS, layout.C0_FRACTION)
        exponent: Value = Const(127 + (width - 1 - fraction_bits) + 1, EXPONENT_BITS)
        # 2y - 1 of y from 1/2 to 1
        value = y
        for place in places:
            if place.double is not None:
                value = Mux(after(place.double, 6), Cat(Const(0, 1), y[:-2], y[-1]), value)
        magnitude: Value = Cat(Const(0, fraction_bits - layout.C0_FRACTION), after(value))
        if products:
            factor = after(of_valid([(p.valid, p.m) for p in products]), 6)
            less = after(of_valid([(p.valid, p.less) for p in products]), 7)
            total = _log_sum(after, y=y, m=factor, n_ln2=after(n_ln2, 7), less=less, narrow=self._narrow)
            magnitude = Mux(after(Cat(p.valid for p in products).any(), 7), total, magnitude)
        if scales:
            scale: Value = Const(0, EXPONENT_BITS)
            for valid, own in scales:
                scale = Mux(valid, own, scale)
            scale = after(scale, 6).as_signed()
            # y is in (1/2, 2): whether the result is too large, or tiny. No argument gives a y so little below 1 that
            # rounding would save it from being tiny (tests/hwgen/arith/test_function.py looks at all that come near)
            above = y[-1]
            over = after((scale > 128) | ((scale == 128) & above))
            under = after((scale < -126) | ((scale == -126) & ~above))
            chosen = Mux(over, Special.INFINITY, Mux(under, Special.ZERO, Special.NONE))
            special = Mux(special == Special.NONE, chosen, special)
            exponent = after((exponent + scale)[:EXPONENT_BITS], 2)

        m.submodules.normalize = normalize = Normalize(width=width)
        m.d.comb += [
            normalize.magnitude.eq(after(magnitude)),
            normalize.exponent.eq(exponent),
            normalize.sign.eq(minus),
            normalize.special.eq(after(special)),
            self.result.eq(normalize.result),
        ]
        return m


def code(op: Opcode) -> int:
    """A special function on the control bus."""
    return op & (1 << FUNCTION_BITS) - 1


def _log_sum(after: Callable[..., Signal], *, y: Value, m: Value, n_ln2: Value, less: Value, narrow: bool) -> Value:
    """n * ln 2 ± m * y in 2**-48, one edge after y and m, with n_ln2 and less."""
    ratio = y[layout.C0_FRACTION - layout.RATIO_FRACTION :]
    # in 2**-49, of which the last place is cut off
    if narrow:
        low, high = m[:NARROW_BITS], m[NARROW_BITS:]
        outer = Cat(after(low * ratio[:NARROW_BITS])[: 2 * NARROW_BITS], after(high * ratio[NARROW_BITS:]))
        inner = after(high * ratio[:NARROW_BITS]) + after(low * ratio[NARROW_BITS:])
        product = outer[1:] + (inner << NARROW_BITS - 1)
    else:
        lower, upper = after(m * ratio[:LOW_BITS]), after(m * ratio[LOW_BITS:])
        product = Cat(lower[1:LOW_BITS], lower[LOW_BITS:] + upper)
    # a - b is ~(~a + b)
    from_n = Cat(Const(0, layout.LOG_FRACTION - layout.ARGUMENT_FRACTION), n_ln2)[:LOG_BITS]
    total = ((from_n ^ less.replicate(LOG_BITS)) + product)[:LOG_BITS]
    return total ^ less.replicate(LOG_BITS)
