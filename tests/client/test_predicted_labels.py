"""Labels and probabilities of classes in data frames, and from the command."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import psycopg
import pytest

from dana.cli import main
from dana.client.connection import Connection
from dana.errors import UsageError

pytestmark = [pytest.mark.filterwarnings("ignore::dana.ServerNotice", "ignore::dana.ServerWarning")]
KINDS = ["b", "i", "f", "s", "text", "three"]


def frame() -> pd.DataFrame:
    x = np.random.default_rng(5).permutation(np.linspace(-3, 3, 120))
    kinds = {
        "b": x > 0,
        "i": np.where(x > 0, 7, 3),
        "f": np.where(x > 0, 1.5, -2.0),
        "s": np.where(x > 0, "1", "0"),
        "text": np.array(["low", "mid", "high"])[np.digitize(x, [-1, 1])],
        "three": np.digitize(x, [-1, 1]) * 10,
    }
    return pd.DataFrame({"x": x, **kinds}, index=np.arange(120) + 1000)


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    """A client with a model for each kind of label, whose name the model has."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        client = Connection(session)
        client.create_rules("logistic", "softmax", "linear_svm", "linear")
        client.load(frame(), "labelled", replace=True)
        for kind in KINDS:
            rule = "softmax" if kind in ("text", "three") else "logistic"
            client.train(rule, "labelled", features=["x"], label=kind, model=kind)
        client.train("linear_svm", "labelled", features=["x"], label="s", model="svm")
        client.train("linear", "labelled", features=["x"], label="i", model="numbers")
        yield client
        session.execute("DROP TABLE labelled")
        session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS each")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule")


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_the_table(db: Connection, kind: str) -> None:
    rows = frame()
    found = db.classify(kind, rows)["prediction"]
    assert list(found.index) == list(rows.index)
    assert found.dtype == rows[kind].dtype
    assert (found == rows[kind]).mean() > 0.95
    assert list(db.classify(kind, "labelled", columns=["x"])["prediction"]) == list(found)
    # what a rule predicts that has a number for each class is the label
    assert (db.predict(kind, rows)["prediction"].dtype == np.float32) == (kind not in ("text", "three"))
    chances = db.probabilities(kind, rows, columns=["x"])
    labels = sorted(rows[kind].unique())
    assert list(chances.columns) == ["x", *labels]
    of_classes = chances.iloc[:, 1:]  # a list of booleans would choose rows
    assert np.allclose(of_classes.sum(axis=1), 1, atol=1e-6)
    assert list(of_classes.idxmax(axis=1)) == list(found)


def test_a_missing_value_has_no_label(db: Connection) -> None:
    rows = frame().assign(x=lambda all: all["x"].where(all["x"] < 2.9))
    missing = rows["x"].isna()
    assert missing.any()
    for kind, dtype in (("b", "boolean"), ("three", "Int64"), ("f", "float64")):
        found = db.classify(kind, rows)["prediction"]
        assert str(found.dtype) == dtype
        assert list(found.isna()) == list(missing)
    assert list(db.classify("text", rows)["prediction"].isna()) == list(missing)
    assert list(db.probabilities("text", rows).isna().all(axis=1)) == list(missing)
    assert (
        len(db.classify("b", "labelled", filter="false")) == len(db.probabilities("b", "labelled", filter="false")) == 0
    )


def test_thresholds_and_refusals(db: Connection) -> None:
    assert db.classify("i", "labelled", threshold=0)["prediction"].tolist() == [7] * 120
    assert db.classify("i", "labelled", threshold=np.float64(1.1))["prediction"].tolist() == [3] * 120
    usual = db.classify("svm", "labelled")["prediction"].tolist()
    assert usual == db.classify("svm", "labelled", threshold=0)["prediction"].tolist()
    assert set(usual) == {"0", "1"}
    with pytest.raises(UsageError, match="threshold"):
        db.classify("three", "labelled", threshold=0.5)
    with pytest.raises(UsageError, match="does not predict classes"):
        db.classify("numbers", "labelled")
    for model in ("numbers", "svm"):
        with pytest.raises(UsageError, match="does not predict probabilities"):
            db.probabilities(model, "labelled")
    db.session.execute("ALTER TABLE labelled ADD high float; ALTER TABLE labelled ALTER high SET DEFAULT 1")
    with pytest.raises(UsageError, match="prediction, high"):
        db.probabilities("text", "labelled", columns=["high"])


def test_labels_of_a_model_that_began_as_one_of_another_type(db: Connection) -> None:
    """Its classes are that model's, in whose texts a truth value is a number."""
    for number, text in (("0", "false"), ("1", "true")):
        db.session.execute(f"UPDATE labelled SET s = '{number}' WHERE b = {text}")
    db.train("logistic", "labelled", features=["x"], label="b", model="warm", warm_start_from="s", epochs=1)
    assert set(db.classify("warm", "labelled")["prediction"]) == {"0", "1"}


