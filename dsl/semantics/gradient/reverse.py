"""Reverse mode: from a scalar back to what it is computed from, each operation once.

In: a scalar, and the values to differentiate by. Out: a polynomial for each value, which the caller computes.
Must not: report errors; `NoDerivative` says where there is no derivative.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dsl.hdfg.dims import Dim, Shape
from dsl.hdfg.ops import ELEMENTWISE, Op
from dsl.semantics.gradient.batches import Batching
from dsl.semantics.gradient.derivatives import factors
from dsl.semantics.gradient.polynomial import MAX_TERMS, ONE, Algebra, Polynomial
from dsl.semantics.program import Operation, Program


class NoDerivative(Exception):
    """A value cannot be differentiated.

    Parameters
    ----------
    at
        The operation that has no derivative, or the wanted value that none leads to.
    reason
        Why, for people.
    help
        What to write instead.
    """

    def __init__(self, at: Operation, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason
        self.help = help


def gradients(
    batching: Batching, value: Operation, wanted: Sequence[Operation], *, of_each: bool = False
) -> list[Polynomial]:
    """The derivatives of a scalar by values that it is computed from; where each is wanted it counts as free.

    If each tuple has the scalar, each tuple gets a part, and the sum of the parts over the batch is the derivative of
    the sum of the scalars: a merged value also receives the contributions of the other tuples' scalars. A scalar of
    the batch counts once, or once per tuple with `of_each`.

    Raises
    ------
    NoDerivative
        If an operation on the way has none, or no way leads to what is wanted.
    """
    algebra = batching.algebra
    targets = {algebra.first(one).id for one in wanted}
    leading = _leading(algebra, value, targets)
    asked: dict[int, Polynomial] = defaultdict(Polynomial)
    once = False
    if value.id in leading:
        # the scalar counts once for the batch, so that each tuple is asked for its share of 1
        once = value.of_batch and not of_each and any(algebra.program.operations[k].op is Op.MERGE for k in leading)
        asked[value.id] = algebra.atom(batching.share) if once else ONE
    # users before operands: what is asked of an operation is complete when its turn comes; operations added here lie
    # behind
    for operation in reversed([algebra.program.operations[one] for one in sorted(leading)]):
        if operation.id not in asked:
            continue  # only flat operations lead on from here
        # an equal of a target: what is asked of it is asked of the target
        if algebra.first(operation).id in targets and algebra.first(operation) is not operation:
            asked[algebra.first(operation).id] += asked.pop(operation.id)
            continue
        # a long sum is computed once, and not multiplied term by term with every factor on the way
        if len(asked[operation.id].terms) > MAX_TERMS:
            asked[operation.id] = algebra.atom(algebra.compute(asked[operation.id]))
        own = batching.mean(asked[operation.id]) if operation.of_batch else asked[operation.id]
        for operand, part in _parts(batching, operation, own, leading):
            if part.terms:
                asked[operand.id] += part
    for one in wanted:
        if algebra.first(one).id not in asked:
            raise _without_a_way(one, leading, algebra)
    found = [(one, asked[algebra.first(one).id]) for one in wanted]
    return [batching.whole(part) if once and not one.per_tuple else part for one, part in found]


def followed(program: Program, value: Operation) -> set[Operation]:
    """A value and what it is differentiated by: what stands below a flat value is not among it."""
    found: set[Operation] = set()
    waiting = [value]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            own = program.derivatives.get(operation.id)
            waiting.extend(operation.operands if own is None else [operand for operand, _ in own])
    return found


def filled(algebra: Algebra, value: Operation, shape: Shape) -> Operation:
    """A value repeated to a shape, where a derivative is the same along an axis."""
    if value.shape == shape:
        return value
    ones = algebra.number(1.0)
    for axis, extent in enumerate(shape):
        counting = algebra.program.arange(extent, algebra.span)
        present = algebra.add(Op.GE, counting, algebra.number(0.0))
        for _ in shape[axis + 1 :]:
            present = algebra.add(Op.EXPAND, present, axis=len(present.shape))
        ones = algebra.add(Op.MUL, ones, present)
    return algebra.add(Op.MUL, value, ones)


def _leading(algebra: Algebra, value: Operation, targets: set[int]) -> set[int]:
    """Ids of the operations under a value that are computed from a target, the targets among them."""
    above: set[int] = set()
    waiting = [value]
    while waiting:
        operation = waiting.pop()
        if operation.id not in above:
            above.add(operation.id)
            waiting.extend(operation.operands)
    leading: set[int] = set()
    # by id, so that operands are decided before their users
    for one in sorted(above):
        operation = algebra.program.operations[one]
        operands = (*operation.operands, *(operand for operand, _ in algebra.program.derivatives.get(one, ())))
        if algebra.first(operation).id in targets or any(operand.id in leading for operand in operands):
            leading.add(one)
    return leading


def _without_a_way(wanted: Operation, leading: set[int], algebra: Algebra) -> NoDerivative:
    operations = [algebra.program.operations[one] for one in sorted(leading)]
    # the first in the text is where the slope is lost
    flat = next((one for one in operations if all(not part.terms for _, part in _local(algebra, one))), None)
    if flat is None or flat is wanted:
        return NoDerivative(wanted, "it is not computed from this")
    return NoDerivative(flat, "only flat operations lead from one to the other", "a comparison has no slope")


def _local(algebra: Algebra, operation: Operation) -> tuple[tuple[Operation, Polynomial], ...]:
    if operation.op in ELEMENTWISE or operation.id in algebra.program.derivatives:
        return factors(algebra, operation)
    # a leaf leads to itself, so that it does not count as flat
    return tuple((operand, ONE) for operand in operation.operands) or ((operation, ONE),)


def _parts(
    batching: Batching, operation: Operation, asked: Polynomial, leading: set[int]
) -> list[tuple[Operation, Polynomial]]:
    """The gradient of each operand that leads to a target."""
    algebra = batching.algebra
    if operation.op in ELEMENTWISE or operation.id in algebra.program.derivatives:
        return [
            (operand, _summed(algebra, algebra.product(asked, factor), operation.shape, operand.shape))
            for operand, factor in factors(algebra, operation)
            if operand.id in leading and factor.terms
        ]
    operand = operation.operands[0] if operation.operands else operation
    if operand.id not in leading:
        return []
    match operation.op:
        case Op.SIGMA:
            return [(operand, _expanded(algebra, asked, operation))]
        case Op.PI:
            return [(operand, algebra.product(_expanded(algebra, asked, operation), _others(algebra, operation)))]
        case Op.AMAX:
            return [(operand, algebra.product(_expanded(algebra, asked, operation), _share(algebra, operation)))]
        case Op.EXPAND:
            return [(operand, _squeezed(algebra, asked, operation))]
        case Op.ELEMENT:
            found = algebra.product(_expanded(algebra, asked, operation), _one_hot(algebra, operation))
            return [(operand, found)]
        case Op.GATHER:
            return [(operand, _one_row(algebra, asked, operation))]
        case Op.MERGE:
            return [(operand, batching.merged(operation, asked))]
    return []


def _axis(operation: Operation) -> int:
    assert operation.axis is not None
    return operation.axis


def _expanded(algebra: Algebra, asked: Polynomial, operation: Operation) -> Polynomial:
    """The gradient of a reduction's result, repeated along the reduced axis."""
    rank, axis = len(operation.operands[0].shape), _axis(operation)
    if all(rank - 1 - len(algebra.program.operations[one].shape) >= axis for one in asked.factors):
        return asked  # what has no axis in front of it is repeated by itself
    value = algebra.compute(asked)
    # of the value's own axes, since leading ones may be missing from it
    place = axis - (rank - 1 - len(value.shape))
    return algebra.atom(algebra.add(Op.EXPAND, value, axis=place) if place > 0 else value)


