"""Computes and merges symmetric matrices of tuples by the rows of lanes at and above their diagonal.

    before  %4 = mul %2 %3           %5 = merge %4                     (%2 a column, %3 a row of one vector)
    after   %4 = upper %2   %5 = upper %3   %6 = mul %4 %5   %7 = merge %6   %8 = mirror %7

A matrix [n, n] is n rows of ceil(n / P) rows of lanes. Its *triangle* is, of each P rows in turn, those rows of lanes
that begin at the diagonal or behind it: a vector of whole rows of lanes. `upper` is a view of the rows that such an
operation reads; `mirror` makes the matrix of the triangle again, once for a batch. Only the compiler knows these two.

A value is symmetric if the same text makes it of its rows and of its columns, where products, sums and the other
operations of `COMMUTATIVE` may change their operands. So both elements of a pair have the same bits, and so have
merges of them.
"""

from dataclasses import replace
from functools import cache

from dana.compiler.place.sections import Plan, planned
from dana.compiler.simplify.rewrite import Rewriter
from dana.compiler.target import Target
from dsl.hdfg.graph import BINARY, UNARY, Graph, Node, Op, Region
from dsl.hdfg.ops import COMMUTATIVE


def strips(n: int, lanes: int) -> list[tuple[int, int, int]]:
    """(first row of lanes in the triangle, rows of the matrix, rows of lanes of each) of each P rows of a matrix."""
    found, first = [], 0
    for k in range(-(-n // lanes)):
        rows, wide = min(lanes, n - k * lanes), -(-n // lanes) - k
        found.append((first, rows, wide))
        first += rows * wide
    return found


def triangle_rows(n: int, lanes: int) -> int:
    """Rows of lanes of a triangle."""
    return sum(rows * wide for _, rows, wide in strips(n, lanes))


def mirror_rows(n: int, lanes: int) -> int:
    """Rows of operations that make a matrix of its triangle."""
    # each block behind the diagonal is transposed: a step for each bit of the lane number
    blocks = sum(wide - 1 for _, _, wide in strips(n, lanes))
    return triangle_rows(n, lanes) + blocks * lanes * (lanes - 1).bit_length()


def symmetric_values(plan: Plan) -> dict[int, int]:
    """Merges of symmetric matrices, and what only these are made of, with their extent."""
    found: dict[int, int] = {}
    for k in plan.section:
        node = plan.graph.nodes[k]
        if node.op is Op.MERGE and len(node.shape) == 2 and node.shape[0] == node.shape[1]:
            n = plan.graph.concrete_shape(k)[0]
            if n > 1 and plan.operands(k)[0] in plan.per_tuple and _symmetric(plan.graph, plan.operands(k)[0]):
                found[k] = n
    merges = {*found}
    readers: dict[int, set[int]] = {}
    for k in plan.section:
        for operand in plan.operands(k):
            readers.setdefault(operand, set()).add(k)
    roots = {*plan.graph.training_roots}
    for k in sorted(plan.section, reverse=True):
        near = readers.get(k, set()) & found.keys()
        if not near or k in merges:
            continue
        n = found[min(near)]
        node = plan.graph.nodes[k]
        elementwise = (node.op in UNARY or node.op in BINARY) and node.shape == (n, n) and k in plan.per_tuple
        if elementwise and readers[k] <= found.keys() and k not in roots:
            found[k] = n
    # where other nodes read the merged value, too, only the merge itself could be saved
    return {k: n for k, n in found.items() if k not in merges or plan.operands(k)[0] in found}


def fold_symmetric(plan: Plan, target: Target) -> Plan:
    """The plan with triangles instead of symmetric matrices, where that saves rows."""
    # in a pause the host joins whole matrices
    if not target.triangles or target.pauses or not target.crossed or plan.alone:
        return plan
    # tuples of a thread in a batch; a batch of the whole table counts as the longest possible
    lanes, tuples = target.lanes, target.group * -(-plan.batch // target.round_tuples)

    def pays(n: int) -> bool:
        rows = triangle_rows(n, lanes)
        # a row is computed and merged; a thread's shard of the merge is joined in less than two rows each
        saved, spent = 2 * (n * -(-n // lanes) - rows) * tuples, mirror_rows(n, lanes) + 2 * rows
        return n > lanes and saved > spent

    made = {k: n for k, n in symmetric_values(plan).items() if pays(n)}
    if not made:
        return plan
    rewriter = Rewriter(plan.graph)
    for node in plan.graph.nodes:
        new = _folded(rewriter, node, made, lanes)
        rewriter.replace_by(node, rewriter.copy(node) if new is None else new)
    elements = {rewriter.new(k): (rewriter.new(column), at) for k, (column, at) in plan.elements.items()}
    return planned(rewriter.finish(), elements, joined=plan.joined)


def _folded(rewriter: Rewriter, node: Node, made: dict[int, int], lanes: int) -> int | None:
    n = made.get(node.id)
    if n is None:
        return None
    shape = (lanes * triangle_rows(n, lanes),)
    if node.op is Op.MERGE:
        merged = rewriter.add(node, inputs=tuple(rewriter.new(k) for k in node.inputs), shape=shape)
        return rewriter.add(node, op=Op.MIRROR, inputs=(merged,), merge_op=None, name=None)
    operands = []
    for k in node.inputs:
        new = rewriter.new(k)
        # of one element, or a triangle itself
        if k not in made and rewriter.nodes[new].shape not in ((), (1,), (1, 1)):
            like = replace(node, op=Op.UPPER, name=None, region=Region.TUPLE)
            new = rewriter.add(like, inputs=(new,), shape=shape)
        operands.append(new)
    return rewriter.add(node, inputs=tuple(operands), shape=shape)


def _symmetric(graph: Graph, k: int) -> bool:
    """Whether a matrix has the same bits if rows and columns change places."""
    nodes = graph.nodes

    def vector(k: int) -> tuple[int, bool] | None:
        """The vector that a value repeats along rows or columns, and whether its elements are rows'."""
        shape = graph.concrete_shape(k)
        column = len(shape) == 2 and shape[1] == 1
        while nodes[k].op is Op.EXPAND:
            k = nodes[k].inputs[0]
        return (k, column) if len(graph.concrete_shape(k)) == 1 and 1 in (len(shape), *shape) else None

    @cache
    def mirrored(a: int, b: int) -> bool:
        if all(extent == 1 for extent in graph.concrete_shape(a)):
            return a == b
        one, other = vector(a), vector(b)
        if one is not None and other is not None and one[0] == other[0]:
            return one[1] != other[1]
        if nodes[a].op is not nodes[b].op or not (nodes[a].op in UNARY or nodes[a].op in BINARY):
            return False
        first, second = nodes[a].inputs, nodes[b].inputs
        if all(mirrored(p, q) for p, q in zip(first, second, strict=True)):
            return True
        return nodes[a].op in COMMUTATIVE and all(mirrored(p, q) for p, q in zip(first, reversed(second), strict=True))

    return mirrored(k, k)
