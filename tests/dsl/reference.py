"""A second reading of docs/language.md and docs/arithmetic.md, slow and plain: tuple by tuple, operation by operation.

In: a bound graph and columns. Out: the trained models. Shares no code with the interpreter: values are
nested dictionaries by index, orders of reduction are written out as the documents word them. The transcendental
functions are the machine's, since only it defines their bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

import hwgen.spec.numerics as numerics
from dsl.hdfg.graph import Graph, Node, Op, Region
from tests.oracles import functions as oracles
from tests.oracles.exact import EXACT

Element = np.float32
Tensor = dict[tuple[int, ...], Element]

SMALLEST = np.float32(2.0**-126)


def flush(x: Element) -> Element:
    if np.isnan(x):
        return np.float32(np.nan)
    return np.copysign(np.float32(0), x) if abs(x) < SMALLEST else x


def add(a: Element, b: Element) -> Element:
    with np.errstate(all="ignore"):
        return flush(np.float32(flush(a) + flush(b)))


def mul(a: Element, b: Element) -> Element:
    with np.errstate(all="ignore"):
        exact = np.float64(flush(a)) * np.float64(flush(b))
        # tiny after rounding to 24 bits with unbounded exponent
        tiny = abs(exact) < 2.0**-126 - 2.0**-151
        return np.float32(np.copysign(0.0, exact)) if tiny else flush(np.float32(exact))


def div(a: Element, b: Element) -> Element:
    with np.errstate(all="ignore"):
        exact = np.float64(flush(a)) / np.float64(flush(b))
        tiny = abs(exact) < 2.0**-126 - 2.0**-151
        return np.float32(np.copysign(0.0, exact)) if tiny else flush(np.float32(exact))


def bfloat16(x: Element) -> Element:
    with np.errstate(all="ignore"):
        part, exponent = np.frexp(np.float64(flush(x)))
        # NumPy's rint takes the even of two; beyond the range, binary32 is infinite as bfloat16 is
        return flush(np.float32(np.ldexp(np.rint(np.ldexp(part, 8)), exponent - 8)))


def larger(a: Element, b: Element) -> Element:
    if np.isnan(a) or np.isnan(b):
        return np.float32(np.nan)
    if a == b:
        return b if np.signbit(a) else a
    return a if a > b else b


def smaller(a: Element, b: Element) -> Element:
    return flush(-larger(-a, -b))


def scalar(function: Callable[..., npt.NDArray[np.float32]]) -> Callable[[Element], Element]:
    return lambda x: np.float32(function(np.float32([x]))[0])


def exactly(meaning: Callable[..., Element]) -> Callable[..., Element]:
    return lambda *operands: flush(np.float32(meaning(*operands)))


FUNCTIONS: dict[Op, Callable[..., Element]] = {
    Op.ADD: add,
    Op.SUB: lambda a, b: add(a, -b),
    Op.MUL: mul,
    Op.DIV: div,
    **{op: exactly(row.meaning) for op, row in EXACT.items()},
    Op.WHERE: lambda c, a, b: a if c != 0 else b,
    Op.SQRT: scalar(numerics.sqrt),
    Op.BFLOAT16: bfloat16,
    **{Op(name): scalar(getattr(numerics, name)) for name in oracles.FUNCTIONS},
    Op.MAX: larger,
    Op.MIN: smaller,
}
JOIN = {"add": add, "mul": mul, "max": larger, "min": smaller}


def fold(elements: list[Element], op: str) -> Element:
    x = list(elements)
    n = len(x)
    while n > 1:
        h = 1
        while 2 * h < n:
            h *= 2
        for i in range(n - h):
            x[i] = JOIN[op](x[i], x[i + h])
        n = h
    return x[0]


def tree(elements: list[Element], op: str) -> Element:
    x = list(elements)
    stride = 1
    while stride < len(x):
        for j in range(0, len(x) - stride, 2 * stride):
            x[j] = JOIN[op](x[j], x[j + stride])
        stride *= 2
    return x[0]


def indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(extent) for extent in shape)))


def tensor(array: npt.ArrayLike) -> Tensor:
    values = np.asarray(array, dtype=np.float32)
    return {index: flush(values[index]) for index in indices(values.shape)}


def at(value: Tensor, index: tuple[int, ...], shape: tuple[int, ...]) -> Element:
    """Element of a value broadcast: aligned at the last axis, axes of extent 1 repeated."""
    own = index[len(index) - len(shape) :] if shape else ()
    return value[tuple(0 if extent == 1 else i for i, extent in zip(own, shape, strict=True))]


class Reference:
    """Trains by the letter of the design."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.shapes = [graph.concrete_shape(node.id) for node in graph.nodes]

    def train(
        self, columns: Mapping[str, npt.NDArray[np.float32]], models: Mapping[str, npt.ArrayLike], epochs: int
    ) -> tuple[dict[str, npt.NDArray[np.float32]], list[float]]:
        state = {name: tensor(value) for name, value in models.items()}
        count = len(next(iter(columns.values())))
        size = self.graph.batch or count
        losses = []
        for _ in range(epochs):
            total = errors = np.float32(0)
            for start in range(0, count, size):
                tuples = list(range(start, min(start + size, count)))
                each, batch = self._values(tuples, columns, state)
                if self.graph.loss is not None:
                    value = tree([values[self.graph.loss][()] for values in each], "add")
                    after = add(total, value)
                    errors, total = add(errors, add(value, -add(after, -total))), after
                state = self._updated(state, each, batch)
                stop = start + size >= count
                if stop and self.graph.convergence is not None and batch[self.graph.convergence][()] != 0:
                    losses.append(float(add(total, errors)) / count)
                    return self._arrays(state), losses
            losses.append(float(add(total, errors)) / count)
        return self._arrays(state), losses

    def _arrays(self, state: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.float32]]:
        result = {}
        for i in self.graph.models:
            array = np.empty(self.shapes[i], dtype=np.float32)
            for index, value in state[str(self.graph.nodes[i].name)].items():
                array[index] = value
            result[str(self.graph.nodes[i].name)] = array
        return result

    def _values(
        self, tuples: list[int], columns: Mapping[str, npt.NDArray[np.float32]], state: Mapping[str, Tensor]
    ) -> tuple[list[dict[int, Tensor]], dict[int, Tensor]]:
        """What each tuple of a batch has, and what the batch has, which its tuples have too."""
        each: list[dict[int, Tensor]] = [{} for _ in tuples]
        batch: dict[int, Tensor] = {}
        for node in self.graph.nodes:
            if node.op in (Op.INPUT, Op.OUTPUT):
                found = [tensor(columns[str(node.name)][t]) for t in tuples]
            elif node.op is Op.MODEL:
                found = [state[str(node.name)]] * len(tuples)
            elif node.op is Op.MERGE:
                parts = [one[node.inputs[0]] for one in each]
                joined = {
                    index: tree([part[index] for part in parts], str(node.merge_op))
                    for index in indices(self.shapes[node.id])
                }
                found = [joined] * len(tuples)
            elif node.region is Region.TUPLE:
                found = [self._value(node, one) for one in each]
            else:
                found = [self._value(node, each[0])] * len(tuples)
            for one, value in zip(each, found, strict=True):
                one[node.id] = value
            if node.region is not Region.TUPLE or not self.graph.has_merge:
                batch[node.id] = found[-1]
        return each, batch

    def _value(self, node: Node, values: Mapping[int, Tensor]) -> Tensor:
        shape = self.shapes[node.id]
        if node.op in (Op.CONST, Op.META):
            return {(): np.float32(node.value)}
        if node.op is Op.ARANGE:
            return {index: np.float32(index[0]) for index in indices(shape)}
        operands = [values[i] for i in node.inputs]
        shapes = [self.shapes[i] for i in node.inputs]
        if node.op in FUNCTIONS:
            return {
                index: FUNCTIONS[node.op](*(at(v, index, s) for v, s in zip(operands, shapes, strict=True)))
                for index in indices(shape)
            }
        if node.op is Op.GATHER:
            row = int(operands[1][()])
            return {index: operands[0][(row, *index)] for index in indices(shape)}
        assert node.axis is not None
        axis = node.axis
        if node.op is Op.EXPAND:
            return {index: operands[0][(*index[:axis], *index[axis + 1 :])] for index in indices(shape)}
        if node.op is Op.ELEMENT:
            position = int(operands[1][()])
            return {index: operands[0][(*index[:axis], position, *index[axis:])] for index in indices(shape)}
        return {
            index: fold(
                [operands[0][(*index[:axis], i, *index[axis:])] for i in range(shapes[0][axis])],
                {Op.SIGMA: "add", Op.PI: "mul", Op.AMAX: "max"}[node.op],
            )
            for index in indices(shape)
        }

    def _updated(
        self, state: Mapping[str, Tensor], each: list[dict[int, Tensor]], batch: Mapping[int, Tensor]
    ) -> dict[str, Tensor]:
        after = {name: dict(value) for name, value in state.items()}
        for update in self.graph.updates:
            if update.index is None or self.graph.nodes[update.index].op is Op.CONST:
                row = () if update.index is None else (int(batch[update.index][()]),)
                self._write(after, update.model, row, batch[update.value], self.shapes[update.value])
        for values in each:
            for update in self.graph.updates:
                if update.index is not None and self.graph.nodes[update.index].op is not Op.CONST:
                    row = (int(values[update.index][()]),)
                    self._write(after, update.model, row, values[update.value], self.shapes[update.value])
        return after

    def _write(
        self, after: dict[str, Tensor], model: int, row: tuple[int, ...], value: Tensor, shape: tuple[int, ...]
    ) -> None:
        target = after[str(self.graph.nodes[model].name)]
        for index in indices(self.shapes[model][len(row) :]):
            target[(*row, *index)] = at(value, index, shape)