def _squeezed(algebra: Algebra, asked: Polynomial, operation: Operation) -> Polynomial:
    """The gradient of an expanded value, without the new axis."""
    return _dropped(algebra, asked, _axis(operation) - len(operation.shape))


def _dropped(algebra: Algebra, polynomial: Polynomial, place: int) -> Polynomial:
    """A polynomial without an axis of one element, counted from the end."""
    return Polynomial.of(
        (tuple(sorted(_drop(algebra, one, place).id for one in product)), number)
        for product, number in polynomial.terms
    )


def _drop(algebra: Algebra, factor: int, place: int) -> Operation:
    """An operation's value without an axis of one element, counted from the end (-1 is the last)."""
    operation = algebra.program.operations[factor]
    axis = len(operation.shape) + place
    # the factor lacks the axis: it is broadcast along it
    if axis < 0:
        return operation
    if operation.op is Op.EXPAND and operation.axis == axis:
        return algebra.first(operation.operands[0])
    # a sum of one element is that element, bit for bit
    return algebra.add(Op.SIGMA, operation, axis=axis)


def _summed(algebra: Algebra, asked: Polynomial, whole: Shape, wanted: Shape) -> Polynomial:
    """The gradient of a value that was broadcast: the sum over the broadcast axes."""
    # counted from the end, where broadcasting aligns axes
    for place in range(-len(whole), 0):
        own = wanted[place] if -place <= len(wanted) else None
        if own is None or (own == 1 and whole[place] != 1):
            asked = _sum_along(algebra, asked, place, whole[place], keep=own is not None)
    return asked


