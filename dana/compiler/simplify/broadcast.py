"""Vectors of one element that meet longer ones become scalars, which lie in every lane.

    before  %2 = mul %0 %1          (%0 [1], %1 [n])
    after   %2 = sigma %0 axis=0    %3 = mul %2 %1

A vector's element lies in one lane only; the sum over its one element is that element, in every lane. The same for the
value of a longer model.
"""

from __future__ import annotations

from dataclasses import replace

from dana.compiler.rewrite import Rewriter
from dsl.hdfg.graph import ELEMENTWISE, Graph, Node, Op, Region

SINGLE = (1,)


def spread_single_elements(graph: Graph) -> Graph:
    """The graph in which every operand of an elementwise operation is a scalar or has the result's length."""
    rewriter = Rewriter(graph)
    spread: dict[tuple[int, Region], int] = {}

    def scalar(operand: Node, user: Region) -> int:
        # a model is the one batch value that tuple code may read; what is made of it belongs to its user
        region = user if operand.op is Op.MODEL else operand.region
        if (operand.id, region) not in spread:
            spread[operand.id, region] = rewriter.add(
                Node(id=0, op=Op.SIGMA, inputs=(operand.id,), axis=0, region=region, span=operand.span)
            )
        return spread[operand.id, region]

    for node in graph.nodes:
        operands = rewriter.operands(node)
        if node.op in ELEMENTWISE and node.shape not in ((), SINGLE):
            inputs = (scalar(o, node.region) if o.shape == SINGLE else o.id for o in operands)
            rewriter.replace_by(node, rewriter.add(node, inputs=tuple(inputs)))
        else:
            rewriter.replace_by(node, rewriter.copy(node))
    spread_graph = rewriter.finish()
    updates = []
    for update in spread_graph.updates:
        value = rewriter.nodes[update.value]
        if value.shape == SINGLE and rewriter.nodes[update.model].shape not in ((), SINGLE):
            updates.append(replace(update, value=scalar(value, Region.BATCH)))
        else:
            updates.append(update)
    return replace(spread_graph, nodes=tuple(rewriter.nodes), updates=tuple(updates))
