"""Column values to binary32, as `hwgen.spec.numerics.conversion` defines them: one rounding to nearest even, subnormals
flushed, NaN canonical.

In: a row of float4 (`canonical`), or an element of another type (`Converter`). Out: binary32.
"""

from typing import assert_never

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import pipeline
from hwgen.spec.columns import TYPE_BITS, ColumnType

CONVERT_LATENCY = 4
"""Cycles from the bytes to the value: magnitude, leading zeros, normalisation, rounding; choosing among infinity, zero,
NaN and the number is left to the cycle in which the value is there."""

CANONICAL_LATENCY = 2

MANTISSA = 23
BIAS = 127
DOUBLE_TO_SINGLE = 1023 - BIAS
EXPONENT_BITS = 13


def canonical(m: Module, word: Value, name: str) -> Value:
    """A float4 with subnormals flushed and NaN canonical, CANONICAL_LATENCY cycles later."""
    exponent, fraction = word[MANTISSA:31], word[:MANTISSA]
    after = pipeline(m)
    bare, nan = after(~exponent.any() | exponent.all()), after(exponent.all() & fraction.any())
    result = Signal(32, name=name, reset_less=True)
    m.d.sync += result.eq(after(word))
    # an infinity has no fraction to lose, a NaN gets one back
    with m.If(bare):
        m.d.sync += result[:MANTISSA].eq(nan << (MANTISSA - 1))
    with m.If(nan):
        m.d.sync += result[31].eq(0)
    return result


def leading_zeros(m: Module, word: Value, name: str = "zeros") -> Value:
    """Number of zeros above the highest one; of a word without ones, its width minus 1."""
    width = len(word)
    if width == 2:
        return ~word[1]
    half = width // 2
    high, low = word[half:], word[:half]
    count = Signal(width.bit_length() - 1, name=name)
    none = ~high.any()
    above = leading_zeros(m, high, f"{name}_h")
    below = leading_zeros(m, low, f"{name}_l")
    m.d.comb += count.eq(Cat(Mux(none, below, above), none))
    return count


def words(width: int) -> data.StructLayout:
    """An element of each size of up to `width` bits, by its bytes."""
    sizes = sorted({kind.bytes for kind in ColumnType})
    return data.StructLayout({f"of_{size}": 8 * size for size in sizes if 8 * size <= width})


def _integer(kind: ColumnType, raw: Value) -> Value:
    """The part of an element that is converted: a signed integer, or all of a double, where only the sign counts."""
    match kind:
        case ColumnType.INT2 | ColumnType.INT4 | ColumnType.INT8:
            return raw.as_signed()
        case ColumnType.BOOL:
            return raw.any()
        case ColumnType.FLOAT4 | ColumnType.FLOAT8:
            return raw
        case _:
            assert_never(kind)


class Converter(wiring.Component):
    """One element a cycle; its value is there CONVERT_LATENCY cycles later.

    `type` is its `ColumnType`, and not FLOAT4, which needs no conversion; of what `data` has, the element of that
    type's size counts. A converter of `width` 32 instead of 64 converts no type of eight bytes.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        super().__init__({"data": In(words(width)), "type": In(TYPE_BITS), "value": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        after = pipeline(m)
        width = self._width
        wide = width == 8 * ColumnType.FLOAT8.bytes
        raw = self.data.of_8 if wide else C(0, 64)
        double = self.type == ColumnType.FLOAT8 if wide else C(0)

        integer = Signal(width)
        with m.Switch(self.type):
            for kind in ColumnType:
                if 8 * kind.bytes <= width:
                    with m.Case(kind):
                        m.d.comb += integer.eq(_integer(kind, self.data[f"of_{kind.bytes}"]))
        negative = integer[-1]

        # magnitude, but for the one to be added to an inverted number; the highest bit of a double's is its hidden one
        inverted = integer ^ negative.replicate(width)
        magnitude = after(Mux(double, Cat(C(0, 11), raw[:52], C(1, 1)), inverted) if wide else inverted)
        plus, special = after(negative & ~double), after(double & raw[52:63].all())
        own = (raw[52:63] - C(DOUBLE_TO_SINGLE, EXPONENT_BITS))[:EXPONENT_BITS]
        exponent = after(Mux(double, own, width - 1 + BIAS), 2)
        sign, nan = after(negative, 4), after(double & raw[52:63].all() & raw[:52].any(), 4)

        # leading zeros, at the same time as the one
        zeros = after(leading_zeros(m, magnitude))
        unshifted = after((magnitude + plus)[:width])

        # normalisation. Without a one at the top the number was zero or, if one was added, that went over the top: it
        # is then the next power of two
        normal = after((unshifted << zeros)[:width])
        lowered = after((exponent - zeros)[:EXPONENT_BITS])
        plus, special = after(plus, 2), after(special, 2)

        # rounding: the carry out of 24 bits adds one to the exponent; what is tiny is seen after that
        dropped = width - MANTISSA - 1
        up = normal[dropped - 1] & (normal[dropped] | normal[: dropped - 1].any())
        rounded, power = after(normal[dropped:] + up), after(plus & ~normal[-1])
        choices = []
        for carry in range(2):
            final = Signal(EXPONENT_BITS, name=f"final_{carry}")
            m.d.comb += final.eq(lowered + carry)
            tiny = (final[-1] | ~final.any() | ~(normal[-1] | plus)) & ~special
            large = (~final[-1] & ((final >> 8).any() | final[:8].all())) | special
            choices.append(after(Cat(Mux(tiny, 0, final[:8] | large.replicate(8)), tiny | large)))

        # bits 30 down to 23, and whether those below are 0
        choice = Mux(rounded[MANTISSA + 1] | power, choices[1], choices[0])
        fraction = Mux(choice[8], Cat(C(0, MANTISSA - 1), nan), rounded[:MANTISSA])
        m.d.comb += self.value.eq(Cat(fraction, choice[:8], sign & ~nan))
        return m
