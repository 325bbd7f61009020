"""Random numbers of a tuple, written as operations that are exact: the same on every machine, for any rounds of it.

In: a shape, a seed. Out: a value for each tuple, uniform in [0, 1): a function of the seed, the call's
number in the rule, the epoch, the tuple's number in it and the element. Must not: keep state.

Everything is integer arithmetic modulo two primes p and q below 2^12, so that binary32 represents products exactly. A
tuple has four numbers A, B, C, D, computed from its number r as products of sums with r in growing degree; an element
has four numbers a, b, c, d, computed from its position, the epoch, the seed and the call. They are combined in

    x = (A + a)(B + b) mod p        y = (C + c)(D + d) mod q        u = x / p + y / q mod 1

so that any two numbers differ in two factors of each product. The part that depends on the element alone is computed
once an epoch, the part that depends on the tuple alone once for all calls; combining them takes 22 operations.
"""

from __future__ import annotations

from dsl.binary32 import round32
from dsl.hdfg.dims import Shape
from dsl.hdfg.draw import draw
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import broadcast
from dsl.semantics.context import Context
from dsl.semantics.counting import given, row_number
from dsl.semantics.program import Operation
from dsl.source import Span

P, Q = 4093, 4091
"""Both factors of a product are below p in magnitude, and p² is below 2^24."""

ROUNDING = 1.5 * 2**23
"""A sum with it has no bits for fractions."""

BELOW_ONE = 1 - 2.0**-24

Four = tuple[Operation, Operation, Operation, Operation]


def random(context: Context, shape: Shape, seed: int, span: Span) -> Operation:
    """Record random numbers, and what they count with."""
    recorder = _Recorder(context, span)
    call = context.random_calls
    context.random_calls += 1
    tuple_ = recorder.of_tuple()
    element = recorder.of_element(shape, seed, call)
    value = recorder.uniform(tuple_, element, shape)
    # flat: a random number has no derivative by what chooses it
    context.program.derivatives[value.id] = ()
    return value


class _Recorder:
    def __init__(self, context: Context, span: Span) -> None:
        self._context = context
        self._program = context.program
        self._span = span

    def of_tuple(self) -> Four:
        """A, B, C, D; equal in all calls, so the compiler computes them once."""
        # seed 0 for all rules: calls and seeds differ in the element's part alone
        c = _whole_numbers("tuple", 0, 8)
        r = row_number(self._context, self._span)
        first, second = self._modulo(r, P), self._modulo(r, Q)
        a = self._product(first, c[0], second, c[1], P)
        b = self._product(first, c[2], a, c[3], P)
        third = self._product(second, c[4], a, c[5], Q)
        return a, b, third, self._product(b, c[6], third, c[7], Q)

    def of_element(self, shape: Shape, seed: int, call: int) -> Four:
        """a, b, c, d."""
        first, second = (self._modulo(self._place(shape), p) for p in (P, Q))
        s, t = self._of_epoch()
        c = _whole_numbers(f"call {call}", seed, 10)
        u = self._product(first, s, second, c[0], P)
        v = self._product(second, t, u, c[1], Q)
        a = self._product(u, c[2], v, c[3], P)
        third = self._product(v, c[4], a, c[5], Q)
        b = self._product(a, c[6], third, c[7], P)
        return a, b, third, self._product(third, c[8], b, c[9], Q)

    def _of_epoch(self) -> tuple[Operation, Operation]:
        """Two numbers, equal in all calls."""
        c = _whole_numbers("epoch", 0, 4)
        epoch = given(self._context, "epoch", self._span)
        first, second = self._modulo(epoch, P), self._modulo(epoch, Q)
        s = self._product(first, c[0], second, c[1], P)
        return s, self._product(second, c[2], s, c[3], Q)

    def uniform(self, one: Four, other: Four, shape: Shape) -> Operation:
        """u: x / p + y / q is between -1 and 1, below 0 by a half; rounding may make 1 of what is nearly so."""
        x = self._product(one[0], other[0], one[1], other[1], P)
        y = self._product(one[2], other[2], one[3], other[3], Q)
        # products with reciprocals: machines have few units that divide
        total = self._add(Op.ADD, self._add(Op.MUL, x, round32(1 / P)), self._add(Op.MUL, y, round32(1 / Q)))
        positive = self._add(Op.ADD, total, self._add(Op.LT, total, 0.0))
        value = self._add(Op.MIN, positive, BELOW_ONE)
        assert value.shape == shape
        return value

    def _place(self, shape: Shape) -> Operation:
        """The elements' numbers, in the order in which they are written."""
        place: Operation | None = None
        for axis, extent in enumerate(shape):
            along = self._program.arange(extent, self._span)
            for _ in shape[axis + 1 :]:
                along = self._program.expand(along, len(along.shape), self._span)
            if place is None:
                place = along
                continue
            # exact for values of up to 2**24 elements, which `_modulo` asks for
            place = self._add(Op.ADD, self._add(Op.MUL, place, self._program.constant(extent, self._span)), along)
        return self._program.constant(0, self._span) if place is None else place

    def _product(
        self, a: Operation, more_a: Operation | float, b: Operation, more_b: Operation | float, p: int
    ) -> Operation:
        return self._modulo(self._add(Op.MUL, self._add(Op.ADD, a, more_a), self._add(Op.ADD, b, more_b)), p)

    def _modulo(self, value: Operation, p: int) -> Operation:
        """Remainder of a whole number below 2^24, between -p / 2 and p / 2."""
        near = self._add(Op.MUL, value, round32(1 / p))
        # 1.5 * 2**23, so that the sum keeps its exponent for negative quotients, too
        quotient = self._add(Op.SUB, self._add(Op.ADD, near, ROUNDING), ROUNDING)
        # exact: the quotient is whole, and the product lies within p of the value
        return self._add(Op.SUB, value, self._add(Op.MUL, quotient, float(p)))

    def _add(self, op: Op, a: Operation, b: Operation | float) -> Operation:
        other = b if isinstance(b, Operation) else self._program.constant(b, self._span)
        return self._program.add(op, (a, other), broadcast(a.shape, other.shape), self._span)


def _whole_numbers(name: str, seed: int, count: int) -> list[float]:
    """Numbers between -2000 and 2000, drawn when the rule is compiled."""
    return [float(draw(name, seed, k) % 4001) - 2000 for k in range(count)]
