"""The loss of a rule as a function of a prediction and a label, and the metric that it minimises.

The prediction is the first node through which everything except the label reaches the loss: a score, or a vector with a
score for each class. No loss is known by name; if there is no such node, the function is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Parameter
from dsl.hdfg.evaluate import Evaluator
from dsl.hdfg.graph import Graph, Node, Op, Region
from dsl.hdfg.init import Init
from dsl.hdfg.verify import InvalidGraph, verify
from hwgen.spec import numerics

PREDICTED, LABEL = "_predicted", "_label"

Doubles = NDArray[np.float64]


def loss_graph(graph: Graph) -> Graph | None:
    """Return the part of a rule from the replaced node and the label to the loss; None if there is no such part.

    A model of one number that the loss depends on, such as the deviation of the errors, becomes a meta of that name.
    """
    outputs = [k for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    if graph.loss is None or len(outputs) != 1 or graph.concrete_shape(outputs[0]):
        return None
    (label,) = outputs
    shapes = {(), (graph.classes,)}
    needed = sorted(graph.reachable([graph.loss]))
    cuts: list[tuple[int, int, list[Node], list[int]]] = []
    for cut in (k for k in needed if graph.nodes[k].shape in shapes and label not in graph.reachable([k])):
        nodes = list(graph.nodes)
        nodes[cut] = replace(nodes[cut], op=Op.INPUT, inputs=(), name=PREDICTED, axis=None)
        part = sorted(replace(graph, nodes=tuple(nodes)).reachable([graph.loss]))
        leaves = {k for k in part if nodes[k].op in (Op.INPUT, Op.OUTPUT, Op.MODEL, Op.MERGE)}
        models = {k for k in leaves - {cut} if nodes[k].op is Op.MODEL and nodes[k].shape == ()}
        for k in models:
            nodes[k] = replace(nodes[k], op=Op.META, region=Region.CONST, value=1.0, init=Init())
        for k in part if models else []:
            if nodes[k].inputs and all(nodes[i].region is Region.CONST for i in nodes[k].inputs):
                nodes[k] = replace(nodes[k], region=Region.CONST)
        if leaves - models == {cut, label} and nodes[cut].region is nodes[label].region:
            cuts.append((len(models), cut, nodes, part))
    if not cuts:
        return None
    # of several with as few models the first: a score before its sigmoid, which SCORES start from
    _, cut, nodes, part = min(cuts, key=lambda one: one[:2])
    nodes[label] = replace(nodes[label], name=LABEL)
    place = {k: number for number, k in enumerate(part)}
    made = Graph(
        name=graph.name,
        nodes=tuple(
            # without spans: they point into the text of the rule, and the cached loss is read without it
            replace(nodes[k], id=place[k], inputs=tuple(place[i] for i in nodes[k].inputs), span=None)
            for k in part
        ),
        inputs=(place[cut], place[label], *(place[k] for k in part if nodes[k].op is Op.WEIGHT)),
        metas=tuple(place[k] for k in part if nodes[k].op is Op.META),
        loss=place[graph.loss],
    )
    try:
        verify(made)
    except InvalidGraph:
        return None  # a meta is named PREDICTED or LABEL
    return made


def numbers_for(graph: Graph, metas: Mapping[str, float]) -> dict[str, NDArray[np.float32]]:
    """Return the metas of a loss; those that are not given have their defaults, and models of one number 1."""
    defaults = {str(graph.nodes[k].name): graph.nodes[k].value for k in graph.metas}
    return {name: np.asarray(value, np.float32) for name, value in {**defaults, **metas}.items()}


def models_of_one_number(parameters: Sequence[Parameter]) -> dict[str, float]:
    """Return the values of the models that `loss_graph` turns into metas."""
    return {one.name: float(one.values) for one in parameters if one.values.shape == ()}


def losses_at(
    graph: Graph, metas: Mapping[str, float], predicted: Doubles, labels: Doubles, weight: float = 1
) -> Doubles:
    """Return the loss of each prediction and label, in the shape of the labels.

    Parameters
    ----------
    predicted
        In the shape of the labels, or with the axes of a prediction behind.
    """
    evaluator = Evaluator(graph, numerics, [graph.loss or 0])
    shape = graph.concrete_shape(graph.inputs[0])
    columns = {
        PREDICTED: np.broadcast_to(predicted, (*labels.shape, *shape)).reshape(-1, *shape).astype(np.float32),
        LABEL: labels.ravel().astype(np.float32),
        **{str(graph.nodes[k].name): np.full(labels.size, weight, np.float32) for k in graph.inputs[2:]},
    }
    found = evaluator.run(labels.size, columns, {}, numbers_for(graph, metas))
    return evaluator.per_tuple(graph.loss or 0, found, labels.size).astype(np.float64).reshape(labels.shape)


def is_multiple(losses: Doubles, others: Doubles) -> bool:
    """Return whether losses are a positive multiple of others, apart from a part that depends on the label alone.

    Parameters
    ----------
    losses, others
        Shape [labels, scores].
    """
    found, expected = (one[:, 1:] - one[:, :1] for one in (losses, others))
    scale = float((found * expected).sum() / (expected**2).sum())
    return scale > 0 and np.allclose(found, scale * expected, rtol=1e-4, atol=1e-5 * scale)


def minimised(graph: Graph | None, metas: Mapping[str, float]) -> dict[str, object]:
    """Return the metadata of a model about the metric that its rule minimises, from the values of the loss.

    Parameters
    ----------
    graph
        The result of `loss_graph`.

    Returns
    -------
    dict
        ``deviance``: ``poisson_deviance`` or ``gamma_deviance``, for a score that is the logarithm of the prediction.
        ``quantile``: of the pinball loss. Neither for other losses.
    """
    if graph is None or graph.concrete_shape(graph.inputs[0]):
        return {}
    scores, labels = np.meshgrid(np.array([-1.0, -0.25, 0.5, 1.5]), np.array([1.0, 2.0, 5.0]))
    found = losses_at(graph, metas, scores, labels)
    for name, deviance in (
        ("poisson_deviance", np.exp(scores) - labels * scores),
        ("gamma_deviance", scores + labels * np.exp(-scores)),
    ):
        if is_multiple(found, deviance):
            return {"deviance": name}
    distances = np.array([0.5, 1.0, 2.0, 4.0])
    below, above = (losses_at(graph, metas, labels + sign * distances, labels) for sign in (-1, 1))
    quantile = float(below[0, 1])
    if (
        0 < quantile < 1
        and np.allclose(below, quantile * distances, atol=1e-5)
        and np.allclose(above, (1 - quantile) * distances, atol=1e-5)
    ):
        return {"quantile": round(quantile, 6)}
    return {}
