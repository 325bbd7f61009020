"""How far two evaluations of a predictor may be apart, whoever adds in which order.

In: a program, weights and rows. Out: predictions in binary64 with a bound on what any evaluation in binary32 may be off
(running error analysis, as in `tests.oracles.running_error`): sums and products in any order, functions within 4 units
in the last place, the logistic function within 2**-21. It addresses memory by the program's strides itself, as C does.
"""

from __future__ import annotations

import numpy as np

from dana.predictor.program import Instruction, Operand, Program
from dsl.hdfg.ops import COMPARISONS, UNARY, Op
from tests.oracles import running_error as real
from tests.oracles.functions import FUNCTIONS
from tests.oracles.running_error import ULP, UNIT, Bounded, Doubles

MORE_ULPS = 2.0  # of a function, beyond those of our own
CHOSEN = {Op.MIN: np.minimum, Op.MAX: np.maximum}


def predictions(program: Program, weights: Doubles, rows: Doubles) -> Bounded:
    """One for each row."""
    count = len(rows)
    constants = np.array(program.constants, dtype=np.float64)
    fixed = np.broadcast_to(np.concatenate([weights, constants]), (count, weights.size + constants.size))
    start = np.concatenate([rows, fixed], axis=1)
    end = max([one.out + int(np.prod(one.extents)) for one in program.instructions], default=0)
    memory = Bounded(*(np.zeros((count, max(end, start.shape[1]))) for _ in range(2)))
    memory.value[:, : start.shape[1]] = real.exact(start).value
    largest: set[tuple[Operand, Operand]] = set()
    """Vectors with their largest elements."""
    with np.errstate(all="ignore"):
        for instruction in program.instructions:
            result = _result(instruction, memory)
            if instruction.code is Op.EQ and instruction.operands[:2] in largest:
                result = Bounded(result.value, np.where(_told_apart(instruction, memory), 0.0, result.error))
            if instruction.code is Op.AMAX and result.value[0].size == 1:
                whole = instruction.operands[0]
                top = Operand(start=instruction.out, strides=(0, 0, 0))
                largest.add((Operand(start=whole.start, strides=(0, 0, 1)), top))
            flat = [part.reshape(count, -1) for part in result]
            for part, new in zip(memory, flat, strict=True):
                part[:, instruction.out : instruction.out + new.shape[1]] = new
    last = program.result + program.width
    kept = program.result if program.width == 1 else slice(program.result, last)
    return Bounded(*(part[:, kept] for part in memory))


def _told_apart(instruction: Instruction, memory: Bounded) -> Doubles:
    """Whether each element of a vector surely is its largest, or surely is not."""
    a = _at(memory, _addresses(instruction.operands[0], instruction.extents))
    low, high = a.value - a.error, a.value + a.error
    second = np.sort(high, axis=-1)[..., -2:-1] if high.shape[-1] > 1 else np.full_like(high, -np.inf)
    return np.asarray((low > second) | (high < np.max(low, axis=-1, keepdims=True)))


def _addresses(operand: Operand, extents: tuple[int, int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    x, y, z = np.indices(extents)
    a, b, c = operand.strides
    return np.asarray(operand.start + x * a + y * b + z * c)


def _at(memory: Bounded, addresses: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Bounded:
    return Bounded(*(part[:, addresses] for part in memory))


def _result(instruction: Instruction, memory: Bounded) -> Bounded:
    code, extents = instruction.code, instruction.extents
    first, second, third = instruction.operands
    if code is Op.GATHER:
        row = _at(memory, np.array([second.start])).value.astype(int)
        address = first.start + row * first.strides[0] + np.arange(extents[2]) * first.strides[2]
        return Bounded(*(np.take_along_axis(part, address, axis=1) for part in memory))
    a = _at(memory, _addresses(first, extents))
    if code is Op.SIGMA:
        size = np.sum(np.abs(a.value) + a.error, axis=2)
        inherited = np.sum(a.error, axis=2)
        return Bounded(np.sum(a.value, axis=2), inherited + 1.01 * UNIT * extents[1] * size)
    if code is Op.AMAX:
        return Bounded(np.max(a.value, axis=2), np.max(a.error, axis=2))
    if code is Op.PI:
        value, size = np.prod(a.value, axis=2), np.prod(np.abs(a.value) + a.error, axis=2)
        return Bounded(value, size - np.abs(value) + 1.01 * UNIT * extents[1] * size + real.TINY * extents[1])
    operation = real.OPERATIONS[code]
    if code is Op.WHERE:
        return operation(a, _at(memory, _addresses(second, extents)), _at(memory, _addresses(third, extents)))
    if code in UNARY:
        made = operation(a)
        if code not in FUNCTIONS:
            return made
        more = FUNCTIONS[code].others
        return Bounded(
            made.value, made.error + (MORE_ULPS * ULP * (np.abs(made.value) + made.error) if more is None else more)
        )
    b = _at(memory, _addresses(second, extents))
    made = operation(a, b)
    if code in CHOSEN:  # what is surely not chosen adds no error
        choose = CHOSEN[code]
        low, high = choose(a.value - a.error, b.value - b.error), choose(a.value + a.error, b.value + b.error)
        made = Bounded(made.value, np.minimum(made.error, np.maximum(high - made.value, made.value - low)))
    if code in (Op.ADD, Op.SUB):  # nothing is rounded in a sum of whole numbers
        whole = (a.error == 0) & (b.error == 0) & (np.rint(a.value) == a.value) & (np.rint(b.value) == b.value)
        made = Bounded(made.value, np.where(whole & (np.abs(made.value) <= 2**24), 0.0, made.error))
    if code is Op.MUL:  # nothing is rounded in a product with 0 or 1
        for one, other in ((a, b), (b, a)):
            known = (one.error == 0) & ((one.value == 0) | (one.value == 1)) & np.isfinite(other.value + other.error)
            made = Bounded(made.value, np.where(known, one.value * other.error, made.error))
    if code in COMPARISONS:  # of a number with itself nothing is in doubt
        same = _addresses(first, extents) == _addresses(second, extents)
        return Bounded(made.value, np.where(same, 0.0, made.error))
    return made
