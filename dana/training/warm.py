"""Warm start: a rule's models begin with the values of a trained model.

In: a request and the shapes of the rule's models. Out: values by name, checked. It stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.weights import is_of_classes
from dana.training.contract import TrainingError, TrainRequest
from dana.training.designs import rule_graph
from dsl.hdfg.choice import growing_models

SHOWN = 3
"""Differences of a kind that a message lists."""


def warm_values(
    request: TrainRequest,
    shapes: Mapping[str, tuple[int, ...]],
    own: str | None,
    row_dims: Mapping[str, str],
    features: Sequence[str],
    cold: Callable[[str], NDArray[np.float32]],
) -> dict[str, NDArray[np.float32]]:
    """Values to start from, by the names of the rule's models; empty for a cold start.

    Categories that the trained model does not know have rows as in a cold start, of which `cold` gives a model to keep.

    What an optimiser remembers is carried over where both have it, so that a rule may change its optimiser. The
    training's own are the weights of its classes, `own`; those of the model that it starts from are left behind.
    `features` are the training's columns.

    Raises
    ------
    TrainingError
        The trained model has other parameters than the rule declares, or other shapes, or its columns in another order.
    """
    if request.warm_start_from is None:
        return {}
    _same_order(request, features)
    given = request.warm_start_from
    start = {
        name: values
        for name, values in given.items()
        if name != own and (name in shapes or not (is_of_classes(name) or _remembered(name, given)))
    }
    for name in (name for names in growing_models(rule_graph(request)).values() for name in names):
        if name in start and shapes[name][1:] == start[name].shape[1:] and shapes[name][0] > len(start[name]):
            grown = cold(name)
            grown[: len(start[name])] = start[name]
            start[name] = grown
    found = {name: values.shape for name, values in start.items()}
    wanted = {
        name: shape
        for name, shape in shapes.items()
        if name != own and (name in start or (request.warm_start_whole and not _remembered(name, shapes)))
    }
    if found != wanted:
        raise TrainingError(
            f"the model to start from does not fit rule {request.rule!r} on this table: {_differences(found, wanted)}",
            hint=_help(found, wanted, row_dims),
        )
    return {name: np.asarray(values, dtype=np.float32) for name, values in start.items()}


def _same_order(request: TrainRequest, features: Sequence[str]) -> None:
    """Refuse columns of the trained model's that stand elsewhere: its weights would be taken for other columns'.

    Columns of other names may be the same ones of another table.
    """
    known = request.warm_start_features
    elsewhere = [name for name, before in zip(features, known, strict=False) if name != before and name in known]
    if elsewhere:
        raise TrainingError(
            f"the model to start from was trained on columns {', '.join(known)}, in this order, and column "
            f"{elsewhere[0]} stands elsewhere among {', '.join(features)}",
            hint=f"features => '{{{','.join(known)}}}' has them as that model has; or leave warm_start_from out.",
        )


def _help(
    found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]], row_dims: Mapping[str, str]
) -> str:
    if found.keys() != wanted.keys():
        return "Start from a model of the same rule, or leave warm_start_from out."
    rows = {row_dims[k]: v[0] for k, v in found.items() if k in row_dims and v[:1] != wanted[k][:1]}
    if rows and all(found[k][1:] == shape[1:] and (k in row_dims or found[k] == shape) for k, shape in wanted.items()):
        given = ", ".join(f'"{dim}": {count}' for dim, count in rows.items())
        return (
            f"hyper => '{{{given}}}' gives it as many rows as that model has, which has learnt nothing of others; "
            "or leave warm_start_from out."
        )
    return (
        "Train on columns like those of that model, whose metadata list them (features, dims), "
        "or leave warm_start_from out."
    )


def _remembered(name: str, models: Collection[str]) -> bool:
    """Whether it is a state of a model, such as ``w.velocity``, or a count of the language's, such as ``dana.epoch``.

    ``x.mean``, an input's, is what weights rest on.
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
    parts += [f"it has {_first(unknown)}, which the rule has not"] if unknown else []
    return "; ".join([*parts, _first(others)] if others else parts)


def _first(things: Sequence[str]) -> str:
    """Some of many."""
    more = len(things) - SHOWN
    return ", ".join(things[:SHOWN]) + (f" and {more} more" if more > 0 else "")
