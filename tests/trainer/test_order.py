"""Rows that are alike and lie together: which columns are named, on which tables, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import stochastic
from dana import rules
from dana.storage.builder import build_pages
from dana.trainer.arrays import train
from dana.trainer.contract import Notice
from dana.trainer.data.order import _lie_together
from dana.trainer.data.survey import survey_columns, survey_of
from dana.trainer.trainer import MachineTrainer
from dana.trainer.training import MachineTraining
from tests.trainer.test_training import feed, relation, request

ROWS = 1000
PLAIN = """
import dana
n = dana.dim()
w, x, y = dana.model([n]), dana.input([n]), dana.output()
plain = dana.algo(w, x, y)
error = dana.sigma(w * x, 1) - y
plain.setModel(w, w - 0.01 * error * x)
plain.setLoss(error * error)
"""
PLACES = np.arange(ROWS)
MACHINES = ["sim", "interp"]


def told(rule: str, columns: Mapping[str, Any], label: str | None = "y", **options: Any) -> list[Notice]:
    """What is said of the order of some columns."""
    said: list[Notice] = []
    arrays = {name: np.asarray(values, np.float32) for name, values in columns.items()}
    train(stochastic.text(rule), arrays, label=label, epochs=1, shuffle=False, notify=said.append, **options)
    return [one for one in said if "lie together" in one.message]


def noise(seed: int = 0, rows: int = ROWS) -> Any:
    return np.random.default_rng(seed).normal(size=rows)


@pytest.mark.parametrize("machine", MACHINES)
def test_categories_that_lie_together_are_named(machine: str) -> None:
    regions = {f"r{k}": k == PLACES // 334 for k in range(3)}
    (said,) = told("linear", {**regions, "a": noise(), "t": PLACES, "y": noise(1)}, machine=machine)
    assert said.message == "rows that are alike in arrays r0, r1, r2 lie together, as in a sorted table"
    assert said.hint.endswith("Change the order: shuffle=True.")
    mixed = {name: np.random.default_rng(2).permutation(values) for name, values in regions.items()}
    assert not told("linear", {**mixed, "a": noise(), "t": PLACES, "y": noise(1)}, machine=machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("share", [0.005, 0.012, 0.05, 0.1, 0.5])
def test_a_class_at_the_end_is_told_however_rare_it_is(share: float, machine: str) -> None:
    rows = 4000
    last = np.arange(rows) >= rows * (1 - share)
    (said,) = told("logistic", {"a": noise(0, rows), "y": last}, machine=machine)
    assert said.message == "rows that are alike in array y lie together, as in a sorted table"
    again = told("logistic", {"a": noise(0, rows), "y": last}, machine=machine, class_weight="balanced")
    assert [one.message for one in again] == [said.message]
    assert not told("logistic", {"a": noise(0, rows), "y": noise(3, rows) > np.quantile(noise(3, rows), 1 - share)})


@pytest.mark.parametrize("machine", MACHINES)
def test_one_of_several_classes_at_the_end(machine: str) -> None:
    """Whose share of the variance of classes' numbers is small: each class is looked at by itself."""
    rows = 4000
    labels = np.random.default_rng(4).choice([0, 1, 3, 4], rows)
    labels[-60:] = 2
    columns = {"a": noise(0, rows), "y": labels}
    parts = survey_columns({"y": labels.astype(np.float32)}, label="y", kinds=5)
    assert parts.together["y"] < 0.05 < 0.4 < parts.kinds[2]
    assert len(told("softmax", columns, machine=machine)) == 1
    labels[:] = np.random.default_rng(5).permutation(labels)
    assert not told("softmax", columns, machine=machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_rule_without_a_label(machine: str) -> None:
    (said,) = told("pca", {"r": PLACES < 300, "a": noise(), "b": noise(1)}, label=None, machine=machine)
    assert "in array r lie" in said.message


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_what_is_no_order(scale: float) -> None:
    assert len(told("linear", {"a": noise(), "y": scale * PLACES})) == 1
    assert not told("linear", {"a": noise(), "y": scale * (PLACES % 7)})
    assert not told("linear", {"a": noise(), "y": scale * (PLACES * 7919 % ROWS)})
    assert not told("linear", {"a": PLACES * scale, "y": noise()}), "numbers that grow with the table"
    assert not told("linear", {"a": noise(0, 64), "y": np.arange(64)}), "one batch has no order"
    assert not told("linear", {"a": [1.0], "y": [scale]})
    for rows in (65, 129, 1025):
        alone = np.isin(np.arange(rows), [10, rows // 2, rows - 1])
        assert not told("logistic", {"a": noise(0, rows), "y": alone}), "the last row is a batch by itself"


def test_few_rows_that_chance_has_put_together() -> None:
    assert not [k for k in range(300) if told_of(np.random.default_rng(k).normal(size=90))]
    assert not [k for k in range(300) if told_of(np.random.default_rng(k).random(140) < 0.03)]


def told_of(labels: Any) -> bool:
    survey = survey_columns({"y": labels.astype(np.float32)})
    return _lie_together(survey, survey.together["y"])


def test_texts_categories_are_named_by_their_column_and_a_weight_is_not() -> None:
    """As a backend sends them, to a rule that needs no pass before its first epoch."""
    names = ["region=north", "region=other", "a", "y"]
    table = relation([(name, "real") for name in names], pages=1)
    cells = np.stack([PLACES < 500, PLACES >= 500, noise(), noise(1)], axis=1).astype(np.float32)
    pages = build_pages(table.schema, cells.tolist())
    listed = [{"column": "region", "encode": "one_hot", "categories": ["north"], "other": True}, {"column": "a"}]
    asked = replace(
        request(table, rule="plain", text=PLAIN, epochs=1),
        relation=replace(table, pages=len(pages) // table.page_size),
        metadata={"preprocess": listed, "encoded": names[:3]},
    )
    said: list[Notice] = []
    training = MachineTrainer().open(asked, said.append)
    feed(training, training.sink, pages)
    assert training.survey is None
    training.end_epoch()
    training.close()
    (one,) = (one for one in said if "lie together" in one.message)
    assert f"rows of {table.name} that are alike in column region lie" in one.message
    assert one.hint.endswith("shuffle => true.")
    assert not told("linear", {"a": noise(), "y": noise(1), "g": PLACES < 500}, weight="g")


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_classes_are_counted_by_block_as_numpy_counts_them(rows: int, weighted: bool) -> None:
    random = np.random.default_rng(rows)
    values = np.stack([noise(1, rows), np.sort(random.integers(0, 4, rows)), random.integers(0, 2, rows)], axis=1)
    values[0, 1:] = 3, 1
    table = relation([("x", "real"), ("y", "real"), ("g", "real")][: 2 + weighted], pages=1)
    pages = build_pages(table.schema, values[:, : 2 + weighted].astype(np.float32).tolist())
    asked = request(
        replace(table, pages=len(pages) // table.page_size),
        rule="softmax",
        text=rules.text("softmax"),
        hyper={"k": 4},
        label="y",
        weight="g" if weighted else None,
    )
    training = MachineTrainer().open(asked, lambda notice: None)
    assert isinstance(training, MachineTraining)
    assert training.survey is not None
    feed(training, training.survey, pages)
    assert training._surveyor is not None
    training._surveyor.end_epoch()
    found = survey_of(training._surveyed, training._bundle.inputs)
    training.close()
    columns = {name: one.astype(np.float32) for name, one in zip("xyg", values.T, strict=True)}
    expected = survey_columns(columns, label="y", kinds=4, weight="g" if weighted else None)
    np.testing.assert_allclose(found.kinds, expected.kinds, atol=1e-12)
    assert found.kinds.max() > 0.8 or rows < 1000
