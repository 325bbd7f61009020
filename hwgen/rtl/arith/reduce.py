"""Argument reduction of the table-and-polynomial functions: from a binary32 to a row of the table and a place in it.

In: an operand and whether it is there. Out, some edges later: where the table is to be read, and what the stages after
the table need. Each family of functions has its own reduction; they meet at the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value

from hwgen.rtl.arith.normalize import Special
from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics import layout
from hwgen.spec.operations import Opcode


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """That m * y is wanted, 24 bits of m; subtracted from n * ln 2 if ``less``, and nothing but it if ``alone``."""

    valid: Value
    m: Value
    less: Value = field(default_factory=lambda: Const(0, 1))
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a reduction hands to the table, all of it in one cycle.

    ``special`` is what the result will be in any case; ``minus`` the result's sign; ``complement`` asks for 1 - y,
    ``double`` for 2y - 1; ``scale`` is the power of two that the value is multiplied by (10 bits), or None where it is
    always 0. Rows are below ``rows``.
    """

    valid: Value
    row: Value
    t: Value
    special: Value
    minus: Value
    complement: Value = field(default_factory=lambda: Const(0, 1))
    double: Value | None = None
    scale: Value | None = None
    product: Product | None = None
    rows: int = layout.SHARED_ROWS


LN2_BITS = 39


class Multiple(NamedTuple):
    """Operands of `times_ln2`: (n + carry) * ln 2."""

    valid: Value
    n: Value
    carry: Value


def is_nan(x: Value) -> Value:
    """Whether 32 bits are a NaN."""
    return x[23:31].all() & x[:23].any()


def _position(bits: Value) -> Value:
    """18 bits of a segment, counted from its start, as the signed distance from its middle."""
    return Cat(bits[:-1], ~bits[-1])


def _sigmoid(module: Module, a: Signal, sigmoid: Value | None, tanh: Value | None) -> Place:
    """sigmoid of a, and of 2a for tanh: one edge. |a| below 4 in steps of 2**-23, above by its own significand.

    tanh's first rows hold tanh(x) / x, which is multiplied by |a|: its ``product``. From other rows 2y - 1 is wanted,
    which ``double`` says.
    """
    after = pipeline(module)
    exponent, fraction, sign = a[23:31], after(a[:23]), after(a[31])
    # 128 - exponent, 31 at most, of exponents up to 128; without a carry chain, which would take the exponent
    # inverted. Of 2a one less.
    far = ~exponent[7] & (~exponent[5:7].all() | ~exponent[:5].any())
    by = Cat(far | (exponent[k] ^ exponent[:k].any()) for k in range(5))
    steps = [exponent < 129, exponent == 129, exponent == 130, exponent >= 132]
    zero: Value = Const(0, 1)
    if tanh is not None:
        doubled = [exponent < 128, exponent == 128, exponent == 129, exponent >= 131]
        by_doubled = Cat(~exponent[k] | ~exponent[5:7].all() for k in range(5))
        by = Mux(tanh, by_doubled, by) if sigmoid is not None else by_doubled
        if sigmoid is not None:
            doubled = [Mux(tanh, two, one) for one, two in zip(steps, doubled, strict=True)]
        steps = doubled
        zero = tanh & (exponent == 0)
    near, four, eight, beyond = (after(step) for step in steps)
    by = after(by)
    is_tanh = after(tanh) if tanh is not None else Const(0, 1)
    fixed = Mux(sign & ~is_tanh, Special.ZERO, Special.ONE)
    special = Mux(after(is_nan(a)), Special.NAN, Mux(beyond, fixed, Mux(after(zero), Special.ZERO, Special.NONE)))
    below_4 = (Cat(Const(0, 1), fraction, Const(1, 1)) >> by)[:25]
    # a zero's hidden bit has been shifted out: its exponent is 31 places or more away
    position = Mux(
        near,
        Cat(below_4, Const(0, 1)),
        Mux(four, Cat(Const(0, 1), fraction, Const(0b10, 2)), Cat(fraction, ~eight, Const(0b11, 2))),
    )
    row: Value = Cat(position[layout.T_BITS :], Const(0, 1))
    double: Value | None = None
    scale: Value | None = None
    product: Product | None = None
    if tanh is not None:
        ratio = is_tanh & (row[4:] < len(layout.TANH_ROWS))
        double = is_tanh & ~ratio
        product = Product(valid=ratio, m=Cat(fraction, Const(1, 1)), alone=True)
        upper = Array(first >> 4 for first in layout.TANH_ROWS)[row[4:6]]
        row = Cat(row[:4], Mux(ratio, upper, row[4:]))
        # the significand times a ratio of 25 bits is in 2**-48, of which the last place is cut off
        scale = Mux(ratio, (after(exponent) + (1024 - 126))[:10], 0)
    return Place(
        valid=after(Cat(value for value in (sigmoid, tanh) if value is not None).any()),
        row=row,
        t=_position(position[: layout.T_BITS]),
        special=special,
        minus=sign & is_tanh,
        complement=sign & ~is_tanh,
        double=double,
        scale=scale,
        product=product,
        rows=layout.SIGMOID_ROWS if tanh is None else layout.SHARED_ROWS,
    )


