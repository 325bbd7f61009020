"""Common subexpressions: computes equal values once.

    before  %3 = sub %1 %2   %4 = sub %1 %2   %5 = mul %3 %4
    after   %3 = sub %1 %2                    %4 = mul %3 %3

Operands of commutative operations may stand in either order.
"""

from dana.compiler.simplify.rewrite import Rewriter, rewrite
from dsl.binary32 import bits_of
from dsl.hdfg.graph import LEAVES, NAMELESS, Graph, Node
from dsl.hdfg.ops import COMMUTATIVE


def share_subexpressions(graph: Graph) -> Graph:
    """The graph with one node for each value."""
    seen: dict[tuple[object, ...], int] = {}

    def rule(rewriter: Rewriter, node: Node) -> int | None:
        # leaves of one kind differ by name, even if all else is equal
        if node.op in LEAVES - NAMELESS:
            return None
        inputs = tuple(operand.id for operand in rewriter.operands(node))
        if node.op in COMMUTATIVE:
            inputs = tuple(sorted(inputs))
        # by bits, as -0.0 == 0.0 and NaN != NaN
        value = None if node.value is None else bits_of(node.value)
        key = (node.op, inputs, node.shape, node.region, value, node.axis, node.merge_op)
        if key not in seen:
            seen[key] = rewriter.copy(node)
        return seen[key]

    return rewrite(graph, rule)
