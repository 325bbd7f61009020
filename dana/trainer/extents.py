"""Dims that are determined by the data: the number of classes, and the number of rows in models of categories.

`with_extents` adds these extents to ``hyper``. They follow from the labels, from the largest category number in a
column, or from the model of a warm start. The largest numbers are found by the reader of the table:
pg_extension/src/features/categories.c, or `dana.trainer.arrays`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from dana.compiler.binding.columns import choosing_columns
from dana.trainer.contract import SqlState, TrainingError, TrainRequest
from dana.trainer.data.classes import with_classes
from dana.trainer.designs import MAX_EXTENT, rule_graph
from dana.trainer.messages.page_errors import ARRAYS
from dana.trainer.streams import logical_binding
from dsl.hdfg.choice import category_inputs, choosing_inputs, growing_models
from dsl.hdfg.dims import names_of
from dsl.hdfg.graph import BindError, Op


def category_columns(request: TrainRequest) -> dict[str, tuple[str, ...]]:
    """Return the columns that contain category numbers, by the dim they determine; dims in ``hyper`` are omitted.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    graph = rule_graph(request)
    request = with_classes(request, graph.symbolic_classes)
    said = set(request.hyper)
    # dims of inputs follow from the number of columns, so no category number decides them
    said |= {name for k in graph.inputs for dim in graph.symbolic_shape(graph.nodes[k]) for name in names_of(dim)}
    dims = {str(node.name): str(graph.symbolic_count(node)) for node in category_inputs(graph)}
    # a dim without a default cannot be set in ``hyper``, and one that is set needs no survey of the column
    dims = {name: dim for name, dim in dims.items() if dim in dict(graph.extents) and dim not in said}
    if not dims:
        return {}
    binding, schema = logical_binding(request)
    found: dict[str, list[str]] = {}
    for use in binding.uses:
        if use.input in dims:
            found.setdefault(dims[use.input], []).append(schema.attributes[use.attribute].name)
    return {dim: tuple(dict.fromkeys(columns)) for dim, columns in found.items()}


def row_columns(request: TrainRequest) -> dict[str, bool]:
    """Return the columns with row numbers of models, and whether a negative number means an unknown category.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    graph = rule_graph(request)
    request = with_classes(request, graph.symbolic_classes)
    if not choosing_inputs(graph):
        return {}
    binding, schema = logical_binding(request)
    chosen = choosing_columns(graph, binding.uses)
    return {schema.attributes[position].name: not itself for position, itself in chosen.items()}


def with_extents(request: TrainRequest) -> TrainRequest:
    """Return the request with the extents that the data determine in ``hyper``; values of the caller take precedence.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    TrainingError
        As `dana.trainer.data.classes.with_classes`; or a category number is too large.
    """
    request = with_classes(request, rule_graph(request).symbolic_classes)
    found = dict(_of_model(request))
    growing = growing_models(rule_graph(request)) if found else {}
    # empty in the request of `Trainer.categories`, which asks for the columns to examine
    for dim, columns in category_columns(request).items() if request.largest else ():
        largest = [(number, name) for name in columns if (number := request.largest.get(name)) is not None]
        for number, column in largest:
            relation = request.relation.name
            where = f"array {column}" if relation == ARRAYS else f"column {column} of {relation}"
            if dim in found and dim not in growing and dim not in request.hyper and number >= found[dim]:
                raise TrainingError(
                    f"{where} holds category {number:.0f}, but the model to start from has categories 0 to "
                    f"{found[dim] - 1}",
                    sqlstate=SqlState.DATA_EXCEPTION,
                    hint="The model cannot grow, because several columns share it. Train without warm_start_from and "
                    f"""reserve room for new categories, as in hyper => '{{"{dim}": {2 * int(number)}}}'; or exclude """
                    "these rows.",
                )
            if number >= MAX_EXTENT:
                raise TrainingError(
                    f"{where} holds {number:.0f}, but categories must be numbered from 0 to {MAX_EXTENT - 1:,}: "
                    "each has a row in a model",
                    sqlstate=SqlState.DATA_EXCEPTION,
                    hint="Number the categories consecutively from 0, as shown in docs/recipes.md.",
                )
        if largest and (dim not in found or dim in growing):
            # a model to start from keeps its rows even if the new table has fewer categories
            found[dim] = max(int(max(largest)[0]) + 1, found.get(dim, 1))
    return replace(request, hyper={**found, **request.hyper}) if found else request


def _of_model(request: TrainRequest) -> Mapping[str, int]:
    """Return the dims that follow from the shapes of the model to start from; none if it belongs to another rule."""
    if request.warm_start_from is None:
        return {}
    graph = rule_graph(request)
    names = {graph.nodes[k].name for k in graph.models}
    shapes = {name: values.shape for name, values in request.warm_start_from.items() if name in names}
    dims: dict[str, int] = {}
    # the model of another rule: `warm_values` reports it, with its shapes
    with suppress(BindError):
        dims = graph.infer_dims(shapes)
        if not {str(graph.symbolic_count(node)) for node in category_inputs(graph)} <= dims.keys():
            # several columns share the model: the number of columns is known only from the bound inputs
            bound = logical_binding(replace(request, hyper={**dims, **request.hyper}))[0].graph
            inputs = (bound.nodes[k] for k in bound.inputs if bound.nodes[k].op is Op.INPUT)
            dims = graph.infer_dims({**shapes, **{str(node.name): bound.concrete_shape(node.id) for node in inputs}})
    return {name: extent for name, extent in dims.items() if name in dict(graph.extents) and name not in request.hyper}
