"""Values while a rule trains, where `dana.training` is 1, and elsewhere, where it is 0.

In: operations of a program. Out: their equivalents in one phase, recorded where they differ; a `dana.where` with a
condition that is a number in that phase becomes the chosen side. Must not: report errors, nor record what no phase
needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsl.hdfg.graph import LEAVES, Op
from dsl.semantics import arithmetic
from dsl.semantics.gradient import Algebra, filled
from dsl.semantics.program import Operation, Program, Terms
from dsl.semantics.values import OPERATORS

SIGNS = {op: sign for sign, op in OPERATORS.items()}


def in_phase(program: Program, operation: Operation, training: bool) -> Operation:
    """Return what computes a value while a rule trains, or elsewhere; itself where it is the same in both."""
    # indexed by a bool: elsewhere 0, training 1
    known = program.phases[training]
    waiting = [operation]
    # a stack, not recursion, as chains of an unrolled rule are longer than Python's limit
    while waiting:
        one = waiting[-1]
        missing = (
            [] if _known(one, known) else [part for part in _needed(program, one, known) if not _known(part, known)]
        )
        waiting += missing
        if missing:
            continue
        waiting.pop()
        # an operation that two users wait for is in the stack twice
        if not _known(one, known):
            made = known[one.id] = _made(program, one, known, training)
            if one.id in program.names:
                program.name(made, program.names[one.id])
    return _get(operation, known)


def _known(operation: Operation, known: dict[int, Operation]) -> bool:
    return not operation.on_training or operation.id in known


def _get(operation: Operation, known: dict[int, Operation]) -> Operation:
    return known[operation.id] if operation.on_training else operation


def _needed(program: Program, operation: Operation, known: dict[int, Operation]) -> Iterator[Operation]:
    """Operands of an operation and its derivative; for a decided choice, only the chosen side."""
    # the condition first: a side that is not chosen must not be recorded, since it may not exist in this phase
    if operation.op is Op.WHERE and not _known(operation.operands[0], known):
        yield operation.operands[0]
        return
    chosen = _chosen(operation, known)
    if chosen is not None:
        yield chosen
        return
    yield from operation.operands
    for by, terms in program.derivatives.get(operation.id, ()):
        yield by
        yield from (factor for product, _ in terms for factor in product)


def _chosen(operation: Operation, known: dict[int, Operation]) -> Operation | None:
    """The chosen side of a `dana.where`, if its condition is a number."""
    if operation.op is not Op.WHERE:
        return None
    condition = _get(operation.operands[0], known)
    if condition.op is not Op.CONST or condition.value is None:
        return None
    # a NaN holds, as in WHERE: it is true in Python, too
    return operation.operands[1 if condition.value else 2]


def _made(program: Program, operation: Operation, known: dict[int, Operation], training: bool) -> Operation:
    if operation.op is Op.TRAINING:
        return program.constant(float(training), operation.span)
    chosen = _chosen(operation, known)
    if chosen is not None:
        # the side may be smaller than the choice, which was broadcast
        value = filled(Algebra(program, operation.span), _get(chosen, known), operation.shape)
        return program.stopped(value, operation.span) if operation.id in program.derivatives else value
    operands = [_get(operand, known) for operand in operation.operands]
    number = _number(operation.op, operands)
    if number is not None:
        return program.constant(number, operation.span)
    made = program.add(
        operation.op, operands, operation.shape, operation.span, axis=operation.axis, merge_op=operation.merge_op
    )
    own = program.derivatives.get(operation.id)
    if own is not None:
        program.derivatives[made.id] = tuple((_get(by, known), _terms(terms, known)) for by, terms in own)
    if operation.id in program.divisors:
        program.divisors[made.id] = program.divisors[operation.id]
    return made


def _terms(terms: Terms, known: dict[int, Operation]) -> Terms:
    return tuple((tuple(_get(factor, known) for factor in product), number) for product, number in terms)


def _number(op: Op, operands: list[Operation]) -> float | None:
    """Result of an operator of the language on numbers; None for other operations."""
    numbers = [one.value for one in operands if one.op is Op.CONST and one.value is not None]
    if len(numbers) < len(operands) or op in LEAVES:
        return None
    if op is Op.NEG:
        return -numbers[0]
    result = arithmetic.compute(SIGNS[op], *numbers) if op in SIGNS else None
    return result if isinstance(result, float) else None