def times_ln2(n: Value, carry: Value) -> Value:
    """(n + carry) * ln 2, n of 9 bits: three look-ups and two sums instead of multipliers."""
    low, high = (Array(k * layout.LN2 for k in range(16))[n[4 * half : 4 * half + 4]] for half in (0, 1))
    # 256 of the ninth bit, and the carry
    last = Array((k >> 1) * 256 * layout.LN2 + (k & 1) * layout.LN2 for k in range(4))[Cat(carry, n[8])]
    return (low + (high << 4) + last)[:LN2_BITS]


def _within_63(amount: Value) -> Value:
    """Six bits of a shift; a zero's hidden bit goes out of a shifter of 48, like everything that is as far away."""
    return Mux(amount[6:].any(), 63, amount[:6])[:6]


class Exponential:
    """exp and gaussian: 2**n * exp(r), r within half of ln 2 of 0.

    exp's shifter works one edge after its operand, gaussian's two later, for the square. From there on they share all
    stages; ``multiple`` says what n is, and `place` wants n * ln 2 back.
    """

    def __init__(self, module: Module, a: Signal, exp: Value | None, gaussian: Value | None) -> None:
        self._after = after = pipeline(module)
        significand, exponent = Cat(a[:23], Const(1, 1)), a[23:31]
        # what the shifter's registers are given: valid, source, by how many places, special, minus
        given: list[tuple[Value, Value, Value, Value, Value]] = []
        if exp is not None:
            special = Mux(exponent >= 134, Mux(a[31], Special.ZERO, Special.INFINITY), Special.NONE)
            special = Mux(is_nan(a), Special.NAN, special)
            source = Cat(Const(0, 24), significand)
            given.append((exp, source, _within_63((143 - exponent)[:8]), special, a[31]))
        if gaussian is not None:
            special = Mux(is_nan(a), Special.NAN, Mux(exponent >= 131, Special.ZERO, Special.NONE))
            upper, lower = after(significand[6:]), after(significand[:6])
            square, mixed = after(upper * upper), after(upper * lower)
            source = (Cat(Const(0, 12), square) + Cat(Const(0, 7), mixed))[:48]
            amount = after(_within_63(Cat(Const(1, 1), (134 - exponent)[:8])), 2)
            given.append((after(gaussian, 2), source, amount, after(special, 2), Const(1, 1)))
        chosen = given[-1] if len(given) == 1 else [Mux(given[1][0], b, a) for a, b in zip(*given, strict=True)]
        valid, source, amount, special, minus = (after(value) for value in chosen)
        if len(given) == 2:
            valid = after(given[0][0] | given[1][0])
        self._valid, self._special, self._minus = after(valid, 3), after(special, 3), after(minus, 3)
        magnitude = after((source >> amount)[:39])
        self._low = after(magnitude[:32], 2)
        product = magnitude[23:] * layout.LOG2E
        self.multiple = Multiple(valid=after(valid), n=product[23:32], carry=product[22])

    def place(self, n: Value, n_ln2: Value) -> Place:
        """With n and n * ln 2, two edges after ``multiple``: r, and with it the row."""
        r = (self._low - n_ln2[:32])[:32] ^ self._minus.replicate(32)
        return Place(
            valid=self._valid,
            row=Cat(r[24:30], ~r[30], Const(0b10, 2)),
            t=_position(r[6:24]),
            special=self._special,
            minus=Const(0, 1),
            scale=((n ^ self._minus.replicate(10)) + self._minus)[:10],
        )


