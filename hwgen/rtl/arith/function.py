"""sigmoid, gaussian, exp and log: one table-and-polynomial datapath with as many argument reductions as are wanted.

In: an operand, which function, and a strobe. Out: the function's value, as many edges later as `LATENCY` says for it.
A new operand may come in every cycle, as long as no two results fall in the same one: every shared stage is equally
far from the operand, or equally far from the result, for any two functions that use it.

    reduction (1 to 6 edges)   where in the table: `reduce.py`
    table (6)                  c0 + (c1 + c2 t) t: `table.py`
    product (2)                log: times m, plus e ln 2; the others wait
    packing (3)                `normalize.py`
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.normalize import EXPONENT_BITS, Normalize, Special
from hwgen.rtl.arith.pipeline import Pipeline
from hwgen.rtl.arith.reduce import Exponential, Logarithm, Place, times_ln2
from hwgen.rtl.arith.reduce import sigmoid as reduce_sigmoid
from hwgen.rtl.arith.table import VALUE_BITS, TablePolynomial
from hwgen.spec import timing
from hwgen.spec.numerics import layout

FUNCTION_BITS = 2
NARROW_BITS = 18
LOW_BITS = 17
LOG_BITS = 55


class Function(IntEnum):
    """What a `FloatFunction` computes."""

    SIGMOID = 0
    GAUSSIAN = 1
    EXP = 2
    LOG = 3


LATENCY = {
    Function.SIGMOID: timing.SIGMOID_LATENCY,
    Function.GAUSSIAN: timing.GAUSSIAN_LATENCY,
    Function.EXP: timing.EXP_LATENCY,
    Function.LOG: timing.LOG_LATENCY,
}


class FloatFunction(wiring.Component):
    """Any of sigmoid, gaussian, exp and log of a.

    Parameters
    ----------
    functions : iterable of Function
        Those that the unit can do; hardware for the others is not built.
    narrow : bool
        Build for multipliers of 18 × 18 bits instead of 27 × 18. Same bits, same latency.

    Attributes
    ----------
    a : Signal(32), in
        Operand; counts with ``start``.
    function : Signal(2), in
        A `Function` of those the unit can do; counts with ``start``.
    start : Signal(1), in
        There is an operand in this cycle.
    result : Signal(32), out
        LATENCY[function] edges later, for one cycle.
    """

    a: Signal
    function: Signal
    start: Signal
    result: Signal

    def __init__(self, functions: Iterable[Function] = tuple(Function), *, narrow: bool = True) -> None:
        self._functions = frozenset(functions)
        self._narrow = narrow
        super().__init__({"a": In(32), "function": In(FUNCTION_BITS), "start": In(1), "result": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = Pipeline(m).after
        places, log, n_ln2 = self._reductions(m)

        # the table
        rows = layout.SIGMOID_ROWS if self._functions <= {Function.SIGMOID} else layout.ROWS
        m.submodules.table = table = TablePolynomial(rows=rows)
        m.d.comb += [
            table.row.eq(_of_valid([(place.valid, place.row) for place in places])),
            table.t.eq(_of_valid([(place.valid, place.t) for place in places])),
            table.complement.eq(_of_valid([(place.valid, place.complement) for place in places])),
        ]
        y = table.y
        special = after(_of_valid([(place.valid, place.special) for place in places]), 7)
        minus = after(_of_valid([(place.valid, place.minus) for place in places]), 8)
        scales = [(place.valid, place.scale) for place in places if place.scale is not None]

        # the product
        width, fraction_bits = (LOG_BITS, layout.LOG_FRACTION) if log else (VALUE_BITS, layout.C0_FRACTION)
        exponent: Value = Const(127 + (width - 1 - fraction_bits) + 1, EXPONENT_BITS)
        magnitude: Value = Cat(Const(0, fraction_bits - layout.C0_FRACTION), after(y))
        if log:
            n_ln2, less = after(n_ln2, 7), after(log.less, 7)
            total = _log_sum(after, y=y, m=after(log.m, 6), n_ln2=n_ln2, less=less, narrow=self._narrow)
            magnitude = Mux(after(log.place.valid, 7), total, magnitude)
        if scales:
            (valid, scale), *_ = scales
            scale = after(Mux(valid, scale, 0), 6).as_signed()
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

    def _reductions(self, m: Module) -> tuple[list[Place], Logarithm | None, Value]:
        """Where each family's operands are in the table, and n * ln 2 as it is when the table is read."""
        wanted = {f: self.start & (self.function == f) for f in Function if f in self._functions}
        places, log, exponential = [], None, None
        multiples = []
        if Function.SIGMOID in wanted:
            places.append(reduce_sigmoid(m, self.a, wanted[Function.SIGMOID]))
        if wanted.keys() & {Function.EXP, Function.GAUSSIAN}:
            exponential = Exponential(m, self.a, wanted.get(Function.EXP), wanted.get(Function.GAUSSIAN))
            multiples.append(exponential.multiple)
        if Function.LOG in wanted:
            log = Logarithm(m, self.a, wanted[Function.LOG])
            multiples.append(log.multiple)
        n_ln2: Value = Const(0, 1)
        if multiples:
            after = Pipeline(m).after
            n = after(_of_valid([(multiple.valid, multiple.n) for multiple in multiples]))
            carry = after(_of_valid([(multiple.valid, multiple.carry) for multiple in multiples]))
            n_ln2 = after(times_ln2(n, carry))
            if exponential:
                places.append(exponential.place(after(n + carry), n_ln2))
        if log:
            places.append(log.place)
        return places, log, n_ln2


def _of_valid(choices: Sequence[tuple[Value, Value]]) -> Value:
    """The value of which the first member is true; of the last if none is."""
    *others, (_, chosen) = choices
    for valid, value in others:
        chosen = Mux(valid, value, chosen)
    return chosen


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
