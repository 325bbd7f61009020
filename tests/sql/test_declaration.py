"""A training's options are declared once: Python, the command line and the documents have those, and every function
that trains takes them and refuses them alike."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana.cli import main
from dana.client.options import TrainOptions, TrialOptions
from dana.language.trainable import TrainableRule
from dana.server.places import CHECKOUT
from dana.trainer import arrays
from tests.sql.conftest import Session

OWN = {"rule": "text", "source": "regclass"}
"""What the client takes as arguments of their own."""


@pytest.fixture
def declared(session: Session) -> dict[str, str]:
    """Arguments of ``dana_train`` and their types, in order."""
    rows = session.execute(
        "SELECT a.name, format_type(a.type, NULL) FROM pg_proc, unnest(proargnames[:pronargs], proargtypes::oid[])"
        " WITH ORDINALITY AS a (name, type, n) WHERE oid = 'dana_train'::regproc ORDER BY n"
    ).fetchall()
    return dict(rows)


def sql_type(annotated: Any) -> str:
    kind = str(get_args(annotated)[0])
    scalars = {int: "integer", float: "double precision", bool: "boolean"}
    if "Sequence[str]" in kind:
        return "text[]"
    return "jsonb" if "Mapping" in kind else scalars.get(get_args(annotated)[0], "text")


def test_python_has_the_same(declared: dict[str, str]) -> None:
    hints = get_type_hints(TrainOptions, include_extras=True)
    assert OWN | {name: sql_type(hint) for name, hint in hints.items()} == declared
    assert set(TrainOptions.__annotations__) - set(TrialOptions.__annotations__) == {
        "model",
        "test_size",
        "test_after",
        "sync",
        "resume",
        "seed",
    }


NEED_A_TABLE = {
    *("model", "query", "filter", "nulls", "preprocess", "nonfinite", "classes", "warm_start_from"),
    *("test_size", "test_after", "test_by", "early_stopping", "validation_size", "calibrate", "sync", "resume"),
}
"""Options that trainings on arrays lack."""


@pytest.mark.parametrize(("train", "lacks"), [(arrays.train, set()), (TrainableRule.fit, {"features", "label"})])
def test_trainings_on_arrays_have_the_same(train: Callable[..., object], lacks: set[str]) -> None:
    arguments = set(inspect.signature(train).parameters)
    assert TrainOptions.__annotations__.keys() - arguments == NEED_A_TABLE | lacks


@pytest.mark.parametrize(("command", "options"), [("train", TrainOptions), ("search", TrialOptions)])
def test_the_command_line_has_the_same(command: str, options: type, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert {f"--{name.replace('_', '-')}" for name in get_type_hints(options)} <= shown


def test_the_document_has_the_same(declared: dict[str, str]) -> None:
    text = (CHECKOUT / "docs" / "sql-reference.md").read_text(encoding="utf-8")
    section = text.partition("### Options of a training\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE)
    assert rows == list(declared.items())


ROUTES = {
    "dana_train": "dana_train(rule => 'sums', source => 't', {})",
    "dana_train_groups": "dana_train_groups('sums', 't', '{{y}}', %s)",
    "dana_cross_validate": "dana_cross_validate('sums', 't', training => %s)",
    "dana_search": "dana_search('sums', 't', '[{{}}]', training => %s)",
    "dana_explain": "dana_explain('sums', 't', %s)",
    "rule": "dana.sums('t', %s)",
    "job": "",
}
TRIALS = ("dana_cross_validate", "dana_search")

WRONG: dict[str, dict[str, Any]] = {
    "nulls": {"nulls": "sometimes"},
    "nonfinite": {"nonfinite": "x"},
    "no classes": {"classes": []},
    "a class that is null": {"classes": ["a", None]},
    "a feature that is null": {"features": [None]},
    "epochs": {"epochs": 0},
    "epochs that are no number": {"epochs": "many"},
    "epochs with a fraction": {"epochs": 1.5},
    "hyper": {"hyper": []},
    "design": {"design": 7},
    "source and query": {"query": "SELECT 1"},
    "filter": {"filter": "x > 0 ORDER BY x"},
    "test_size": {"test_size": 2},
    "an object for a text": {"label": {"a": 1}},
    "a text for an array": {"features": "x"},
    "unknown": {"colour": "red"},
    "rule": {"rule": "other"},
    "source": {"source": "t"},
}
ONLY_JSON = ("an object for a text", "a text for an array", "unknown", "rule", "source")
"""What SQL says in its own way of named arguments."""


def error_of(session: Session, route: str, options: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    """SQLSTATE, message and hint."""
    try:
        if route == "job":
            (job,) = session.execute(
                "SELECT dana_start('dana_train', %s)", (Jsonb({"rule": "sums", "source": "t"} | options),)
            ).fetchall()[0]
            session.execute("SELECT dana_wait(%s)", (job,))
            return session.execute("SELECT sqlstate, message, hint FROM dana.job WHERE id = %s", (job,)).fetchall()[0]
        call = ROUTES[route]
        if route == "dana_train":
            given = [Jsonb(value) if name in ("hyper", "design") else value for name, value in options.items()]
            named = ", ".join(f"{name} => %s" for name in options)
            session.execute(f"SELECT {call.format(named)}", given)  # type: ignore[arg-type]
        else:
            session.execute(f"SELECT * FROM {call.format()}", (Jsonb(options),))  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error.diag.sqlstate, error.diag.message_primary, error.diag.message_hint
    raise AssertionError(f"{route} takes {options}")


@pytest.fixture
def table(session: Session) -> Session:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 60) i")
    return session


@pytest.mark.parametrize("wrong", WRONG)
def test_every_function_refuses_alike(table: Session, wrong: str) -> None:
    options = WRONG[wrong]
    first = error_of(table, "dana_explain", options)
    assert first[0] != "42883", first
    for route in ROUTES:
        if (route == "dana_train" and wrong in ONLY_JSON) or (route == "job" and wrong in ("rule", "source")):
            continue
        if route in TRIALS and wrong == "test_size":
            continue
        found = error_of(table, route, options)
        if (route, wrong) == ("dana_train", "epochs that are no number"):
            assert found[:2] == first[:2]
        elif (route, wrong) == ("dana_train", "epochs with a fraction"):
            assert found[0] == "42883", "SQL has no implicit cast"
        else:
            assert found == first, route


@pytest.mark.parametrize("training", ["[]", "7", '"x"', "null", "true"])
@pytest.mark.parametrize("route", [route for route in ROUTES if route not in ("dana_train", "job")])
def test_what_is_no_object(table: Session, route: str, training: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as raised:
        table.execute(f"SELECT * FROM {ROUTES[route].format()}", (training,))  # type: ignore[arg-type]
    assert raised.value.diag.message_primary == 'argument "training" must be a JSON object'


def test_null_stands_for_the_default(table: Session, declared: dict[str, str]) -> None:
    """In SQL and in an object, for each option; so it does not matter how a client leaves one out."""
    table.execute("CREATE TABLE plain AS TABLE t")
    options = dict.fromkeys(set(declared) - set(OWN))
    named = ", ".join(f"{name} => NULL" for name in options)
    trial = dict.fromkeys(get_type_hints(TrialOptions))
    for call, expected in (
        (f"dana_train('sums', 't', {named})", "dana_train('sums', 't')"),
        (f"dana.sums('t', '{json.dumps(options)}')", "dana.sums('t')"),
        ("dana.sums('t', NULL)", "dana.sums('t', '{}')"),
    ):
        rows = [table.execute(f"SELECT model, epochs, tuples, loss FROM {one}").fetchall() for one in (call, expected)]
        assert rows[0] == rows[1], call
    for call in (
        "dana_cross_validate('sums', 't', 2, {})",
        "dana_search('sums', 't', '[{{}}]', training => {}, folds => 2)",
    ):
        rows = [
            table.execute(f"SELECT * FROM {call.format(one)}").fetchall()
            for one in ("NULL", "'{}'", f"'{json.dumps(trial)}'")
        ]
        assert rows[0] == rows[1] == rows[2], call
    columns = {"features": ["x"], "label": "y"}
    for call in ("dana_train_groups('sums', 't', '{{y}}', '{}')", "dana_explain('sums', 't', '{}')"):
        counts = [
            table.execute(f"SELECT * FROM {call.format(json.dumps(one))}").rowcount
            for one in (columns, options | columns)
        ]
        assert counts[0] == counts[1] > 1, call
