"""Assigns arrays of the caller to the inputs and outputs of a rule, and checks them.

The results are arrays of shape [rows, *shape] by name, as precise as they were given, and the dims that follow from
their shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dana.errors import UsageError
from dsl.hdfg.dims import shape_text
from dsl.hdfg.graph import BindError, Graph, Node, Op

Floats = NDArray[np.float32]
Numbers = NDArray[Any]
Arrays = ArrayLike | Mapping[str, ArrayLike]
"""The array of the only input, or arrays by name."""


def inputs_of(graph: Graph, given: Arrays, needed: Collection[int] | None = None) -> dict[str, Numbers]:
    """Return the arrays of the inputs of a rule.

    Parameters
    ----------
    needed
        Ids of the inputs that must be given; None: all.

    Raises
    ------
    UsageError
        An input is unknown or missing, or an array has another shape or values that are not finite numbers.
    """
    return _arrays(graph, given, Op.INPUT, "X", needed)


def columns_of(graph: Graph, inputs: Arrays, outputs: Arrays | None, weight: ArrayLike | None) -> dict[str, Numbers]:
    """Return the arrays of the inputs, outputs and weight of a rule, with equal numbers of rows.

    Raises
    ------
    UsageError
        As `inputs_of`; or the numbers of rows differ, or a weight is negative.
    """
    columns = inputs_of(graph, inputs)
    if outputs is not None or _nodes(graph, Op.OUTPUT):
        columns |= _arrays(graph, outputs, Op.OUTPUT, "y", None)
    if weight is not None:
        columns |= _weights(graph, weight)
    rows = {name: len(values) for name, values in columns.items()}
    if len({*rows.values()}) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise UsageError(f"all arrays must have the same number of rows: {listed}")
    # after the comparison, so that one empty array among others is reported with its name
    if 0 in rows.values():
        raise UsageError("at least one row is needed, not 0")
    return columns


def models_of(graph: Graph, given: Mapping[str, ArrayLike], needed: Collection[int]) -> dict[str, Floats]:
    """Return the values of the models of a rule.

    Parameters
    ----------
    needed
        Ids of the models that must be given.

    Raises
    ------
    UsageError
        A model is unknown or missing, or a value has another number of axes or is not finite.
    """
    known = {str(graph.nodes[k].name): graph.nodes[k] for k in graph.models}
    unknown = [name for name in given if name not in known]
    missing = [name for name, node in known.items() if node.id in needed and name not in given]
    if unknown or missing:
        what = f"{unknown[0]!r} is none of them" if unknown else f"{missing[0]!r} is missing"
        raise UsageError(f"models are those of rule {graph.name!r} by name ({', '.join(known)}); {what}")
    return {name: np.asarray(_array(known[name], each, rows=False), np.float32) for name, each in given.items()}


def dims_of(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the dims that follow from the shapes of inputs, outputs and models.

    Raises
    ------
    UsageError
        Shapes contradict the rule or one another.
    """
    try:
        return graph.infer_dims(shapes)
    except BindError as error:
        raise UsageError(str(error)) from None


