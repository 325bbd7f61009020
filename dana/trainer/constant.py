"""The loss of the best constant prediction; a model that is not better has learnt nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.weights import weighted
from dana.trainer.contract import Constant, TrainRequest
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

LOOKS = 40
"""Windows that are tried for the curvature of a loss, of which each is up to four times as wide as the one before."""

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
) -> Constant | None:
    """Return the best constant as a training measures its loss; None if it is unknown.

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
    share = float(weights.sum()) / tuples
    return None if found is None else replace(found, loss=found.loss * share, chance=found.chance * share)


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
) -> Constant | None:
    """Return the best constant, for a mean weight of 1; None if there are too few labels.

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

    def losses(constants: Doubles, values: Doubles) -> Doubles:
        columns = {
            PREDICTED: np.repeat(constants.astype(np.float32), len(values), axis=0),
            LABEL: np.tile(values.astype(np.float32), len(constants)),
        }
        found = evaluator.run(len(columns[LABEL]), columns, {}, numbers)
        each = evaluator.per_tuple(graph.loss or 0, found, len(columns[LABEL])).reshape(len(constants), -1)
        return np.asarray(each, np.float64)

    def judged(constants: Doubles, values: Doubles, weights: Doubles) -> tuple[float, float, int]:
        """Return the lowest mean loss of constants [constants, *shape], its effective rows, and its index."""
        # an infinity is never the minimum; a NaN would be one of argmin
        exact = np.nan_to_num(losses(constants, values), nan=np.inf, posinf=np.inf)
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
        return Constant(loss=loss, chance=abs(loss)) if rows >= FEWEST else None
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
    if rows < FEWEST:
        return None
    chance = _chance(lambda constants: losses(constants, few[0]), float(points[least]), few[1])
    return Constant(loss=loss, chance=chance or abs(loss))


def _chance(losses: Callable[[Doubles], Doubles], constant: float, weights: Doubles) -> float | None:
    """Return the mean square of the slopes of a loss at a constant, over twice its curvature; None: it is unknown.

    That is what a random column saves of the sum of the losses. The curvature is that of the mean loss over a window,
    since an absolute error has none at a point; the slope of a label far away is as large as that of any other.
    """
    width, found = 0.1, None
    for _ in range(LOOKS):
        below, at, above = losses(np.array([constant - width, constant, constant + width]))
        with np.errstate(all="ignore"):
            square = float((((above - at) ** 2 + (at - below) ** 2) * weights).sum()) / 2 / width**2
            curvature = float(((above - at + (below - at)) * weights).sum()) / width**2
        if not (isfinite(square) and isfinite(curvature) and square > 0 and curvature > 0):
            width *= 4 if isfinite(square) else 0.25
            continue
        found, best = square / curvature / 2, 0.3 * sqrt(square) / curvature
        if 0.5 < best / width < 2:
            break
        width = min(best, 4 * width)
    return found


def _grouped(values: Doubles, weights: Doubles) -> tuple[Doubles, Doubles]:
    """Average neighbours among sorted values, to at most `GROUPS` values and their weights."""
    starts = np.arange(0, len(values), -(-len(values) // GROUPS))
    together = np.add.reduceat(weights, starts)
    return np.add.reduceat(values * weights, starts) / together, together
