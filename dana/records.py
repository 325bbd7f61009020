"""Objects of JSON that the server returns, as types.

In: nothing. Out: typed dictionaries, which `dana_evaluate`, `dana_explain`, `dana_export_model` and
`dana.model.metadata` fill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

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


class CentreValues(TypedDict):
    """What was subtracted from each feature and the label; no features: nothing from any."""

    features: list[float]
    label: float


class GatheredShard(TypedDict, total=False):
    """A shard that rows came from; ``pages`` where the server itself has gathered them."""

    shard: int
    server: str
    relation: str
    rows: int
    pages: int
    snapshot: str


class Gathered(TypedDict):
    """The table that was gathered, and its shards in their order."""

    source: str
    shards: list[GatheredShard]


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
    gathered: Gathered
    query: str | None
    filter: str | None
    test_size: float | None
    seed: int
    test_after: After | None
    group: Group | None
    warm_start_from: str | None
    preprocess: list[Preprocessed] | None
    centres: CentreValues
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


class Reads(TypedDict):
    """The pages of a training: how many there are (None: unknown), and the rows and pages of one page's worth."""

    frames: bool
    page_bytes: int
    pages: int | None
    empty: int
    tuples: int
    counted: bool
    pages_of_a_tuple: int


class ProgramSizes(TypedDict):
    """Instructions of the engine and of a Strider, column descriptors, tuples that are computed at a time."""

    engine: int
    strider: int
    descriptors: int
    tuples_of_a_round: int


class Busy(TypedDict):
    """The shares of a page's cycles in which a part of the machine works."""

    link: float
    unpacker: float
    engine: float
    units: float


class EstimatedCycles(TypedDict):
    """Estimated cycles of a tuple and a page, those that an epoch has once, and what the machine waits for.

    ``repeats``: cycles that a tuple takes beyond those if all rows of tables that it adds to were added to just before.
    """

    tuple: float
    page: float
    fixed: float
    busy: Busy
    waits_for: str
    repeats: int


class Bottleneck(TypedDict):
    """Why a tuple takes its cycles; ``tuple``: what it takes after ``change``, where one would help."""

    cause: str
    line: int | None
    text: str
    change: Mapping[str, str | int] | None
    tuple: float | None


class EstimatedEpoch(TypedDict):
    """Estimated cycles and seconds of an epoch, and bytes of pages that are read in a second."""

    cycles: int
    seconds: float
    bytes_per_second: float


class Resource(TypedDict):
    """How much of an FPGA's resource is used, and how much can be."""

    used: int
    usable: int


class _Fitting(TypedDict):
    device: str
    fits: bool


class Area(_Fitting, total=False):
    """Area on an FPGA; it has a member for each resource that the FPGA has or the machine takes."""

    luts: Resource
    flipflops: Resource
    dsps: Resource
    block_rams: Resource
    ultra_rams: Resource


class Searched(TypedDict):
    """A search of machines: how many there were and fit, how far the best is above the bound, its ``design``."""

    machines: int
    fitting: int
    above_bound: float
    design: Mapping[str, int]


class ComparedRun(TypedDict):
    """The last run on the table; its cycles are estimated if it was the same training on the same machine."""

    id: int
    started: str
    machine: str
    epochs: int
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    wall_seconds: float
    modelled_seconds: float | None
    same_machine: bool
    differences: list[str]
    estimated_cycles: int | None
    error: float | None


class ShardCost(TypedDict):
    """The members of `dana.trainer.shard_costs.Cost`."""

    sync: str
    seconds: float
    bytes: float
    rounds: int
    waiting: float
    servers: int
    warning: str | None
    error: str | None


class ShardCosts(TypedDict):
    """What a training over shards would cost with each ``sync``."""

    count: int
    hosts: int
    rows: float
    pages: float
    costs: list[ShardCost]


class Plan(TypedDict):
    """What ``dana_explain`` returns as JSON.

    ``batch`` is None for one of the whole table, ``machine`` has the fields of `hwgen.spec.config.MachineConfig`;
    ``numbers`` are those of a row, ``merged_bytes`` those of a batch's merges, ``model_bytes`` of models and states:
    what parts of a training send; ``stored_bytes`` are those of models and states with numbers of bfloat16;
    ``sync_errors`` is why it can have no parts. ``shards`` is None without ``sync``.
    """

    rule: str
    source: str
    features: list[str]
    labels: list[str]
    batch: int | None
    side_by_side: int | None
    record_bytes: int | None
    epochs: int
    merged_bytes: int
    model_bytes: int
    stored_bytes: int
    numbers: int
    sync_errors: Mapping[str, str]
    reads: Reads
    made_for: str | None
    machine: Mapping[str, int]
    program: ProgramSizes
    cycles: EstimatedCycles
    why: Bottleneck
    epoch: EstimatedEpoch | None
    area: Area
    search: Searched | None
    last_run: ComparedRun | None
    shards: ShardCosts | None
