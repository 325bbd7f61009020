"""The data for trying rules on: right shapes, standardised, the same every time, and learnable."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from dana.demo.datasets import COVERTYPE_VARIABLE, Dataset, breast_cancer, covertype, covertype_shaped, standardised
from dana.errors import UsageError


@pytest.mark.parametrize("data", [breast_cancer(), covertype_shaped(20_000)], ids=lambda data: data.name)
def test_features_are_standardised_and_labels_are_two_classes(data: Dataset) -> None:
    assert data.features.dtype == data.label.dtype == np.float32
    assert np.abs(data.features.mean(axis=0)).max() < 1e-4
    deviation = data.features.std(axis=0)
    assert np.all((np.abs(deviation - 1.0) < 1e-3) | (deviation == 0.0))
    assert set(np.unique(data.label)) == {0.0, 1.0}


def test_shapes() -> None:
    assert breast_cancer().features.shape == (569, 30)
    assert covertype_shaped(300).features.shape == (300, 54)


def test_the_synthetic_table_can_be_learnt_and_is_the_same_every_time() -> None:
    from sklearn.linear_model import LogisticRegression

    data = covertype_shaped(20_000)
    assert data.features.tobytes() == covertype_shaped(20_000).features.tobytes()
    train, test = data.split(test_share=0.25, seed=1)
    share = LogisticRegression().fit(train.features, train.label).score(test.features, test.label)
    assert 0.65 < share < 0.95


def test_a_constant_column_becomes_zero() -> None:
    assert np.array_equal(standardised(np.full((3, 1), 5.0)), np.zeros((3, 1), dtype=np.float32))


def test_a_split_has_every_row_once() -> None:
    rows = np.arange(100, dtype=np.float32)
    data = Dataset(name="rows", features=rows[:, None], label=rows)
    train, test = data.split(test_share=0.2, seed=3)
    assert (len(train.label), len(test.label)) == (80, 20)
    assert sorted([*train.label, *test.label]) == list(rows)
    assert np.array_equal(train.features[:, 0], train.label)
    assert np.array_equal(data.split(test_share=0.2, seed=3)[1].label, test.label)
    assert not np.array_equal(data.split(test_share=0.2, seed=4)[1].label, test.label)


def test_columns_are_named_as_the_feature_names_say() -> None:
    data = covertype_shaped(5)
    assert list(data.columns()) == [*data.feature_names, "y"]
    assert np.array_equal(data.columns()["x54"], data.features[:, 53])


def test_covertype_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    classes = np.array([1, 2, 7, 2])
    lines = [",".join(map(str, [*random.integers(0, 9, 54), one])) for one in classes]
    file = tmp_path / "covtype.data.xz"
    file.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))
    monkeypatch.setenv(COVERTYPE_VARIABLE, str(file))
    data = covertype()
    assert data.name == "Covertype"
    assert data.features.shape == (4, 54)
    assert list(data.label) == [0.0, 1.0, 0.0, 1.0]


def test_a_file_that_is_not_covertype_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "other.csv"
    monkeypatch.setenv(COVERTYPE_VARIABLE, str(file))
    with pytest.raises(UsageError, match="there is no"):
        covertype()
    file.write_text("1,2\n3,4\n")
    with pytest.raises(UsageError, match=r"must have 55 columns, not shape \(2, 2\)"):
        covertype()
