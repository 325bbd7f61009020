"""Derivatives while they are being put together: sums of products of operations.

In: operations of a program. Out: polynomials over them, and operations that compute a polynomial in few
steps: what cancels is gone (of log loss and a sigmoid `p - y` stays), numbers are multiplied beforehand, factors are
taken out of sums, and what the program computes already is not computed again. Must not: know derivatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dsl.binary32 import bits_of
from dsl.hdfg.dims import Shape
from dsl.hdfg.ops import COMMUTATIVE, LEAVES, Op
from dsl.hdfg.shapes import broadcast, result_shape
from dsl.semantics.program import Operation, Program
from dsl.source import Span

MAX_TERMS = 8
"""A sum of more is computed before it is multiplied further."""

Product = tuple[int, ...]
"""Ids of the operations that are multiplied, in order."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products of operations, each with a number; of no terms it is 0."""

    terms: tuple[tuple[Product, float], ...] = ()

    @classmethod
    def of(cls, terms: Iterable[tuple[Product, float]]) -> Polynomial:
        """The sum of terms: equal products joined, those with 0 dropped."""
        total: dict[Product, float] = {}
        for product, number in terms:
            # in binary64; it is rounded when a constant is recorded
            total[product] = total.get(product, 0.0) + number
        return cls(tuple((product, number) for product, number in total.items() if number != 0))

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of((*self.terms, *other.terms))

    def scaled(self, number: float) -> Polynomial:
        """The polynomial times a number."""
        return Polynomial(tuple((product, number * own) for product, own in self.terms))

    @property
    def factors(self) -> set[int]:
        """Ids of the operations in it."""
        return {factor for product, _ in self.terms for factor in product}


ONE = Polynomial((((), 1.0),))


