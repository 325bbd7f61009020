"""Objects of JSON that the server returns, as types.

In: nothing. Out: typed dictionaries, which `dana_evaluate`, `dana_export_model` and `dana.model.metadata` fill.
"""

from __future__ import annotations

from typing import Any, TypedDict

ClassMetrics = TypedDict(
    "ClassMetrics",
    {"class": str, "rows": int, "precision": float | None, "recall": float | None, "f1": float | None},
)
"""Metrics of one class against the others."""


class OutputMetrics(TypedDict):
    """Metrics of one of several predicted numbers."""

    r2: float | None
    rmse: float | None
    mae: float | None


class Calibrated(TypedDict):
    """Rows with a probability in one of ten intervals, their mean probability, and the share of positive rows."""

    rows: int
    predicted: float
    observed: float


class TwoByTwo(TypedDict):
    """Rows of two classes by label and prediction."""

    tn: int
    fp: int
    fn: int
    tp: int


class Metrics(TypedDict, total=False):
    """What ``dana_evaluate`` returns; a metric is None where the rows do not define it."""

    model: str
    version: int
    part: str
    rows: int
    not_finite: int
    other_labels: int
    not_predicted: int
    unseen_categories: int
    positive: str
    # Written by python -m dana.generated: the metrics of dana/metrics.py
    accuracy: float | None
    auc: float | None
    average_precision: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    log_loss: float | None
    brier: float | None
    r2: float | None
    rmse: float | None
    mae: float | None
    poisson_deviance: float | None
    gamma_deviance: float | None
    pinball_loss: float | None
    # to here
    calibration: list[Calibrated]
    classes: list[ClassMetrics]
    outputs: list[OutputMetrics]
    confusion: TwoByTwo | list[list[int]]


class Preprocessed(TypedDict, total=False):
    """How one column was encoded, and what replaces NULL."""

    column: str
    encode: str | list[str]
    categories: list[str]
    buckets: int
    other: bool
    indicator: bool
    impute: list[float] | None


class Group(TypedDict):
    """The group of rows that a model was trained on: texts by column."""

    key: dict[str, str]


class After(TypedDict):
    """The rows held out for a test: those later than a value."""

    column: str
    value: str


class Summary(TypedDict, total=False):
    """What is known of a solved model; either ``no_errors``, the reason, or the members after it."""

    separated: bool
    no_errors: str
    family: str
    rows: float
    coefficients: int
    freedom: float
    log_likelihood: float
    aic: float
    r2: float | None
    adjusted_r2: float | None
    residual_error: float
    deviance: float
    null_deviance: float
    dropped: list[int]


class Metadata(TypedDict, total=False):
    """``dana.model.metadata``: what the training recorded."""

    features: list[str]
    encoded: list[str]
    labels: list[str]
    classes: list[str] | None
    class_type: str | None
    types: dict[str, str]
    predicts: str
    source: str
    query: str | None
    filter: str | None
    test_size: float | None
    seed: int
    test_after: After | None
    group: Group | None
    warm_start_from: str | None
    preprocess: list[Preprocessed] | None
    centres: dict[str, Any]
    optimizers: list[str]
    ended: str
    summary: Summary


class Parameter(TypedDict):
    """A parameter of an exported model; a value may be a text such as ``NaN``, for which JSON has no number."""

    name: str
    shape: list[int]
    values: list[float | str]


class Exported(TypedDict):
    """What ``dana_export_model`` returns."""

    format: str
    name: str
    version: int
    rule: str
    parameters: list[Parameter]
    metadata: Metadata
    predictor: str | None
