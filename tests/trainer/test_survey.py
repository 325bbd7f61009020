"""What is known of a table's columns before the first epoch: the same bits by the simulator and by NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dana import rules
from dana.errors import SetupError
from dana.storage.builder import build_pages
from dana.trainer import training as training_module
from dana.trainer.contract import Notice, TrainingError, TrainResult
from dana.trainer.data import surveyed
from dana.trainer.data.survey import survey_columns, survey_of
from dana.trainer.data.survey_checks import NotFinite
from dana.trainer.machine_code import VARIABLE
from dana.trainer.trainer import MachineTrainer
from dana.trainer.training import MachineTraining
from tests.trainer.test_training import LOGISTIC, feed, relation, request, train

ROWS = (1, 2, 3, 63, 64, 65, 200, 1000)
"""Rows around the ends of blocks."""


def test_a_survey_of_other_structures_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyed, "digest", lambda: 1)
    with pytest.raises(SetupError, match="built from other sources: run make"):
        surveyed._functions.__wrapped__()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bad", [0, 3])
def test_statistics_are_those_of_numpy(rows: int, weighted: bool, bad: int) -> None:
    random = np.random.default_rng(rows)
    names = ["x0", "x1", "x2", "y", "g"][: 5 if weighted else 4]
    values = np.stack([random.normal(10.0**k, 1, rows) for k in range(len(names))], axis=1).astype(np.float32)
    if weighted:
        values[:, 4] = random.choice([0, 1e-3, 1, 2.5, 1e6], rows)
        values[0, 4] = 1
    for row in random.integers(0, rows, bad if rows > 3 else 0):
        values[row, random.integers(3)] = random.choice([np.nan, np.inf, -np.inf])
    table = relation([(name, "real") for name in names], pages=1)
    pages = build_pages(table.schema, values)
    table = replace(table, pages=len(pages) // table.page_size)
    asked = request(
        table, rule="linear", text=rules.text("linear"), label="y", weight="g" if weighted else None, nonfinite="keep"
    )
    training = MachineTrainer().open(asked, lambda notice: None)
    assert isinstance(training, MachineTraining)
    sink = training.survey
    assert sink is not None
    feed(training, sink, pages)
    assert training._surveyor is not None
    training._surveyor.end_epoch()
    found = survey_of(training._surveyed, training._bundle.inputs)
    inputs = {one.name: one.shape for one in training._bundle.inputs}
    training.close()

    width = next(shape[0] for shape in inputs.values() if shape)
    columns = {
        name: values[:, :width] if shape else values[:, names.index("y" if name == "y" else "g")]
        for name, shape in inputs.items()
    }
    expected = survey_columns(columns, weight=next((one for one in inputs if one not in "xy"), None))
    assert found.tuples == expected.tuples
    assert found.negative == expected.negative
    for name in inputs:
        for kind in ("mean", "deviation", "together", "early", "bad"):
            mine, theirs = (np.broadcast_to(getattr(one, kind)[name], inputs[name]) for one in (found, expected))
            np.testing.assert_array_equal(mine, theirs, err_msg=f"{kind} of {name}")
    good = np.isfinite(values).all(axis=1)
    weights = values[good, 4].astype(float) if weighted else np.ones(good.sum())
    exact = values[good, :width].astype(float)
    mean = np.average(exact, axis=0, weights=weights)
    np.testing.assert_allclose(found.mean["x"], mean, rtol=1e-12)
    deviation = np.sqrt(np.average((exact - mean) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(found.deviation["x"], deviation, rtol=1e-9, atol=1e-12)


# beside the first epoch

TABLE = relation([*((f"x{k}", "real") for k in range(5)), ("y", "real")], pages=1)
RATINGS = """
import dana
U = dana.model([20, 3], init=0.1)
i = dana.input()
y = dana.output()
ratings = dana.algo(U, i, y)
error = dana.sigma(U[i], 1) - y
ratings.setModel(U[i], U[i] - 0.1 * error)
ratings.setLoss(error * error)
"""


@pytest.fixture(params=[False, True], ids=["before", "beside"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the survey runs: where models begin with what it finds, before the first epoch."""
    monkeypatch.setattr(training_module, "starts_models", lambda *asked: not request.param)


def rated(numbers: list[float]) -> tuple[TrainResult, list[Notice]]:
    table = relation([("i", "real"), ("y", "real")], pages=1)
    told: list[Notice] = []
    asked = request(table, rule="ratings", text=RATINGS, features=("i",), epochs=2)
    return train(asked, build_pages(table.schema, [[one, 1.0] for one in numbers]), told.append), told


