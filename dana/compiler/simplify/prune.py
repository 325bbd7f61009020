"""Dead code: drops what no update, loss or convergence test is computed from.

    before  %2 = mul %0 %0   %3 = add %0 %1   setModel %1 <- %3
    after                    %2 = add %0 %1   setModel %1 <- %2

The prediction goes too: it is computed where the rows are, not on the machine; and the loss of rows that are left out,
for which a machine of its own is compiled. Inputs, models and metas stay, read or
not, for they are the rule's interface. If every merge is dead the first one stays, for a rule without any would have
batches of one tuple; nothing is computed for it.
"""

from dataclasses import replace

from dana.compiler.simplify.rewrite import Rewriter
from dsl.hdfg.graph import Graph, Op


def prune(graph: Graph) -> Graph:
    """The graph without dead nodes."""
    graph = replace(graph, prediction=None, test_loss=None)
    interface = (*graph.inputs, *graph.models, *graph.metas)
    live = graph.reachable((*graph.training_roots, *interface))
    merges = [node.id for node in graph.nodes if node.op is Op.MERGE]
    # `has_merge` decides what a batch is
    if merges and live.isdisjoint(merges):
        live |= graph.reachable(merges[:1])
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in live:
            rewriter.replace_by(node, rewriter.copy(node))
    return rewriter.finish()
