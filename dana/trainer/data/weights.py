"""Weights of rows and of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.columns import Binding, bind
from dana.compiler.binding.precision import is_narrow, narrowed
from dana.trainer.contract import Json, TrainingError, TrainRequest
from dana.trainer.data.survey import Survey
from dsl.hdfg.graph import Graph

MAX_WEIGHT = 1e30
"""Maximum weight of a class; products with it stay far below the range of binary32."""
BALANCED = "balanced"
"""Every class has the same total weight: rows / (classes * rows of the class), as in scikit-learn."""


def bind_request(graph: Graph, request: TrainRequest, extents: Mapping[str, int] | None = None) -> Binding:
    """Bind the rule to the table of the request, with its weights and its numbers.

    Raises
    ------
    UsageError
        As `dana.compiler.binding.columns.bind`; or there are no such numbers.
    """
    narrow = is_narrow(request.stored_as)
    bound = bind(
        graph,
        request.relation.schema,
        request.features,
        request.label,
        extents,
        weight=request.weight,
        class_weight=request.class_weight is not None,
    )
    return replace(bound, graph=narrowed(bound.graph), unweighted=narrowed(bound.unweighted)) if narrow else bound


def given_class_weights(request: TrainRequest, count: int) -> NDArray[np.float32]:
    """Return the weights given for `count` classes; unnamed classes have the weight 1.

    Raises
    ------
    TrainingError
        A name is not that of a class, or a weight is not a number from 0 to `MAX_WEIGHT`.
    """
    weights = np.ones(count, np.float32)
    given = request.class_weight
    if given is None or given == BALANCED:
        # balanced weights are known only after the survey and replace these
        return weights
    if not isinstance(given, Mapping):
        raise TrainingError(
            f'argument "class_weight" must be a JSON object or "{BALANCED}", not {json.dumps(given)}',
            hint='For instance \'{"yes": 5, "no": 1}\', by label.',
        )
    # without texts of classes the labels are the numbers themselves
    names = request.classes or tuple(map(str, range(count)))
    for name, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MAX_WEIGHT:
            raise TrainingError(
                f'argument "class_weight" must give numbers from 0 to {MAX_WEIGHT:g}, '
                f'not {json.dumps(weight)} to "{name}"'
            )
        number = _class_of(name, names)
        if number is None:
            shown = ", ".join(f'"{one}"' for one in names[:20]) + (", ..." if len(names) > 20 else "")
            raise TrainingError(
                f'argument "class_weight" names "{name}", which is none of the classes', detail=f"They are {shown}."
            )
        weights[number] = weight
    if not weights.any():
        raise TrainingError('argument "class_weight" gives every class the weight 0', hint="Nothing would be learnt.")
    return weights


def balanced_class_weights(survey: Survey) -> NDArray[np.float32]:
    """Return weights that give all classes with rows the same total weight; 1 for the others."""
    sums = survey.classes
    seen = np.count_nonzero(sums)
    weights = np.divide(sums.sum(), seen * sums, out=np.ones_like(sums), where=sums > 0)
    return np.asarray(weights, dtype=np.float32)


def weight_metadata(request: TrainRequest) -> Json:
    """Return the members of the metadata of a model about weights."""
    given = {"weight": request.weight, "class_weight": request.class_weight}
    return {name: value for name, value in given.items() if value is not None}


def _class_of(name: str, names: tuple[str, ...]) -> int | None:
    """Return the number of a class by its text, or by its value as a number (1, 1.0)."""
    # texts first: '1' and '1.0' may be two classes
    if name in names:
        return names.index(name)
    numbers = [_number(one) for one in names]
    wanted = _number(name)
    return None if wanted is None or wanted not in numbers else numbers.index(wanted)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower())
