"""Models in MLflow: what a run of MLflow has, and that its pyfunc predicts as the database does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dana
from dana.client.connection import Connection
from dana.errors import UsageError
from dana.integrations.mlflow import log_model
from dana.session.notices import ServerNotice

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about types of its own
    import mlflow.pyfunc

    from dana.integrations.pyfunc import tensor

pytestmark = [
    pytest.mark.filterwarnings("ignore:::mlflow"),
    pytest.mark.filterwarnings(f"ignore::{ServerNotice.__module__}.{ServerNotice.__name__}"),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tracking store, and a registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("models")
    return tmp_path


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": random.normal(40, 9, 300).round(),
            "city": random.choice(["Bonn", "Köln", "Paris"], 300),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 1000, 300), unit="D"),
        }
    )
    frame["gone"] = np.where(frame["age"] + 9 * (frame["city"] == "Bonn") + random.normal(0, 3, 300) > 42, "yes", "no")
    frame.loc[::20, ["age", "city"]] = None
    return frame


@pytest.fixture(scope="module")
def db(pg_uri: str, rows: pd.DataFrame) -> Iterator[Connection]:
    with dana.connect(pg_uri) as db:
        db.create_rules("logistic", "linear")
        db.load(rows, "leavers")
        yield db
        db.session.execute("DROP TABLE leavers")
        for model in {one.name for one in db.models()} & {"leaving", "age"}:
            db.drop_model(model)


def test_columns_of_every_kind(db: Connection, store: Path, rows: pd.DataFrame) -> None:
    for epochs in (3, 5):
        result = db.train(
            "logistic", "leavers", model="leaving", label="gone", nulls="mean", test_size=0.2, epochs=epochs, patience=0
        )
    logged = log_model(db, "leaving", registered_model_name="leaving")
    run = mlflow.get_run(logged.run_id)
    assert run.info.run_name == "leaving@2"
    assert run.data.tags.items() >= {"dana.model": "leaving@2", "dana.source": "public.leavers"}.items()
    assert (run.data.params["epochs"], run.data.params["label"]) == ("5", "gone")
    assert [key for key in run.data.params if key.startswith("hyper.")]
    assert run.data.metrics["test_auc"] == db.evaluate("leaving")["auc"]
    curve = mlflow.MlflowClient().get_metric_history(logged.run_id, "loss")
    assert [point.step for point in curve] == [1, 2, 3, 4, 5]
    assert curve[-1].timestamp >= curve[0].timestamp
    assert "dana.model" in mlflow.artifacts.load_text(f"runs:/{logged.run_id}/rule.py")
    assert result.version == 2

    found = mlflow.pyfunc.load_model("models:/leaving/1").predict(rows.drop(columns="gone"))
    expected = db.predict("leaving@2", "leavers")
    np.testing.assert_allclose(found["prediction"], expected["prediction"], atol=1e-5)


def test_numbers_alone_and_an_active_run(db: Connection, store: Path, rows: pd.DataFrame) -> None:
    known = rows.dropna()
    db.load(known[["age"]].assign(years=known["age"] / 10, x=1.0), "ages", temporary=True)
    db.train("linear", "ages", model="age", label="age")
    with mlflow.start_run() as outer:
        logged = log_model(db, "age@1", evaluate=False)
        assert logged.run_id == outer.info.run_id
        mlflow.log_metric("mine", 1)  # it goes on
    assert set(mlflow.get_run(logged.run_id).data.metrics) == {"loss", "mine"}
    given = pd.DataFrame({"x": 1.0, "more": "ignored", "years": [3.0, 4.5]})
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(given)
    np.testing.assert_allclose(found["prediction"], [30, 45], rtol=1e-3)


@pytest.mark.parametrize(
    ("column", "kind", "about", "expected"),
    [
        (pd.Series([pd.NA, 1], dtype="Int64"), "tensor(double)", "integer; NULL is NaN", [[np.nan], [1.0]]),
        (pd.Series([Decimal("1.5"), None]), "tensor(double)", "numeric; NULL is NaN", [[1.5], [np.nan]]),
        (pd.Series([True, None]), "tensor(double)", "boolean; NULL is NaN", [[1.0], [np.nan]]),
        (pd.Series([date(1970, 1, 3), None]), "tensor(int64)", "date: days since 1970-01-01", [[2], [-(2**63)]]),
        (pd.Series(["a", None]), "tensor(string)", "text; NULL is none", [["a"], ["none"]]),
        (pd.Series([[1.0, 2.0], [3.0, 4.0]]), "tensor(float)", "", [[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_values_as_a_query_returns_them(column: pd.Series, kind: str, about: str, expected: list[list[object]]) -> None:
    np.testing.assert_array_equal(tensor(column, kind, about), np.array(expected))


def test_a_model_that_there_is_not(db: Connection, store: Path) -> None:
    for name in ("missing", "leaving@9"):
        with pytest.raises(UsageError, match=f"model {name} does not exist"):
            log_model(db, name)
    assert mlflow.search_runs(output_format="list") == []
