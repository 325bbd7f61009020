"""Coefficients of columns, in the units of the columns.

They are computed from the predictor of a trained model if the prediction consists of weighted sums of columns. Scales
and means of standardised inputs are included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dana.errors import UsageError
from dana.predictor.affine import scores
from dana.predictor.centres import NO_CENTRES, Centres
from dana.predictor.program import decode_predictor
from dana.trainer.contract import Json, Parameter
from hwgen.spec.bundle import Fill

MOST = 1 << 20
"""Maximum number of coefficients of an intermediate value (8 MB)."""


def coefficients(
    predictor: bytes | None,
    parameters: Sequence[Parameter],
    fills: Iterable[Fill],
    features: Collection[str],
    centres: Centres,
) -> Json | None:
    """Return the terms and their coefficients in each sum; None if the prediction is not made of weighted sums."""
    if predictor is None or sum(one.values.size for one in parameters) > MOST:
        return None  # models of this size have rows chosen by tuples, not weights of columns
    weights = np.concatenate([one.values.reshape(-1) for one in parameters] or [np.zeros(0, np.float32)])
    try:
        found = scores(decode_predictor(predictor), weights, MOST)
    except UsageError:
        return None
    if found is None:
        return None
    terms: list[str] = []
    means: list[float] = []
    models = {one.name: one.values for one in parameters}
    for one in (fill for fill in fills if fill.column in features):
        terms += [one.column] if one.count == 1 else [f"{one.column}[{k}]" for k in range(1, one.count + 1)]
        # only `standardized` keeps the means
        mean = models.get(f"{one.input}.mean", np.zeros(one.element + one.count)).reshape(-1)
        means += mean[one.element : one.element + one.count].astype(float).tolist()
    # with centres in binary64: a product with a large number of the column is compared with its small distances
    kind: type[np.floating[Any]] = np.float32 if centres == NO_CENTRES else np.float64
    away = found.of_columns(centres)
    described = {
        "terms": terms,
        "means": (np.array(means) + centres.of_features(len(means))).tolist(),
        "intercepts": away.intercepts.astype(kind).tolist(),
        "values": away.coefficients.astype(kind).tolist(),
    }
    return with_bases(described, centres, found.intercepts.tolist())


def with_bases(found: Mapping[str, Any], centres: Centres, at_centres: Sequence[float]) -> dict[str, Any]:
    """Add ``bases``, the sums for a row of means, to which features contribute coefficient * (value - mean).

    They are computed from the intercepts of the columns less their centres, `at_centres`: an intercept far from the
    rows is a large number, and rounded.
    """
    distances = np.array(found["means"]) - centres.of_features(len(found["means"]))
    each = zip(at_centres, found["values"], strict=True)
    return {**found, "bases": [one + float(np.array(values) @ distances) + centres.label for one, values in each]}