def _logarithm(module: Module, a: Signal, valid: Value) -> tuple[Multiple, Place]:
    """log: e * ln 2 + m * (log(1 + m) / m), of which the table holds the quotient.

    Two edges after the operand there is its place.
    """
    after = pipeline(module)
    exponent = a[23:31]
    halved = a[16:23] >= layout.LOG_SPLIT - 128
    # |e| is d + 1 or, of a negative d, its complement; e is 0 for d = -1
    d = (exponent + halved - 128)[:9]
    below = d[8]
    zero = after(d.all())
    multiple = Multiple(valid=valid, n=Cat(d[:8] ^ below.replicate(8), Const(0, 1)), carry=~below)
    special = Mux(exponent == 0, Special.INFINITY, Mux(a[31], Special.NAN, Special.NONE))
    special = Mux(exponent == 255, Mux(a[31] | a[:23].any(), Special.NAN, Special.INFINITY), special)
    fraction, halved, below = after(a[:23]), after(halved), after(below)
    minus = below & (~zero | halved)
    m = after(Mux(halved, Cat(fraction, Const(1, 1)), Cat(Const(0, 1), fraction)[:24]))
    magnitude = ((m[:23] ^ m[23].replicate(23)) + m[23])[:23]
    product = Product(valid=after(valid, 2), m=magnitude, less=after(~zero & (below ^ halved)))
    return multiple, Place(
        valid=after(valid, 2),
        row=Cat(m[17:23], ~m[23], Const(0b11, 2)),
        t=_position(Cat(Const(0, 1), m[:17])),
        special=after(special, 2),
        minus=after(minus),
        product=product,
    )


def _half_turns(module: Module, a: Signal, valid: Value) -> Place:
    """sinpi: |a| modulo 2 in 2**-25, folded to [0, 1/2], and the row's ratio times it: three edges.

    What is below 1/2 may have places beyond those: there the ratio is multiplied by |a| itself.
    """
    after = pipeline(module)
    exponent = a[23:31]
    # a zero's hidden bit is shifted out, as are whole turns: beyond 2**24 there is nothing else
    amount = after(_within_63((150 - exponent)[:8]))
    turned = after((Cat(Const(0, 25), after(a[:23]), Const(1, 1)) >> amount)[:26])
    upper = turned[24]
    folded = after(((turned[:25] ^ upper.replicate(25)) + upper)[:25])
    small, exponent, fraction = after(exponent < 126, 3), after(exponent, 3), after(a[:23], 3)
    quarter = after(turned[24] & ~turned[:24].any())
    zero = Mux(small, exponent == 0, ~after(turned[:25].any()))
    special = Mux(zero, Special.ZERO, Mux(quarter, Special.ONE, Special.NONE))
    return Place(
        valid=after(valid, 3),
        row=Cat(folded[layout.T_BITS : 24], Const(layout.SINPI_BASE >> 6, 4)),
        t=_position(folded[: layout.T_BITS]),
        special=Mux(exponent == 255, Special.NAN, special),
        minus=after(a[31], 3) ^ (after(turned[25]) & ~zero),
        # in 2**-24 of rows that have a quarter
        scale=Mux(small, (exponent + (1024 - 124))[:10], 2),
        product=Product(valid=after(valid, 3), m=Mux(small, Cat(fraction, Const(1, 1)), folded[1:25]), alone=True),
        rows=layout.ROWS,
    )


def reductions(module: Module, a: Signal, wanted: Mapping[Opcode, Value]) -> tuple[list[Place], Value]:
    """For the functions in `wanted`, by their operand's strobe: places in the table, and n * ln 2."""
    places: list[Place] = []
    log: Place | None = None
    exponential: Exponential | None = None
    multiples = []
    if wanted.keys() & {Opcode.SIGMOID, Opcode.TANH}:
        places.append(_sigmoid(module, a, wanted.get(Opcode.SIGMOID), wanted.get(Opcode.TANH)))
    if wanted.keys() & {Opcode.EXP, Opcode.GAUSSIAN}:
        exponential = Exponential(module, a, wanted.get(Opcode.EXP), wanted.get(Opcode.GAUSSIAN))
        multiples.append(exponential.multiple)
    if Opcode.LOG in wanted:
        multiple, log = _logarithm(module, a, wanted[Opcode.LOG])
        multiples.append(multiple)
    n_ln2: Value = Const(0, 1)
    if multiples:
        after = pipeline(module)
        n = after(of_valid([(multiple.valid, multiple.n) for multiple in multiples]))
        carry = after(of_valid([(multiple.valid, multiple.carry) for multiple in multiples]))
        n_ln2 = after(times_ln2(n, carry))
        if exponential:
            places.append(exponential.place(after(n + carry), n_ln2))
    if log:
        places.append(log)
    if Opcode.SINPI in wanted:
        places.append(_half_turns(module, a, wanted[Opcode.SINPI]))
    # what is no product does not look at it
    for place in places:
        if place.product is not None and place.product.alone:
            n_ln2 = Mux(place.product.valid, 0, n_ln2)
    return places, n_ln2


def of_valid(choices: Sequence[tuple[Value, Value]]) -> Value:
    """The value of which the first member is true; of the last if none is."""
    *others, (_, chosen) = choices
    for valid, value in others:
        chosen = Mux(valid, value, chosen)
    return chosen
