"""Replaces elements by operations of the machine: a mask sets all other elements of the axis to zero, then a sum.

    before  %2 = element %0 %1 axis=0
    after   %3 = eq %2 %1   %5 = where %3 %0 %4   %6 = sigma %5 axis=0     (%2 = arange, %4 = const -0.0)

Adding -0 changes no bit of an element.
"""

from collections.abc import Callable
from dataclasses import replace

from dana.compiler.simplify.rewrite import Rewriter, rewrite
from dsl.hdfg.choice import element_of
from dsl.hdfg.graph import Graph, Node, Op, Region

NOTHING = -0.0


def expand_elements(
    graph: Graph, *, where: Callable[[Node], bool] = lambda node: True
) -> tuple[Graph, dict[int, tuple[int, int]]]:
    """Replace the elements for which `where` holds.

    Returns
    -------
    tuple
        The graph, and for each node that replaces an element of an input: the input's node and the position.
    """
    made: dict[tuple[object, ...], int] = {}
    elements: dict[int, tuple[int, int]] = {}

    def rule(rewriter: Rewriter, node: Node) -> int | None:
        if node.op is not Op.ELEMENT or not where(node):
            return None

        def once(op: Op, inputs: tuple[int, ...], region: Region, **attributes: object) -> int:
            """Add a node, or return the equal one that another element has added."""
            key = (op, inputs, *attributes.values())
            if key not in made:
                plain = Node(id=0, op=op, region=region, span=node.span)
                made[key] = rewriter.add(plain, inputs=inputs, **attributes)
            return made[key]

        value, position = rewriter.operands(node)
        assert node.axis is not None
        extent, behind = value.shape[node.axis], len(value.shape) - node.axis - 1
        numbers = once(Op.ARANGE, (), Region.CONST, shape=(extent,))
        mask = once(Op.EQ, (numbers, position.id), Region.CONST, shape=(extent,))
        for axis in range(1, behind + 1):
            mask = once(Op.EXPAND, (mask,), Region.CONST, shape=(extent, *(1,) * axis), axis=axis)
        # +0.0 would turn an element of -0.0 into +0.0
        nothing = once(Op.CONST, (), Region.CONST, value=NOTHING)
        chosen = rewriter.add(
            replace(node, op=Op.WHERE, axis=None, name=None), inputs=(mask, value.id, nothing), shape=value.shape
        )
        found = rewriter.add(node, op=Op.SIGMA, inputs=(chosen,))
        if (element := element_of(graph, node.id)) is not None:
            elements[found] = value.id, element[1]
        return found

    return rewrite(graph, rule), elements
