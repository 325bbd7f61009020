"""Constant folding: computes what depends on literals alone, and drops operations that change no bit.

    before  %0 = const 2   %1 = const 3   %2 = mul %0 %1   %4 = mul %3 1
    after   %2 = const 6                                   %3

Dropped are x * 1, x / 1, x - 0 and -(-x). x + 0 is not among them: it turns -0 into +0.
"""

import math

from dana.compiler.simplify.rewrite import Rewriter, rewrite
from dsl.hdfg.arithmetic import function
from dsl.hdfg.graph import ELEMENTWISE, Graph, Node, Op
from hwgen.spec import numerics

ARITHMETIC = {op: function(numerics, op) for op in ELEMENTWISE}


def fold_constants(graph: Graph) -> Graph:
    """The graph with literals in place of what is computed from literals alone."""
    return rewrite(graph, _fold)


def _fold(rewriter: Rewriter, node: Node) -> int | None:
    if node.op not in ARITHMETIC:
        return None
    operands = rewriter.operands(node)
    values = [operand.value for operand in operands if operand.op is Op.CONST and operand.value is not None]
    if len(values) == len(operands):
        return rewriter.constant(float(ARITHMETIC[node.op](*values)), node)
    if node.op is Op.NEG and operands[0].op is Op.NEG:
        return operands[0].inputs[0]
    for kept, dropped in ((0, 1), (1, 0)):
        if len(operands) == 2 and operands[kept].shape == node.shape and _neutral(node.op, operands[dropped], dropped):
            return operands[kept].id
    return None


def _neutral(op: Op, operand: Node, position: int) -> bool:
    """Whether the other operand is the result, bit for bit."""
    if operand.op is not Op.CONST or operand.value is None:
        return False
    if op is Op.MUL or (op is Op.DIV and position == 1):
        # subnormals are flushed where values enter, so that a product with 1 changes no bit
        return operand.value == 1.0
    if op is Op.SUB and position == 1:
        return operand.value == 0.0 and math.copysign(1.0, operand.value) > 0
    return op is Op.ADD and operand.value == 0.0 and math.copysign(1.0, operand.value) < 0
