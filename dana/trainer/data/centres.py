"""Decides which columns are trained on less a centre, so that binary32 keeps the digits in which their values differ.

A centre is subtracted in binary64, before the conversion to binary32, and only where the rule computes the same from
the smaller numbers: from an input less its mean (`dana.functions.standardized`), or from a prediction less the label,
where the prediction has an intercept that starts at the label's mean. Where neither holds,
`dana.trainer.data.survey_checks` reports the loss.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.precision import is_narrow, narrow_numbers
from dana.predictor.centres import EXACT, NARROW_EXACT, Centres, is_coarse
from dana.storage.types import SCALARS
from dana.trainer.contract import OutOfLine, TrainRequest
from dana.trainer.data.survey import Survey
from dana.trainer.data.surveyed import Doubles
from dsl.hdfg.graph import COMPARISONS, Graph, Op
from dsl.hdfg.init import InitKind
from hwgen.spec.bundle import Fill

EXACT_TYPES = ("real", "boolean")
"""Types that binary32 represents exactly; bfloat16 does so for all but the first."""
INTEGERS = {one.name for one in SCALARS.values() if np.dtype(one.dtype).kind in "iu"}


class NeedsCentres(OutOfLine):
    """Columns lose digits in binary32; with frames the backend subtracts these centres from them."""

    def __init__(self, request: TrainRequest, centres: Centres) -> None:
        super().__init__(f"columns of {request.relation.name} lose digits in binary32")
        self.centres = centres

    def amended(self, request: TrainRequest) -> TrainRequest:
        """See `OutOfLine.amended`."""
        return replace(OutOfLine.amended(self, request), centres=self.centres)


@dataclass(frozen=True, slots=True, kw_only=True)
class Centring:
    """What decides the centres of a training: its rule, its rows, and where they are in tuple memory."""

    graph: Graph
    request: TrainRequest
    survey: Survey
    fills: Sequence[Fill]
    labels: Collection[str]

    @property
    def inexact(self) -> NDArray[np.bool_]:
        """Whether binary32 rounds the numbers of each feature and, last, of the label; shape [features + 1]."""
        types = self._types()
        found = {one.column: _inexact(types.get(one.column, ""), *self._moments(one)) for one in self.fills}
        label = any(found.pop(name).any() for name in self.labels)
        found.pop(self.request.weight or "", None)
        return np.append(np.concatenate([*found.values(), np.zeros(0, bool)]), label)

    def check(self, close: NDArray[np.bool_] | None = None) -> None:
        """Raise `NeedsCentres` if a column is to be centred, or has a better centre.

        Parameters
        ----------
        close
            Features, and the label, for which smaller roundings matter than for others, shape [features + 1]; None:
            none.
        """
        request, labels = self.request, self.labels
        # models that are given, or are not initialised with the mean, belong to the columns as they are
        if request.standardize is False or request.warm_start_from is not None:
            return
        before, after = by_column(request, self.fills, labels), {}
        closely = {} if close is None else _by_column(request, self.fills, labels, close[:-1], bool(close[-1]))
        relative: dict[str, bool] = {}
        types = self._types()
        rounded = narrow_numbers(self.graph) if is_narrow(request.stored_as) else frozenset()
        for one in (one for one in self.fills if one.column in before):
            old = before[one.column]
            kind = types.get(one.column, "")
            narrow = one.input in rounded
            if kind in EXACT_TYPES[narrow:] and one.column not in labels:  # loses nothing
                after[one.column] = old
                continue
            new = self._centres(one, kind, old, closely.get(one.column, np.zeros(one.count, bool)), narrow=narrow)
            if (new != old).any() and one.input not in relative:
                relative[one.input] = is_relative(self.graph, one.input)
            after[one.column] = new if relative.get(one.input) else old
        label = max((float(after.pop(name)[0]) for name in labels), default=0.0, key=abs)
        features = np.concatenate([*after.values(), np.zeros(0)])
        found = Centres(features=tuple(features.tolist()) if features.any() else (), label=label)
        if found != request.centres:
            raise NeedsCentres(request, found)

    def _types(self) -> dict[str, str]:
        """Return the types of columns, of arrays that of their elements."""
        return {one.name: one.type_name.removesuffix("[]") for one in self.request.relation.attributes}

    def _moments(self, fill: Fill) -> tuple[Doubles, Doubles]:
        """Return mean and deviation of the numbers of a column."""
        places = slice(fill.element, fill.element + fill.count)
        of_input = (values[fill.input].reshape(-1) for values in (self.survey.mean, self.survey.deviation))
        mean, deviation = (values[places] for values in of_input)
        return mean, deviation

    def _centres(self, fill: Fill, kind: str, old: Doubles, close: NDArray[np.bool_], *, narrow: bool) -> Doubles:
        """Return the centres of the numbers of a column, which `narrow` rounds to bfloat16."""
        mean, deviation = self._moments(fill)
        inexact = _inexact(kind, mean, deviation, narrow=narrow)
        # a column of ones is what it seems to be
        constant = inexact & (deviation == 0) & (old == 0) & (mean != 0) & (np.abs(mean) != 1)
        # a prediction is rounded like the label, a feature of exact numbers loses nothing
        losing = is_coarse(mean, deviation, narrow=narrow) | close
        coarse = (deviation > 0) & losing & (inexact | (fill.column in self.labels))
        new = old.copy()
        for k in np.flatnonzero(constant | coarse).tolist():
            total = float(old[k] + mean[k])
            # a short number, as near as half a deviation
            new[k] = total if constant[k] else round(total, -floor(log10(deviation[k])))
        return new


def by_column(request: TrainRequest, fills: Sequence[Fill], labels: Collection[str]) -> dict[str, Doubles]:
    """Return the centres of the numbers of each feature and label."""
    count = sum(one.count for one in fills if one.column not in labels and one.column != request.weight)
    return _by_column(request, fills, labels, request.centres.of_features(count), request.centres.label)


def _by_column(
    request: TrainRequest, fills: Sequence[Fill], labels: Collection[str], features: NDArray[Any], label: float
) -> dict[str, NDArray[Any]]:
    """Split what is known of the numbers of all features; what is known of the label is for each label."""
    used = [one for one in fills if one.column not in labels and one.column != request.weight]
    parts = np.split(features, np.cumsum([one.count for one in used]))
    found = {one.column: part for one, part in zip(used, parts, strict=False)}
    # rules with several labels have no centres of them
    return found | {one.column: np.full(one.count, label, features.dtype) for one in fills if one.column in labels}


def _inexact(kind: str, mean: Doubles, deviation: Doubles, *, narrow: bool = False) -> NDArray[np.bool_]:
    """Return whether binary32, or bfloat16 with `narrow`, rounds the numbers of a column."""
    if kind in EXACT_TYPES[narrow:]:
        return np.zeros(mean.shape, bool)
    if kind in INTEGERS or kind == "date":
        return np.abs(mean) + deviation >= (NARROW_EXACT if narrow else EXACT)
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
