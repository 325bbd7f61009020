"""docs/python.md is followed to the letter: its cells in one notebook, its commands in one shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
import pytest

from dana import estimator
from dana.cli import main
from dana.cli.entry import OK
from dana.client import asynchronous
from dana.client import connection as client
from dana.server.places import CHECKOUT
from dana.session import frames

TEXT = (CHECKOUT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
pytestmark = [pytest.mark.filterwarnings("ignore::dana.ServerNotice", "ignore::dana.ServerWarning")]


@pytest.fixture
def uri(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that the page takes for the embedded one."""
    connect = client.connect
    for module in (client, asynchronous, estimator):
        monkeypatch.setattr(module, "connect", lambda dsn=None: connect(dsn or pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS members, customers, copied")
        yield pg_uri
        session.execute("DROP TABLE IF EXISTS members, customers, copied")
        session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS each")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule")


def test_the_page(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "python.md", "exec"), names)
        elif "pip install" not in block:
            for line in block.splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "dana"
                if arguments[0] == "report":  # the page has a number as an example
                    arguments[1] = str(names["result"].run)
                assert main([*arguments, "--dsn", uri]) == OK, capsys.readouterr().err
    frame, db = names["frame"], names["db"]
    with db:
        assert 0 < names["result"].tuples < 1000
        # a row in which the model misses a value has no prediction
        assert list(frame["risk"].isna()) == list(frame["age"].isna())
        assert frame["risk"].between(0, 1).sum() == 980
        assert sorted(one.rank for one in names["found"]) == [1, 2]
        assert db.parameters("best")
        assert names["risk"] == pytest.approx(db.predict("every", frame)["prediction"].to_numpy(), rel=1e-4, abs=1e-5)
        assert [one.version for one in db.models("churn")] == [4, 3, 2]
        assert names["churn"].classes_.tolist() == [False, True]
    risks = pd.read_csv("risks.csv")
    assert list(risks.columns) == ["id", "plan", "prediction"]
    assert len(risks) == (frame["age"] > 60).sum()
    assert Path("churn.pmml").read_text(encoding="utf-8").startswith("<?xml")


def test_the_page_names_each_type() -> None:
    types = {*frames.SQL_TYPES.values(), *(kind for _, kind, _ in frames.OBJECTS), "timestamptz", "real[]"}
    assert types <= set(re.findall(r"`([^`\n]+)`", TEXT))
