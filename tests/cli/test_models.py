"""Commands about models on a server: a leaderboard, metrics, predictions as CSV; and options that are no text."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import pytest

import dana
from dana.cli import main
from dana.cli.entry import DATABASE, OK, USAGE, parser
from dana.cli.options import add_training, training_options
from dana.client.connection import Connection
from dana.client.options import TrainOptions
from dana.server.places import PAPER

ROWS = 60


class Options(TypedDict, total=False):
    """Of all kinds that a training has, or will have."""

    hyper: Annotated[Mapping[str, float], "metas"]
    scaled: Annotated[bool, "whether"]
    nulls: Annotated[str | float | Mapping[str, str], "what"]


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client in autocommit mode with a table and two models, of which the first is better."""
    random = np.random.default_rng(2)
    with dana.connect(pg_uri) as db:
        db.session.execute("DROP SCHEMA IF EXISTS ranked CASCADE; CREATE SCHEMA ranked")
        a, b = random.standard_normal((2, ROWS))
        rows = {"k": np.arange(ROWS), "[red]": ["x, y"] * (ROWS - 1) + [None], "a": a, "b": b, "y": (a > 0) * 1.0}
        db.load(rows, "ranked.rows")
        db.session.execute("ALTER TABLE ranked.rows ADD PRIMARY KEY (k)")
        db.create_rule("ranked", dana.load(PAPER / "logistic.py"))
        for model, feature in (("good", "a"), ("bad", "b")):
            db.train("ranked", "ranked.rows", model=f"[{model}]", features=[feature], label="y", epochs=5)
        yield db
        db.drop_rule("ranked")
        db.session.execute("DROP SCHEMA ranked CASCADE")
        for model in ("[good]", "[bad]"):
            db.drop_model(model)


