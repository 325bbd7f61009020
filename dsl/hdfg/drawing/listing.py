"""A graph as text for people: the rule's interface, then one line for each operation, by how often it is computed.

In: a `Graph`. Out: text for a terminal, which nothing parses (`dsl.hdfg.text` is parsed).
"""

from __future__ import annotations

from dsl.hdfg.dims import shape_text
from dsl.hdfg.drawing.words import Words, batch_text, number_text
from dsl.hdfg.graph import Graph, Node
from dsl.hdfg.init import InitKind
from dsl.hdfg.ops import LEAVES, Op, Region

Row = tuple[str, str, str]
"""A value, its expression, and its shape."""


def listing(graph: Graph) -> str:
    """Return the graph as a terminal shows it."""
    words = Words(graph)
    epochs = "1 epoch" if graph.epochs == 1 else f"at most {graph.epochs} epochs"
    dims = f", dims {', '.join(graph.dims)}" if graph.dims else ""
    out = [f"{graph.name}: batches of {batch_text(graph)}, {epochs}{dims}", ""]
    for title, members in (("models", graph.models), ("inputs", graph.inputs), ("metas", graph.metas)):
        if members:
            out.append(f"{title:<8} {', '.join(_declared(graph.nodes[i]) for i in members)}")
    for title, rows in _sections(graph, words):
        if rows:
            first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
            out += ["", title]
            out += [f"  {what:<{first}}  {how:<{second}}  {shape}".rstrip() for what, how, shape in rows]
    return "\n".join(out)


def _declared(node: Node) -> str:
    shape = f" {shape_text(node.shape)}" if node.shape else ""
    if node.op is Op.META:
        return f"{node.name} = {number_text(node.value or 0.0)}"
    if node.op is Op.MODEL and node.init.of:
        return f"{node.name}{shape} from the {node.init.kind.value} of {node.init.of}"
    if node.classes is not None:
        what = "classes" if node.op is Op.OUTPUT else "categories"
        return f"{node.name}{shape} of {node.classes} {what}"
    if node.op is not Op.MODEL or node.init.first == node.init.second == 0.0:
        return f"{node.name}{shape}"
    first = number_text(node.init.first)
    if node.init.kind is InitKind.CONSTANT:
        return f"{node.name}{shape} from {first}"
    return f"{node.name}{shape} from {node.init.kind.value}({first}, {number_text(node.init.second)})"


def _sections(graph: Graph, words: Words) -> list[tuple[str, list[Row]]]:
    sections: dict[Region, list[Row]] = {Region.CONST: [], Region.TUPLE: [], Region.BATCH: []}
    for node in graph.nodes:
        if node.op not in LEAVES and not words.is_inline(node.id):
            sections[node.region].append((words.name(node.id), f"= {words.formula(node)}", shape_text(node.shape)))
    for title, result in (
        ("loss", graph.loss),
        ("test loss", graph.test_loss),
        ("prediction", graph.prediction),
        ("convergence", graph.convergence),
    ):
        if result is not None:
            # without a merge the test belongs to the one tuple of a batch
            region = Region.BATCH if title == "convergence" and graph.has_merge else Region.TUPLE
            sections[region].append((title, f"= {words.name(result)}", ""))
    for update in graph.updates:
        model = graph.nodes[update.model]
        row = "" if update.index is None else f"[{words.name(update.index)}]"
        # a row of a table is written after each tuple, even where value and index are the same for all
        regions = {graph.nodes[i].region for i in (update.value, update.index) if i is not None}
        region = Region.TUPLE if Region.TUPLE in regions or model.table else Region.BATCH
        sign = "+=" if update.adds else "<-"
        when = " behind the batch" if update.adds and not update.at_once else ""
        sections[region].append((f"{model.name}{row}", f"{sign} {words.name(update.value)}{when}", ""))
    return [
        ("once", sections[Region.CONST]),
        ("for each tuple", sections[Region.TUPLE]),
        ("for each batch", sections[Region.BATCH]),
    ]
