"""What an analyst does in Python: predictions of tables, queries and frames; models; curves; what a notebook shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import psycopg
import pytest

import dana
from dana.client.connection import Connection
from dana.client.outcomes import Curve, Evaluation, Explanation
from dana.client.progress import LiveCurve
from dana.errors import UsageError
from dana.language.trainable import TrainableRule
from dana.server.places import PAPER
from dana.session.results import Rows

ROWS = 120
OPTIONS: Any = {"features": ["a", "b"], "label": "y", "epochs": 5}


def frame() -> pd.DataFrame:
    """Two features, a label, a text, a key; an index that does not count from 0."""
    random = np.random.default_rng(1)
    made = pd.DataFrame({"k": np.arange(ROWS), "a": random.standard_normal(ROWS), "b": random.standard_normal(ROWS)})
    made["y"] = (made["a"] + 0.3 * random.standard_normal(ROWS) > 0).astype(float)
    made["kind <b>"] = np.where(made["k"] % 3 == 0, "50 %", "x")
    return made.set_index(pd.Index(np.arange(ROWS) * 10, name="index"))


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client with a rule, a table with a primary key and a trained model; all is rolled back."""
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        client.load(frame(), "seen")
        session.execute("ALTER TABLE seen ADD PRIMARY KEY (k)")
        client.create_rule("analysed", dana.load(PAPER / "logistic.py"))
        client.train("analysed", "seen", model="first", test_size=0.25, **OPTIONS)
        yield client
        session.rollback()


def in_sql(db: Connection) -> dict[int, float]:
    """The predictions by key, as SQL has them."""
    return dict(db.session.execute("SELECT k, dana_predict('first', a, b) FROM seen").fetchall())


def test_predictions_of_a_table(db: Connection) -> None:
    expected = in_sql(db)
    found = db.predict("first", "seen")
    assert list(found.columns) == ["k", "prediction"]
    assert found["prediction"].dtype == np.float32
    assert dict(zip(found["k"], found["prediction"].astype(float), strict=True)) == pytest.approx(expected)
    # a per cent sign in a condition stands for itself
    kept = db.predict("first", "SEEN", columns=["kind <b>", "a"], filter="\"kind <b>\" LIKE '50 %' -- all")
    assert list(kept.columns) == ["kind <b>", "a", "prediction"]
    assert len(kept) == ROWS / 3
    asked = db.predict("first", query="SELECT 0.5 AS b, 1 AS a, NULL AS y;")
    assert list(asked.columns) == ["prediction"]
    db.session.execute("UPDATE seen SET a = NULL WHERE k = 3")
    assert np.isnan(db.predict("first", "seen", filter="k = 3")["prediction"]).all()
    assert len(db.predict("first", "seen", filter="false")) == 0


def test_predictions_of_a_frame(db: Connection) -> None:
    """In its order and with its index; whatever its columns' order, kinds and company."""
    expected = list(in_sql(db).values())
    rows = frame()
    shuffled = rows.sample(frac=1, random_state=1)[["kind <b>", "b", "y", "a", "k"]]
    found = db.predict("first", shuffled)
    assert list(found.index) == list(shuffled.index)
    assert np.allclose(found["prediction"], np.array(expected)[shuffled["k"]])
    filtered = db.predict("first", rows, filter="k < 10", columns=["k"])
    assert list(filtered["k"]) == list(range(10))
    for other in (pl.DataFrame(rows.to_dict("list")), {"b": rows["b"], "a": rows["a"]}):
        assert np.allclose(db.predict("first", other)["prediction"], expected)
    assert db.session.execute("SELECT to_regclass('pg_temp.dana_rows')").fetchone() == (None,)


