"""The tutorial is followed to the letter: its files written, its commands run, its claims looked up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import dana
from dana import demo
from dana.cli import main
from dana.cli.entry import OK
from dana.client import Connection
from dana.server.places import CHECKOUT, PAPER
from dana.tables import create_table
from dsl import Rule

TEXT = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
TABLES = ("cancer", "cancer_test")


@pytest.fixture
def uri(pg_uri: str) -> Iterator[str]:
    """A server as the demonstration leaves it, but for its other table."""
    task = next(task for task in demo.tasks() if task.table == TABLES[0])
    parts = task.data.split(test_share=task.test_share, seed=demo.SEED)
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS cancer, cancer_test CASCADE")
        for name, rows in zip(TABLES, parts, strict=True):
            create_table(session, name, rows.columns())
        Connection(session).create_rule(demo.RULE, dana.load(PAPER / f"{demo.RULE}.py"))
        yield pg_uri
        session.execute("DROP TABLE cancer, cancer_test CASCADE")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule WHERE name IN ('logistic', 'careful', 'slope')")
        session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS each")


def run_sql(session: psycopg.Connection[tuple[object, ...]], block: str) -> list[list[tuple[object, ...]]]:
    """Rows of every statement that gives some."""
    cursor = session.execute(block.encode())
    found = []
    while True:
        if cursor.description is not None:
            found.append(cursor.fetchall())
        if not cursor.nextset():
            return found


def test_the_tutorial(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sql: list[list[tuple[object, ...]]] = []
    with psycopg.connect(uri, autocommit=True) as session:
        for language, block in BLOCKS:
            if language == "sql":
                sql += run_sql(session, block)
            elif language == "python" and "careful =" in block:
                Path("careful.py").write_text(block, encoding="utf-8")
            elif language == "sh" and "make demo" not in block:
                for command in block.splitlines():
                    program, *arguments = shlex.split(command)
                    assert program == ".venv/bin/dana"
                    on_server = ["--dsn", uri] if arguments[0] == "train" else []
                    assert main([*arguments, *on_server]) == OK, capsys.readouterr().err
    assert Path("careful.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert "careful.py: rule careful, no errors" in capsys.readouterr().out
    trained, curve, predicted, plain, anxious, evaluated, parameters, risks = sql
    assert trained[0][:3] == ("first", 1, 20)
    assert [row[0] for row in curve] == list(range(1, 21))
    assert float(str(curve[-1][1])) < float(str(curve[0][1]))
    assert len(predicted) == len(risks) == 5
    assert (plain[0][0], anxious[0][0]) == ("plain", "anxious")
    assert [row[0] for row in parameters][:2] == ["w", "b"]
    results = {row[0]: (int(str(row[1])), int(str(row[2])), float(str(row[3]))) for row in evaluated}
    assert results["anxious"][0] <= results["plain"][0]
    assert results["anxious"][1] > results["plain"][1]
    assert results["careful"][2] > 0.9


def test_the_error_shown_is_what_check_says() -> None:
    rule = next(block for language, block in BLOCKS if language == "python").replace("dana.sigmoid", "dana.sigmod")
    shown = next(block for language, block in BLOCKS if language == "text")
    assert Rule(rule, filename="careful.py").report + "\n" == shown


def test_the_notebook_s_cell(uri: str, tmp_path: Path) -> None:
    cell = [block for language, block in BLOCKS if language == "python"][-1]
    file = tmp_path / "cell.py"
    file.write_text(cell.replace("dana.connect()", f"dana.connect({uri!r})"), encoding="utf-8")
    names: dict[str, object] = {"__name__": "cell", "__file__": str(file)}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    assert repr(names["slope"]).startswith("<Rule least(w, x, y)")
