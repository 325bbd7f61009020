"""Nodes in words: what the listing and the picture call a value and an operation.

In: a graph. Out: short texts in the rule language's own signs. Must not: place anything, or be read back
(`dsl.hdfg.text` can be).
"""

from __future__ import annotations

from dsl.binary32 import round32
from dsl.hdfg.graph import Graph, Node
from dsl.hdfg.ops import FROM_ROW, Op, Region

SIGNS = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.DIV: "/",
    Op.LT: "<",
    Op.GT: ">",
    Op.LE: "<=",
    Op.GE: ">=",
    Op.EQ: "==",
}
MERGE_SIGNS = {"add": "+", "mul": "*", "max": "max", "min": "min"}
BINDING = (" ", "+", "-", "*")
"""Operators that make an expression need brackets inside another one."""
LONGEST = 40
"""Characters of a constant expression that is written where it is used; a longer one has a line of its own."""


class Words:
    """Texts for the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        count: dict[str | None, int] = {}
        for node in graph.nodes:
            count[node.name] = count.get(node.name, 0) + 1
        # a name assigned twice stands for two nodes, so that both are shown by number
        self._unique = {name for name, number in count.items() if name is not None and number == 1}
        self._inline: dict[int, str] = {}
        for node in graph.nodes:  # in topological order, so that no expression is written twice
            text = self._written_in_place(node)
            if text is not None and len(text) <= LONGEST:
                self._inline[node.id] = text

    def is_inline(self, node: int) -> bool:
        """Whether a value is written where it is used: leaves, rows, and short expressions of constants."""
        return node in self._inline

    def name(self, node: int) -> str:
        """What others call a value."""
        if node in self._inline:
            return self._inline[node]
        name = self._graph.nodes[node].name
        return name if name is not None and name in self._unique else f"%{node}"

    def formula(self, node: Node) -> str:
        """An operation with its operands."""
        sign = node.op in SIGNS
        return self.operation(node, [self._bracketed(i) if sign else self.name(i) for i in node.inputs])

    def operation(self, node: Node, operands: list[str]) -> str:
        """An operation on operands that are given as text."""
        if node.op in SIGNS:
            return f"{operands[0]} {SIGNS[node.op]} {operands[1]}"
        if node.op is Op.NEG:
            return f"-{operands[0]}"
        if node.op is Op.MERGE:
            return f'merge({operands[0]}, "{MERGE_SIGNS[node.merge_op or ""]}")'
        if node.op is Op.GATHER:
            return f"{operands[0]}[{operands[1]}]"
        if node.op is Op.ELEMENT:
            return f"{operands[0]}[{':, ' * (node.axis or 0)}{operands[1]}]"
        if node.op is Op.ARANGE:
            return f"arange({node.shape[0]})"
        if node.axis is not None:
            operands = [*operands, str(node.axis + 1)]
        return f"{node.op.value}({', '.join(operands)})"

    def _written_in_place(self, node: Node) -> str | None:
        if node.op is Op.CONST:
            return str(node.extent) if node.extent is not None else number_text(node.value or 0.0)
        if node.op in FROM_ROW or node.op in (Op.MODEL, Op.META):
            return node.name
        if node.op is not Op.GATHER and node.region is not Region.CONST:
            return None
        return self.formula(node) if all(i in self._inline for i in node.inputs) else None

    def _bracketed(self, node: int) -> str:
        text = self.name(node)
        # a leading minus alone needs no brackets
        return f"({text})" if node in self._inline and any(sign in text[1:] for sign in BINDING) else text


def number_text(number: float) -> str:
    """The shortest decimal text of a binary32 number."""
    # 9 significant digits tell any two binary32 numbers apart (IEEE 754, 5.12.2); only NaN leaves the loop
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if round32(float(text)) == number:
            return text
    return repr(number)


def batch_text(graph: Graph) -> str:
    """How many tuples a batch has."""
    if graph.batch_meta is not None:
        return f"{graph.nodes[graph.batch_meta].name} = {graph.batch} tuples"
    if graph.batch is None:
        return "all tuples"
    return "1 tuple" if graph.batch == 1 else f"{graph.batch} tuples"


def line_of(node: Node) -> int | None:
    """The line of the rule that a node came from."""
    return None if node.span is None else node.span.line
