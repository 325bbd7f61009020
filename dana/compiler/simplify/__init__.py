"""Passes over the graph, each Graph to Graph, each leaving every value's bits as they are."""

from __future__ import annotations

from collections.abc import Callable

from dana.compiler.simplify.constants import fold_constants
from dana.compiler.simplify.prune import prune
from dana.compiler.simplify.reciprocal import divide_by_powers_of_two
from dana.compiler.simplify.share import share_subexpressions
from dsl.hdfg.graph import Graph

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold_constants,  # first: a folded divisor may be a power of two
    divide_by_powers_of_two,
    share_subexpressions,
    prune,  # last: the passes before leave dead nodes behind
)


def simplify(graph: Graph) -> Graph:
    """Run the passes in order."""
    for run in PASSES:
        graph = run(graph)
    return graph
