"""The options of a training, for Python and the command line.

``dana_train`` declares the same in SQL (pg_extension/sql/dana.sql); a test compares the two. Add a training option in
both, and in docs/sql-reference.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict


class TrialOptions(TypedDict, total=False):
    """Arguments of ``dana_train`` that trials share; the server chooses the others.

    Each is annotated with its description for the command line.
    """

    features: Annotated[Sequence[str], "feature columns, in order"]
    label: Annotated[str, "label column"]
    epochs: Annotated[int, "most passes over the rows (as the rule says)"]
    patience: Annotated[int, "epochs without improvement that end it (30); 0: never"]
    tolerance: Annotated[float, "part of the loss that is no improvement (0.001)"]
    hyper: Annotated[Mapping[str, float], "new values for the rule's metas"]
    machine: Annotated[str, "what executes the rule (sim)"]
    design: Annotated[Mapping[str, object], "parameters of the design: threads, clusters …"]
    query: Annotated[str, "one SELECT to train on, instead of a table"]
    filter: Annotated[str, "SQL condition on the table's rows"]
    nulls: Annotated[
        str | float,
        "rows with a NULL: skip (default), error; or mean, median or a number to put in its place; or indicator: the "
        "mean, and a column that is 1 for a NULL",
    ]
    preprocess: Annotated[
        Mapping[str, object], 'what is done to columns: {"city": {"encode": "one_hot"}, "age": {"impute": "mean"}}'
    ]
    nonfinite: Annotated[str, "rows with a NaN or an infinity: skip (default), keep or error"]
    standardize: Annotated[bool, "bring columns to mean 0 and deviation 1 where the rule wants it (true)"]
    stored_as: Annotated[str, "what features and models are stored as: binary32 (default) or bfloat16"]
    classes: Annotated[Sequence[str], "texts of the label's classes, which become 0, 1, …"]
    weight: Annotated[str, "column of numbers that say how much each row counts (each as much)"]
    class_weight: Annotated[
        Mapping[str, float] | str, 'how much rows count by their label: {"yes": 5, "no": 1}; or balanced'
    ]
    test_by: Annotated[str, "column whose values stay in one part: rows for tests, for validation, of a fold"]
    early_stopping: Annotated[bool, "keep the epoch with the lowest loss on rows for validation, a tenth (false)"]
    validation_size: Annotated[float, "part of the rows to train on that is for validation, such as 0.2 (none)"]
    calibrate: Annotated[
        str, "platt: fit probabilities to scores of two classes on rows for validation, a fifth (none)"
    ]
    shuffle: Annotated[bool, "rows in a pseudo-random order (if the rule has batches); no: in the order of the table"]
    warm_start_from: Annotated[str, "model to start from"]


class TrainOptions(TrialOptions, total=False):
    """The same, with the options of a training that stores a model."""

    model: Annotated[str, "name of the model (the rule's)"]
    test_size: Annotated[float, "part of the rows to leave out, for evaluating, such as 0.2"]
    test_after: Annotated[Mapping[str, object], 'leave out the rows later than this instead: {"day": "2024-01-01"}']
    sync: Annotated[
        str,
        "train on the table's shards: gather their rows, or leave them there and join merges (batch) or average models "
        "(epoch)",
    ]
    resume: Annotated[
        str,
        "with sync batch or epoch: keep checkpoints, and go on from the model's: if the rows are unchanged; or anyway; "
        "or never, but begin again",
    ]
    seed: Annotated[int, "which rows these are, the order of the rows that train, and the starts of kmeans (1)"]
