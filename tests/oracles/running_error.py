"""A second reading of a graph: real arithmetic, and how far binary32 may be from it.

In: a bound graph and columns. Out: each model and loss as a binary64 number with a bound on the distance to
what the interpreter may give. The bound is derived, not guessed (running error analysis, Wilkinson 1963; Higham,
Accuracy and Stability, 3.3): each operation adds half a unit in the last place of its own result, or the documented
error of its function, to what its operands' errors become. Where binary32 may overflow, divide by zero or take the
other side of a comparison, the bound is infinite or covers both sides. Shares no code with the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsl.hdfg.graph import Graph, Node, Op, Region, Update
from tests.oracles.exact import EXACT, Exact
from tests.oracles.functions import FUNCTIONS

Doubles = npt.NDArray[np.float64]

UNIT = 2.0**-24  # half a unit in the last place, relative: one rounding to nearest
ULP = 2.0**-23
TINY = 2.0**-126  # what flushing may take away
LARGEST = 2.0**127
DOUBLE = 2.0**-50  # what our own arithmetic may be off, generously


class Bounded(NamedTuple):
    """Numbers, and how far binary32 may be from each."""

    value: Doubles
    error: Doubles


def exact(values: npt.ArrayLike) -> Bounded:
    """Numbers that binary32 holds; subnormals are flushed as they are read."""
    value = np.asarray(values, dtype=np.float64)
    value = np.where(np.abs(value) < TINY, 0.0, value)
    return Bounded(value, np.zeros_like(value))


def rounded(value: Doubles, inherited: Doubles, *, relative: float = UNIT, absolute: float = 0.0) -> Bounded:
    """A result whose operands' errors make `inherited`, after its own rounding."""
    size = np.abs(value) + inherited
    error = inherited + size * (relative + DOUBLE) + absolute + TINY
    error = np.where(np.isfinite(value) & (size < LARGEST), error, np.inf)
    return Bounded(np.asarray(value), np.asarray(np.where(np.isnan(error), np.inf, error)))


def add(a: Bounded, b: Bounded) -> Bounded:
    return rounded(a.value + b.value, a.error + b.error)


def mul(a: Bounded, b: Bounded) -> Bounded:
    inherited = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    return rounded(a.value * b.value, inherited)


def div(a: Bounded, b: Bounded) -> Bounded:
    value = a.value / b.value
    room = np.abs(b.value) - b.error
    inherited = (a.error + np.abs(value) * b.error) / room
    return rounded(value, np.where(room > 0, inherited, np.inf))


def neg(a: Bounded) -> Bounded:
    return Bounded(-a.value, a.error)


def sqrt(a: Bounded) -> Bounded:
    value = np.sqrt(a.value)
    lowest = a.value - a.error
    inherited = np.where(a.error > 0, a.error / (value + np.sqrt(np.maximum(lowest, 0))), 0.0)
    return rounded(value, np.where((lowest >= 0) | (a.error == 0), inherited, np.inf))


def bfloat16(a: Bounded) -> Bounded:
    return rounded(a.value, a.error, relative=2.0**-8)


def of_function(name: str) -> Callable[[Bounded], Bounded]:
    """What is claimed of it, and what its slope makes of its operand's error."""
    function = FUNCTIONS[name]

    def bounded(a: Bounded) -> Bounded:
        value = np.asarray(function.exact(a.value))
        inherited = INHERITED[name](a, value) if name in INHERITED else function.steepest * a.error
        if function.absolute:
            return rounded(value, inherited, relative=0.0, absolute=function.error)
        return rounded(value, inherited, relative=function.error * ULP)

    return bounded


def inherited_of_log(a: Bounded, value: Doubles) -> Doubles:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(a.value > a.error, -np.log1p(-a.error / a.value), np.inf))


INHERITED: dict[str, Callable[[Bounded, Doubles], Doubles]] = {
    "exp": lambda a, value: value * np.expm1(a.error),
    "log": inherited_of_log,
}
"""Of functions without a largest slope."""


def where(c: Bounded, a: Bounded, b: Bounded) -> Bounded:
    holds = c.value != 0
    value = np.where(holds, a.value, b.value)
    error = np.where(holds, a.error, b.error)
    doubtful = (c.error > 0) & ~(np.abs(c.value) > c.error)
    either = np.abs(a.value - b.value) + np.maximum(a.error, b.error)
    return Bounded(value, np.where(doubtful, np.where(np.isnan(either), np.inf, either), error))


def of_exact(row: Exact) -> Callable[..., Bounded]:
    return lambda *operands: Bounded(np.asarray(row.meaning(*(one.value for one in operands))), row.error(*operands))


OPERATIONS: dict[Op, Callable[..., Bounded]] = {
    Op.ADD: add,
    Op.SUB: lambda a, b: add(a, neg(b)),
    Op.MUL: mul,
    Op.DIV: div,
    Op.SQRT: sqrt,
    Op.BFLOAT16: bfloat16,
    **{Op(name): of_function(name) for name in FUNCTIONS},
    **{op: of_exact(row) for op, row in EXACT.items()},
    Op.WHERE: where,
}
JOINS = {op: OPERATIONS[Op(op)] for op in ("add", "mul", "max", "min")}


def take(a: Bounded, index: object, axis: int) -> Bounded:
    """Elements along an axis."""
    return Bounded(*(np.take(part, index, axis=axis) for part in a))  # type: ignore[call-overload]


