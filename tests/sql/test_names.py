"""Names and texts of users are data: whatever they hold, they reach no statement, file or shell."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.sql.conftest import SUMS, Session

errors = psycopg.errors

NAMES = (
    '"; DROP TABLE test.witness; --',
    "'; DROP TABLE test.witness; --",
    "$$; DROP TABLE test.witness; $$",
    "$(touch WITNESS)",
    "../../../..WITNESS",
    "a\\nb\\t\\\\",
    "line\nbreak",
    '{"a": 1}, [',
    "%s %n {0}",
    "Größe in cm",
)


@pytest.fixture
def witness() -> Iterator[Path]:
    """A file that is not there, where server and worker could make it; WITNESS in a text stands for it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder) / "w"
        assert os.listdir(folder) == []


def identifier(name: str) -> str:
    """A quoted name; its percent signs doubled, as psycopg has them in statements with arguments."""
    return sql.Identifier(name).as_string().replace("%", "%%")


@pytest.mark.parametrize("name", NAMES)
def test_names_that_look_like_something_else(session: Session, name: str, witness: Path) -> None:
    """As a rule, a model, a table, a column, a class, and in a comment."""
    name = name.replace("WITNESS", str(witness))
    session.execute("CREATE TABLE witness (a int)")
    named = {key: identifier(name + key) for key in ("", "x", "y")}
    table, feature, label = named.values()
    session.execute(f"CREATE TABLE {table} ({feature} real, {label} text)", ())
    session.execute(f"INSERT INTO {table} VALUES (1, %s), (2, 'other')", (name,))
    session.execute("SELECT dana_create_udf(%s, %s)", (name, SUMS))
    try:
        call = "SELECT tuples FROM dana_train(%s, %s::text::regclass, %s, features => %s, label => %s, classes => %s)"
        arguments = (name, sql.Identifier(name).as_string(), name, [name + "x"], name + "y", [name, "other"])
        assert session.execute(call, arguments).fetchone() == (2,)
        training = {"features": [name + "x"], "label": name + "y", "classes": [name, "other"]}
        own = f"SELECT tuples FROM dana.{table}(%s::text::regclass, %s)"
        assert session.execute(own, (arguments[1], Jsonb(training | {"model": name}))).fetchone() == (2,)
        session.execute("SELECT dana_comment_model(%s, %s)", (name, name))
        row = session.execute(
            "SELECT metadata -> 'features' ->> 0, metadata -> 'classes' ->> 0, comment, rule FROM dana.model"
            " WHERE name = %s AND version = 2",
            (name,),
        ).fetchone()
        assert row == (name + "x", name, name, name)
        found = session.execute("SELECT dana_evaluate(%s) ->> 'rows'", (name,)).fetchone()
        assert found == ("2",)
        grouped = "SELECT model FROM dana_train_groups(%s, %s::text::regclass, %s, %s)"
        made = session.execute(grouped, (*arguments[:2], [name + "y"], Jsonb(training | {"model": name}))).fetchall()
        assert len(made) == 2
        for group in made:  # which has a condition on the rows
            assert session.execute("SELECT dana_evaluate(%s) ->> 'rows'", group).fetchone() == ("1",)
        # the column decides on the folds, and so is part of a statement
        tried = "SELECT tested FROM dana_cross_validate(%s, training => %s, folds => 2)"
        training |= {"query": f"TABLE {table.replace('%%', '%')}", "test_by": name + "x"}
        folds = session.execute(tried, (name, Jsonb(training))).fetchall()
        assert len(folds) == 4
        with pytest.raises(errors.UndefinedColumn, match="does not exist"):
            session.execute(call, (*arguments[:3], [name], *arguments[4:]))
    finally:
        session.execute("SELECT dana_drop_rule(%s)", (name,))
        session.execute("SELECT dana_drop_model(%s)", (name,))
    assert session.execute("SELECT to_regclass('test.witness')").fetchone() != (None,)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("machine", "../../bin/sh"),
        ("machine", "rtl; touch WITNESS"),
        ("design", '{"device": "../../../../etc/passwd"}'),
        ("design", '{"device": "/etc/passwd"}'),
        ("design", '{"threads": "__import__(\'os\')"}'),
        ("design", '{"os": 1}'),
        ("hyper", '{"__class__": 1}'),
        ("hyper", '{"n": "eval"}'),
    ],
)
def test_arguments_of_the_worker(session: Session, argument: str, value: str, witness: Path) -> None:
    value = value.replace("WITNESS", str(witness))
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    with pytest.raises(errors.InvalidParameterValue):
        session.execute(f"SELECT dana_train('sums', 't', {argument} => %s)", (value,))
