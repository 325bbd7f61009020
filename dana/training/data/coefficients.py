"""What the columns weigh in a model, by their names and in their own units.

In: a trained model's predictor and its parameters. Out: the coefficients of its weighted sums, for models whose
prediction is made of such sums; scales and means of standardised inputs are in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from dana.errors import UsageError
from dana.predictor.affine import scores
from dana.predictor.program import decode_predictor
from dana.training.contract import Json, Parameter
from dana.training.data.survey import Place

MOST = 1 << 20
"""Coefficients of a value on the way, beyond which none are worked out: 8 MB."""


def coefficients(
    predictor: bytes | None, parameters: Sequence[Parameter], fills: Iterable[Place], features: Collection[str]
) -> Json | None:
    """Terms by name, and a list of their coefficients for each sum; None where the prediction is anything else."""
    if predictor is None or sum(one.values.size for one in parameters) > MOST:
        return None  # so many are rows that tuples choose, and no weights of columns
    weights = np.concatenate([one.values.reshape(-1) for one in parameters] or [np.zeros(0, np.float32)])
    try:
        found = scores(decode_predictor(predictor), weights, MOST)
    except UsageError:
        return None
    if found is None:
        return None
    terms = [
        column if count == 1 else f"{column}[{k}]"
        for column, _, _, count in fills
        if column in features
        for k in range(1, count + 1)
    ]
    return {
        "terms": terms,
        "intercepts": [float(np.float32(one)) for one in found.intercepts],
        "values": [[float(np.float32(one)) for one in row] for row in found.coefficients],
    }