def fold(a: Bounded, axis: int, op: str) -> Bounded:
    """Halves are joined while more than one element is left ("folded" in docs/language.md)."""
    parts = [take(a, i, axis) for i in range(a.value.shape[axis])]
    while len(parts) > 1:
        half = 1 << (len(parts) - 1).bit_length() - 1
        joined = [JOINS[op](x, y) for x, y in zip(parts, parts[half:], strict=False)]
        parts = joined + parts[len(joined) : half]
    return parts[0]


def tree(parts: list[Bounded], op: str) -> Bounded:
    """Neighbours are joined in pairs."""
    while len(parts) > 1:
        parts = [JOINS[op](*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


class Undecided(Exception):
    """Whether training goes on depends on roundings."""


class RealTraining:
    """Trains a graph in real arithmetic."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def train(
        self, columns: Mapping[str, npt.ArrayLike], models: Mapping[str, npt.ArrayLike], epochs: int
    ) -> tuple[dict[str, Bounded], list[Bounded]]:
        """Return the models and each epoch's mean loss.

        Raises
        ------
        Undecided
            If the convergence test is too close to call.
        """
        graph = self.graph
        state = {name: exact(value) for name, value in models.items()}
        data = {name: np.asarray(column, dtype=np.float32) for name, column in columns.items()}
        count = len(next(iter(data.values())))
        size = graph.batch or count
        losses: list[Bounded] = []
        with np.errstate(all="ignore"):
            for _ in range(epochs):
                total, error, magnitude = 0.0, 0.0, 0.0
                for start in range(0, count, size):
                    tuples = range(start, min(start + size, count))
                    rows = [{name: column[t] for name, column in data.items()} for t in tuples]
                    each, batch = self._values(rows, state)
                    if graph.loss is not None:
                        part = tree([values[graph.loss] for values in each], "add")
                        total += float(part.value)
                        error += float(part.error)
                        magnitude += abs(float(part.value)) + float(part.error)
                    state = self._updated(state, each, batch)
                if graph.loss is not None:
                    # a u for what is added last, a u for losses above the sum so far, of which no error is exact;
                    # second order covered by a third
                    error += 3 * UNIT * magnitude + TINY
                    losses.append(Bounded(np.float64(total / count), np.float64(error / count)))
                if graph.convergence is not None and self._ended(batch[graph.convergence]):
                    break
        return state, losses

    def _ended(self, test: Bounded) -> bool:
        if test.error > 0 and not abs(test.value) > test.error:
            raise Undecided
        return bool(test.value != 0)

    def _values(
        self, rows: list[Mapping[str, npt.NDArray[np.float32]]], state: Mapping[str, Bounded]
    ) -> tuple[list[dict[int, Bounded]], dict[int, Bounded]]:
        """What each tuple of a batch has, what the batch has among it; and the last tuple's, for batches of one."""
        each: list[dict[int, Bounded]] = [{} for _ in rows]
        for node in self.graph.nodes:
            if node.op in (Op.INPUT, Op.OUTPUT):
                found = [exact(row[str(node.name)]) for row in rows]
            elif node.op is Op.MODEL:
                found = [state[str(node.name)]] * len(rows)
            elif node.op is Op.MERGE:
                found = [tree([one[node.inputs[0]] for one in each], str(node.merge_op))] * len(rows)
            elif node.region is Region.TUPLE:
                found = [self._value(node, one) for one in each]
            else:
                found = [self._value(node, each[0])] * len(rows)
            for one, value in zip(each, found, strict=True):
                one[node.id] = value
        return each, each[-1]

    def _value(self, node: Node, values: Mapping[int, Bounded]) -> Bounded:
        if node.op in (Op.CONST, Op.META):
            return exact(node.value or 0.0)
        if node.op is Op.ARANGE:
            return exact(np.arange(self.graph.concrete_shape(node.id)[0]))
        operands = [values[i] for i in node.inputs]
        if node.op in OPERATIONS:
            result = OPERATIONS[node.op](*operands)
            shape = self.graph.concrete_shape(node.id)
            return Bounded(*(np.broadcast_to(part, shape) for part in result))
        if node.op is Op.GATHER:
            return take(operands[0], int(operands[1].value), 0)
        assert node.axis is not None
        if node.op is Op.EXPAND:
            return Bounded(*(np.expand_dims(part, node.axis) for part in operands[0]))
        if node.op is Op.ELEMENT:
            return take(operands[0], int(operands[1].value), node.axis)
        return fold(operands[0], node.axis, {Op.SIGMA: "add", Op.PI: "mul", Op.AMAX: "max"}[node.op])

    def _updated(
        self, state: Mapping[str, Bounded], each: list[dict[int, Bounded]], batch: Mapping[int, Bounded]
    ) -> dict[str, Bounded]:
        after = {name: Bounded(value.copy(), error.copy()) for name, (value, error) in state.items()}

        def write(update: Update, row: object, new: Bounded) -> None:
            for kept, part in zip(after[str(self.graph.nodes[update.model].name)], new, strict=True):
                kept[row] = part

        per_tuple = [update for update in self.graph.updates if self._is_row_of_a_tuple(update.index)]
        for update in self.graph.updates:
            if update not in per_tuple:
                row = ... if update.index is None else int(batch[update.index].value)
                write(update, row, batch[update.value])
        for values in each:
            for update in per_tuple:
                write(update, int(values[update.index or 0].value), values[update.value])
        return after

    def _is_row_of_a_tuple(self, index: int | None) -> bool:
        return index is not None and self.graph.nodes[index].op is not Op.CONST