def _sum_along(algebra: Algebra, asked: Polynomial, place: int, extent: Dim, *, keep: bool) -> Polynomial:
    """The sum along an axis counted from the end; `keep` leaves it there with one element."""

    def along(factor: int) -> bool:
        shape = algebra.program.operations[factor].shape
        return -place <= len(shape) and shape[place] != 1

    outside = {tuple(one for one in product if not along(one)) for product, _ in asked.terms}
    if len(outside) == 1:  # factors that are the same along the axis are taken out of the sum
        common = next(iter(outside))
        inside = Polynomial.of((tuple(one for one in product if along(one)), n) for product, n in asked.terms)
    elif not any(along(one) for one in asked.factors):
        same = asked if keep else _dropped(algebra, asked, place)
        return algebra.product(same, _count(algebra, extent))
    else:
        common, inside = (), asked
    if not keep:
        common = tuple(_drop(algebra, one, place).id for one in common)
    # the same along the axis: the sum is a multiple, which saves a reduction
    if all(not product for product, _ in inside.terms):
        total = algebra.product(inside, _count(algebra, extent))
    elif _counts_a_class(algebra, inside):
        # labels outside of the classes are errors before a training (`dana.trainer.data.classes`)
        total = ONE.scaled(inside.terms[0][1])
    else:
        # so is the number that all terms share: as a factor of the elements it would be an operation for each
        shared, number, rest = algebra.split(inside)
        value = algebra.compute(algebra.product(rest, Polynomial(((shared, 1.0),))))
        result = algebra.add(Op.SIGMA, value, axis=len(value.shape) + place)
        if keep and len(value.shape) > -place:
            result = algebra.add(Op.EXPAND, result, axis=len(value.shape) + place)
        total = algebra.atom(result).scaled(number)
    return algebra.product(total, Polynomial(((common, 1.0),)))


def _count(algebra: Algebra, extent: Dim) -> Polynomial:
    """The number of elements along an axis."""
    if isinstance(extent, int):
        return ONE.scaled(extent)
    return algebra.atom(algebra.program.constant(extent, algebra.span))


def _counts_a_class(algebra: Algebra, polynomial: Polynomial) -> bool:
    """Whether a polynomial is a number times the one-hot vector of the rule's class, which sums to 1."""
    if len(polynomial.terms) != 1 or len(polynomial.terms[0][0]) != 1:
        return False
    operation = algebra.program.operations[polynomial.terms[0][0][0]]
    kinds = {operand.op for operand in operation.operands}
    if operation.op is not Op.EQ or kinds != {Op.ARANGE, Op.OUTPUT}:
        return False
    counting, label = sorted(operation.operands, key=lambda one: one.op is Op.OUTPUT)
    return label.classes is not None and counting.shape == (label.classes,)


def _others(algebra: Algebra, operation: Operation) -> Polynomial:
    """For each element of a product along an axis, the product of the others, right where elements are 0."""
    value, axis = operation.operands[0], _axis(operation)
    zero, one = algebra.number(0.0), algebra.number(1.0)
    is_zero = algebra.add(Op.EQ, value, zero)
    others = algebra.add(Op.WHERE, is_zero, one, value)
    total = algebra.add(Op.EXPAND, algebra.add(Op.PI, others, axis=axis), axis=axis)
    zeros = algebra.add(Op.EXPAND, algebra.add(Op.SIGMA, is_zero, axis=axis), axis=axis)
    alone = algebra.add(Op.EQ, zeros, is_zero)  # no element is 0, or this one alone
    return algebra.atom(algebra.add(Op.WHERE, alone, algebra.add(Op.DIV, total, others), zero))


def _share(algebra: Algebra, operation: Operation) -> Polynomial:
    """For each element along an axis, 1 if it is the largest; equal ones share it."""
    value, axis = operation.operands[0], _axis(operation)
    is_top = algebra.add(Op.EQ, value, algebra.add(Op.EXPAND, operation, axis=axis))
    count = algebra.add(Op.EXPAND, algebra.add(Op.SIGMA, is_top, axis=axis), axis=axis)
    return algebra.atom(algebra.add(Op.DIV, is_top, count))


def _one_row(algebra: Algebra, asked: Polynomial, operation: Operation) -> Polynomial:
    """The gradient of a model that is read at a fixed row: 0 in all other rows."""
    model, index = operation.operands
    if index.op is not Op.CONST:
        raise NoDerivative(
            operation,
            "the row is chosen by each tuple",
            f"take the gradient by the row: dana.gradient(loss, {model.name}[{index.name or '…'}])",
        )
    return algebra.product(asked, _one_hot(algebra, operation))


def _one_hot(algebra: Algebra, operation: Operation) -> Polynomial:
    """1 at the fixed row or element that is selected, 0 elsewhere."""
    (value, position), axis = operation.operands, operation.axis or 0
    chosen = algebra.add(Op.EQ, algebra.program.arange(value.shape[axis], algebra.span), position)
    for _ in value.shape[axis + 1 :]:
        chosen = algebra.add(Op.EXPAND, chosen, axis=len(chosen.shape))
    return algebra.atom(chosen)