@pytest.mark.usefixtures("beside")
def test_a_nan_is_found_wherever_the_survey_runs() -> None:
    values = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
    values[:, 5] = values[:, 5] > 0
    values[170, 2] = np.nan
    asked = request(replace(TABLE, pages=len(pages := build_pages(TABLE.schema, values)) // 8192), text=LOGISTIC)
    with pytest.raises(NotFinite, match="is NaN or infinite"):
        train(asked, pages)


@pytest.mark.usefixtures("beside")
def test_a_row_without_a_number_is_left_out_before_it_chooses_one() -> None:
    with pytest.raises(NotFinite):
        rated([1.0, 2.0, np.nan, 3.0])
    with pytest.raises(TrainingError, match="a value is not one of these"):
        rated([1.0, 25.0, 3.0])
    assert rated([1.0, 2.0, 3.0])[0].parameters


@pytest.mark.usefixtures("beside")
def test_what_is_told_of_the_columns_is_the_same() -> None:
    _, told = rated([7.0] * 40)
    assert sorted(one.message.split()[1] for one in told if "a single value" in one.message) == ["y"]


@pytest.mark.parametrize("kind", ["real", "double precision", "integer"])
@pytest.mark.parametrize("features", [1, 3, 5, 8, 9, 20, 32, 54])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("code", ["always", "never"])
def test_what_is_found_beside_is_what_numpy_finds(
    features: int, kind: str, nulls: bool, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that vary late, only in their zeros' signs, or not at all; vectors and what is left behind them."""
    rows = 300
    monkeypatch.setenv(VARIABLE, code)
    random = np.random.default_rng(features)
    values = np.round(random.normal(100, 30, (rows, features + 1))).astype(np.float32)
    values[:, features] = values[:, features] > 100
    for column in (0, features - 1):
        values[:, column], values[rows - 1, column] = 4, 5
    if features > 3:
        values[:, 1] = 7
        values[:, 2] = np.where(np.arange(rows) % 3, 0, [[-0.0], [1e-40]][rows % 2]) if kind == "real" else 0
    names = [*(f"x{k}" for k in range(features)), "y"]
    table = relation([*((name, kind) for name in names[:-1]), ("y", "real")], pages=1)
    cells = [[*map(float if kind != "integer" else int, row[:-1]), float(row[-1])] for row in values.tolist()]
    left_out = [None] * (features + 1)
    pages = build_pages(
        table.schema, [one for k, row in enumerate(cells) for one in ([left_out] * (k % 7 == 3 and nulls) + [row])]
    )
    asked = request(replace(table, pages=len(pages) // table.page_size), text=LOGISTIC)
    training = MachineTrainer().open(asked, lambda notice: None)
    assert isinstance(training, MachineTraining)
    assert training.survey is None
    feed(training, training.sink, pages)
    training._machine.end_epoch()
    found = survey_of(training._surveyed, training._bundle.inputs)
    assert training._surveyed.tally is not None
    tally = dict(zip(*(each.tolist() for each in training._surveyed.values), strict=True))
    training.close()

    expected = survey_columns({"x": values[:, :features], "y": values[:, features]})
    assert found.tuples == expected.tuples == rows
    np.testing.assert_array_equal(found.varies["x"], expected.varies["x"])
    assert found.varies["x"].tolist() == [
        len({*column.tolist()}) > 1 for column in np.where(abs(values) < 1e-38, 0, values).T[:-1]
    ]
    for name in ("y",) if kind == "real" else ("x", "y"):
        for each in ("mean", "deviation", "together", "early"):
            np.testing.assert_array_equal(getattr(found, each)[name], getattr(expected, each)[name])
    assert np.isnan(found.mean["x"]).all() == (kind == "real"), "nobody asked"
    assert tally == {number: (values[:, features] == number).sum() for number in (0.0, 1.0)}


@pytest.mark.parametrize("features", [11, 54])
def test_rows_that_are_kept_though_they_are_no_numbers_tell_nothing_else(features: int) -> None:
    random = np.random.default_rng(3)
    values = random.normal(size=(400, features + 1)).astype(np.float32)
    values[:, 4] = 7
    values[:, features] = values[:, features] > 0
    for row, column in ((5, 0), (170, 3), (171, 2), (399, features - 1)):
        values[row, 4], values[row, column] = 8, random.choice([np.nan, np.inf, -np.inf])
    table = relation([*((f"x{k}", "real") for k in range(features)), ("y", "real")], pages=1)
    pages = build_pages(table.schema, values)
    asked = request(replace(table, pages=len(pages) // 8192), text=LOGISTIC, nonfinite="keep")
    training = MachineTrainer().open(asked, lambda notice: None)
    assert isinstance(training, MachineTraining)
    feed(training, training.sink, pages)
    training._machine.end_epoch()
    found = survey_of(training._surveyed, training._bundle.inputs)
    training.close()

    expected = survey_columns({"x": values[:, :features], "y": values[:, features]})
    assert found.tuples == 396
    assert found.varies["x"].tolist() == [k != 4 for k in range(features)] == expected.varies["x"].tolist()
    np.testing.assert_array_equal(found.bad["x"], expected.bad["x"])
    for each in ("mean", "deviation", "together", "early"):
        np.testing.assert_array_equal(getattr(found, each)["y"], getattr(expected, each)["y"])


def test_models_are_the_same_bits_wherever_the_survey_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(size=(1000, 6)).astype(np.float32)
    values[:, 5] = values[:, 5] > 0
    pages = build_pages(TABLE.schema, values)
    asked = request(replace(TABLE, pages=len(pages) // 8192), text=LOGISTIC, epochs=3)
    found = []
    for before in (False, True):
        monkeypatch.setattr(training_module, "starts_models", lambda *asked, before=before: before)
        found.append(train(asked, pages))
    for mine, theirs in zip(found[0].parameters, found[1].parameters, strict=True):
        assert mine.values.tobytes() == theirs.values.tobytes()
