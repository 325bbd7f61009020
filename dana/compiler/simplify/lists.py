"""Takes rows of a table that are chosen one by one, by the elements of a column, as one value.

    before  %4 = gather %0 %2   %5 = gather %0 %3   %6 = where (arange == 1) %5 %4      (%2, %3 elements 0 and 1 of %1)
            update %0[%2] += element %9 0   update %0[%3] += element %9 1
    after   %6 = gather %0 %1   update %0[%1] += %9

The index file has an entry for each element then, and no element has to be moved. Only the compiler and `dana.jit`
know such nodes: what is before is how a rule says it, and what the interpreter works on.
"""

from collections.abc import Sequence
from dataclasses import replace

from dana.compiler.simplify.prune import prune
from dana.compiler.simplify.rewrite import Rewriter, rewrite
from dsl.hdfg.choice import element_of
from dsl.hdfg.graph import Graph, Node, Op, Update
from hwgen.spec.config import MAX_INDEX_DEPTH


def join_rows(graph: Graph) -> Graph:
    """The graph with such values and updates, where all that is read and written of a table is so."""
    if graph.batch is None or graph.batch == 1 or graph.tuple_by_tuple:
        return graph
    needed = graph.reachable(graph.training_roots)
    found = {k: joined for k in needed if (joined := _list(graph, k)) is not None}
    # a list is made item by item, and what it has half-way is a list of its own
    found = {k: joined for k, joined in found.items() if not any(k == graph.nodes[other].inputs[2] for other in found)}
    for model in dict.fromkeys(model for model, _ in found.values()):
        lists = {k: column for k, (of, column) in found.items() if of == model}
        rest = _tried(graph, model, lists)
        if rest is not graph:
            return join_rows(rest)
    return graph


def _tried(graph: Graph, model: int, lists: dict[int, int]) -> Graph:
    """The graph with the lists of a table joined, or as it is."""
    added = [update for update in graph.updates if update.model == model]
    joined = _update(graph, added) if added else None
    columns = {*lists.values(), *(() if joined is None or joined.index is None else (joined.index,))}
    sizes = [graph.concrete_shape(k)[0] for k in columns]
    entries = max(sizes) << (max(graph.batch or 1, 1) - 1).bit_length()
    if (added and joined is None) or len(graph.concrete_shape(model)) != 1 or entries > MAX_INDEX_DEPTH:
        return graph
    updates = list(graph.updates)
    if joined is not None:
        updates[updates.index(added[0])] = joined
        updates = [update for update in updates if update not in added]

    def rule(rewriter: Rewriter, node: Node) -> int | None:
        if node.id not in lists:
            return None
        own = tuple(rewriter.new(k) for k in (model, lists[node.id]))
        return rewriter.add(node, op=Op.GATHER, inputs=own)

    made = prune(rewrite(replace(graph, updates=tuple(updates)), rule))
    name = graph.nodes[model].name
    chosen = [node for node in made.nodes if node.op is Op.GATHER and made.nodes[node.inputs[0]].name == name]
    # rows that are read apart, too, would be read by entries of another kind
    return made if all(made.nodes[node.inputs[1]].shape for node in chosen) else graph


def _list(graph: Graph, k: int) -> tuple[int, int] | None:
    """Table and column, if a value is rows of the one chosen by all elements of the other, in order."""
    nodes, at = graph.nodes, k
    count = nodes[k].shape[0] if len(nodes[k].shape) == 1 else 0
    if nodes[k].op is not Op.WHERE or not isinstance(count, int):
        return None
    found: set[tuple[int, int] | None] = set()
    for position in reversed(range(count)):
        item = at
        if position:
            if nodes[at].op is not Op.WHERE or _position(graph, nodes[at].inputs[0], count) != position:
                return None
            item, at = nodes[at].inputs[1:]
        found.add(_row(graph, item, position, count))
    return found.pop() if len(found) == 1 else None


def _position(graph: Graph, mask: int, count: int) -> int | None:
    """The element of a vector of `count` that a mask chooses."""
    node = graph.nodes[mask]
    operands = [graph.nodes[i] for i in node.inputs]
    numbers = [one.value for one in operands if one.op is Op.CONST]
    counts = [one for one in operands if one.op is Op.ARANGE and one.shape == (count,)]
    chosen = node.op is Op.EQ and len(numbers) == len(counts) == 1 and numbers[0] is not None
    return int(numbers[0] or 0) if chosen else None


def _row(graph: Graph, k: int, position: int, count: int) -> tuple[int, int] | None:
    """Table and column, if a value is the row of the one that an element of the other chooses."""
    node = graph.nodes[k]
    if node.op is not Op.GATHER or not graph.nodes[node.inputs[0]].table:
        return None
    return (node.inputs[0], column) if (column := _column(graph, node.inputs[1], position, count)) is not None else None


def _column(graph: Graph, k: int, position: int, count: int) -> int | None:
    """The column of `count` numbers, if a value is its element at a position."""
    element = element_of(graph, k)
    if element is None or element[1] != position or graph.nodes[element[0]].shape != (count,):
        return None
    return element[0]


def _update(graph: Graph, updates: Sequence[Update]) -> Update | None:
    """One update in the place of a table's all, if they add all elements of a value, in order, to a column's rows."""
    count = len(updates)
    found: set[tuple[int | None, int | None]] = set()
    for position, update in enumerate(updates):
        value = graph.nodes[update.value]
        if not update.adds or update.at_once or update.index is None or value.op is not Op.ELEMENT:
            return None
        vector, at = (graph.nodes[i] for i in value.inputs)
        if vector.shape != (count,) or at.value != position:
            return None
        found.add((_column(graph, update.index, position, count), vector.id))
    (column, vector_id), *others = found
    if column is None or vector_id is None or others:
        return None
    return replace(updates[0], value=vector_id, index=column)
