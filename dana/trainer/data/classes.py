"""Classes of a label: their number, and the kind of a prediction.

The labels of a table are numbered by its reader: pg_extension/src/features/classes.c, or `dana.trainer.arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from dana.trainer.contract import Json, TrainingError, TrainRequest
from dsl.hdfg.dims import Dim
from dsl.hdfg.graph import Graph, Op

SHOWN = 10
"""Maximum number of labels in an error."""


def classes_of(graph: Graph, labels: Sequence[str]) -> Json | None:
    """Return the column and number of the classes, from which the backend checks labels; None: any number is valid."""
    return None if graph.classes is None else {"label": labels[0], "count": graph.classes}


def with_classes(request: TrainRequest, classes: Dim | None) -> TrainRequest:
    """Return the request with the number of classes in ``hyper``, unless the caller set it.

    Parameters
    ----------
    classes
        `Graph.symbolic_classes` of the rule.

    Raises
    ------
    TrainingError
        The labels have more classes than declared, or the rule needs two and there is one.
    """
    if classes is None or request.classes is None:
        return request
    found, name = len(request.classes), str(classes)
    if isinstance(classes, int):
        # a chained comparison: a rule for two classes needs rows of both
        if found > classes or classes == 2 != found:
            raise TrainingError(
                f"{_counted(found)}, but rule {request.rule!r} has {name}", hint=_listed(request.classes)
            )
        return request
    if name not in request.hyper:
        return replace(request, hyper={**request.hyper, name: found})
    given = request.hyper[name]
    # anything but a number is reported by `chosen_extents`
    if isinstance(given, int | float) and given < found:
        raise TrainingError(
            f"{_counted(found)}, more than hyper gives to {name!r}: {given:g}",
            hint=f"{_listed(request.classes)} Omit {name!r} to use the required number, or exclude rows.",
        )
    return request


def _counted(classes: int) -> str:
    return f"the labels have {classes} {'class' if classes == 1 else 'classes'}"


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(repr(one) for one in classes[:SHOWN])
    return f"The labels are {shown}{f' and {len(classes) - SHOWN} more' if len(classes) > SHOWN else ''}."


def prediction_kind(graph: Graph) -> str:
    """Return the kind of a prediction: ``probability`` or ``score`` of classes, ``number`` or ``numbers``."""
    if graph.prediction is None:
        return "number"
    if graph.classes is None:
        return "number" if prod(graph.concrete_shape(graph.prediction)) == 1 else "numbers"
    node = graph.nodes[graph.prediction]
    # the form of the last operation decides, not the name of the rule: a rule may be the user's own
    likely = _is_softmax(graph, graph.prediction) if node.shape else node.op is Op.SIGMOID
    return "probability" if likely else "score"


def _is_softmax(graph: Graph, root: int) -> bool:
    """Whether the node is exponentials over their sum, as in `dana.softmax` or with a single division."""
    nodes = graph.nodes
    if nodes[root].op is Op.DIV:
        power, total = nodes[root].inputs
    elif nodes[root].op is Op.MUL:
        # `dana.softmax` multiplies by a reciprocal, and MUL may have its operands in either order
        sides = sorted(nodes[root].inputs, key=lambda k: nodes[k].op is Op.DIV)
        if nodes[sides[1]].op is not Op.DIV or nodes[nodes[sides[1]].inputs[0]].value != 1:
            return False
        power, total = sides[0], nodes[sides[1]].inputs[1]
    else:
        return False
    return nodes[power].op is Op.EXP and nodes[total].op is Op.SIGMA and nodes[total].inputs == (power,)
