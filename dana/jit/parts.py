"""For tuples that see one another's models: values independent of the models, and values no model depends on.

In: a graph without merges, and when each value is computed. Out: the values of the parts that a block of tuples is
computed for at a time, before its tuples have their turn (numbers drawn at random) and after (the loss's functions).
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from dsl.hdfg.graph import ELEMENTWISE, LEAVES, Graph, Op
from dsl.hdfg.ops import FROM_ROW, ROW_NUMBERS

MANY = 8
"""Operations of a part without a function for which a block is worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Values by part, and the models that only count tuples."""

    early: frozenset[int]
    late: frozenset[int]
    counters: frozenset[int]


def find_parts(graph: Graph, of_tuples: Collection[int], epoch: frozenset[int], functions: Collection[Op]) -> Parts:
    """The parts of a graph without merges.

    Parameters
    ----------
    graph
        Bound and simplified.
    of_tuples
        What is computed of each tuple.
    epoch
        What is the same in a whole epoch.
    functions
        What takes a block of tuples not much longer than a tuple.
    """
    scalars = {k for k in of_tuples if not graph.concrete_shape(k)}
    counters = frozenset(update.model for update in graph.updates if _counts(graph, update.model, update.value))
    read = {i for k, node in enumerate(graph.nodes) if k not in of_tuples for i in node.inputs}
    # a counter that is read once a batch would need its value at that time
    counters -= read  # of a tuple each reader knows which it is
    early: set[int] = set()
    for k in sorted(scalars):
        node = graph.nodes[k]
        computed = node.op in ELEMENTWISE and _from(graph, k, early | counters | epoch)
        if computed or node.op in FROM_ROW or node.op is Op.ROW:
            early.add(k)
    if not _worth(graph, early, functions):
        early, counters = {k for k in early if graph.nodes[k].op in LEAVES}, frozenset()
    return Parts(early=frozenset(early), late=_late(graph, scalars, early, epoch, functions), counters=counters)


def _late(
    graph: Graph, scalars: set[int], early: set[int], epoch: frozenset[int], functions: Collection[Op]
) -> frozenset[int]:
    """Values kept for each tuple that only the loss reads: the models have changed by then."""
    roots = [k for update in graph.updates for k in (update.value, update.index) if k is not None]
    roots += [] if graph.convergence is None else [graph.convergence]
    earlier = graph.reachable(roots)
    kept = {k for k in scalars if graph.nodes[k].op not in LEAVES | {Op.EXPAND, Op.ELEMENT, Op.GATHER}}
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for k in graph.reachable(graph.training_roots):
        for operand in graph.nodes[k].inputs:
            readers[operand].append(k)
    late: set[int] = set()
    # readers first, as their ids are larger
    for k in sorted(scalars - earlier - early, reverse=True):
        # what is computed in a tuple's turn cannot read it
        alone = late.issuperset(readers[k])
        if alone and graph.nodes[k].op in ELEMENTWISE and _from(graph, k, kept | early | epoch):
            late.add(k)
    if graph.loss not in late or not any(graph.nodes[k].op in functions for k in late):
        return frozenset()
    return frozenset(late)


def _from(graph: Graph, k: int, known: set[int] | frozenset[int]) -> bool:
    return all(i in known and not graph.concrete_shape(i) for i in graph.nodes[k].inputs)


def _worth(graph: Graph, part: set[int], functions: Collection[Op]) -> bool:
    computed = [k for k in part if graph.nodes[k].op not in LEAVES]
    return len(computed) >= MANY or any(graph.nodes[k].op in functions for k in computed)


def _counts(graph: Graph, model: int, value: int) -> bool:
    """Whether a model is one more after each tuple, modulo `ROW_NUMBERS`."""
    nodes = graph.nodes

    def is_(k: int, op: Op) -> bool:
        return nodes[k].op is op

    def constant(k: int, number: float) -> bool:
        return nodes[k].op is Op.CONST and nodes[k].value == number

    if nodes[model].each_epoch is None or not is_(value, Op.SUB):
        return False
    total, over = nodes[value].inputs
    # the pattern that `dsl.semantics.counting.count_rows` records; of another the models are computed in turn
    if not is_(total, Op.ADD) or not is_(over, Op.MUL) or nodes[total].inputs[0] != model:
        return False
    crossed, most = nodes[over].inputs
    return (
        constant(nodes[total].inputs[1], 1.0)
        and constant(most, float(ROW_NUMBERS))
        and is_(crossed, Op.GE)
        and nodes[crossed].inputs == (total, most)
    )
