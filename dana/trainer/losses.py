"""The loss of a rule as a function of a prediction and a label, and the metric that it minimises.

The prediction is the first node through which everything except the label reaches the loss: a score, or a vector with a
score for each class. No loss is known by name; if there is no such node, the function is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dsl.hdfg.evaluate import Evaluator
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.verify import InvalidGraph, verify
from hwgen.spec import numerics

PREDICTED, LABEL = "_predicted", "_label"

Doubles = NDArray[np.float64]


def loss_graph(graph: Graph) -> Graph | None:
    """Return the part of a rule from the replaced node and the label to the loss; None if there is no such part."""
    outputs = [k for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    if graph.loss is None or len(outputs) != 1 or graph.concrete_shape(outputs[0]):
        return None
    (label,) = outputs
    shapes = {(), (graph.classes,)}
    needed = sorted(graph.reachable([graph.loss]))
    # ids ascend, so the first cut wins: a score before its sigmoid, which SCORES start from
    for cut in (k for k in needed if graph.nodes[k].shape in shapes and label not in graph.reachable([k])):
        nodes = list(graph.nodes)
        nodes[cut] = replace(nodes[cut], op=Op.INPUT, inputs=(), name=PREDICTED, axis=None)
        part = sorted(replace(graph, nodes=tuple(nodes)).reachable([graph.loss]))
        leaves = {k for k in part if nodes[k].op in (Op.INPUT, Op.OUTPUT, Op.MODEL, Op.MERGE)}
        if leaves == {cut, label} and nodes[cut].region is nodes[label].region:
            break
    else:
        return None
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
        metas=tuple(place[k] for k in graph.metas if k in place),
        loss=place[graph.loss],
    )
    try:
        verify(made)
    except InvalidGraph:
        return None  # a meta is named PREDICTED or LABEL
    return made


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
    numbers = {name: np.asarray(value, np.float32) for name, value in metas.items()}
    found = evaluator.run(labels.size, columns, {}, numbers)
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