def test_wrong_calls_are_said_and_leave_nothing(db: Connection) -> None:
    for source, query in ((None, None), ("seen", "SELECT 1")):
        with pytest.raises(UsageError, match="either a source"):
            db.predict("first", source, query=query)
    with pytest.raises(UsageError, match="different names, and none may be prediction"):
        db.predict("first", "seen", columns=["prediction"])
    with pytest.raises(psycopg.Error, match='"b"'), db.session.transaction():
        db.predict("first", frame()[["a"]])
    with pytest.raises(UsageError, match='table "seen; DROP TABLE seen" does not exist'):
        db.predict("first", "seen; DROP TABLE seen")
    with pytest.raises(psycopg.Error, match="does not exist"), db.session.transaction():
        db.predict("first", "seen", columns=['k" FROM seen; DROP TABLE seen --'])
    for more in (
        {"source": "seen", "filter": "true); DROP TABLE seen; SELECT (1"},
        {"query": "SELECT 1) r; DROP TABLE seen; SELECT (1"},
    ):
        with pytest.raises(psycopg.Error, match="multiple commands"), db.session.transaction():
            db.predict("first", **more)
    assert db.predict("first", "seen").shape == (ROWS, 2)


def test_arrays_without_pandas(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = db.predict("first", "seen", columns=["k"])
    assert {name: values.dtype.kind for name, values in found.items()} == {"k": "i", "prediction": "f"}
    assert len(found["prediction"]) == ROWS


def test_evaluation_of_parts_filters_and_frames(db: Connection) -> None:
    left_out, seen = db.evaluate("first"), db.evaluate("first", part="train")
    assert left_out["rows"] + seen["rows"] == ROWS
    assert db.evaluate("first", "seen", part="all", filter="k < 50")["rows"] == 50
    anxious = db.evaluate("first", part="all", threshold=0.01)
    assert anxious["recall"] == 1
    of_frame = db.evaluate("first", frame(), threshold=0.01)
    assert {name: of_frame[name] for name in ("rows", "auc", "recall")} == {
        name: anxious[name] for name in ("rows", "auc", "recall")
    }
    assert db.evaluate("first", query="SELECT * FROM seen LIMIT 30")["rows"] == 30
    assert list(db.evaluate("first").to_frame()["rows"]) == [left_out["rows"]]


def test_models(db: Connection, tmp_path: Path) -> None:
    # of a column without meaning
    db.train("analysed", "seen", model="worse", features=["b"], label="y", epochs=1)
    db.train("analysed", "seen", model="first", **OPTIONS)
    mine = [one for one in db.models() if one.rule == "analysed"]
    assert [(one.name, one.version) for one in mine] == [("first", 2), ("first", 1), ("worse", 1)]
    assert (mine[0].source, mine[0].epochs, mine[0].metric) == ("public.seen", 5, None)
    assert [one.version for one in db.models("first")] == [2, 1]
    ranked = db.models(metric="auc")
    scores = [one.metric for one in ranked if one.metric is not None]
    assert scores == sorted(scores, reverse=True)
    assert all(one.part == db.evaluate(f"{one.name}@{one.version}")["part"] for one in ranked if one.rule == "analysed")
    assert (
        next(one for one in ranked if one.name == "first" and one.version == 1).metric == db.evaluate("first@1")["auc"]
    )
    assert db.models(metric="rmse")[0].metric == min(one.metric for one in db.models(metric="rmse") if one.metric)
    with pytest.raises(UsageError, match=r"no model has the metric speed\nHint: There are .*auc"):
        db.models(metric="speed")
    assert json.loads(db.export_model("first"))["version"] == 2
    made = db.export_model("first@1", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == made
    with pytest.raises(UsageError, match="suffix of"):
        db.export_model("first", tmp_path / "model.txt")
    with pytest.raises(UsageError, match="there is no format 'csv'"):
        db.export_model("first", format="csv")
    assert db.drop_model("first", 1) == 1
    assert db.drop_model("worse") == 1
    assert [(one.name, one.version) for one in db.models() if one.rule == "analysed"] == [("first", 2)]


def test_rows_become_frames(db: Connection) -> None:
    folds = db.cross_validate("analysed", "seen", folds=2, **OPTIONS)
    assert isinstance(folds, Rows)
    table = folds.to_frame()
    assert list(table["fold"]) == ["1", "2", "mean", "deviation"]
    assert list(table["metrics.auc"]) == [one.metrics["auc"] for one in folds]
    points = db.search("analysed", "seen", grid={"lr": [0.1, 0.2]}, folds=2, **OPTIONS).to_frame()
    assert sorted(points["hyper.lr"]) == [0.1, 0.2]
    assert list(db.train_groups("analysed", "seen", group_by=["kind <b>"], **OPTIONS).to_frame()["key.kind <b>"]) == [
        "50 %",
        "x",
    ]
    assert db.jobs(3).to_frame() is not None


def test_what_a_notebook_shows(db: Connection) -> None:
    """Tables in which nothing is markup, and the loss as a drawing."""
    result = db.train("analysed", "seen", model="<b>bold</b>", **OPTIONS)
    shown = result._repr_html_()
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert "_session" not in shown
    assert shown.endswith("</svg>\n")
    curve = db.curve(result)
    assert isinstance(curve, Curve)
    assert [one.epoch for one in curve] == [1, 2, 3, 4, 5]
    assert list(curve.to_frame()["loss"]) == [one.loss for one in db.curve(result.run)]
    assert curve._repr_html_().startswith("<svg")
    with pytest.raises(UsageError, match="run 0 does not exist"):
        db.curve(0)
    evaluated = db.evaluate("first")
    assert isinstance(evaluated, Evaluation)
    assert f"<th>auc</th><td>{evaluated['auc']:.6g}</td>" in evaluated._repr_html_()
    assert "<th>taken for negative</th>" in evaluated._repr_html_()
    explained = db.explain("analysed", "seen", features=["a", "b"], label="y")
    assert isinstance(explained, Explanation)
    assert explained._repr_html_() == f"<pre>{escape(explained)}</pre>"
    assert "<th>rank</th>" in db.search("analysed", "seen", grid={"lr": [0.1]}, folds=2, **OPTIONS)._repr_html_()
    assert "seen, 1 rows<table>" in db.load({"x": [1]}, "seen", temporary=True)._repr_html_()


def test_a_result_is_shown_after_its_session(pg_uri: str) -> None:
    with psycopg.connect(pg_uri) as session:
        db = Connection(session)
        db.load(frame(), "seen")
        db.create_rule("analysed", dana.load(PAPER / "logistic.py"))
        result = db.train("analysed", "seen", **OPTIONS)
        session.rollback()  # and with it the run
        assert result._repr_html_().endswith("</table>")
    assert result._repr_html_().endswith("</table>")


def test_long_lists_are_cut_in_a_notebook() -> None:
    rows = Rows({"number": k, "of": None, "nested": [[1, 2], [3, 4]]} for k in range(500))
    assert rows._repr_html_().count("<tr>") == 101 + 3 * 100
    assert len(rows.to_frame()) == 500


NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
class Shell(InteractiveShell):
    kernel = object()
shell = Shell.instance()
told = []
shell.display_pub.publish = lambda data, metadata=None, *, transient=None, update=False, **more: told.append(
    (data["text/plain"], update, data.get("text/html", "")))
import dana
from dana.client import progress
progress.PAUSE = 0
with dana.connect(sys.argv[1]) as db:
    db.load({"x": [0.0, 1.0, 2.0], "y": [0.0, 0.0, 1.0]}, "told", temporary=True)
    db.create_rule("told", dana.load(sys.argv[2]))
    with db.session.transaction(force_rollback=True):
        db.train("told", "told", label="y", epochs=2)
        db.train("told", "told", label="y", epochs=2, progress=False)
    db.drop_rule("told")
assert told[0] == ("training told on told …", False, ""), told
assert [text.partition(", ")[0] for text, update, _ in told[1:3] if update] == [
    f"training told on told: epoch {k} of 2" for k in (1, 2)], told
assert told[3] == told[4] and 'model "told"' in told[4][0], told  # the end is shown, also where displays are rare
assert "<svg" not in told[1][2] and "<svg" in told[2][2] and " in epoch 2</title>" in told[4][2], told
assert len(told) == 5, told
"""


def test_the_curve_in_a_notebook() -> None:
    curve = LiveCurve("training <b>")
    for report in ("epoch 1 of 9, loss 5, 3 rows", "epoch 2 of 9, loss 4, 3 rows", "epoch 1 of 9, loss 1, 3 rows"):
        curve.add(report)
    assert "<svg" not in curve.shown()["text/html"], "columns got centres, and the training began again"
    curve.add("epoch 2 of 9, loss nan, 3 rows")
    curve.add("epoch 3 of 9, loss 0.5, validation loss 0.7, 3 rows, 9 cycles, 0.1 ms")
    html = curve.shown()["text/html"]
    assert html.startswith("<div>training &lt;b&gt;: epoch 3 of 9, loss 0.5, ")
    assert 'points="8.0,8.0 472.0,112.0"' in html
    assert html.count("mean loss, from 1 in epoch 1 to 0.5 in epoch 3") == 3
    curve.add("epoch 4 of 9, 3 rows")  # a rule without a loss
    assert curve.shown()["text/plain"] == "training <b>: epoch 4 of 9, 3 rows"


def test_a_notebook_is_told_of_epochs(pg_uri: str) -> None:
    subprocess.run([sys.executable, "-c", NOTEBOOK, pg_uri, PAPER / "logistic.py"], check=True)


RECURRENT = """
import dana
steps = dana.dim(3)
d = dana.dim()
w, x, y = dana.model([d], init=0.1), dana.input([steps, d]), dana.output()
recurrent = dana.algo(w, x, y)
h = 0
for t in range(steps):
    h = dana.tanh(dana.sigma(w * x[t], 1) + h / 2)
recurrent.setLoss((h - y) * (h - y))
recurrent.minimize(dana.optimizers.sgd, rate=0.1, batch=8)
recurrent.setPrediction(h)
"""


@pytest.mark.parametrize("hyper", [{}, {"steps": 6}])
def test_a_rule_whose_loop_counts_a_dim(db: Connection, hyper: dict[str, float]) -> None:
    """Twelve columns are three steps of four numbers, or six of two: to training, prediction, export, explanation."""
    random = np.random.default_rng(5)
    x, y = random.standard_normal((40, 12)).astype(np.float32), random.standard_normal(40).astype(np.float32)
    made = pd.DataFrame({f"x{k}": x[:, k] for k in range(12)} | {"y": y})
    db.load(made, "unrolled")
    db.create_rule("recurrent", RECURRENT)
    db.train("recurrent", "unrolled", model="r", epochs=3, hyper=hyper, label="y", standardize=False)
    rule = TrainableRule(RECURRENT.replace("dana.dim(3)", f"dana.dim({hyper.get('steps', 3):g})"), filename="rule")
    trained = rule.fit(x.reshape(40, -1, 12 // int(hyper.get("steps", 3))), y, epochs=3)
    wanted = rule.predict(x.reshape(40, -1, len(trained.models["w"])))
    found = db.predict("r", "unrolled", columns=[])["prediction"].to_numpy(dtype=np.float32)
    np.testing.assert_array_equal(found, wanted)
    session = onnxruntime.InferenceSession(db.export_model("r", format="onnx"), providers=["CPUExecutionProvider"])
    (exported,) = session.run(["prediction"], {"features": x})
    np.testing.assert_allclose(exported, wanted, rtol=1e-5, atol=1e-6)
    explained = db.explain("recurrent", "unrolled", hyper=hyper, label="y", format="json")
    assert explained["cycles"]
