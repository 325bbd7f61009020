"""Invariants of every graph, checked after each pass.

In: a `Graph`. Out: nothing, or `InvalidGraph` listing every violation: a bug in the toolchain, never in a rule.
Must not: change the graph or rely on how it was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dsl.binary32 import round32
from dsl.hdfg.dims import Shape, names_of, shape_text
from dsl.hdfg.graph import (
    FROM_ROW,
    LEAVES,
    MERGE_OPS,
    NAMELESS,
    REDUCTIONS,
    EachEpoch,
    Graph,
    Node,
    Op,
    Region,
    Update,
    operand_count,
)
from dsl.hdfg.shapes import ShapeMismatch, broadcast, result_shape

LEAF_REGIONS = {
    Op.INPUT: Region.TUPLE,
    Op.OUTPUT: Region.TUPLE,
    Op.WEIGHT: Region.TUPLE,
    Op.MODEL: Region.BATCH,
    Op.META: Region.CONST,
    Op.CONST: Region.CONST,
    Op.ARANGE: Region.CONST,
    Op.ROW: Region.TUPLE,
}


class InvalidGraph(Exception):
    """A graph breaks its own rules."""


def verify(graph: Graph) -> None:
    """Check a graph.

    Raises
    ------
    InvalidGraph
        With one line for each rule that is broken.
    """
    # the rules of the whole graph follow operands, which the rules of nodes find to exist
    problems = list(_node_problems(graph))
    if not problems:
        problems += _graph_problems(graph)
    if problems:
        raise InvalidGraph(f"graph {graph.name!r}:\n" + "\n".join(problems))


def _node_problems(graph: Graph) -> Iterator[str]:
    after = graph.after_merges
    for position, node in enumerate(graph.nodes):
        where = f"node {node.id} ({node.op})"
        if node.id != position:
            yield f"{where} must stand at its id, not at {position}"
            continue
        if any(not 0 <= i < position for i in node.inputs):
            yield f"{where} must read earlier nodes, not {node.inputs}"
            continue
        if len(node.inputs) != operand_count(node.op):
            yield f"{where} must have {operand_count(node.op)} inputs, not {len(node.inputs)}"
            continue
        yield from (f"{where} {problem}" for problem in _attributes(node))
        if node.op not in LEAVES:
            yield from (f"{where} {problem}" for problem in _shape(graph, node))
        yield from (f"{where} {problem}" for problem in _region(graph, node, after))


def _attributes(node: Node) -> Iterator[str]:
    if (node.axis is not None) != (node.op in REDUCTIONS or node.op in (Op.EXPAND, Op.ELEMENT)):
        yield "must have an axis if and only if it is a reduction, expand or element"
    if (node.merge_op is not None) != (node.op is Op.MERGE) or node.merge_op not in (None, *MERGE_OPS):
        yield f"must have a merge_op of {MERGE_OPS} if and only if it is a merge, not {node.merge_op!r}"
    if node.op is Op.CONST:
        if (node.value is None) == (node.extent is None):
            yield "must have either a value or an extent"
        if node.shape:
            yield "must be a scalar"
    elif (node.value is not None) != (node.op is Op.META) or node.extent is not None:
        yield "must have a value if and only if it is a meta, and no extent"
    # NaN differs from itself, and is a value that a rule may compute
    if node.value is not None and not (math.isnan(node.value) or round32(node.value) == node.value):
        yield f"must have a binary32 value, not {node.value!r}"
    if node.op is Op.TRAINING:
        yield "must be the number that it is in this graph"
    if node.op in LEAVES and node.op not in NAMELESS and not node.name:
        yield "must have a name"
    if node.classes is not None and node.op is not Op.INPUT and (node.op is not Op.OUTPUT or node.shape):
        yield "must be an input, or a scalar output, for its values to be numbered"
    if node.each_epoch is not None and (node.op is not Op.MODEL or node.shape):
        yield "must be a scalar model to change with each epoch"
    if node.table and (node.op is not Op.MODEL or not node.shape):
        yield "must be a model with an axis to be a table"
    if node.op is Op.ROW and node.shape:
        yield "must be a scalar"
    if node.op is Op.ARANGE and len(node.shape) != 1:
        yield "must be a vector"
    if any(isinstance(dim, int) and dim < 1 for dim in node.shape):
        yield f"must have extents of at least 1, not {shape_text(node.shape)}"


def _shape(graph: Graph, node: Node) -> Iterator[str]:
    try:
        expected = result_shape(node.op, [graph.nodes[i].shape for i in node.inputs], node.axis)
    except (ShapeMismatch, ValueError) as error:
        yield f"has operands that do not fit: {error}"
        return
    if expected != node.shape:
        yield f"must have shape {shape_text(expected)}, not {shape_text(node.shape)}"
    if node.op is Op.ELEMENT:
        extent, position = graph.nodes[node.inputs[0]].shape[node.axis or 0], graph.nodes[node.inputs[1]]
        if position.op is not Op.CONST:
            yield f"must have a const as its position, not {position.op}"
        elif position.value is not None and isinstance(extent, int) and not _is_row(position.value, extent):
            yield f"must have a position from 0 to {extent - 1}, not {position.value}"
    if node.op is Op.GATHER:
        model, index = (graph.nodes[i] for i in node.inputs)
        if model.op is not Op.MODEL:
            yield f"must select from a model, not from {model.op}"
        yield from _index_problems(index)


def _is_row(number: float, count: float) -> bool:
    # not `in range(count)`, which goes through all of the range to look for a float
    return 0 <= number < count and number == int(number)


def _index_problems(index: Node) -> Iterator[str]:
    if index.shape or (index.op is not Op.CONST and index.region is not Region.TUPLE):
        yield f"must be indexed by a scalar of the tuple or const, not by {index.op} of shape {shape_text(index.shape)}"
    if index.op is Op.CONST and (index.value is None or not _is_row(index.value, math.inf)):
        yield f"must be indexed by a whole number, not by {index.value}"


def _region(graph: Graph, node: Node, after: frozenset[int]) -> Iterator[str]:
    if node.op in LEAVES:
        if node.region is not LEAF_REGIONS.get(node.op, node.region):
            yield f"must be in region {LEAF_REGIONS[node.op]}, not {node.region}"
        return
    if node.op is Op.MERGE:
        if node.region is not Region.BATCH:
            yield f"must be in region batch, not {node.region}"
        source = graph.nodes[node.inputs[0]]
        if source.region is Region.BATCH and source.op is not Op.MODEL and source.id not in after:
            yield "must merge a value per tuple, or one that the batch's tuples share, not one of models per batch"
        return
    operands = [graph.nodes[i] for i in node.inputs]
    if any(operand.table for operand in operands) and (node.op is not Op.GATHER or node.region is not Region.TUPLE):
        yield "must read a table by rows, in region tuple"
    for operand in operands:
        # the leaf of a model stands in region BATCH, and tuples read it there
        allowed = operand.region in (Region.CONST, node.region) or (
            node.region is Region.TUPLE and (operand.op is Op.MODEL or operand.id in after)
        )
        if not allowed:
            yield f"in region {node.region} must not read node {operand.id} in region {operand.region}"
    # else it would be computed again for every tuple or batch
    if node.region is not Region.CONST and all(operand.region is Region.CONST for operand in operands):
        yield f"depends on nothing but consts, so it must be in region const, not {node.region}"


def _graph_problems(graph: Graph) -> Iterator[str]:
    for ids, ops, word in (
        (graph.inputs, FROM_ROW, "inputs"),
        (graph.models, (Op.MODEL,), "models"),
        (graph.metas, (Op.META,), "metas"),
    ):
        listed = sorted(ids)
        present = [node.id for node in graph.nodes if node.op in ops]
        if listed != present:
            yield f"{word} must list nodes {present} once each, not {listed}"
    names = [graph.nodes[i].name for i in (*graph.inputs, *graph.models, *graph.metas)]
    if len(set(names)) != len(names):
        yield f"names of leaves must differ: {names}"
    free = {part for node in graph.nodes for dim in node.extents for part in names_of(dim)}
    counted = set() if graph.unrolled is None else {name for name, _ in graph.unrolled.extents}
    if free | counted != set(graph.dims):
        yield f"dims must be {sorted(free | counted)}, not {graph.dims}"
    if free & counted or not counted <= set(dict(graph.extents)):
        yield f"loops must count dims that have an extent and are numbers in all nodes, not {sorted(counted)}"
    if not set(dict(graph.extents)) <= set(graph.dims) or any(extent < 1 for _, extent in graph.extents):
        yield f"extents must be of {graph.dims} and at least 1, not {graph.extents}"
    if graph.epochs < 1 or (graph.batch is not None and graph.batch < 1):
        yield f"epochs and batch must be at least 1, not {graph.epochs} and {graph.batch}"
    if not graph.has_merge and (graph.batch != 1 or graph.batch_meta is not None):
        yield f"a graph without merge must have batches of 1, not {graph.batch}"
    # it is read as a stream that keeps no tuple, and its end is the table's
    if graph.batch is None and graph.returns_to_rows:
        yield "a graph with the whole table as its batch must not use values of the batch in its tuples"
    if graph.batch_meta is not None and graph.batch_meta not in graph.metas:
        yield f"batch_meta must be a meta, not node {graph.batch_meta}"
    for update in graph.updates:
        yield from (f"update of node {update.model} {problem}" for problem in _update_problems(graph, update))
    yield from _problems_of_tables(graph)
    for word, root, region in (
        ("loss", graph.loss, Region.TUPLE),
        ("test_loss", graph.test_loss, Region.TUPLE),
        ("prediction", graph.prediction, Region.TUPLE),
        ("convergence", graph.convergence, Region.BATCH),
    ):
        if root is not None:
            shapes: tuple[Shape, ...] = ((),)
            if word == "prediction":
                own = graph.nodes[root].shape
                shapes = ((), (graph.classes,)) if graph.classes is not None else ((), own[:1])
            yield from (f"{word} {problem}" for problem in _root_problems(graph, graph.nodes[root], region, shapes))
    if graph.classes is not None and len([i for i in graph.inputs if graph.nodes[i].op is Op.OUTPUT]) > 1:
        yield "a graph with classes must have one output"
    if graph.prediction is not None:
        # a row to predict has no label, no weight and no batch
        unknown = (Op.OUTPUT, Op.WEIGHT, Op.ROW, Op.MERGE)
        found = [i for i in graph.reachable([graph.prediction]) if graph.nodes[i].op in unknown]
        if found:
            yield f"prediction must depend on no output, weight, row number or merge, not on {found}"


def _problems_of_tables(graph: Graph) -> Iterator[str]:
    for update in graph.updates:
        table = graph.nodes[update.model].table
        if table and (update.index is None or not (update.adds or update.at_once)):
            yield f"update of node {update.model} must write a row of a table at once, or add to it"
        if not table and (update.adds or update.at_once):
            yield f"update of node {update.model} must write a table to add or to apply at once"
    if not graph.tuple_by_tuple or graph.batch == 1:
        return
    if graph.returns_to_rows:
        yield "a graph with tuples that see each other's rows must not use values of the batch in its tuples"
    if any(graph.by_tuple(update) and not update.at_once for update in graph.updates):
        yield "a graph with tuples that see each other's rows must not keep rows for the batch's end"


def _root_problems(graph: Graph, node: Node, region: Region, shapes: tuple[Shape, ...]) -> Iterator[str]:
    if node.shape not in shapes:
        vector = "".join(f" or of shape {shape_text(one)}" for one in shapes if one)
        yield f"must be a scalar{vector}, not of shape {shape_text(node.shape)}"
    fits = node.region in (Region.CONST, region) or node.op is Op.MODEL
    fits = fits or (node.id in (graph.loss, graph.test_loss) and node.id in graph.after_merges)
    # a batch of one tuple has nothing to merge, so that its values per tuple are those of the batch
    if not fits and not (region is Region.BATCH and node.region is Region.TUPLE and not graph.has_merge):
        yield f"must be in region {region}, not {node.region}"


def _update_problems(graph: Graph, update: Update) -> Iterator[str]:
    model, value = graph.nodes[update.model], graph.nodes[update.value]
    if model.op is not Op.MODEL:
        yield f"must write a model, not {model.op}"
        return
    if model.each_epoch is EachEpoch.COUNT:
        yield "must not write what counts epochs"
    target = model.shape if update.index is None else model.shape[1:]
    try:
        fits = broadcast(value.shape, target) == target
    except ShapeMismatch:
        fits = False
    if not fits:
        yield f"must have a value that broadcasts to {shape_text(target)}, not {shape_text(value.shape)}"
    per_tuple = graph.by_tuple(update)
    if update.index is not None:
        yield from _index_problems(graph.nodes[update.index])
    # models and constants are available in each region
    if value.op is Op.MODEL or value.region is Region.CONST:
        return
    allowed = {Region.TUPLE} if per_tuple else {Region.BATCH}
    if update.adds and not update.at_once:
        allowed = {Region.TUPLE, Region.BATCH}
    if not graph.has_merge:
        allowed = {Region.TUPLE, Region.BATCH}
    if value.region not in allowed:
        yield f"must have a value in region {' or '.join(sorted(allowed))}, not {value.region}"
