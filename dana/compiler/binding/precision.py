"""Precision of a training: what a rule stores narrow, as numbers of bfloat16.

In: a bound graph. Out: a graph in which features and models are rounded to bfloat16 (`Op.BFLOAT16`), so that every
machine, the interpreter and the predictor round alike. What is computed of them is binary32: products, sums, merges,
losses.

Narrow are the inputs that choose no row and number no category, and the models that the rule updates. Labels, weights,
statistics of columns, counters of the language and states stay binary32. A state may hold what no bfloat16 can: a count
stops at 256, and 0.999, the factor by which `adam` lets squares fade, is rounded to 1. Models that rows are added to
(`addRows`) stay binary32, too: the machine adds in place, and rounds nothing afterwards.
"""

from dataclasses import replace

from dana.compiler.simplify.rewrite import Rewriter
from dana.errors import UsageError
from dsl.hdfg.graph import REDUCTIONS, Graph, Node, Op, Region
from dsl.hdfg.verify import verify

BINARY32, BFLOAT16 = NUMBERS = ("binary32", "bfloat16")
"""Values of the option `stored_as`, which is not named precision because that is a keyword of SQL; the first is the
default."""


def is_narrow(stored_as: str | None) -> bool:
    """Whether a training stores numbers of bfloat16; UsageError if there are no such numbers."""
    if stored_as is not None and stored_as not in NUMBERS:
        raise UsageError(f"stored_as must be one of {', '.join(NUMBERS)}, not {stored_as!r}")
    return stored_as == BFLOAT16


def choosing_inputs(graph: Graph) -> frozenset[int]:
    """The inputs that number categories, or decide by single numbers which row of a model is read or written."""
    indices = [node.inputs[1] for node in graph.nodes if node.op is Op.GATHER]
    waiting = indices + [update.index for update in graph.updates if update.index is not None]
    seen = set(waiting)
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.op not in REDUCTIONS:  # what is reduced depends on no single number
            waiting += [k for k in node.inputs if k not in seen]
            seen.update(node.inputs)
    return frozenset(k for k in graph.inputs if k in seen or graph.nodes[k].classes is not None)


def narrow_inputs(graph: Graph) -> frozenset[str]:
    """Names of the inputs that a training with bfloat16 rounds."""
    inputs = {k for k in graph.inputs if graph.nodes[k].op is Op.INPUT}
    return frozenset(str(graph.nodes[k].name) for k in inputs - choosing_inputs(graph))


def narrow_numbers(graph: Graph) -> frozenset[str]:
    """These, and the outputs that are numbers, to which models of bfloat16 may have to come close."""
    outputs = (graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT)
    return narrow_inputs(graph) | {str(node.name) for node in outputs if node.classes is None}


def narrow_models(graph: Graph) -> frozenset[int]:
    """The models that a training with bfloat16 rounds."""
    added = {update.model for update in graph.updates if update.adds}
    own = {update.model for update in graph.updates} - added
    return frozenset(k for k in own if graph.nodes[k].each_epoch is None and "." not in str(graph.nodes[k].name))


def narrowed(graph: Graph) -> Graph:
    """The graph of a training with bfloat16."""
    names = narrow_inputs(graph)
    features = {k for k in graph.inputs if graph.nodes[k].name in names}
    models = narrow_models(graph)
    rewriter = Rewriter(graph)
    plain: dict[int, int] = {}
    for node in graph.nodes:
        if node.id in models:
            node = replace(node, init=replace(node.init, narrow=True))
        # an element is taken of the input itself, which a machine does without any arithmetic
        of_input = node.op is Op.ELEMENT and node.inputs[0] in features
        new = (
            rewriter.copy(node)
            if not of_input
            else rewriter.add(node, inputs=(plain[node.inputs[0]], rewriter.new(node.inputs[1])))
        )
        plain[node.id] = new
        rounds = of_input or node.id in features
        rewriter.replace_by(node, _rounded(rewriter, node, new, node.region) if rounds else new)
    updates = []
    values: dict[tuple[int, Region], int] = {}
    for update in graph.updates:
        value = rewriter.new(update.value)
        if update.model in models:
            like = graph.nodes[update.value]
            # a model's row for each tuple may be another model's value
            region = Region.TUPLE if graph.by_tuple(update) and like.region is Region.BATCH else like.region
            if (value, region) not in values:
                values[value, region] = _rounded(rewriter, like, value, region)
            value = values[value, region]
        updates.append(value)
    made = rewriter.finish()
    made = replace(
        made,
        inputs=tuple(plain[k] for k in graph.inputs),
        updates=tuple(replace(one, value=value) for one, value in zip(made.updates, updates, strict=True)),
    )
    if made.unrolled is not None:  # the rule's text does not know of this
        made = replace(made, unrolled=replace(made.unrolled, trace=None))
    verify(made)
    return made


def _rounded(rewriter: Rewriter, like: Node, operand: int, region: Region) -> int:
    """A value, rounded."""
    narrow = Node(id=0, op=Op.BFLOAT16, region=region, shape=like.shape, span=like.span)
    return rewriter.add(narrow, inputs=(operand,))
