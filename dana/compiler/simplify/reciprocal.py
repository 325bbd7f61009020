"""Division by a power of two becomes multiplication by its reciprocal, which rounds to the same bits.

    before  %3 = div %2 64
    after   %3 = mul %2 0.015625

A division takes a special function unit for dozens of cycles, a multiplication one cycle of every lane. A divisor stays
if its reciprocal is not a normal binary32 number.
"""

import math

from dana.compiler.simplify.rewrite import Rewriter, rewrite
from dsl.hdfg.graph import Graph, Node, Op


def divide_by_powers_of_two(graph: Graph) -> Graph:
    """The graph without divisions by literal powers of two."""
    return rewrite(graph, _reciprocal)


def _reciprocal(rewriter: Rewriter, node: Node) -> int | None:
    if node.op is not Op.DIV:
        return None
    dividend, divisor = rewriter.operands(node)
    if divisor.op is not Op.CONST or divisor.value is None or not math.isfinite(divisor.value) or divisor.value == 0.0:
        return None
    mantissa, exponent = math.frexp(divisor.value)
    # frexp gives [0.5, 1): a power of two is 0.5 exactly; the machine flushes a reciprocal that is not normal
    if abs(mantissa) != 0.5 or not -126 <= exponent - 1 <= 126:
        return None
    factor = rewriter.constant(1.0 / divisor.value, divisor)
    return rewriter.add(node, op=Op.MUL, inputs=(dividend.id, factor))
