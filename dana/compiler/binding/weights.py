"""Weights of rows: what a rule's `dana.weight()` stands for in a training.

In: a graph, and which weights its training has. Out: a graph in which the weight is a column's value, the weight of the
label's class, their product, or 1; the simplifier drops what 1 multiplies, so a training without weights costs nothing.
The weights of the classes are a model that nothing updates, `<weight>.classes`: their values need no new design.
"""

from dataclasses import replace

from dana.compiler.simplify.rewrite import Rewriter
from dana.errors import UsageError
from dsl.hdfg.graph import FROM_ROW, LEAVES, Graph, Node, Op, Region
from dsl.hdfg.init import Init
from dsl.hdfg.verify import verify


class WeightError(UsageError):
    """The rule knows no weights, or no classes to have some."""


def class_weights_name(graph: Graph) -> str:
    """Name of the model that holds the weights of the classes."""
    return f"{'weight' if graph.weight is None else graph.weight.name}.classes"


def is_of_classes(model: str) -> bool:
    """Whether a trained model's parameter of that name holds the weights of the classes, which no rule can declare."""
    return model.endswith(".classes")


def weighted(graph: Graph, *, column: bool, classes: bool) -> Graph:
    """The graph of a training with such weights; WeightError where the rule has no weight, or no classes."""
    weight = graph.weight
    if weight is None:
        if column or classes:
            raise WeightError(
                f"rule {graph.name!r} takes no weights",
                hint="Declare one with weight = dana.weight(), list it in dana.algo, and multiply the error and the "
                "loss by it.",
            )
        return graph
    if classes and graph.classes is None:
        raise WeightError(
            f"rule {graph.name!r} has no classes to give weights to",
            hint="Name a column with weight, or choose a rule with a label dana.output(classes=...).",
        )
    kept = tuple(k for k in graph.inputs if column or k != weight.id)
    rewriter = Rewriter(replace(graph, inputs=kept))
    models: list[int] = []
    own: int | None = None
    labels = [node for node in graph.nodes if node.op is Op.OUTPUT and node.classes is not None] if classes else []
    for label in labels:  # may stand behind the weight
        rewriter.replace_by(label, rewriter.copy(label))
    for node in graph.nodes:
        if node is weight:
            own = rewriter.copy(node) if column else None
            value = own
            if classes:
                models, value = _of_classes(rewriter, node, labels[0], class_weights_name(graph), own)
            rewriter.replace_by(node, rewriter.constant(1.0, node) if value is None else value)
        elif node not in labels:
            rewriter.replace_by(node, _copy(rewriter, node))
    made = rewriter.finish()
    inputs = [k if made.nodes[k].op in FROM_ROW else own for k in made.inputs]  # the weight's leaf, not the product
    made = replace(made, inputs=tuple(k for k in inputs if k is not None), models=(*made.models, *models))
    if made.unrolled is not None:  # the rule's text knows nothing of these weights
        made = replace(made, unrolled=replace(made.unrolled, trace=None))
    verify(made)
    return made


def _copy(rewriter: Rewriter, node: Node) -> int:
    """A node, in the region of constants where its operands are some now."""
    # `dsl.hdfg.verify` demands region CONST where all operands are constants
    constant = all(operand.region is Region.CONST for operand in rewriter.operands(node))
    if node.op in LEAVES or node.op is Op.MERGE or not constant:
        return rewriter.copy(node)
    return rewriter.copy(replace(node, region=Region.CONST))


def _of_classes(rewriter: Rewriter, like: Node, label: Node, name: str, own: int | None) -> tuple[list[int], int]:
    """The model, and its element of the label's number, times the row's own weight."""
    assert label.classes is not None
    shape = (label.classes,)
    # the label as it was rewritten; `like` only has the place in the text
    number = rewriter.operands(replace(like, inputs=(label.id,)))[0].id
    model = rewriter.add(replace(like, op=Op.MODEL, region=Region.BATCH), shape=shape, name=name, init=Init(first=1.0))
    plain = replace(like, name=None)
    each = rewriter.add(replace(plain, op=Op.ARANGE, region=Region.CONST), shape=shape)
    mine = rewriter.add(replace(plain, op=Op.EQ), inputs=(each, number), shape=shape)
    # of one-hot numbers: the sum of a weight and zeros is the weight, exactly
    taken = rewriter.add(replace(plain, op=Op.MUL), inputs=(model, mine), shape=shape)
    found = rewriter.add(replace(plain, op=Op.SIGMA), inputs=(taken,), axis=0)
    return [model], found if own is None else rewriter.add(replace(plain, op=Op.MUL), inputs=(own, found))
