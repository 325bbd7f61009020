"""What the server says beside its answers reaches Python and the command line, once for each call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import dana
from dana.cli import main
from dana.cli.entry import OK
from dana.client.connection import Connection
from dana.server.places import PAPER
from dana.session.tables import create_table

NOISY = """
CREATE FUNCTION heard.noisy(x double precision) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RAISE {} 'a value was looked at' USING DETAIL = 'It is a number.', HINT = 'Look away.';
    RETURN x;
END $$;
CREATE VIEW heard.watched AS SELECT k, g, heard.noisy(x) AS x, y FROM heard.points
"""
SAID = "a value was looked at\nDetail: It is a number.\nHint: Look away."
OPTIONS: Any = {"features": ["x"], "label": "y", "epochs": 3}
CALLS: dict[str, Callable[[Connection], object]] = {
    "train": lambda db: db.train("heard", "heard.watched", **OPTIONS),
    "train_groups": lambda db: db.train_groups("heard", "heard.watched", group_by=["g"], **OPTIONS),
    "cross_validate": lambda db: db.cross_validate("heard", "heard.watched", test_by="k", folds=2, **OPTIONS),
    "search": lambda db: db.search("heard", "heard.watched", grid={"lr": [0.1]}, test_by="k", folds=2, **OPTIONS),
    "evaluate": lambda db: db.evaluate("heard_model", "heard.watched"),
}


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client in autocommit mode with a schema in which a table, and what is made from it, are its own."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP SCHEMA IF EXISTS heard CASCADE; CREATE SCHEMA heard")
        numbers = np.arange(40, dtype=np.float64)
        columns = {"k": numbers, "g": numbers % 2, "x": numbers - 20, "y": (numbers > 20) * 1.0}
        create_table(session, ["heard", "points"], columns)
        client = Connection(session)
        client.create_rule("heard", dana.load(PAPER / "logistic.py"))
        client.train("heard", "heard.points", model="heard_model", **OPTIONS)
        yield client
        session.execute("DROP SCHEMA heard CASCADE; SELECT dana_drop_rule('heard')")
        session.execute(
            "SELECT dana_drop_model(n) FROM (SELECT DISTINCT name n FROM dana.model WHERE rule = 'heard') m"
        )


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("level", "category"), [("NOTICE", dana.ServerNotice), ("WARNING", dana.ServerWarning), ("INFO", dana.ServerNotice)]
)
def test_a_call_warns_of_what_the_server_said(
    db: Connection, name: str, level: str, category: type[UserWarning]
) -> None:
    db.session.execute(NOISY.format(level).encode())
    with pytest.warns(category) as found:
        CALLS[name](db)
    heard = [(each.category, str(each.message), Path(each.filename).name) for each in found]
    assert heard == [(category, SAID, Path(__file__).name)]  # of forty rows once, where the caller's code is


def test_the_same_line_warns_for_each_call(db: Connection) -> None:
    """Python's own default is once for a line: a notebook's cell that runs again would be silent."""
    db.session.execute(NOISY.format("NOTICE").encode())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            CALLS["train"](db)
    assert [str(each.message) for each in found] == [SAID] * 3


def test_what_was_said_before_an_error_is_not_lost(db: Connection) -> None:
    db.session.execute(NOISY.format("WARNING").encode())
    with pytest.warns(dana.ServerWarning, match="a value was looked at"), pytest.raises(psycopg.Error):
        db.train("heard", query="SELECT x, y, 1 / (k - 30)::int AS z FROM heard.watched", label="y")


def test_epochs_that_somebody_asked_for_are_no_warnings(db: Connection) -> None:
    heard: list[str] = []
    db.session.add_notice_handler(
        lambda said: heard.append(said.message_primary or "") if said.severity != "WARNING" else None
    )
    db.session.execute("SET dana.notices = 'epoch'")
    with warnings.catch_warnings():
        warnings.simplefilter("error", dana.ServerNotice)
        db.train("heard", "heard.points", **OPTIONS)
    assert len(heard) == 1 + OPTIONS["epochs"]


def test_the_command_prints_them(db: Connection, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    db.session.execute(NOISY.format("NOTICE").encode())
    arguments = ["heard", "heard.watched", "--features", "x", "--label", "y", "--epochs", "3", "--dsn", pg_uri]
    assert main(["train", *arguments]) == OK
    assert capsys.readouterr().err == f"notice: {SAID}\n"
    db.session.execute("DROP VIEW heard.watched; DROP FUNCTION heard.noisy")
    db.session.execute(NOISY.format("WARNING").encode())
    assert main(["search", *arguments, "--try", "lr=0.1", "--test-by", "k", "--folds", "2"]) == OK
    assert capsys.readouterr().err == f"warning: {SAID}\n"


def test_the_compiler_s_warnings_name_the_file(
    db: Connection, pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "heard.py"
    text = (PAPER / "logistic.py").read_text()
    text = text.replace("setModel(w -", "setModel(w, w -").replace("dana.algo(w,", "dana.algo(w, b,")
    file.write_text(text.replace("logistic = dana.algo", "b = dana.model()\nlogistic = dana.algo"))
    assert main(["train", str(file), "heard.points", "--features", "x", "--label", "y", "--dsn", pg_uri]) == OK
    said = capsys.readouterr().err
    assert "warning[W702]: the model b is never updated\n" in said
    assert (said.count("W702"), said.count(f"--> {file}:")) == (1, 1)


def test_values_that_are_no_numbers_are_told(db: Connection) -> None:
    """The server's own words, not those of a function above."""
    db.session.execute("UPDATE heard.points SET x = 'NaN' WHERE k = 3")
    with pytest.warns(UserWarning, match="(?i)nan|infinit|finite"):
        db.train("heard", "heard.points", nonfinite="skip", **OPTIONS)