def bound(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """Bind a graph to dims; other dims get the default extents of the rule.

    Raises
    ------
    UsageError
        A dim is undetermined, or an axis would be empty.
    """
    try:
        return graph.bind(dims)
    except BindError as error:
        raise UsageError(str(error)) from None


def check_classes(graph: Graph, columns: Mapping[str, Numbers]) -> None:
    """Raise UsageError if a label of a bound rule is not a class number."""
    for node in (graph.nodes[k] for k in graph.inputs if graph.nodes[k].classes is not None):
        assert isinstance(node.classes, int), "the graph is bound"
        values = columns[str(node.name)]
        # texts pass `_array` for rules with classes, where the caller numbers them; here nothing does
        if values.dtype.kind == "U":
            raise UsageError(
                f"{node.name} must number classes, from 0 to {node.classes - 1}, not be texts",
                hint="One batch may lack a class: number all rows before, as in "
                "labels, y = numpy.unique(y, return_inverse=True).",
            )
        wrong = values[(values != np.floor(values)) | (values < 0) | (values >= node.classes)]
        if wrong.size:
            raise UsageError(f"{node.name} must number classes, from 0 to {node.classes - 1}, not {wrong.flat[0]:g}")


def _arrays(
    graph: Graph, given: Arrays | None, op: Op, argument: str, needed: Collection[int] | None
) -> dict[str, Numbers]:
    nodes = _nodes(graph, op)
    kind, names = op.value, ", ".join(nodes)
    # a rule without outputs takes an empty mapping, and nothing else
    if not nodes and not (isinstance(given, Mapping) and not given):
        raise UsageError(f"{argument} is given, but rule {graph.name!r} has no {kind}")
    if given is None:
        raise UsageError(f"{argument} is missing: rule {graph.name!r} has the {kind} {names}")
    required = [name for name, node in nodes.items() if needed is None or node.id in needed]
    if not isinstance(given, Mapping):
        if len(required) != 1:
            raise UsageError(
                f"{argument} must be a mapping, because rule {graph.name!r} has {len(nodes)} {kind}s ({names})",
                hint=f"Give an array for each: {argument}={{'{required[0] if required else names}': …}}.",
            )
        given = {required[0]: given}
    unknown = [name for name in given if name not in nodes]
    missing = [name for name in required if name not in given]
    if unknown or missing:
        what = f"{unknown[0]!r} is none of them" if unknown else f"{missing[0]!r} is missing"
        raise UsageError(f"{argument} must have an array for each {kind} of rule {graph.name!r} ({names}); {what}")
    return {name: _array(nodes[name], values) for name, values in given.items()}


def _weights(graph: Graph, given: ArrayLike) -> dict[str, Numbers]:
    node = graph.weight
    if node is None:
        raise UsageError(
            f"rule {graph.name!r} takes no weights",
            hint="Declare one with weight = dana.weight(), list it in dana.algo, and multiply the error and the loss "
            "by it.",
        )
    values = _array(node, given)
    if (values < 0).any():
        raise UsageError(f"weights must be at least 0, not {values.min():g}")
    return {str(node.name): values}


def _array(node: Node, given: ArrayLike, *, rows: bool = True) -> Numbers:
    wanted = _tuple([*(["rows"] if rows else []), *map(str, node.shape)])
    try:
        values = np.asarray(given)
    except ValueError:
        raise UsageError(f"{node.name} must be an array of shape {wanted}; its rows have different lengths") from None
    # columns of pandas hold texts as objects
    if values.dtype.kind == "O" and values.size and all(isinstance(one, str) for one in values.flat):
        values = values.astype(str)
    labels = values.dtype.kind == "U" and node.classes is not None
    if values.dtype.kind not in "biuf" and not labels:
        raise UsageError(
            f"{node.name} must be an array of numbers, not of {values.dtype}",
            hint="Only the label of a rule with dana.output(classes=…) may be texts." if node.op is Op.OUTPUT else "",
        )
    if values.ndim != rows + len(node.shape):
        found = _tuple(list(map(str, values.shape)))
        raise UsageError(f"{node.name} must have shape {wanted}, because it is {_kind(node)} in the rule, not {found}")
    if labels:
        return values
    # an overflow becomes an infinity, which is reported below with its place
    with np.errstate(over="ignore"):
        numbers = np.asarray(values, dtype=np.float32)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        place = tuple(int(k) for k in wrong[0])
        raise UsageError(
            f"{node.name} must hold finite numbers of binary32, but {node.name}[{', '.join(map(str, place))}] is "
            f"{values[place]}"
        )
    return values


def _tuple(extents: list[str]) -> str:
    """Format a shape as NumPy does."""
    return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"


def _kind(node: Node) -> str:
    return f"of shape {shape_text(node.shape)}" if node.shape else "a scalar"


def _nodes(graph: Graph, op: Op) -> dict[str, Node]:
    return {str(graph.nodes[k].name): graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is op}
