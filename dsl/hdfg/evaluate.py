"""The values of a graph's nodes for one batch of tuples.

In: a bound graph, the batch's columns, models and metas. Out: one array for each node asked for; in region
TUPLE with the tuples along axis 0, so that a whole batch takes one NumPy call per node.
Must not: know of batches before or after, or change a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from dsl.hdfg.arithmetic import Arithmetic, Floats, function
from dsl.hdfg.graph import ELEMENTWISE, FROM_ROW, LEAVES, Graph, Node, Op, Region
from dsl.hdfg.ops import REDUCTIONS, ROW_NUMBERS


class DataError(ValueError):
    """The data does not fit the rule: the user's bug, found while reading it."""


class Evaluator:
    """Computes nodes of one graph.

    Parameters
    ----------
    graph
        With concrete shapes.
    arithmetic
        How single operations round.
    roots
        What is asked for; nodes that they do not need are not computed.
    """

    def __init__(self, graph: Graph, arithmetic: Arithmetic, roots: Iterable[int]) -> None:
        self._graph = graph
        self._arithmetic = arithmetic
        # ids are a topological order (`dsl.hdfg.verify`), so that sorted nodes find their operands computed
        self._nodes = [graph.nodes[i] for i in sorted(graph.reachable(roots))]
        self._functions = {op: function(arithmetic, op) for op in ELEMENTWISE}

    def run(
        self, count: int, columns: Mapping[str, Floats], models: Mapping[str, Floats], metas: Mapping[str, Floats]
    ) -> dict[int, Floats]:
        """Compute every needed node.

        Parameters
        ----------
        count
            Tuples in the batch.
        columns
            By input name, `[count, *shape]`.
        models, metas
            By name.

        Returns
        -------
        dict
            Arrays by node id. A node of region TUPLE that is the same for all tuples lacks axis 0; `per_tuple` adds it.

        Raises
        ------
        DataError
            If an index names no row of its model.
        """
        values: dict[int, Floats] = {}
        for node in self._nodes:
            values[node.id] = self._value(node, values, count, columns, models, metas)
        return values

    def run_each(
        self,
        count: int,
        columns: Mapping[str, Floats],
        models: Mapping[str, Floats],
        metas: Mapping[str, Floats],
        behind: Callable[[Mapping[int, Floats]], None],
    ) -> dict[int, Floats]:
        """Compute every needed node as `run` does, but tuple by tuple.

        `behind` gets each tuple's values, and may change rows of `models` before the next one.
        """
        tuples = [node for node in self._nodes if node.region is Region.TUPLE]
        # a model's value is the array in `models` itself, so that a tuple reads the rows that `behind` has written
        values = {
            node.id: self._value(node, {}, count, columns, models, metas)
            for node in self._nodes
            # leaves first: nothing of a tuple is known yet
            if node.op in LEAVES and node.region is not Region.TUPLE
        }
        for node in self._nodes:
            if node.region is Region.CONST and node.id not in values:
                values[node.id] = self._value(node, values, count, columns, models, metas)
        # what follows the merges reads models that no tuple writes
        found: dict[int, list[Floats]] = {node.id: [] for node in tuples}
        for t in range(count):
            row = {name: column[t : t + 1] for name, column in columns.items()}
            own = dict(values)
            for node in tuples:
                value = self._value(node, own, 1, row, models, metas)
                # the tuple's number in its batch
                own[node.id] = np.full(1, t % ROW_NUMBERS, np.float32) if node.op is Op.ROW else value
                found[node.id].append(np.array(self.per_tuple(node.id, own, 1)))
            behind(own)
        values |= {k: np.concatenate(parts) for k, parts in found.items()}
        for node in self._nodes:
            if node.id not in values:
                values[node.id] = self._value(node, values, count, columns, models, metas)
        return values

    def per_tuple(self, node: int, values: Mapping[int, Floats], count: int) -> Floats:
        """Return a value per tuple with its tuples along axis 0, repeated if it is the same for all."""
        value = values[node]
        shape = self._graph.nodes[node].shape
        if value.ndim == len(shape):
            # a read-only view with a stride of 0: nothing is copied, and nothing may be written
            return np.broadcast_to(value, (count, *value.shape))
        return value

    def _value(
        self,
        node: Node,
        values: Mapping[int, Floats],
        count: int,
        columns: Mapping[str, Floats],
        models: Mapping[str, Floats],
        metas: Mapping[str, Floats],
    ) -> Floats:
        if node.op is Op.CONST:
            return np.asarray(node.value, dtype=np.float32)
        if node.op is Op.ARANGE:
            return np.arange(self._graph.concrete_shape(node.id)[0], dtype=np.float32)
        if node.op is Op.ROW:
            return (np.arange(count) % ROW_NUMBERS).astype(np.float32)
        if node.name is not None and node.op in FROM_ROW:
            return columns[node.name]
        if node.name is not None and node.op is Op.MODEL:
            return models[node.name]
        if node.name is not None and node.op is Op.META:
            return metas[node.name]
        if node.op in ELEMENTWISE:
            return self._functions[node.op](*(self._aligned(i, node, values) for i in node.inputs))
        operand = values[node.inputs[0]]
        if node.op is Op.MERGE:
            return self._arithmetic.tree(self.per_tuple(node.inputs[0], values, count), node.merge_op or "")
        if node.op is Op.GATHER:
            index = values[node.inputs[1]]
            return np.array(operand[row_numbers(index, operand.shape[0], self._graph, node.inputs[0])])
        assert node.axis is not None
        # 1 if the operand has the tuples' axis in front, 0 if it is the same for all tuples
        batched = operand.ndim - len(self._graph.nodes[node.inputs[0]].shape)
        if node.op is Op.EXPAND:
            return np.expand_dims(operand, node.axis + batched)
        if node.op is Op.ELEMENT:
            # no flush: operands are canonical, and -0.0 added to an element changes no bit
            return np.asarray(operand.take(int(values[node.inputs[1]]), axis=node.axis + batched))
        return self._arithmetic.fold(operand, node.axis + batched, REDUCTIONS[node.op])

    def _aligned(self, operand: int, node: Node, values: Mapping[int, Floats]) -> Floats:
        """Return an operand with axes of 1 between the tuples' axis and its own, so that NumPy aligns them."""
        value = values[operand]
        rank = len(self._graph.nodes[operand].shape)
        # NumPy aligns last axes, which would put the tuples' axis on an axis of the value
        if node.region is not Region.TUPLE or value.ndim == rank or rank == len(node.shape):
            return value
        return value.reshape(value.shape[0], *(1,) * (len(node.shape) - rank), *value.shape[1:])


def row_numbers(index: Floats, rows: int, graph: Graph, model: int) -> npt.NDArray[np.int64]:
    """Return indices as whole numbers.

    Raises
    ------
    DataError
        If one is not a whole number from 0 to `rows` - 1.
    """
    # NaN and infinity convert to some integer, which never equals them, so that the last comparison finds them
    with np.errstate(invalid="ignore"):
        numbers = index.astype(np.int64)
    wrong = (numbers < 0) | (numbers >= rows) | (numbers != index)
    if np.any(wrong):
        first = np.asarray(index)[wrong].flat[0] if index.ndim else index
        raise DataError(
            f"rows of {graph.nodes[model].name} are numbered from 0 to {rows - 1}; the table asks for row {first:g}"
        )
    return np.asarray(numbers)
