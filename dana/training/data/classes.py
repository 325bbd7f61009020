"""Classes of a rule's label: how many there are, and what a prediction says of them.

In: graphs and requests. Out: requests with the extents that labels decide, and descriptions. Which labels a table has,
and their numbers, is found by who reads it: pg_extension/src/features/classes.c, or `dana.training.arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from dana.training.contract import Json, TrainingError, TrainRequest
from dsl import compile_rule
from dsl.hdfg.dims import Dim
from dsl.hdfg.graph import Graph, Op

SHOWN = 10
"""Labels that an error lists."""


def classes_of(graph: Graph, labels: Sequence[str]) -> Json | None:
    """The classes as the backend wants them, to refuse labels that are none; None where any number is a label."""
    return None if graph.classes is None else {"label": labels[0], "count": graph.classes}


def with_classes(request: TrainRequest) -> TrainRequest:
    """The request with the dim that counts classes as large as its labels say, unless ``hyper`` says it.

    Raises
    ------
    RuleError
        The text is no rule.
    TrainingError
        There are more classes than the rule or the caller says, or not the two that the rule tells apart.
    """
    classes = _rule_classes(request.source, request.rule)
    if classes is None or request.classes is None:
        return request
    found, name = len(request.classes), str(classes)
    if isinstance(classes, int):
        if found > classes or classes == 2 != found:
            raise TrainingError(
                f"{_counted(found)}, but rule {request.rule!r} tells {name} apart", hint=_listed(request.classes)
            )
        return request
    if name not in request.hyper:
        return replace(request, hyper={**request.hyper, name: found})
    given = request.hyper[name]
    if isinstance(given, int | float) and given < found:
        raise TrainingError(
            f"{_counted(found)}, more than hyper gives to {name!r}: {given:g}",
            hint=f"{_listed(request.classes)} Leave {name!r} out, and it is as large as needed; or leave rows out.",
        )
    return request


def _counted(classes: int) -> str:
    return f"the labels have {classes} {'class' if classes == 1 else 'classes'}"


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(repr(one) for one in classes[:SHOWN])
    return f"The labels are {shown}{f' and {len(classes) - SHOWN} more' if len(classes) > SHOWN else ''}."


@lru_cache(maxsize=64)
def _rule_classes(source: str, rule: str) -> Dim | None:
    """`Graph.symbolic_classes` of a text: each training of a session asks, and a text takes milliseconds to read."""
    return compile_rule(source, filename=rule).hdfg.symbolic_classes


def prediction_kind(graph: Graph) -> str:
    """What a prediction is: a ``probability`` of classes, a ``score`` of them, a ``number``, or several ``numbers``."""
    if graph.prediction is None:
        return "number"
    if graph.classes is None:
        return "number" if prod(graph.concrete_shape(graph.prediction)) == 1 else "numbers"
    node = graph.nodes[graph.prediction]
    likely = _is_softmax(graph, graph.prediction) if node.shape else node.op is Op.SIGMOID
    return "probability" if likely else "score"


def _is_softmax(graph: Graph, root: int) -> bool:
    """Whether it is powers over their sum, as `dana.softmax` has it or in one division."""
    nodes = graph.nodes
    if nodes[root].op is Op.DIV:
        power, total = nodes[root].inputs
    elif nodes[root].op is Op.MUL:
        sides = sorted(nodes[root].inputs, key=lambda k: nodes[k].op is Op.DIV)
        if nodes[sides[1]].op is not Op.DIV or nodes[nodes[sides[1]].inputs[0]].value != 1:
            return False
        power, total = sides[0], nodes[sides[1]].inputs[1]
    else:
        return False
    return nodes[power].op is Op.EXP and nodes[total].op is Op.SIGMA and nodes[total].inputs == (power,)
