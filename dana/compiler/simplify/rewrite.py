"""New graph from old, node by node.

In: a graph. Out: a graph with other nodes, renumbered, every reference into it carried along. It decides nothing; the
passes of `dana.compiler.simplify` do.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dsl.hdfg.graph import Graph, Node, Op, Region


class Rewriter:
    """Collects the nodes of a new graph: `nodes`, so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self._new: dict[int, int] = {}

    def copy(self, node: Node) -> int:
        """Add an old node, its operands renumbered; returns the new id."""
        return self.add(node, inputs=tuple(self._new[operand] for operand in node.inputs))

    def add(self, node: Node, **changes: Any) -> int:
        """Add a copy of `node` with `changes`, in which operands are new ids; returns the new id."""
        self.nodes.append(replace(node, id=len(self.nodes), **changes))
        return len(self.nodes) - 1

    def constant(self, value: float, like: Node) -> int:
        """Add a literal; it takes the span of the node it stands in for."""
        self.nodes.append(Node(id=len(self.nodes), op=Op.CONST, region=Region.CONST, value=value, span=like.span))
        return len(self.nodes) - 1

    def new(self, node: int) -> int:
        """The new id that stands for an old node."""
        return self._new[node]

    def operands(self, node: Node) -> tuple[Node, ...]:
        """The new nodes that stand for the operands of an old one."""
        return tuple(self.nodes[self._new[operand]] for operand in node.inputs)

    def replace_by(self, node: Node, new: int) -> None:
        """Let a new id stand for an old node."""
        self._new[node.id] = new

    def finish(self) -> Graph:
        """The new graph."""
        # a reference to a node that was dropped is a KeyError here: a pass keeps what the graph names
        graph, new = self.graph, self._new

        def carried(node: int | None) -> int | None:
            return None if node is None else new[node]

        return replace(
            graph,
            nodes=tuple(self.nodes),
            inputs=tuple(new[node] for node in graph.inputs),
            models=tuple(new[node] for node in graph.models),
            metas=tuple(new[node] for node in graph.metas),
            updates=tuple(
                replace(update, model=new[update.model], value=new[update.value], index=carried(update.index))
                for update in graph.updates
            ),
            loss=carried(graph.loss),
            test_loss=carried(graph.test_loss),
            prediction=carried(graph.prediction),
            convergence=carried(graph.convergence),
            batch_meta=carried(graph.batch_meta),
        )


def rewrite(graph: Graph, rule: Callable[[Rewriter, Node], int | None]) -> Graph:
    """Rebuild a graph: `rule` returns the new id that stands for a node, or None to keep the node as it is."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        new = rule(rewriter, node)
        rewriter.replace_by(node, rewriter.copy(node) if new is None else new)
    return rewriter.finish()
