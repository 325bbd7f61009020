"""Data to try rules on: customers as a CSV file, breast cancer from scikit-learn, Covertype or a table of its shape.

In: nothing, or a path. Out: a file; or standardised float32 features and a 0/1 label. Nothing is downloaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dana.errors import SetupError, UsageError

CUSTOMERS = Path(__file__).parent / "customers.csv"
"""1,500 invented customers of a shop, with a label for those that left: texts, dates, missing values, raw numbers."""

COVERTYPE_VARIABLE = "DANA_COVTYPE"
COVERTYPE_SHAPE = (581_012, 54)
COVERTYPE_NUMERIC = 10
"""Covertype's first columns are numbers, the other 44 are 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Rows for a two-class rule.

    Attributes
    ----------
    name
        Name of the data set, for display.
    features
        Shape (rows, columns), binary32.
    label
        Shape (rows,), 0 or 1, binary32.
    """

    name: str
    features: NDArray[np.float32]
    label: NDArray[np.float32]

    def columns(self) -> dict[str, NDArray[np.float32]]:
        """Columns ``x1`` … ``xn`` and ``y``, as a table has them."""
        table = {f"x{index + 1}": self.features[:, index] for index in range(self.features.shape[1])}
        return table | {"y": self.label}

    @property
    def feature_names(self) -> list[str]:
        """Names of the feature columns in `columns`."""
        return [f"x{index + 1}" for index in range(self.features.shape[1])]

    def split(self, *, test_share: float, seed: int) -> tuple[Dataset, Dataset]:
        """Shuffled training and test rows; the same for the same seed."""
        order = np.random.default_rng(seed).permutation(len(self.label))
        cut = round(len(order) * (1.0 - test_share))
        train, test = order[:cut], order[cut:]
        return (
            Dataset(name=self.name, features=self.features[train], label=self.label[train]),
            Dataset(name=self.name, features=self.features[test], label=self.label[test]),
        )


def standardised(features: NDArray[np.float64]) -> NDArray[np.float32]:
    """Columns with mean 0 and deviation 1; a constant column becomes 0."""
    deviation = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return np.asarray(scaled, dtype=np.float32)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer: 569 rows, 30 numeric features (carried by scikit-learn)."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise SetupError("the breast-cancer data comes with scikit-learn; run: pip install scikit-learn") from None
    bunch = load_breast_cancer()
    return Dataset(
        name="breast cancer",
        features=standardised(np.asarray(bunch.data, dtype=np.float64)),
        label=np.asarray(bunch.target, dtype=np.float32),
    )


def covertype(*, synthetic_rows: int = COVERTYPE_SHAPE[0]) -> Dataset:
    """Covertype (lodgepole pine against the rest) from ``$DANA_COVTYPE``, else synthetic rows of the same shape."""
    path = os.environ.get(COVERTYPE_VARIABLE)
    return read_covertype(Path(path)) if path else covertype_shaped(synthetic_rows)


def read_covertype(path: Path) -> Dataset:
    """UCI's ``covtype.data``: 54 features, and class 2 of 7 against the rest as the label.

    The file may be compressed (.gz, .xz, .bz2).

    Raises
    ------
    UsageError
        The file is missing or has another number of columns.
    """
    if not path.is_file():
        raise UsageError(f"{COVERTYPE_VARIABLE} must name the file covtype.data of UCI's Covertype; there is no {path}")
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    if table.ndim != 2 or table.shape[1] != COVERTYPE_SHAPE[1] + 1:
        raise UsageError(f"{path} must have {COVERTYPE_SHAPE[1] + 1} columns, not shape {table.shape}")
    return Dataset(
        name="Covertype",
        features=standardised(table[:, :-1].astype(np.float64)),
        label=(table[:, -1] == 2).astype(np.float32),
    )


def covertype_shaped(rows: int = COVERTYPE_SHAPE[0], *, seed: int = 54) -> Dataset:
    """Synthetic rows with Covertype's columns: 10 correlated numbers, 4 exclusive and 40 exclusive indicators."""
    random = np.random.default_rng(seed)
    numeric = random.standard_normal((rows, COVERTYPE_NUMERIC)) @ (
        np.eye(COVERTYPE_NUMERIC) + 0.3 * random.standard_normal((COVERTYPE_NUMERIC, COVERTYPE_NUMERIC))
    )
    area = np.eye(4)[random.choice(4, rows, p=[0.45, 0.05, 0.44, 0.06])]
    soil = np.eye(40)[random.choice(40, rows, p=random.dirichlet(np.ones(40)))]
    features = standardised(np.hstack([numeric, area, soil]))
    weights = random.standard_normal(features.shape[1]) / 3.0
    score = features @ weights + 0.5 * np.tanh(features[:, 0] * features[:, 1])
    label = random.random(rows) < 1.0 / (1.0 + np.exp(-score))
    return Dataset(name="synthetic, Covertype's shape", features=features, label=label.astype(np.float32))
