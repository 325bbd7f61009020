"""Derivatives through merges: from a value of the batch back to the values of its tuples that it was made of.

In: what a batch's tuples ask of a value that they share, and merges. Out: polynomials. Must not: know other
operations.

What is asked of a value is each tuple's part of it: the sum over the batch is the whole. A value of the batch is asked
the same by each tuple, so that its part is the mean of theirs; and of a sum over the batch, the batch's tuples times as
much is asked of each value that is added. The two cancel: `Batching.share` is 1 / the tuples of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dsl.hdfg.ops import Op
from dsl.semantics.gradient.polynomial import Algebra, Polynomial
from dsl.semantics.program import Operation


@dataclass
class Batching:
    """The batch of a rule, for derivatives.

    Parameters
    ----------
    algebra
        Of the program that the values belong to.
    counted
        Records 1 / the tuples of a batch.
    """

    algebra: Algebra
    counted: Callable[[], Operation]

    @cached_property
    def share(self) -> Operation:
        """1 / the tuples of a batch."""
        return self.algebra.first(self.counted())

    def split(self, polynomial: Polynomial) -> tuple[Polynomial, Polynomial]:
        """The terms that differ from tuple to tuple, and the others."""
        operations = self.algebra.program.operations
        each = [term for term in polynomial.terms if any(operations[factor].per_tuple for factor in term[0])]
        return Polynomial(tuple(each)), Polynomial(tuple(term for term in polynomial.terms if term not in each))

    def joined(self, each: Polynomial, join: Callable[[Operation], Operation]) -> Polynomial:
        """Merge the per-tuple part into one value of the batch; factors equal for all tuples stay outside the merge."""
        if not each.terms:
            return each
        operations = self.algebra.program.operations
        common, number, inside = self.algebra.split(each)
        outside = tuple(factor for factor in common if not operations[factor].per_tuple)
        kept = tuple(factor for factor in common if operations[factor].per_tuple)
        value = self.algebra.compute(self.algebra.product(inside, Polynomial(((kept, 1.0),))))
        return self.algebra.product(self.algebra.atom(join(value)), Polynomial(((outside, number),)))

    def total(self, each: Polynomial) -> Polynomial:
        """The sum over the batch of what differs from tuple to tuple."""
        return self.joined(each, lambda value: self._merged(value, "add"))

    def whole(self, parts: Polynomial) -> Polynomial:
        """The sum of what all tuples ask."""
        each, rest = self.split(parts)
        return self.total(each) + self.times_tuples(rest)

    def mean(self, asked: Polynomial) -> Polynomial:
        """The gradient, per tuple, of a value that all tuples share."""
        each, rest = self.split(asked)
        if not each.terms:
            return rest
        return self.algebra.product(self.total(each), self.algebra.atom(self.share)) + rest

    def times_tuples(self, polynomial: Polynomial) -> Polynomial:
        """A polynomial without a factor `share` in each term; times the tuples of the batch where it has none."""
        share, result = self.share, Polynomial()
        for product, number in polynomial.terms:
            # cancelled rather than computed: in binary32 N * (1/N) is not always 1
            if share.id in product:
                at = product.index(share.id)
                result += Polynomial((((*product[:at], *product[at + 1 :]), number),))
            else:
                tuples = self.algebra.atom(share.operands[1])
                result += self.algebra.product(Polynomial(((product, number),)), tuples)
        return result

    def merged(self, operation: Operation, asked: Polynomial) -> Polynomial:
        """The gradient of each merged value; equal maxima or minima share it equally."""
        algebra, asked, value = self.algebra, self.times_tuples(asked), operation.operands[0]
        match operation.merge_op:
            case "add":
                return asked
            case "mul":
                return algebra.product(asked, self._others(value))
        chosen = algebra.add(Op.EQ, value, operation)
        # ties share the derivative equally, so that its sum over the batch is that of one tuple
        share = algebra.add(Op.DIV, chosen, self._merged(chosen, "add"))
        return algebra.product(asked, algebra.atom(share))

    def _others(self, value: Operation) -> Polynomial:
        """For each tuple, the product of the other tuples' values, right where values are 0."""
        algebra, zero, one = self.algebra, self.algebra.number(0.0), self.algebra.number(1.0)
        is_zero = algebra.add(Op.EQ, value, zero)
        others = algebra.add(Op.WHERE, is_zero, one, value)
        total, zeros = self._merged(others, "mul"), self._merged(is_zero, "add")
        alone = algebra.add(Op.EQ, zeros, is_zero)  # no tuple's value is 0, or this one's alone
        return algebra.atom(algebra.add(Op.WHERE, alone, algebra.add(Op.DIV, total, others), zero))

    def _merged(self, value: Operation, op: str) -> Operation:
        program = self.algebra.program
        return program.add(Op.MERGE, (value,), value.shape, self.algebra.span, merge_op=op)
