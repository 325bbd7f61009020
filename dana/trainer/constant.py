"""The loss of the best constant prediction; a model that is not better has learnt nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.weights import weighted
from dana.trainer.contract import TrainRequest
from dana.trainer.data.weights import weight_metadata
from dana.trainer.designs import default_metas, rule_of
from dana.trainer.losses import LABEL, PREDICTED, loss_graph, losses_at, numbers_for
from dsl import RuleError
from dsl.hdfg.evaluate import Evaluator
from dsl.hdfg.graph import BindError, Graph
from hwgen.spec import numerics

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

FEWEST = 30
"""Minimum effective number of rows for a comparison. Rows count by their share of the loss: with one positive label in
ten thousand, only the positive rows count."""

GROUPS = 256
"""Maximum number of distinct labels in the search; the loss of the result is computed with all labels."""

SCORES = np.concatenate([-(side := np.geomspace(1e-3, 50, 16))[::-1], [0.0], side])
"""Start points of the search for constants that are not labels: logits, logarithms of counts."""


def constant_of(
    request: TrainRequest,
    graph: Graph | None,
    tally: tuple[Doubles, Doubles],
    metas: Mapping[str, float],
    *,
    rows: int,
    tuples: int,
    classes: Floats | None,
) -> float | None:
    """Return the loss of the best constant as a training measures it; None if it is unknown.

    Parameters
    ----------
    graph
        The result of `loss_graph`, without weights; None: there is none.
    tally
        The distinct labels and the sums of their weights.
    rows, tuples
        Number of rows with a weight above 0, and of all rows.
    classes
        Weights of the classes; None: each is 1.
    """
    if graph is None or (weight_metadata(request) and not weighs_loss(request.text, request.rule)):
        return None
    values, weights = tally
    if classes is not None:
        weights = weights * classes[values.astype(int)]
    values, weights = values[weights > 0], weights[weights > 0]
    found = constant_loss(graph, values, weights, metas, rows=rows)
    return None if found is None else found * float(weights.sum()) / tuples


@lru_cache(maxsize=64)
def weighs_loss(text: str, rule: str) -> bool:
    """Whether a rule multiplies the loss of a row by its weight; it is compared at a few predictions and labels."""
    checked = rule_of(text, rule)
    graph = weighted(checked.hdfg, column=True, classes=False)
    given = dict(graph.extents)
    try:
        loss = loss_graph(graph.bind({name: 2 for name in graph.dims if name not in given}).judging)
    except (BindError, RuleError):
        return False
    if loss is None:
        return False
    scores, labels = np.meshgrid(np.array([-1.5, 0.25, 2.0]), np.array([0.0, 1.0]))
    predicted = scores.reshape(*scores.shape, *(1 for _ in loss.concrete_shape(loss.inputs[0])))
    metas = default_metas(checked.hdfg)
    single, double = (losses_at(loss, metas, predicted, labels, weight=weight) for weight in (1.0, 2.0))
    return bool(np.isfinite(single).all() and np.allclose(double, 2 * single))


def constant_loss(
    graph: Graph, values: Doubles, counts: Doubles, metas: Mapping[str, float], *, rows: float | None = None
) -> float | None:
    """Return the mean loss of the best constant, for a mean weight of 1; None if there are too few labels.

    Parameters
    ----------
    graph
        The result of `loss_graph`.
    values, counts
        The distinct labels and their number of occurrences, or the sums of their weights.
    rows
        Number of rows; None: the sum of `counts`.
    """
    total = float(counts.sum()) if rows is None else rows
    if len(values) < 2 or total < FEWEST:
        return None
    evaluator = Evaluator(graph, numerics, [graph.loss or 0])
    weights = counts / counts.sum()
    numbers = numbers_for(graph, metas)

    def judged(constants: Doubles, values: Doubles, weights: Doubles) -> tuple[float, float, int]:
        """Return the lowest mean loss of constants [constants, *shape], its effective rows, and its index."""
        columns = {
            PREDICTED: np.repeat(constants.astype(np.float32), len(values), axis=0),
            LABEL: np.tile(values.astype(np.float32), len(constants)),
        }
        found = evaluator.run(len(columns[LABEL]), columns, {}, numbers)
        each = evaluator.per_tuple(graph.loss or 0, found, len(columns[LABEL])).reshape(len(constants), -1)
        # an infinity is never the minimum; a NaN would be one of argmin
        exact = np.nan_to_num(each.astype(np.float64), nan=np.inf, posinf=np.inf)
        # not a matrix product: BLAS allocates 30 MB, which can exceed the memory limit of the session
        mean = (exact * weights).sum(axis=1)
        least = int(mean.argmin())
        # Kish's effective sample size, with the losses as weights
        square = float((exact[least] ** 2 * weights).sum())
        return float(mean[least]), mean[least] ** 2 / square * total if square else 0, least

    shape = graph.concrete_shape(graph.inputs[0])
    if shape:
        # labels are indices below, where a negative one would count from the end
        if values.min() < 0 or values.max() >= shape[0]:
            return None
        shares = np.zeros(shape)
        shares[values.astype(int)] = weights
        # logarithms of the shares suit scores, the shares probabilities; zeros are the start of most models
        loss, rows, _ = judged(np.stack([np.log(np.maximum(shares, 1e-12)), shares, np.zeros(shape)]), values, weights)
        return loss if rows >= FEWEST else None
    order = np.argsort(values)
    # without the end: the sum of the weights may stay below 1 by rounding, and the rank would be behind the last label
    ranks = np.searchsorted(np.cumsum(weights[order]), np.linspace(0, 1, 33)[:-1])
    points = np.array(sorted({*SCORES.tolist(), float((values * weights).sum()), *values[order][ranks].tolist()}))
    few = _grouped(values[order], weights[order])
    # for two labels one wide step is as precise as three, and hardly slower
    size, looks = (1025, 1) if len(few[0]) == 2 else (17, 3)
    for _ in range(looks):
        *_, least = judged(points, *few)
        # assumes one minimum between the neighbours of the best point, as convex losses have
        points = np.linspace(points[max(least - 1, 0)], points[min(least + 1, len(points) - 1)], size)
    loss, rows, least = judged(points, *few)
    if len(few[0]) < len(values):
        # the last step compares with all labels: the groups shifted the minimum a little
        loss, rows, _ = judged(points[max(least - 1, 0) : least + 2], values, weights)
    return loss if rows >= FEWEST else None


def _grouped(values: Doubles, weights: Doubles) -> tuple[Doubles, Doubles]:
    """Average neighbours among sorted values, to at most `GROUPS` values and their weights."""
    starts = np.arange(0, len(values), -(-len(values) // GROUPS))
    together = np.add.reduceat(weights, starts)
    return np.add.reduceat(values * weights, starts) / together, together
