"""Warm start: initialising the models of a rule from a trained model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.weights import is_of_classes
from dana.trainer.contract import TrainingError, TrainRequest
from dana.trainer.designs import SOLVERS, rule_graph, rule_of
from dsl.hdfg.choice import growing_models

SHOWN = 3
"""Maximum number of differences listed in a message."""


def warm_values(
    request: TrainRequest,
    shapes: Mapping[str, tuple[int, ...]],
    own: str | None,
    row_dims: Mapping[str, str],
    features: Sequence[str],
    cold: Callable[[str], NDArray[np.float32]],
) -> dict[str, NDArray[np.float32]]:
    """Return the initial values by model name; empty for a cold start.

    The state of an optimiser is used if both models have it, so that a rule may change its optimiser. A direction of a
    solver is not: it belongs to the rows of its training.

    Parameters
    ----------
    shapes
        Shapes of the models of the rule.
    own
        Model that holds the class weights; these are always those of the new training.
    row_dims
        By model, the dim that is its number of rows and that ``hyper`` may set.
    features
        Columns of the training.
    cold
        Returns the cold-start value of a model; it supplies the rows of categories that the trained model lacks.

    Raises
    ------
    TrainingError
        The trained model has other parameters, other shapes, or its columns in another order.
    """
    if request.warm_start_from is None:
        return {}
    _same_order(request, features)
    given = request.warm_start_from
    if SOLVERS.intersection(rule_of(request.text, request.rule).checked.optimizers):
        given = {name: values for name, values in given.items() if not remembered(name, given)}
    start = {
        name: values
        for name, values in given.items()
        # states that the new rule lacks are dropped; a parameter that it lacks is an error below
        if name != own and (name in shapes or not (is_of_classes(name) or remembered(name, given)))
    }
    for name in (name for names in growing_models(rule_graph(request)).values() for name in names):
        # only to more rows: fewer would drop trained categories, which is the error below
        if name in start and shapes[name][1:] == start[name].shape[1:] and shapes[name][0] > len(start[name]):
            grown = cold(name)
            grown[: len(start[name])] = start[name]
            start[name] = grown
    # comparing the shapes by name covers missing and unknown models as well
    found = {name: values.shape for name, values in start.items()}
    wanted = {
        name: shape
        for name, shape in shapes.items()
        if name != own and (name in start or (request.warm_start_whole and not remembered(name, shapes)))
    }
    if found != wanted:
        raise TrainingError(
            f"the model to start from does not fit rule {request.rule!r} on this table: {_differences(found, wanted)}",
            hint=_help(found, wanted, row_dims),
        )
    return {name: np.asarray(values, dtype=np.float32) for name, values in start.items()}


def _same_order(request: TrainRequest, features: Sequence[str]) -> None:
    """Raise TrainingError if the columns of the trained model are used in another order.

    Its weights would be applied to the wrong columns. Unknown names are accepted: the columns of another table may be
    named differently.
    """
    known = request.warm_start_features
    # lengths may differ: the shapes are compared afterwards
    elsewhere = [name for name, before in zip(features, known, strict=False) if name != before and name in known]
    if elsewhere:
        raise TrainingError(
            f"the model to start from was trained on columns {', '.join(known)}, in this order, but column "
            f"{elsewhere[0]} has another position in {', '.join(features)}",
            hint=f"Use features => '{{{','.join(known)}}}', or omit warm_start_from.",
        )


def _help(
    found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]], row_dims: Mapping[str, str]
) -> str:
    if found.keys() != wanted.keys():
        return "Start from a model of the same rule, or omit warm_start_from."
    rows = {row_dims[k]: v[0] for k, v in found.items() if k in row_dims and v[:1] != wanted[k][:1]}
    if rows and all(found[k][1:] == shape[1:] and (k in row_dims or found[k] == shape) for k, shape in wanted.items()):
        given = ", ".join(f'"{dim}": {count}' for dim, count in rows.items())
        return f"Use hyper => '{{{given}}}', the number of rows of that model, or omit warm_start_from."
    return (
        "Train on columns like those of that model, which its metadata list (features, dims), or omit warm_start_from."
    )


def remembered(name: str, models: Collection[str]) -> bool:
    """Whether it is the state of a model (``w.velocity``) or a counter of the language (``dana.epoch``).

    ``x.mean`` belongs to an input and is not a state: the weights depend on it.
    """
    model, point, _ = name.partition(".")
    return bool(point) and (model in models or model == "dana")


def _differences(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> str:
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    others = [
        f"{name} has shape {list(found[name])}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    parts = [f"it has no {_first(missing)}"] if missing else []
    parts += [f"it has {_first(unknown)}, which the rule does not have"] if unknown else []
    return "; ".join([*parts, _first(others)] if others else parts)


def _first(things: Sequence[str]) -> str:
    """Join the first things, with the number of the others."""
    more = len(things) - SHOWN
    return ", ".join(things[:SHOWN]) + (f" and {more} more" if more > 0 else "")