def test_load(db: Connection, pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table is replaced only where that is asked for."""
    file = tmp_path / "rows.csv"
    file.write_text("k,name\n1,a\n2,\n")
    load = ["load", str(file), "ranked.loaded", "--dsn", pg_uri]
    assert main(load) == OK
    assert capsys.readouterr().out.split()[:3] == ["ranked.loaded,", "2", "rows"]
    file.write_text("k\n1\n")
    assert main(load) == USAGE
    assert capsys.readouterr().err == 'dana: relation "loaded" already exists\nHint: --replace drops it first.\n'
    assert main([*load, "--replace"]) == OK
    assert db.session.execute("SELECT * FROM ranked.loaded").fetchall() == [(1,)]
    assert main(["load", str(tmp_path / "none.csv"), "t", "--dsn", pg_uri]) == USAGE


def test_refresh(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The next version, of the current rows; what is wrong is an error of the database."""
    db.session.execute("INSERT INTO ranked.rows (k, a, b, y) VALUES (1000, 1, 1, 1)")
    assert main(["refresh", "[good]", "--dsn", pg_uri]) == OK
    printed = capsys.readouterr()
    assert "[good], version 2" in printed.out
    assert f"{ROWS + 1}" in printed.out
    assert main(["refresh", "[better]", "--dsn", pg_uri]) == DATABASE
    assert 'model "[better]" does not exist' in capsys.readouterr().err


def test_a_leaderboard(
    db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # other tests' models may have long names
    assert main(["models", "--dsn", pg_uri, "--metric", "auc"]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "rule", "data", "auc", "part", "time", "trained"]
    mine = [line.split()[:5] for line in lines if " ranked " in line]
    assert mine == [
        [f"[{name}]@1", "ranked", "ranked.rows", f"{db.evaluate(f'[{name}]')['auc']:.6g}", "all"]
        for name in ("good", "bad")
    ]
    assert main(["models", "[bad]", "--dsn", pg_uri]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[3] == f"{db.models('[bad]')[0].loss:.6g}"
    assert main(["models", "--metric", "speed", "--dsn", pg_uri]) == USAGE
    assert "no model has the metric speed" in capsys.readouterr().err


def test_an_evaluation(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options, asked in (
        ([], {}),
        (
            ["--source", "ranked.rows", "--filter", "k < 30", "--threshold", "0.6"],
            {"filter": "k < 30", "threshold": 0.6},
        ),
        (
            ["--query", "SELECT * FROM ranked.rows LIMIT 9", "--part", "all"],
            {"query": "SELECT * FROM ranked.rows LIMIT 9"},
        ),
    ):
        assert main(["evaluate", "[good]", *options, "--dsn", pg_uri]) == OK
        metrics, classes, confusion, calibration = capsys.readouterr().out.split("\n\n")
        said = dict(line.split(maxsplit=1) for line in metrics.splitlines())
        expected = db.evaluate("[good]", **asked)
        assert said["rows"].strip() == str(expected["rows"])
        assert float(said["accuracy"]) == pytest.approx(expected["accuracy"], abs=1e-6)
        assert classes.split()[:5] == ["class", "precision", "recall", "f1", "rows"]
        assert int(confusion.split()[-1]) == expected["confusion"]["tp"]
        assert calibration.split()[:3] == ["predicted", "observed", "rows"]
    assert main(["evaluate", "[none]", "--dsn", pg_uri]) == DATABASE
    assert 'model "[none]" does not exist' in capsys.readouterr().err


def test_predictions_as_csv(db: Connection, pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = db.session.execute("SELECT k, dana_predict('[good]', a) FROM ranked.rows").fetchall()
    assert main(["predict", "[good]", "--source", "ranked.rows", "--dsn", pg_uri]) == OK
    head, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert head == ["k", "prediction"]
    assert [(int(k), float(value)) for k, value in rows] == expected
    file = tmp_path / "found.csv"
    chosen = ["--columns", "[red],k", "--filter", "k > 57", "-o", str(file)]
    assert main(["predict", "[good]", "--source", "ranked.rows", *chosen, "--dsn", pg_uri]) == OK
    assert capsys.readouterr().out == f"{file}: 2 predictions of model [good]\n"
    written = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    assert [row[:2] for row in written] == [["[red]", "k"], ["x, y", "58"], ["", "59"]]
    assert main(["predict", "[good]", "--query", "SELECT 1 AS a", "--dsn", pg_uri]) == OK
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["predict", "[good]", "--dsn", pg_uri]) == USAGE
    assert "pass either --source" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["predict", "[good]", "--source", "ranked.rows", "--query", "SELECT 1", "--dsn", pg_uri])


SEVERAL = """
import dana
w = dana.model([2])
x = dana.input()
y = dana.output()
several = dana.algo(w, x, y)
several.setModel(w - 0.1 * (w * x - (1 - dana.arange(2)) * y) * x)
several.setPrediction(w * x)
"""


def test_several_numbers_as_csv(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    db.create_rule("several", SEVERAL)
    db.train("several", "ranked.rows", model="[good]", features=["a"], label="y")
    expected = db.session.execute("SELECT k, dana_predict_array('[good]', a) FROM ranked.rows").fetchall()
    assert main(["predict", "[good]", "--source", "ranked.rows", "--dsn", pg_uri]) == OK
    head, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert head == ["k", "prediction_1", "prediction_2"]
    assert [(int(k), [float(one) for one in values]) for k, *values in rows] == expected
    assert main(["predict", "[good]", "--query", "SELECT NULL::real AS a", "--dsn", pg_uri]) == OK
    assert capsys.readouterr().out.splitlines() == ["prediction_1,prediction_2", ","]
    db.drop_rule("several")


def test_each_option_of_a_training_is_one_of_the_command() -> None:
    options = parser().parse_args(["train", "rule", "t"])
    assert vars(options).keys() >= TrainOptions.__annotations__.keys()
    assert training_options(options, TrainOptions) == {}


def test_options_of_other_kinds() -> None:
    """Truth values, and what is a text or an object, are read as what they are."""
    command = argparse.ArgumentParser()
    add_training(command, Options)
    read = command.parse_args(["--scaled", "off", "--nulls", '{"a": "mean"}'])
    assert training_options(read, Options) == {"scaled": False, "nulls": {"a": "mean"}}
    assert command.parse_args(["--nulls", "mean", "--scaled", "true"]).nulls == "mean"
    with pytest.raises(SystemExit):
        command.parse_args(["--scaled", "perhaps"])
