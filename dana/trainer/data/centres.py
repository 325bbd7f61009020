"""Decides which columns are trained on less a centre, so that binary32 keeps the digits in which their values differ.

A centre is subtracted in binary64, before the conversion to binary32, and only where the rule computes the same from
the smaller numbers: from an input less its mean (`dana.functions.standardized`), or from a prediction less the label,
where the prediction has an intercept that starts at the label's mean. Where neither holds,
`dana.trainer.data.survey_checks` reports the loss.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from dana.predictor.centres import EXACT, Centres, is_coarse
from dana.storage.types import SCALARS
from dana.trainer.contract import OutOfLine, TrainRequest
from dana.trainer.data.survey import Survey
from dana.trainer.data.surveyed import Doubles
from dsl.hdfg.graph import COMPARISONS, Graph, Op
from dsl.hdfg.init import InitKind
from hwgen.spec.bundle import Fill

INTEGERS = {one.name for one in SCALARS.values() if np.dtype(one.dtype).kind in "iu"}


class NeedsCentres(OutOfLine):
    """Columns lose digits in binary32; with frames the backend subtracts these centres from them."""

    def __init__(self, request: TrainRequest, centres: Centres) -> None:
        super().__init__(f"columns of {request.relation.name} lose digits in binary32")
        self.centres = centres

    def amended(self, request: TrainRequest) -> TrainRequest:
        """See `OutOfLine.amended`."""
        return replace(OutOfLine.amended(self, request), centres=self.centres)


def check_centres(
    graph: Graph, request: TrainRequest, survey: Survey, fills: Sequence[Fill], labels: Collection[str]
) -> None:
    """Raise `NeedsCentres` if a column is to be centred, or has a better centre.

    Parameters
    ----------
    graph
        The rule.
    """
    # models that are given, or are not initialised with the mean, belong to the columns as they are
    if request.standardize is False or request.warm_start_from is not None:
        return
    types = {one.name: one.type_name.removesuffix("[]") for one in request.relation.attributes}
    before, after = by_column(request, fills, labels), {}
    relative: dict[str, bool] = {}
    for one in (one for one in fills if one.column in before):
        old = before[one.column]
        new = _centres(types.get(one.column, ""), survey, one, old, of_label=one.column in labels)
        if (new != old).any() and one.input not in relative:
            relative[one.input] = is_relative(graph, one.input)
        after[one.column] = new if relative.get(one.input) else old
    label = max((float(after.pop(name)[0]) for name in labels), default=0.0, key=abs)
    features = np.concatenate([*after.values(), np.zeros(0)])
    found = Centres(features=tuple(features.tolist()) if features.any() else (), label=label)
    if found != request.centres:
        raise NeedsCentres(request, found)


def by_column(request: TrainRequest, fills: Sequence[Fill], labels: Collection[str]) -> dict[str, Doubles]:
    """Return the centres of the numbers of each feature and label."""
    features = [one for one in fills if one.column not in labels and one.column != request.weight]
    parts = np.split(
        request.centres.of_features(sum(one.count for one in features)), np.cumsum([one.count for one in features])
    )
    found = {one.column: part for one, part in zip(features, parts, strict=False)}
    # rules with several labels have no centres of them
    return found | {one.column: np.full(one.count, request.centres.label) for one in fills if one.column in labels}


def _centres(kind: str, survey: Survey, fill: Fill, old: Doubles, *, of_label: bool) -> Doubles:
    """Return the centres of the numbers of a column."""
    places = slice(fill.element, fill.element + fill.count)
    mean, deviation = (values[fill.input].reshape(-1)[places] for values in (survey.mean, survey.deviation))
    inexact = _inexact(kind, mean, deviation)
    # a column of ones is what it seems to be
    constant = inexact & (deviation == 0) & (old == 0) & (mean != 0) & (np.abs(mean) != 1)
    # a prediction is rounded like the label, a feature of exact numbers loses nothing
    coarse = (deviation > 0) & is_coarse(mean, deviation) & (inexact | of_label)
    new = old.copy()
    for k in np.flatnonzero(constant | coarse).tolist():
        total = float(old[k] + mean[k])
        # a short number, as near as half a deviation
        new[k] = total if constant[k] else round(total, -floor(log10(deviation[k])))
    return new


def _inexact(kind: str, mean: Doubles, deviation: Doubles) -> NDArray[np.bool_]:
    """Return whether binary32 rounds the numbers of a column."""
    if kind in ("real", "boolean"):
        return np.zeros(mean.shape, bool)
    if kind in INTEGERS or kind == "date":
        return np.abs(mean) + deviation >= EXACT
    return np.ones(mean.shape, bool)


def is_relative(graph: Graph, name: str) -> bool:
    """Return whether a number that is added to an input or output, and to models that start at its mean, changes
    nothing but these models and, for an output, the prediction, to which it is added, too."""
    nodes = graph.nodes
    leaf = next(node for node in (nodes[k] for k in graph.inputs) if node.name == name)
    own = {k for k in graph.models if nodes[k].init.kind is InitKind.MEAN and nodes[k].init.of == name}
    if not own or leaf.classes is not None or (leaf.op is Op.OUTPUT and leaf.shape):
        return False
    # multiples of that number by which values change; None: in another way
    moved: list[float | None] = []
    for node in nodes:
        found = [moved[k] for k in node.inputs]
        known = [one for one in found if one is not None]
        alike = all(nodes[k].shape == leaf.shape for k, one in zip(node.inputs, found, strict=True) if one)
        if node.id == leaf.id or node.id in own:
            moved.append(1)
        elif len(known) < len(found):
            moved.append(None)
        elif not any(known):
            moved.append(0)
        # numbers of a vector keep their places
        elif not alike or (leaf.shape and node.shape != leaf.shape):
            moved.append(None)
        elif node.op is Op.ADD:
            moved.append(sum(known))
        elif node.op is Op.SUB:
            moved.append(known[0] - known[1])
        elif node.op is Op.NEG:
            moved.append(-known[0])
        elif node.op in COMPARISONS and known[0] == known[1]:
            moved.append(0)
        elif node.op is Op.WHERE and known[0] == 0 and known[1] == known[2]:
            moved.append(known[1])
        else:
            moved.append(None)
    updates = [(update.value, update.model in own) for update in graph.updates]
    indices = [(update.index, False) for update in graph.updates if update.index is not None]
    results = [(k, False) for k in (graph.loss, graph.test_loss) if k is not None]
    prediction = [] if graph.prediction is None else [(graph.prediction, leaf.op is Op.OUTPUT)]
    # not the convergence test: what it compares with rounding errors may be smaller
    return all(moved[k] == wanted for k, wanted in (*updates, *indices, *results, *prediction))