def test_the_table_function_has_labels(db: Connection) -> None:
    for model in ("text", "b", "svm"):
        predicted = f"dana_predict_table('{model}', 'labelled', 'x') AS t JOIN labelled AS l ON l.x::text = t.id"
        statement = f"SELECT t.label, dana_classify('{model}', l.x) FROM {predicted}"
        rows = db.session.execute(statement).fetchall()
        assert len(rows) == 120
        assert {label for label, _ in rows} >= {"text": {"low"}, "b": {"true"}, "svm": {"1"}}[model]
        assert all(label == same for label, same in rows)
    assert db.session.execute("SELECT DISTINCT label FROM dana_predict_table('numbers', 'labelled')").fetchall() == [
        (None,)
    ]


def test_the_command_writes_labels(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, known in ((["text"], {"low", "mid", "high"}), (["b", "--labels"], {True, False})):
        assert main(["predict", *arguments, "--source", "labelled", "--dsn", pg_uri]) == 0
        assert set(pd.read_csv(io.StringIO(capsys.readouterr().out))["prediction"]) == known
    assert main(["predict", "b", "--source", "labelled", "--dsn", pg_uri]) == 0
    assert pd.read_csv(io.StringIO(capsys.readouterr().out))["prediction"].between(0, 1).all()


def test_the_version_that_a_name_stands_for(db: Connection) -> None:
    """The last one is active, unless another was chosen."""
    db.train("logistic", "labelled", features=["x"], label="b", model="b")
    assert [(one.version, one.active) for one in db.models("b")] == [(2, True), (1, False)]
    db.session.execute("SELECT dana_activate_model('b', 1)")
    assert [(one.version, one.active) for one in db.models("b")] == [(2, False), (1, True)]


def test_tables_of_classes(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = frame()
    for kind in ("text", "b"):
        found = db.evaluate(kind, "labelled")
        assert list(found)[:5] == ["model", "version", "part", "rows", "accuracy"]
        assert found.to_frame().shape[0] == 1
        assert not {"classes", "confusion"} & set(found.to_frame().columns)
        labels, predicted = rows[kind], db.classify(kind, rows)["prediction"]
        expected = pd.crosstab(labels, predicted)
        confusion = found.confusion()
        assert confusion.index.tolist() == confusion.columns.tolist() == expected.index.tolist() == sorted(set(labels))
        assert confusion.to_numpy().tolist() == expected.to_numpy().tolist()
        per_class = found.per_class()
        assert per_class["rows"].sum() == found["rows"] == 120
        right = np.diag(expected)
        assert np.allclose(per_class["recall"], right / expected.sum(axis=1))
        assert np.allclose(per_class["precision"], right / expected.sum(axis=0))
        shown = found._repr_html_()
        assert shown.count("<table>") == 3 + ("calibration" in found)
        assert f"taken for {sorted(set(labels))[0]}" in shown
        assert main(["evaluate", kind, "--source", "labelled", "--dsn", pg_uri]) == 0
        said = capsys.readouterr().out
        assert f"taken for {sorted(set(labels))[-1]}" in said
        assert "{" not in said
    numbers = db.evaluate("numbers", query="SELECT x, 2.5 * x AS i FROM labelled")
    assert "<table>" in numbers._repr_html_()
    assert numbers.tables() == []
    for table in (numbers.confusion, numbers.per_class):
        with pytest.raises(UsageError, match="of classes, not of numbers"):
            table()


def test_results_are_tables_in_a_terminal_too(db: Connection) -> None:
    found = db.models("text")
    head, row, count = repr(found).splitlines()
    assert head.split()[:4] == ["name", "version", "active", "rule"]
    assert row.split()[:4] == ["text", "1", "True", "softmax"]
    assert len(head) == len(row)
    assert count == "(1 row)"
    curve = db.curve(found[0].run or 0)
    assert len(repr(curve).splitlines()) == min(len(curve), 20) + 2
    assert repr(db.models("none")) == "(0 rows)"
    folds = db.cross_validate("softmax", "labelled", folds=2, features=["x"], label="text", epochs=2)
    assert "metrics.accuracy" in repr(folds)
    assert "[" not in repr(folds)
    assert db.models("none")._repr_html_() == "<p>(0 rows)</p>"
    loaded = db.load({"a\x1b[1m": [1.5, None]}, "shown", temporary=True)
    assert repr(loaded).splitlines()[0].endswith("shown, 2 rows")
    assert "\x1b" not in repr(loaded)
