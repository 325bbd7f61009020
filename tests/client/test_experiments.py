"""The Python client's groups, cross-validation, search and jobs, and ``dana jobs``, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import psycopg
import pytest

import dana
from dana.cli import main
from dana.cli.entry import DATABASE, OK
from dana.client.connection import Connection
from dana.demo.datasets import breast_cancer
from dana.server.places import PAPER
from dana.session.calls import as_sql
from dana.session.tables import create_table

FEATURES = ["x1", "x2", "x3"]


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client in autocommit mode, in a schema of its own."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP SCHEMA IF EXISTS experiments CASCADE; CREATE SCHEMA experiments")
        session.execute("SET search_path = experiments, public")
        create_table(session, "small", breast_cancer().columns())
        session.execute(
            "ALTER TABLE small ADD side text; UPDATE small SET side = CASE WHEN x1 > 0 THEN 'a' ELSE 'b' END"
        )
        client = Connection(session)
        client.create_rule("attempts", dana.load(PAPER / "logistic.py"))
        yield client
        session.execute("DROP SCHEMA experiments CASCADE")
        session.execute(
            "SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE rule = 'attempts') m"
        )
        client.drop_rule("attempts")


def test_groups(db: Connection) -> None:
    found = db.train_groups("attempts", "small", group_by=["side"], features=FEATURES, label="y", model="m", epochs=2)
    assert [(one.key, one.model, one.epochs, one.error) for one in found] == [
        ({"side": "a"}, "m[a]", 2, None),
        ({"side": "b"}, "m[b]", 2, None),
    ]
    assert sum(one.tuples or 0 for one in found) == 569
    failed = db.train_groups(
        "attempts", "small", group_by=["side"], features=FEATURES, label="y", filter="y > 1 OR side = 'a'"
    )
    assert [one.error for one in failed] == [None]


def test_weights(db: Connection) -> None:
    """The same words wherever a training is: arguments of its own, or members of an object."""
    db.create_rules("logistic")
    options = {"features": FEATURES, "label": "y", "epochs": 2}
    for weights in ("balanced", {0: 2, 1: 0.5}, {np.float32(1): 3}):
        given = {**options, "class_weight": weights}
        db.train("logistic", "small", model="weighted", **given)  # type: ignore[arg-type]
        (folds, *_) = db.cross_validate("logistic", "small", folds=2, metrics=["auc"], **given)  # type: ignore[arg-type]
        assert folds.fold == "1"
    db.drop_model("weighted")


def test_cross_validation_and_search(db: Connection) -> None:
    folds = db.cross_validate(
        "attempts", "small", folds=3, features=FEATURES, label="y", metrics=["auc"], hyper={"lr": 0.2}
    )
    assert [one.fold for one in folds] == ["1", "2", "3", "mean", "deviation"]
    assert sum(one.tested or 0 for one in folds) == 569
    assert 0.5 < folds[3].metrics["auc"] <= 1
    grid = {"lr": [0.001, 0.1, 0.2]}
    points = db.search("attempts", "small", grid=grid, metric="auc", folds=3, features=FEATURES, label="y", keep="best")
    assert [one.rank for one in points] == sorted(one.rank or 0 for one in points)
    tried = next(one for one in points if one.hyper == {"lr": 0.2})
    assert tried.score == pytest.approx(folds[3].metrics["auc"])
    assert db.parameters("best")["w"].shape == (3,)
    query = {"query": "SELECT * FROM small", "test_by": "x1"}
    points = db.search("attempts", grid=[{"lr": 0.1}, {}], test_size=0.3, features=FEATURES, label="y", **query)  # type: ignore[arg-type]
    assert len(points) == 2


def test_what_users_named_is_no_markup(
    db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets in names are shown, and style nothing."""
    monkeypatch.setenv("COLUMNS", "200")  # jobs of other tests need room
    db.session.execute('CREATE TABLE "[red]small[/]" AS SELECT * FROM small')
    job = db.start("train", "attempts", '"[red]small[/]"', features=FEATURES, label="y", model="[bold]m[/bold]")
    assert db.wait(job, 60).state == "done"
    assert main(["jobs", "--dsn", pg_uri]) == OK
    printed = capsys.readouterr().out
    assert '"[red]small[/]"' in printed
    assert "[bold]m[/bold]" in printed


def test_sequences_and_numpys_numbers_are_arguments() -> None:
    given = as_sql(
        {
            "features": ("x1", "x2"),
            "hyper": {"lr": np.float32(0.5), "n": np.int64(3)},
            "grid": [{"lr": np.linspace(0, 1, 3), "n": range(2)}],
            "nulls": 0,
            "label": None,
            "design": {"threads": 4},
            "test_after": {"day": date(2024, 3, 1)},
        }
    )
    assert given == {
        "features": ["x1", "x2"],
        "hyper": '{"lr": 0.5, "n": 3}',
        "grid": '[{"lr": [0.0, 0.5, 1.0], "n": [0, 1]}]',
        "nulls": "0",
        "design": '{"threads": 4}',
        "test_after": '{"day": "2024-03-01"}',
    }


def test_jobs(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = db.start("train", "attempts", "small", features=FEATURES, label="y", hyper={"lr": 0.5}, nulls=0)
    done = db.wait(job, 60)
    assert (done.state, done.message) == ("done", None)
    assert done.result is not None
    assert done.result[0]["model"] == "attempts"
    wrong = db.wait(
        db.start("search", "attempts", "small", grid={"lr": ["x"]}, training={"features": FEATURES, "label": "y"})
    )
    assert (wrong.state, wrong.sqlstate) == ("failed", "22000")
    assert [one.id for one in db.jobs()[:2]] == [wrong.id, job]
    assert db.cancel(job) is False
    long = db.start("train", "attempts", "small", features=FEATURES, label="y", epochs=100_000, patience=0)
    assert db.wait(long, 0).state in ("queued", "running")
    assert main(["jobs", "--dsn", pg_uri, "--cancel", str(long)]) == OK
    assert "57014" in capsys.readouterr().out
    assert main(["jobs", "--dsn", pg_uri, "--wait", "0"]) == DATABASE
    assert main(["jobs", "--dsn", pg_uri]) == OK
    assert "version 1, run" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")


def test_the_commands(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--dsn", pg_uri, "--features", "x1,x2,x3", "--label", "y"]
    table = "experiments.small"
    grid = ["--try", "lr=0.001,0.1", "--metric", "auc", "--test-size", "0.3", "--keep", "best"]
    assert main(["search", "attempts", table, *grid, *common]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rank", "lr", "score", "±", "deviation"]
    points = db.search(
        "attempts", "small", grid={"lr": [0.001, 0.1]}, metric="auc", test_size=0.3, features=FEATURES, label="y"
    )
    assert [line.split()[:3] for line in lines[1:]] == [
        [str(one.rank), f"{one.hyper['lr']:g}", f"{one.score:.6g}"] for one in points
    ]
    assert db.parameters("best")["w"].shape == (3,)
    later = ["--try", "lr=0.1", "--test-after", '{"x1": 0}', "--test-by", "x2", "--keep", "later"]
    assert main(["search", "attempts", table, *later, *common]) == OK
    capsys.readouterr()
    counts = db.session.execute("SELECT count(*) FILTER (WHERE x1 > 0) FROM small").fetchone()
    assert counts == (db.evaluate("later")["rows"],)
    assert db.test_rows("later").startswith("COALESCE(x1 ")
    assert main(["train", "attempts", table, "--background", *common]) == OK
    job = int(capsys.readouterr().out.split()[1])
    assert db.wait(job).state == "done"