class Algebra:
    """Polynomials over the operations of one program.

    Parameters
    ----------
    program
        The program of the operations; new operations are added to it.
    span
        The text that new operations come from.
    """

    def __init__(self, program: Program, span: Span) -> None:
        self.program = program
        self.span = span
        self._known: dict[tuple[object, ...], Operation] = {}
        self._first: list[int] = []

    # operations

    def first(self, operation: Operation) -> Operation:
        """The first operation of the program that computes the same value."""
        # others add operations between two calls
        operations = self.program.operations
        while len(self._first) < len(operations):
            new = operations[len(self._first)]
            known = self._known.setdefault(self._key(new.op, new.operands, new.axis, new), new)
            self._first.append(known.id)
        return operations[self._first[operation.id]]

    def _key(
        self, op: Op, operands: Iterable[Operation], axis: int | None, leaf: Operation | None
    ) -> tuple[object, ...]:
        own = None if leaf is None else self.program.derivatives.get(leaf.id)
        # gradients pass through it in a way of its own, so that an equal operation cannot stand for it
        if leaf is not None and (op is Op.MERGE or own):
            return (leaf.id,)
        if leaf is not None and op in LEAVES:
            if op is Op.CONST and leaf.extent is None:
                # bits, since 0.0 == -0.0
                return op, bits_of(0.0 if leaf.value is None else leaf.value)
            return (op, leaf.extent) if op is Op.CONST else (op, leaf.shape) if op is Op.ARANGE else (leaf.id,)
        ids = [self._first[operand.id] for operand in operands]
        return op, *(sorted(ids) if op in COMMUTATIVE else ids), axis, own

    def add(self, op: Op, *operands: Operation, axis: int | None = None) -> Operation:
        """An operation on others, recorded unless the program has it already."""
        operands = tuple(self.first(operand) for operand in operands)
        # without a derivative of its own: an equal operation that has one is another
        known = self._known.get(self._key(op, operands, axis, None))
        if known is not None:
            return known
        shape = result_shape(op, [operand.shape for operand in operands], axis)
        return self.first(self.program.add(op, operands, shape, self.span, axis=axis))

    def number(self, number: float) -> Operation:
        """A number."""
        return self.first(self.program.constant(number, self.span))

    # polynomials

    def atom(self, operation: Operation) -> Polynomial:
        """A polynomial that is an operation's value."""
        return Polynomial((((self.first(operation).id,), 1.0),))

    def polynomial(self, operation: Operation) -> Polynomial:
        """An operation's value; what may cancel or join with other factors is opened: numbers, signs, `1 - y`."""
        left, *others = operation.operands or (operation,)
        right = others[0] if others else left
        match operation.op:
            case Op.CONST if operation.value is not None:
                return ONE.scaled(operation.value) if operation.value else Polynomial()
            case Op.NEG:
                return self.polynomial(left).scaled(-1)
            case Op.MUL if _is_number(left) or _is_number(right):
                number, value = (left, right) if _is_number(left) else (right, left)
                # no term may have the number 0, by which `split` would divide
                return self.polynomial(value).scaled(number.value or 0.0) if number.value else self.atom(operation)
            case (Op.ADD | Op.SUB) as op if _is_number(left) or _is_number(right):
                return self.polynomial(left) + self.polynomial(right).scaled(1 if op is Op.ADD else -1)
        return self.atom(operation)

    def product(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """Two polynomials multiplied; a sum that would make the other longer stays one factor."""
        result = Polynomial.of(
            # sorted, so that equal products are equal keys
            (tuple(sorted((*one, *other))), number * times)
            for one, number in left.terms
            for other, times in right.terms
        )
        # multiplied out only where terms cancel or join, else sums of sums grow exponentially
        if len(result.terms) <= max(len(left.terms), len(right.terms)) <= MAX_TERMS:
            return result
        short, long = sorted((left, right), key=lambda one: len(one.terms))
        if len(long.terms) > MAX_TERMS or len(short.terms) == 1:
            return self.product(short, self.atom(self.compute(long)))
        return self.product(long, self.atom(self.compute(short)))

    def shape(self, polynomial: Polynomial) -> Shape:
        """The shape that its value has by itself."""
        shape: Shape = ()
        for factor in sorted(polynomial.factors):
            shape = broadcast(shape, self.program.operations[factor].shape)
        return shape

    def compute(self, polynomial: Polynomial) -> Operation:
        """An operation that computes a polynomial."""
        if not polynomial.terms:
            return self.number(0.0)
        common, number, rest = self.split(polynomial)
        if len(rest.terms) == 1:
            return self._multiply(common, number)
        total = self._sum(rest)
        return self._multiply((*common, total.id), number)

    def split(self, polynomial: Polynomial) -> tuple[Product, float, Polynomial]:
        """The factors and the number that all terms share, and what is left of the terms."""
        shared = Counter(polynomial.terms[0][0])
        for product, _ in polynomial.terms[1:]:
            shared &= Counter(product)
        numbers = [number for _, number in polynomial.terms]
        # of one magnitude: then own / number is 1 or -1, which rounds nothing
        number = numbers[0] if all(abs(one) == abs(numbers[0]) for one in numbers) else 1.0
        # at least one term is added, so that no sum begins with a negation
        if any(one > 0 for one in numbers):
            number = abs(number)
        rest = tuple((_without(product, shared), own / number) for product, own in polynomial.terms)
        return tuple(sorted(shared.elements())), number, Polynomial(rest)

    def _sum(self, polynomial: Polynomial) -> Operation:
        """Terms that share no factor: the factor that most of them have is taken out; the rest is added in pairs."""
        counts = Counter(factor for product, _ in polynomial.terms for factor in set(product))
        # of equal counts the smallest id: the result must not depend on the order of a set
        factor, most = max(counts.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if most > 1 and len(polynomial.terms) > 2:
            inside = Polynomial(tuple(term for term in polynomial.terms if factor in term[0]))
            outside = Polynomial(tuple(term for term in polynomial.terms if factor not in term[0]))
            return self.add(Op.ADD, self.compute(outside), self.compute(inside))
        adding = [self._multiply(product, number) for product, number in polynomial.terms if number > 0]
        taking = [self._multiply(product, -number) for product, number in polynomial.terms if number < 0]
        if not taking:
            return self._add_all(adding)
        if not adding:  # a number was not shared
            return self.add(Op.NEG, self._add_all(taking))
        return self.add(Op.SUB, self._add_all(adding), self._add_all(taking))

    def _add_all(self, values: list[Operation]) -> Operation:
        """Their sum, in pairs, so that no chain is longer than it has to be."""
        while len(values) > 1:
            paired = [self.add(Op.ADD, *pair) for pair in zip(values[::2], values[1::2], strict=False)]
            # an odd one at the end goes on alone
            values = paired + values[len(values) & ~1 :]
        return values[0]

    def _multiply(self, product: Product, number: float) -> Operation:
        """The factors' product, those of few axes first, which have the fewest elements."""
        # scalars first: their product is computed once, not for each element
        factors = sorted((self.program.operations[factor] for factor in product), key=lambda one: (_size(one), one.id))
        if not factors:
            return self.number(number)
        if number not in (1.0, -1.0):
            factors.insert(0, self.number(number))
        value = factors[0]
        if number == -1 and len(factors) == 1:
            return self.add(Op.NEG, value)
        if number == -1:
            value = self.add(Op.NEG, value)
        for factor in factors[1:]:
            value = self.add(Op.MUL, value, factor)
        return value


def _is_number(operation: Operation) -> bool:
    return operation.op is Op.CONST and operation.value is not None


def _size(operation: Operation) -> tuple[int, int]:
    axes = [extent for extent in operation.shape if extent != 1]
    return len(axes), len(operation.shape)


def _without(product: Product, shared: Counter[int]) -> Product:
    left = Counter(product) - shared
    return tuple(sorted(left.elements()))
