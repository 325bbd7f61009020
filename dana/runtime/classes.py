"""Which labels a rule tells apart: the classes that its text numbers.

In: a bound graph. Out: how many classes there are. A rule that compares its one label with the numbers 0 … k − 1, as
``one_hot(y, k)`` does, knows k classes; to it any other label is no class, and would train all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from dana.runtime.trainer import Json
from dsl.hdfg.graph import Graph, Op


def declared_classes(graph: Graph) -> int | None:
    """Classes of the label, numbered from 0; None where any number is one."""
    nodes = graph.nodes
    outputs = [k for k in graph.inputs if nodes[k].op is Op.OUTPUT]
    if len(outputs) != 1 or graph.concrete_shape(outputs[0]):
        return None
    compared = [
        other
        for node in nodes
        if node.op is Op.EQ and outputs[0] in node.inputs
        for other in node.inputs
        if nodes[other].op is Op.ARANGE
    ]
    return max((graph.concrete_shape(k)[0] for k in compared), default=None)


def classes_of(count: int | None, labels: Sequence[str]) -> Json | None:
    """The classes as the backend wants them, to refuse labels that are none; None where there are none."""
    return None if count is None else {"label": labels[0], "count": count}
