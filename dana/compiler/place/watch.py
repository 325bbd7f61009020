"""Which columns of a table choose rows, so that tuples that share none may run in parallel.

In: a simplified graph. Out: a `Watched` for each column and model, none for a rule that must run tuple by tuple.

A rule without merges has batches of one tuple. Tuples that touch no row in common commute: several of them may be a
batch, if it ends where a tuple chooses a row that an earlier one of it writes (docs/machine.md, "Watched columns"). So
all that a tuple leaves behind must be rows that columns choose; the loss is added tuple by tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsl.hdfg.graph import FROM_ROW, PER_TUPLE, Graph, Op
from hwgen.spec.columns import MAX_TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A column that chooses rows of a model, or of models with rows that are only chosen together.

    Attributes
    ----------
    input, element
        The rule's input, and the element of it.
    table
        Number of these models, from 1.
    models
        The models' nodes.
    writes
        Whether the tuple writes the row.
    """

    input: str
    element: int
    table: int
    models: tuple[int, ...]
    writes: bool


def element_in(graph: Graph, elements: Mapping[int, tuple[int, int]], node: int) -> tuple[int, int] | None:
    """Input and position of a value that is one element of an input; a scalar input has position 0."""
    found = graph.nodes[node]
    return (node, 0) if found.op in FROM_ROW and not found.shape else elements.get(node)


def watched_columns(graph: Graph, elements: Mapping[int, tuple[int, int]]) -> tuple[Watched, ...]:
    """Columns to watch so that tuples can run in parallel; none if they cannot.

    For a graph without updates, these are the columns that choose rows of models read by rows alone.
    """
    if graph.batch != 1:
        return ()
    needed = graph.reachable(graph.training_roots)
    if graph.convergence is not None:
        # the test reads the values of the last tuple, and of tuples side by side none is the last
        test = [graph.nodes[k].op for k in graph.reachable([graph.convergence])]
        if any(op in PER_TUPLE or op is Op.MODEL for op in test):
            return ()
    chosen: dict[tuple[int, int, int], bool] = {}
    for update in graph.updates:
        # a number that is computed is not known when the tuple arrives, so that no hardware can watch it
        if update.index is None or (column := element_in(graph, elements, update.index)) is None:
            return ()
        chosen[*column, update.model] = True
    whole = set[int]()
    for node in (graph.nodes[k] for k in sorted(needed)):
        for position, operand in enumerate(node.inputs):
            if graph.nodes[operand].op is not Op.MODEL:
                continue
            column = element_in(graph, elements, node.inputs[1]) if node.op is Op.GATHER and not position else None
            if column is None:
                whole.add(operand)
            else:
                chosen.setdefault((*column, operand), False)
    written = dict.fromkeys(update.model for update in graph.updates)
    # a tuple that reads all rows sees what another one writes
    if not whole.isdisjoint(written):
        return ()
    tables = list(written or dict.fromkeys(model for *_, model in chosen if model not in whole))
    chosen = {one: writes for one, writes in chosen.items() if one[-1] in tables}
    # models indexed by the same columns in the same way conflict in the same tuples: one comparison is enough
    ways = {
        table: (
            graph.concrete_shape(table)[0],
            frozenset((*column, writes) for (*column, model), writes in chosen.items() if model == table),
        )
        for table in tables
    }
    # in the order of their first use, so that numbers are the same in each compilation
    numbers = {way: k for k, way in enumerate(dict.fromkeys(ways.values()), 1)}
    if len(numbers) > MAX_TABLES:
        return ()
    watched = {(k, element, numbers[ways[model]], writes): None for (k, element, model), writes in chosen.items()}
    models = {t: tuple(model for model in sorted(tables) if numbers[ways[model]] == t) for t in numbers.values()}
    return tuple(
        Watched(input=graph.nodes[k].name or "", element=element, table=table, models=models[table], writes=writes)
        for k, element, table, writes in watched
    )


def rows_written(watched: Sequence[Watched]) -> int:
    """Rows that a tuple writes; at least one if columns are watched, as the hardware has room for at least one."""
    return max(sum(one.writes for one in watched), bool(watched))
