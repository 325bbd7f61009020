"""How the rows of models are chosen: by which numbers of a tuple.

In: a graph. Out: for the node of a row's number, where the tuple says it.
"""

from __future__ import annotations

from collections.abc import Callable

from dsl.hdfg.dims import names_of
from dsl.hdfg.graph import FROM_ROW, REDUCTIONS, Graph, Node, Op

__all__ = [
    "category_inputs",
    "choosing_elements",
    "choosing_inputs",
    "computed_from",
    "element_of",
    "growing_models",
    "takes_categories",
]


def element_of(graph: Graph, k: int) -> tuple[int, int] | None:
    """Return (input, position) if a value is one element of an input, `x[1]`; a scalar input has position 0."""
    nodes = graph.nodes
    if nodes[k].op in FROM_ROW and not nodes[k].shape:
        return k, 0
    if nodes[k].op is not Op.ELEMENT:
        return None
    # a position that depends on a dim has no value before `Graph.bind`
    vector, position = (nodes[i] for i in nodes[k].inputs)
    known = vector.op in FROM_ROW and len(vector.shape) == 1 and position.value is not None
    return (vector.id, int(position.value or 0)) if known else None


def computed_from(graph: Graph, k: int, element: Callable[[int], tuple[int, int] | None]) -> tuple[int, int] | None:
    """The input and the position in it of the one number that a value is computed from; None: of others, too.

    `element` returns both for a value that is an element of an input.
    """
    # a loop, not recursion: unrolled rules have chains longer than Python's limit of 1,000 frames
    waiting, seen, found = [k], {k}, set[tuple[int, int]]()
    while waiting:
        one = waiting.pop()
        number = element(one)
        if number is not None:
            found.add(number)
        elif graph.nodes[one].op in (Op.CONST, Op.ARANGE) or graph.nodes[one].inputs:
            waiting += [i for i in graph.nodes[one].inputs if i not in seen]
            seen.update(graph.nodes[one].inputs)
        else:
            return None
    # of several numbers none alone explains the row
    return found.pop() if len(found) == 1 else None


def category_inputs(graph: Graph) -> tuple[Node, ...]:
    """Inputs declared with `categories`."""
    inputs = (graph.nodes[k] for k in graph.inputs)
    return tuple(node for node in inputs if node.op is Op.INPUT and node.classes is not None)


def choosing_elements(graph: Graph) -> set[tuple[str, int]]:
    """Input and position in it of the numbers that choose rows of a model as they are."""
    indices = [update.index for update in graph.updates if update.index is not None]
    indices += [node.inputs[1] for node in graph.nodes if node.op is Op.GATHER]
    elements = (element_of(graph, k) for k in indices)
    return {(str(graph.nodes[of[0]].name), of[1]) for of in elements if of is not None}


def choosing_inputs(graph: Graph) -> set[str]:
    """Names of inputs that are declared with `categories` or index rows of a model directly."""
    categories = {str(node.name) for node in category_inputs(graph)}
    return categories | {name for name, _ in choosing_elements(graph)}


def growing_models(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By dim that counts categories: the models with a row for each; none where one has them in other ways, too."""
    models = [graph.nodes[k] for k in graph.models]
    found: dict[str, tuple[str, ...]] = {}
    for dim in dict.fromkeys(str(graph.symbolic_count(node)) for node in category_inputs(graph)):
        shapes = {str(node.name): graph.symbolic_shape(node) for node in models}
        counted = {name: [dim in names_of(axis) for axis in shape] for name, shape in shapes.items()}
        having = [name for name, axes in counted.items() if any(axes)]
        # a model that has the dim on a later axis, or in a product such as n * 2, does not grow by a row at its end
        if all(str(shapes[name][0]) == dim and not any(counted[name][1:]) for name in having):
            found[dim] = tuple(having)
    return found


def takes_categories(graph: Graph) -> bool:
    """Whether single numbers of an input are categories, or choose rows of a model: no more is computed of them."""
    indices = (update.index for update in graph.updates if update.index is not None)
    return bool(category_inputs(graph)) or any(_of_elements(graph, k) for k in indices)


def _of_elements(graph: Graph, k: int) -> bool:
    """Whether a value follows from elements of inputs, and from no reduction."""
    waiting, seen, elements = [k], {k}, 0
    while waiting:
        one = waiting.pop()
        if element_of(graph, one) is not None:
            elements += 1
            continue
        # what is reduced depends on all of an axis, not on single numbers
        if graph.nodes[one].op in REDUCTIONS:
            return False
        waiting += [i for i in graph.nodes[one].inputs if i not in seen]
        seen.update(graph.nodes[one].inputs)
    return elements > 0
